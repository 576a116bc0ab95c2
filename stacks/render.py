"""Print Kubernetes documents without Terraform: `python -m stacks.render [serving|platform|services]`.

For `kubectl diff`, for scanners and for reading. The identifier of the model volume is known only after the cluster
layer, so a name stands in for it.
"""

from __future__ import annotations

import datetime as dt
import os
import sys

import yaml

from mpctl.errors import MpctlError
from stacks.clouds import CLOUDS
from stacks.driver_installer import daemonset
from stacks.main import load_fleet, load_settings, plans, told
from stacks.manifests import Document
from stacks.platform import engine_logs, gpu_driver, pause_image
from stacks.serving import documents, first_services
from stacks.storage import storage_classes


def render(what: str) -> list[Document]:
    """The documents of every chosen cluster, each object once."""
    # Nothing printed here depends on who reaches the API, so nobody has to say it.
    environ = {"MPCTL_PUBLIC_CIDRS": "127.0.0.1/32", **os.environ}
    settings = load_settings(environ)
    rendered: list[Document] = []
    for plan in plans(environ, settings, load_fleet(environ), dt.date.today()):
        if what == "services":
            rendered += first_services(plan)
        elif what == "platform":
            rendered += storage_classes(plan, f"{plan.name}-model-volume")
            rendered += engine_logs(plan)
            if CLOUDS[plan.cluster.provider].driver_installer:
                rendered.append(daemonset(pause_image(plan), gpu_driver(plan)))
        else:
            rendered += documents(plan)
    return rendered


class Plain(yaml.SafeDumper):
    """YAML without anchors: what occurs twice is written twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def main() -> int:
    what = sys.argv[1] if len(sys.argv) > 1 else "serving"
    try:
        sys.stdout.write(yaml.dump_all(render(what), Dumper=Plain, sort_keys=False, width=120))
    except MpctlError as error:
        return told(error)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
