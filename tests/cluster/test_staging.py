"""Staged services before the real KServe 0.20: what the plans write is admitted and mounted, what the rules refuse is
refused or, where a rule says so, accepted and not served."""

import pytest
import yaml
from kserve_rules import problems

from mpctl.manifest import load
from mpctl.manifest.draft_storage import DRAFT_MOUNT, without_draft
from mpctl.methods import build
from mpctl.staging.modes import DraftSource, StagingFacts
from mpctl.staging.planner import plan_staging

from .objects import MODEL
from .rig.api import ApiError

KNOWN = StagingFacts("0.20.0", claim="models", shared=True, registry="registry.example/models")
URI = "      storageUri: hf://org/target\n"
TARGETS = {
    "hf": MODEL,
    "claim": MODEL.replace(URI, "      storageUri: pvc://models\n"),
    "folder": MODEL.replace(URI, "      storageUri: pvc://models/target\n"),
    "image": MODEL.replace(URI, "      storageUri: oci://registry.example/target:1\n"),
}
PLANS = [
    (target, mode)
    for target in TARGETS
    for mode in ("storageUris", "pvc", "oci", "engine")
    if not (target == "folder" and mode in ("storageUris", "oci"))
    and not (target != "hf" and mode == "engine")
]


def pod_of(namespace):
    """A pod as the API server has it: KServe's webhook mounts storageUri there, not in the Deployment."""
    pods = namespace.client.wait("a pod of the service", lambda: namespace.client.list("pods"))
    return pods[0]["spec"]


@pytest.mark.parametrize(("target", "mode"), PLANS)
def test_a_staged_service_is_admitted_and_its_draft_mounted(namespace, target, mode):
    plan = plan_staging(load(TARGETS[target])[0], DraftSource("org/draft"), KNOWN, mode=mode)
    spec, _ = build("eagle3", draft=plan.path)
    rolled = plan.service.with_speculation(spec.config())
    namespace.client.apply(rolled.text)
    pod = pod_of(namespace)
    engine = next(
        container for container in pod["containers"] if container["name"] == "kserve-container"
    )
    mounts = {mount["mountPath"] for mount in engine["volumeMounts"]}
    containers = pod.get("initContainers", []) + pod["containers"]
    words = [word for container in containers for word in container.get("args", [])]
    assert any(plan.path in word for word in engine["args"])
    if mode == "storageUris":
        assert "hf://org/draft" in words
        assert DRAFT_MOUNT in words
        assert mounts & {"/mnt", DRAFT_MOUNT}
    elif mode == "pvc":
        assert any(plan.path.startswith(mount) for mount in mounts)
    elif mode == "oci":
        assert DRAFT_MOUNT.rpartition("/")[0] in mounts
        assert any(f"/proc/$$$$/root/models {DRAFT_MOUNT}" in word for word in words)
    # the target is where the runtime looks for it
    assert "--model=/mnt/models" in engine["args"]
    assert any("/mnt/models".startswith(mount) for mount in mounts)
    restored = without_draft(rolled).with_speculation(None)
    namespace.client.apply(restored.text)
    assert restored.storage == load(TARGETS[target])[0].storage


def broken(**predictor):
    record = yaml.safe_load(MODEL)
    record["spec"]["predictor"]["model"].pop("storageUri")
    record["spec"]["predictor"].update(predictor)
    return record


def uris(*pairs):
    return {"storageUris": [{"uri": uri, "mountPath": path} for uri, path in pairs]}


REFUSED = (uris(("hf://a/t", "/other/x"), ("hf://a/d", "/mnt/models/draft")),)
SILENT = (
    uris(("pvc://x/folder", "/mnt/models")),
    uris(("oci://r/t:1", "/mnt/models/target"), ("oci://r/d:1", "/mnt/models/draft")),
    uris(("pvc://x", "/Models_1")),
)


def test_the_server_refuses_what_the_staging_rules_refuse(namespace):
    for predictor in REFUSED:
        record = broken(**predictor)
        staging_problems = problems(record, "0.20")
        assert staging_problems, predictor
        assert not any(problem.silent for problem in staging_problems), predictor
        with pytest.raises(ApiError) as caught:
            namespace.client.apply(record)
        assert 400 <= caught.value.status < 500, predictor
        assert namespace.client.find("isvc", "demo") is None, predictor


def test_the_server_admits_what_the_staging_rules_call_silent(namespace):
    for predictor in SILENT:
        record = broken(**predictor)
        staging_problems = problems(record, "0.20")
        assert staging_problems, predictor
        assert all(problem.silent for problem in staging_problems), predictor
        namespace.client.apply(record)
