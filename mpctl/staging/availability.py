"""Why a way of staging cannot be taken for a service and a cluster; None when it can. Unknown is never possible."""

from __future__ import annotations

from collections.abc import Callable

from mpctl.manifest.storage.edits import DRAFT_MOUNT
from mpctl.staging.kserve import (
    NATIVE,
    NATIVE_KUBERNETES,
    OCI_BESIDE,
    OCI_ENTRY,
    STORAGE_URIS,
    common_parent,
    is_oci,
)
from mpctl.staging.modes import DOWNLOADS, Situation


def _not_kserve(facts: Situation) -> str | None:
    if facts.service.kind != "InferenceService":
        return f"a {facts.service.kind} is not staged by KServe"
    return None


def _no_present(facts: Situation) -> str | None:
    return None if facts.draft.is_path else f"{facts.draft.name} is a source, not a path in the container"


def _no_entry(facts: Situation) -> str | None:
    found = _not_kserve(facts)
    if found or facts.draft.is_path:
        return found or "a path needs no staging"
    if not facts.draft.uri.startswith(DOWNLOADS):
        return f"KServe's initializer does not fetch {facts.draft.uri}"
    found = _no_list(facts)
    if found:
        return found
    if facts.cluster.air_gapped:
        return "the pod would download at every start, and the cluster is air-gapped"
    if any(is_oci(one.uri) for one in facts.storage) and facts.kserve is not None and facts.kserve < OCI_BESIDE:
        return "beside an image, KServe before 0.20 leaves other entries out"
    return _no_disk(facts)


def _no_list(facts: Situation) -> str | None:
    """Whether ``storageUris`` can be used at all."""
    if facts.kserve is None:
        return "KServe's version is not known (--kserve)"
    if facts.kserve < STORAGE_URIS:
        return f"storageUris came with KServe 0.16, this is {facts.cluster.kserve}"
    if facts.env_storage:
        return "the container's STORAGE_URI excludes storageUris; move it to storageUris first"
    if not facts.listed and facts.target_claim and facts.target_claim[1]:
        return f"pvc://{'/'.join(facts.target_claim)} cannot move to storageUris: there the claim's root is mounted"
    if any(one.mount_path == DRAFT_MOUNT for one in facts.storage):
        return f"{DRAFT_MOUNT} is taken already"
    beside = [one.mount_path for one in facts.storage if not one.uri.startswith("pvc://")]
    if beside and common_parent([*beside, DRAFT_MOUNT]) == "/":
        return f"KServe wants one directory above {', '.join(beside)} and {DRAFT_MOUNT}"
    return None


def _no_disk(facts: Situation) -> str | None:
    free = facts.cluster.node_disk_gib
    # Of two sizes the one that is known is a lower bound.
    needed = facts.downloaded_gib or facts.draft.size_gib
    if free is None or needed is None:
        return None
    return None if needed <= free else f"{needed:.0f} GiB at every start do not fit on {free:.0f} GiB of node disk"


def _no_claim(facts: Situation) -> str | None:
    found = _not_kserve(facts)
    if found or facts.draft.is_path:
        return found or "a path needs no staging"
    if facts.draft.uri.startswith("pvc://"):
        return None
    if not facts.draft.uri.startswith(DOWNLOADS):
        return f"a download Job does not fetch {facts.draft.uri}"
    return None if facts.claim else "no volume claim is known (--claim)"


def _no_image_entry(facts: Situation) -> str | None:
    found = _not_kserve(facts)
    if found or facts.draft.is_path:
        return found or "a path needs no staging"
    if not is_oci(facts.draft.uri) and facts.cluster.registry is None:
        return "no registry is known to push an image to (--registry)"
    if facts.draft.uri.startswith("pvc://"):
        return "the draft lies on a volume claim"
    return None


def _no_oci(facts: Situation) -> str | None:
    found = _no_image_entry(facts) or _no_list(facts)
    if found:
        return found
    assert facts.kserve is not None
    if facts.kserve < OCI_ENTRY:
        return f"an image in storageUris is mounted since KServe 0.19, this is {facts.cluster.kserve}"
    if facts.storage and facts.kserve < OCI_BESIDE:
        return f"an image beside another entry is served since KServe 0.20, this is {facts.cluster.kserve}"
    return None


def _no_native(facts: Situation) -> str | None:
    found = _no_image_entry(facts) or _no_list(facts)
    if found:
        return found
    assert facts.kserve is not None
    if facts.kserve < NATIVE:
        return f"oci+native:// came with KServe 0.20, this is {facts.cluster.kserve}"
    if facts.kubernetes is None:
        return "Kubernetes' version is not known (--kubernetes)"
    if facts.kubernetes < NATIVE_KUBERNETES:
        return f"image volumes with a sub-path need Kubernetes 1.33, this is {facts.cluster.kubernetes}"
    return None


def _no_combined(facts: Situation) -> str | None:
    found = _not_kserve(facts)
    if found or facts.draft.is_path:
        return found or "a path needs no staging"
    if facts.cluster.registry is None:
        return "no registry is known to push an image to (--registry)"
    if is_oci(facts.draft.uri):
        return "the draft is an image already"
    held = facts.target
    if held is None or facts.env_storage:
        return "the target does not come through storageUri or storageUris"
    if held.uri.startswith("pvc://") or facts.draft.uri.startswith("pvc://"):
        return "target or draft lie on a volume claim"
    if len(facts.storage) > 1:
        return "the service has several artifacts already"
    if facts.listed and (facts.kserve is None or facts.kserve < OCI_ENTRY):
        return "an image in storageUris is mounted since KServe 0.19"
    return None


def _no_engine(facts: Situation) -> str | None:
    if not facts.draft.uri.startswith("hf://"):
        return f"the engine itself fetches from Hugging Face alone, not {facts.draft.name}"
    if facts.cluster.air_gapped:
        return "the engine would download at every start, and the cluster is air-gapped"
    if facts.offline:
        return f"{facts.offline} is set in the container"
    return _no_disk(facts)


OBSTACLES: dict[str, Callable[[Situation], str | None]] = {
    "present": _no_present,
    "storageUris": _no_entry,
    "pvc": _no_claim,
    "oci": _no_oci,
    "oci+native": _no_native,
    "image": _no_combined,
    "engine": _no_engine,
}
