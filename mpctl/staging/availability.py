"""The reason why a staging mode is unavailable for a service and a cluster, else None. Unknown is unavailable."""

from __future__ import annotations

from collections.abc import Callable

from mpctl.manifest.storage.cuts import DRAFT_MOUNT
from mpctl.staging.kserve import (
    NATIVE,
    NATIVE_KUBERNETES,
    OCI_BESIDE,
    OCI_ENTRY,
    STORAGE_URIS,
    common_parent,
    is_oci,
)
from mpctl.staging.modes import DOWNLOADS, StagingContext


def _not_kserve(context: StagingContext) -> str | None:
    if context.service.kind != "InferenceService":
        return f"a {context.service.kind} is not staged by KServe"
    return None


def _no_present(context: StagingContext) -> str | None:
    return None if context.draft.is_path else f"{context.draft.name} is a source, not a path in the container"


def _no_entry(context: StagingContext) -> str | None:
    reason = _not_kserve(context)
    if reason or context.draft.is_path:
        return reason or "a path needs no staging"
    if not context.draft.uri.startswith(DOWNLOADS):
        return f"KServe's initializer does not fetch {context.draft.uri}"
    reason = _no_list(context)
    if reason:
        return reason
    if context.cluster.air_gapped:
        return "the pod would download at every start, and the cluster is air-gapped"
    if (
        any(is_oci(storage.uri) for storage in context.storage)
        and context.kserve is not None
        and context.kserve < OCI_BESIDE
    ):
        return "beside an image, KServe before 0.20 leaves other entries out"
    return _no_disk(context)


def _no_list(context: StagingContext) -> str | None:
    """The reason why ``storageUris`` cannot be used at all."""
    if context.kserve is None:
        return "KServe's version is not known (--kserve)"
    if context.kserve < STORAGE_URIS:
        return f"storageUris came with KServe 0.16, this is {context.cluster.kserve}"
    if context.env_storage:
        return "the container's STORAGE_URI excludes storageUris; move it to storageUris first"
    if not context.listed and context.target_claim and context.target_claim[1]:
        return f"pvc://{'/'.join(context.target_claim)} cannot move to storageUris: there the claim's root is mounted"
    if any(storage.mount_path == DRAFT_MOUNT for storage in context.storage):
        return f"{DRAFT_MOUNT} is taken already"
    beside = [storage.mount_path for storage in context.storage if not storage.uri.startswith("pvc://")]
    if beside and common_parent([*beside, DRAFT_MOUNT]) == "/":
        return f"KServe wants one directory above {', '.join(beside)} and {DRAFT_MOUNT}"
    return None


def _no_disk(context: StagingContext) -> str | None:
    free = context.cluster.node_disk_gib
    # Of two sizes the one that is known is a lower bound.
    needed = context.downloaded_gib or context.draft.size_gib
    if free is None or needed is None:
        return None
    return None if needed <= free else f"{needed:.0f} GiB at every start do not fit on {free:.0f} GiB of node disk"


def _no_claim(context: StagingContext) -> str | None:
    source = context.service.source
    mountable = source is not None and source.pod is not None
    reason = None if mountable else f"a {context.service.kind} has no volumes that can be changed"
    if reason or context.draft.is_path:
        return reason or "a path needs no staging"
    if context.draft.uri.startswith("pvc://"):
        return None
    if not context.draft.uri.startswith(DOWNLOADS):
        return f"a download Job does not fetch {context.draft.uri}"
    return None if context.claim else "no volume claim is known (--claim)"


def _no_image_entry(context: StagingContext) -> str | None:
    reason = _not_kserve(context)
    if reason or context.draft.is_path:
        return reason or "a path needs no staging"
    if not is_oci(context.draft.uri) and context.cluster.registry is None:
        return "no registry is known to push an image to (--registry)"
    if context.draft.uri.startswith("pvc://"):
        return "the draft lies on a volume claim"
    return None


def _no_oci(context: StagingContext) -> str | None:
    reason = _no_image_entry(context) or _no_list(context)
    if reason:
        return reason
    assert context.kserve is not None
    if context.kserve < OCI_ENTRY:
        return f"an image in storageUris is mounted since KServe 0.19, this is {context.cluster.kserve}"
    if context.storage and context.kserve < OCI_BESIDE:
        return f"an image beside another entry is served since KServe 0.20, this is {context.cluster.kserve}"
    return None


def _no_native(context: StagingContext) -> str | None:
    reason = _no_image_entry(context) or _no_list(context)
    if reason:
        return reason
    assert context.kserve is not None
    if context.kserve < NATIVE:
        return f"oci+native:// came with KServe 0.20, this is {context.cluster.kserve}"
    if context.kubernetes is None:
        return "Kubernetes' version is not known (--kubernetes)"
    if context.kubernetes < NATIVE_KUBERNETES:
        return f"image volumes with a sub-path need Kubernetes 1.33, this is {context.cluster.kubernetes}"
    return None


def _no_combined(context: StagingContext) -> str | None:
    reason = _not_kserve(context)
    if reason or context.draft.is_path:
        return reason or "a path needs no staging"
    if context.cluster.registry is None:
        return "no registry is known to push an image to (--registry)"
    if is_oci(context.draft.uri):
        return "the draft is an image already"
    target = context.target
    if target is None or context.env_storage:
        return "the target does not come through storageUri or storageUris"
    if target.uri.startswith("pvc://") or context.draft.uri.startswith("pvc://"):
        return "target or draft lie on a volume claim"
    if len(context.storage) > 1:
        return "the service has several artifacts already"
    if context.listed and (context.kserve is None or context.kserve < OCI_ENTRY):
        return "an image in storageUris is mounted since KServe 0.19"
    return None


def _no_engine(context: StagingContext) -> str | None:
    if not context.draft.uri.startswith("hf://"):
        return f"the engine itself fetches from Hugging Face alone, not {context.draft.name}"
    if context.cluster.air_gapped:
        return "the engine would download at every start, and the cluster is air-gapped"
    if context.offline:
        return f"{context.offline} is set in the container"
    return _no_disk(context)


UNAVAILABLE: dict[str, Callable[[StagingContext], str | None]] = {
    "present": _no_present,
    "storageUris": _no_entry,
    "pvc": _no_claim,
    "oci": _no_oci,
    "oci+native": _no_native,
    "image": _no_combined,
    "engine": _no_engine,
}
