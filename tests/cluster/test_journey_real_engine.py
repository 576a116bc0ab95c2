"""One journey with a real vLLM behind the pods and the load client in the Job: promoted by the gate, and rolled
back exactly."""

import json

import pytest
import yaml

from mpctl.local.engine import installed_version
from mpctl.platform.kubernetes.service.manifest_text import text_of

from .conftest import ROOT
from .measurement import LOCAL
from .objects import ANY_SPEED, CONTAINERS
from .rig.nodes import L4
from .test_request_path import drained, own_route
from .test_users import Users, nothing_left

# The scheduler wants a bound claim; which folder it is, the rig's kubelet is told.
CLAIMED = """\
apiVersion: v1
kind: PersistentVolume
metadata: {name: @NAMESPACE@-models}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadOnlyMany]
  storageClassName: ""
  hostPath: {path: /models}
  claimRef: {namespace: @NAMESPACE@, name: models}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: models}
spec:
  accessModes: [ReadOnlyMany]
  storageClassName: ""
  volumeName: @NAMESPACE@-models
  resources: {requests: {storage: 1Gi}}
"""


def service():
    """The demo's model from a claim."""
    record = yaml.safe_load(CONTAINERS)
    spec = record["spec"]["predictor"]
    spec["volumes"] = [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}]
    (container,) = spec["containers"]
    container["args"] = [
        "--model=/mnt/models",
        "--served-model-name=demo",
        "--port=8080",
        "--max-model-len=2048",
    ]
    container["args"] += ["--max-num-seqs=4", "--enforce-eager"]
    container["volumeMounts"] = [{"name": "models", "mountPath": "/mnt/models"}]
    return record


@pytest.mark.engine
def test_a_real_engine_is_measured_promoted_and_rolled_back_exactly(
    cluster, namespace, mpctl, tmp_path
):
    cluster.pods.rule(lambda pod: {"engine": "real"})
    cluster.pods.claims["models"] = ROOT / "scripts" / "demo_model" / "model"
    namespace.kubectl("apply", "-f", "-", stdin=CLAIMED.replace("@NAMESPACE@", namespace.name))
    namespace.deploy(service(), timeout_s=600)
    before = text_of(namespace.client.get("isvc", "demo"))

    policy = tmp_path / "policy.yaml"
    policy.write_text(ANY_SPEED)
    few = ("--requests", "4", "--repeats", "4", "--max-tokens", "64", "--policy", str(policy))
    done = mpctl("rollout", "--spec", "ngram", *few)
    assert "promoted: service" in done.stderr
    (argv,) = namespace.argv()
    assert any(word.startswith("--speculative-config") for word in argv)
    (item,) = mpctl.json("status")["items"]
    assert item["status"]["state"] == "Ready"
    assert item["status"]["speculation"].startswith("ngram")
    (arm,) = item["status"]["arms"]
    assert any(word.startswith("--speculative-config") for word in arm["command"])
    report = json.loads(mpctl("report", "rollout-1", "-o", "json").stdout)
    assert report["gate"]["outcome"] == "promote"
    assert report["client"]["requests"] > 0  # calibrated in the Job's pod
    versions = {
        report["conditions"][side]["engineVersion"].partition("+")[0]
        for side in ("baseline", "candidate")
    }
    assert versions == {str(installed_version()).partition("+")[0]}
    (cell,) = report["cells"]
    rules = {rule["rule"]: rule for rule in cell["rules"]}
    assert (
        rules["comparable"]["outcome"] == rules["outputs"]["outcome"] == "pass"
    )  # the client's figures are the engine's
    assert rules["tokens per step"]["value"] > 1.5  # an edit repeats most of its prompt
    assert namespace.jobs_made() == 1

    mpctl("rollback")
    assert text_of(namespace.client.get("isvc", "demo")) == before
    (argv,) = namespace.argv()
    assert not any(word.startswith("--speculative-config") for word in argv)
    assert [op["ending"] for op in mpctl.json("history")["operations"]] == [
        "promoted",
        "rolled back",
    ]


@pytest.mark.engine
@pytest.mark.nightly
def test_users_of_a_real_engine_lose_nothing_while_copies_beside_it_are_measured(
    cluster, namespace, mpctl, tmp_path
):
    cluster.pods.rule(lambda pod: {"engine": "real"})
    cluster.pods.claims["models"] = ROOT / "scripts" / "demo_model" / "model"
    spare = cluster.add_node(L4)
    namespace.kubectl("apply", "-f", "-", stdin=CLAIMED.replace("@NAMESPACE@", namespace.name))
    record = drained(yaml.safe_dump(service()))  # a pod ends after its last request
    record["spec"]["predictor"] |= {"minReplicas": 1, "maxReplicas": 1}
    namespace.deploy(record, timeout_s=600)
    host = own_route(namespace, "demo-predictor")
    policy = tmp_path / "policy.yaml"
    policy.write_text(ANY_SPEED)
    few = ("--requests", "4", "--repeats", "8", "--max-tokens", "64", "--policy", str(policy))
    with Users(cluster, host, "demo", rate=0.5, echoed=False) as users:
        namespace.client.wait("users are answered", lambda: users.answered > 3)
        mpctl.environment["MPCTL_USERS_WINDOW"] = "10s"
        done = mpctl("rollout", "--spec", "ngram", *few, *LOCAL)
        mpctl("rollback")
    cluster.remove_node(spare)
    assert "promoted: service" in done.stderr
    assert users.failed == [] and users.answered > 20
    nothing_left(namespace, "demo")
    report = mpctl.json("report", "rollout-1")
    assert [
        note for note in report["notes"] if "copy of the baseline" in note and "users send" in note
    ]
    (cell,) = report["cells"]
    outcomes = {rule["rule"]: rule["outcome"] for rule in cell["rules"]}
    assert outcomes["comparable"] == "pass"  # users are on none of the copies
