"""A draft of its own in one command: chosen, staged beside the target, and removed exactly by rollback."""

from contextlib import contextmanager
from dataclasses import replace

import yaml

from mpctl.manifest.draft_storage import DRAFT_MOUNT
from mpctl.platform.kubernetes.service.manifest_text import text_of

from .objects import MODEL
from .unmeasured import Unmeasured

TARGET = "hf://Qwen/Qwen3-8B"
HEAD = "hf://RedHatAI/Qwen3-8B-speculator.eagle3"
CONTROLLER = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: kserve-controller-manager, namespace: kserve, labels: {control-plane: kserve-controller-manager}}
spec:
  replicas: 0
  selector: {matchLabels: {control-plane: kserve-controller-manager}}
  template:
    metadata: {labels: {control-plane: kserve-controller-manager}}
    spec:
      containers:
        - {name: kube-rbac-proxy, image: "quay.io/brancz/kube-rbac-proxy:v0.13.1"}
        - {name: manager, image: "kserve/kserve-controller:v0.20.0"}
"""


@contextmanager
def controller(cluster):
    """KServe's Deployment as its installation leaves it; the rig runs the controller as a process."""
    cluster.client.apply(CONTROLLER)
    try:
        yield
    finally:
        cluster.client.within("kserve").delete("deployments", "kserve-controller-manager")


def live(namespace):
    return text_of(namespace.client.get("isvc", "demo"))


def test_a_draft_is_chosen_and_staged_in_one_command_and_rolled_back_exactly(
    cluster, namespace, mpctl
):
    mpctl = Unmeasured(replace(mpctl, environment=mpctl.environment | {"HF_HUB_OFFLINE": "1"}))
    namespace.deploy(MODEL.replace("hf://org/target", TARGET))
    before = live(namespace)
    with controller(cluster):
        done = mpctl("rollout", "--spec", "eagle3", "--requests", "4", "--max-tokens", "16")
    assert f"draft {HEAD.removeprefix('hf://')}: first draft of Qwen/Qwen3-8B" in done.stderr
    assert f"does {HEAD.removeprefix('hf://')} fit Qwen/Qwen3-8B" in done.stderr
    assert "promoted: service" in done.stderr
    predictor = yaml.safe_load(live(namespace))["spec"]["predictor"]
    assert "storageUri" not in predictor["model"]
    assert [(entry["uri"], entry["mountPath"]) for entry in predictor["storageUris"]] == [
        (TARGET, "/mnt/models"),
        (HEAD, DRAFT_MOUNT),
    ]
    (argv,) = namespace.argv()
    assert any("eagle3" in word and DRAFT_MOUNT in word for word in argv), argv
    mpctl("rollback")
    assert live(namespace) == before


def test_a_staged_draft_leaves_by_spec_none_and_the_manifest_is_as_before(
    cluster, namespace, mpctl
):
    mpctl = Unmeasured(replace(mpctl, environment=mpctl.environment | {"HF_HUB_OFFLINE": "1"}))
    namespace.deploy(MODEL.replace("hf://org/target", TARGET))
    before = live(namespace)
    with controller(cluster):
        mpctl("rollout", "--spec", "eagle3", "--strategy", "in-place")
    assert "storageUri" not in yaml.safe_load(live(namespace))["spec"]["predictor"]["model"]
    mpctl("rollout", "--spec", "none", "--strategy", "in-place")
    assert live(namespace) == before
