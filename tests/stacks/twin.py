"""A two-layer app of `terraform_data`: what test_cli.py deploys for real. Same builder, same backends, no
provider.
"""

from __future__ import annotations

import os

from infra import builder, core
from stacks import backends
from stacks.settings import Backend


def main() -> None:
    state = Backend("local", None, None, "mpctl", None, os.environ["TWIN_STATE"])
    app = core.App()
    cluster = core.TerraformStack(app, "twin-cluster")
    backends.use(cluster, state, "twin-cluster")
    name = builder.resource(
        cluster, "terraform_data", "main", input=os.environ.get("TWIN_NAME", "twin")
    )
    builder.output(cluster, "cluster_name", name["output"])
    serving = core.TerraformStack(app, "twin-serving")
    serving.add_dependency(cluster)
    backends.use(serving, state, "twin-serving")
    backends.remote(serving, state, "twin-cluster").override_logical_id("cluster")
    text = "${data.terraform_remote_state.cluster.outputs.cluster_name}"
    resource = builder.resource(
        serving, "terraform_data", "main", input={"name": text, "pools": [{"min": 1, "max": 4}]}
    )
    builder.output(serving, "seen", resource["output.name"])
    app.synth()


if __name__ == "__main__":
    main()
