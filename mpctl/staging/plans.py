"""The plan of each staging mode: the edited service, what is made before it, what a rollback removes and leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath

from mpctl.manifest.storage.cuts import DRAFT_MOUNT
from mpctl.manifest.storage.edits import with_claim, with_entry, with_image
from mpctl.staging.kserve import is_oci
from mpctl.staging.modes import ModeCheck, StagingContext, StagingPlan
from mpctl.staging.recipes import containerfile, download_job, folder_of, image_name


def _present(context: StagingContext, reason: str, checks: tuple[ModeCheck, ...]) -> StagingPlan:
    path = context.draft.name
    places = [*(storage.mount_path for storage in context.storage), *context.mounts]
    inside = next((place for place in places if PurePosixPath(path).is_relative_to(place)), None)
    warning = (
        f"{path} is below {inside}; whether the draft is there cannot be seen from here"
        if inside
        else f"nothing that the manifest mounts holds {path}; it must be in the engine's image"
    )
    return StagingPlan(
        "present",
        reason,
        path,
        context.service,
        checks,
        removes=("nothing",),
        leaves=(f"{path}, as it is",),
        warnings=(warning,),
        unmounted=inside is None and not context.draft.here,
    )


def _by_entry(context: StagingContext, reason: str, checks: tuple[ModeCheck, ...]) -> StagingPlan:
    draft = context.draft
    warnings = []
    if context.downloaded_gib is None or context.cluster.node_disk_gib is None:
        warnings.append("a size or the node disk is not known, so whether the models fit on a node was not checked")
    return StagingPlan(
        "storageUris",
        reason,
        DRAFT_MOUNT,
        with_entry(context.service, draft.fetched),
        checks,
        steps=(f"KServe's initializer fetches {draft.fetched} to {DRAFT_MOUNT} before the engine starts",),
        removes=(f"the entry of {draft.name} in storageUris", _moved_back(context)),
        leaves=("nothing: the files go with the pod",),
        warnings=tuple(warnings),
    )


def _moved_back(context: StagingContext) -> str:
    return "storageUri is written as it was" if context.storage and not context.listed else "the other entries stay"


def _by_claim(context: StagingContext, reason: str, checks: tuple[ModeCheck, ...]) -> StagingPlan:
    draft, service = context.draft, context.service
    ready = draft.uri.startswith("pvc://")
    if ready:
        claim, _, folder = draft.uri.removeprefix("pvc://").rstrip("/").partition("/")
    else:
        claim, folder = context.claim or "", folder_of(draft.uri, draft.revision)
    place = _mounted_at(context, claim)
    edited = service if place else with_claim(service, claim, folder)
    path = f"{place}/{folder}" if place else DRAFT_MOUNT
    warnings = []
    if context.cluster.shared is None and not ready:
        warnings.append(f"whether pods of several nodes can mount {claim} is not known; a candidate may not start")
    elif context.cluster.shared is False:
        warnings.append(f"{claim} is mounted by one node at a time: a candidate must run on the baseline's node")
    job = None
    steps: list[str] = []
    if not ready and context.cluster.air_gapped:
        steps.append(f"copy {draft.name} at {draft.revision} to the folder {folder} of the claim {claim}")
    elif not ready:
        job = download_job(service, draft.fetched, claim, folder, context.cluster)
        steps.append(f"the Job {job['metadata']['name']} downloads {draft.fetched} into {folder} of the claim {claim}")
    steps.append(f"the engine reads {path}")
    size = "" if draft.size_gib is None else f" ({draft.size_gib:.1f} GiB)"
    return StagingPlan(
        "pvc",
        reason,
        path,
        edited,
        checks,
        documents=(job,) if job else (),
        by_hand=not ready and job is None,
        steps=tuple(steps),
        removes=("nothing of the storage" if place else f"the volume of {claim} and its mount",),
        leaves=(f"the folder {folder} on the claim {claim}{size}", *(["the finished Job"] if job else [])),
        warnings=tuple(warnings),
    )


def _mounted_at(context: StagingContext, claim: str) -> str | None:
    """Return the path where KServe mounts the whole claim already, so that its folders need no further mount."""
    for storage in context.storage:
        name, _, folder = storage.uri.removeprefix("pvc://").partition("/")
        if storage.uri.startswith("pvc://") and name == claim and (context.listed or not folder.strip("/")):
            return storage.mount_path.rstrip("/")
    return None


def _by_image(context: StagingContext, reason: str, checks: tuple[ModeCheck, ...], *, native: bool) -> StagingPlan:
    draft = context.draft
    built = not is_oci(draft.uri)
    image = (
        image_name(context.cluster.registry or "", draft.uri, draft.revision) if built else draft.uri.split("://", 1)[1]
    )
    steps = [f"build and push {image}"] if built else []
    return StagingPlan(
        "oci+native" if native else "oci",
        reason,
        DRAFT_MOUNT,
        with_entry(context.service, f"{'oci+native' if native else 'oci'}://{image}"),
        checks,
        recipe=containerfile(draft.fetched, base=context.cluster.staging_image) if built else None,
        image=image if built else None,
        steps=(*steps, f"the image is mounted at {DRAFT_MOUNT}"),
        removes=(f"the entry of {image} in storageUris", _moved_back(context)),
        leaves=(f"{image} in the registry and in the image caches of nodes",),
    )


def _by_oci(context: StagingContext, reason: str, checks: tuple[ModeCheck, ...]) -> StagingPlan:
    return _by_image(context, reason, checks, native=False)


def _by_native(context: StagingContext, reason: str, checks: tuple[ModeCheck, ...]) -> StagingPlan:
    return _by_image(context, reason, checks, native=True)


def _by_combined(context: StagingContext, reason: str, checks: tuple[ModeCheck, ...]) -> StagingPlan:
    target, draft = context.target, context.draft
    assert target is not None
    image = image_name(context.cluster.registry or "", draft.uri, draft.revision, target=target.uri)
    scheme = target.uri.split("://", 1)[0] if is_oci(target.uri) else "oci"
    path = f"{target.mount_path.rstrip('/')}/draft"
    return StagingPlan(
        "image",
        reason,
        path,
        with_image(context.service, f"{scheme}://{image}"),
        checks,
        recipe=containerfile(draft.fetched, target=target.uri, base=context.cluster.staging_image),
        image=image,
        steps=(f"build and push {image}, which holds target and draft", f"the engine reads {path}"),
        removes=(f"{image}: the target comes from {target.uri} again",),
        leaves=(f"{image} in the registry and in the image caches of nodes",),
        warnings=("the image holds a second copy of the target",),
    )


def _by_engine(context: StagingContext, reason: str, checks: tuple[ModeCheck, ...]) -> StagingPlan:
    name = context.draft.uri.removeprefix("hf://")
    warnings = ["the pod needs network access to the hub and, for a gated repository, a token in its environment"]
    if context.kserve is None and context.storage and context.service.kind == "InferenceService":
        warnings.append(
            "KServe's version is not known (--kserve): 0.16 and newer can fetch the draft beside the target"
        )
    if context.draft.revision == "main":
        warnings.append("no revision is pinned: a new upload changes what the next start loads")
    return StagingPlan(
        "engine",
        reason,
        name,
        context.service,
        checks,
        steps=(f"the engine downloads {name} when it starts",),
        removes=("nothing of the storage",),
        leaves=("what the engine cached, if its cache outlives the pod",),
        warnings=tuple(warnings),
    )


PLANS: dict[str, Callable[[StagingContext, str, tuple[ModeCheck, ...]], StagingPlan]] = {
    "present": _present,
    "storageUris": _by_entry,
    "pvc": _by_claim,
    "oci": _by_oci,
    "oci+native": _by_native,
    "image": _by_combined,
    "engine": _by_engine,
}
