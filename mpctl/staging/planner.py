"""Plan the staging of a draft: the modes that this service and cluster allow, and the reason for the best one.

Pure. A service, a draft and what is known of the cluster go in; the edited service, what has to be prepared before
it, and what a rollback removes and leaves come out. Bytes are edited by :mod:`mpctl.manifest.draft_storage`. A mode is
one row of :data:`MODES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from mpctl.errors import InputError
from mpctl.manifest import Service
from mpctl.manifest.draft_storage import DRAFT_MOUNT, with_claim, with_entry
from mpctl.staging.kserve_storage import (
    MOST_IMAGES,
    NEWEST,
    OLDEST,
    SEVERAL_IMAGES,
    common_parent,
    is_native,
    is_oci,
)
from mpctl.staging.modes import (
    DOWNLOADS,
    OPTION,
    DraftSource,
    ModeCheck,
    StagingContext,
    StagingFacts,
    StagingPlan,
)
from mpctl.staging.recipes import containerfile, download_job, folder_of, image_name


@dataclass(frozen=True)
class StagingMode:
    """A way of weights into the pod; what each mode does stands in docs/how-to/staging.md."""

    name: str
    unavailable: Callable[
        [StagingContext], str | None
    ]  # the reason, None when available; unknown is unavailable
    plan: Callable[[StagingContext, str], StagingPlan]  # of a context and the reason for this mode


def plan_staging(
    service: Service, draft: DraftSource, cluster: StagingFacts, *, mode: str | None = None
) -> StagingPlan:
    """Plan how ``draft`` reaches the pod of ``service``: by ``mode``, else by the best one available.

    Raises:
        InputError: the mode asked for, or every mode, is unavailable; the message gives the reason for each.
    """
    context = StagingContext(service, draft, cluster)
    checks = tuple(ModeCheck(name, row.unavailable(context)) for name, row in MODES.items())
    selected, reason = _select(context, checks, mode)
    return replace(MODES[selected].plan(context, reason), checks=checks)


def _select(
    context: StagingContext, checks: tuple[ModeCheck, ...], mode: str | None
) -> tuple[str, str]:
    """The mode to use and why."""
    service, unavailable = context.service.name, {check.mode: check.unavailable for check in checks}
    if mode is not None:
        if unavailable[mode] is not None:
            available = ", ".join(check.mode for check in checks if check.unavailable is None)
            hint = (
                f"use one of {available}"
                if available
                else "preflight -v tells the reason of every mode"
            )
            raise InputError(
                f"staging mode {mode} is unavailable for {service}: {unavailable[mode]}",
                field=OPTION,
                hint=hint,
            )
        return mode, f"requested in {OPTION} FILE"
    best = next(
        ((name, why) for name, why in _preferences(context) if unavailable[name] is None), None
    )
    if best is None:
        reasons = "; ".join(f"{check.mode}: {check.unavailable}" for check in checks)
        raise InputError(
            f"no staging mode is available for {context.draft.name} in {service}: {reasons}",
            field="--draft",
            hint=f"name kserve, claim or registry in {OPTION} FILE, whichever the cluster has",
        )
    return best


def _preferences(context: StagingContext) -> list[tuple[str, str]]:
    """The staging modes from best to worst for this target, each with its reason."""
    draft, target = context.draft, context.target
    once = ("pvc", "the claim holds the draft, downloaded once")
    at_start = ("storageUris", "KServe downloads the draft at every start")
    by_engine = ("engine", "the engine downloads the draft at every start")
    if draft.is_path or draft.uri.startswith("pvc://"):
        on_path = ("present", f"{draft.name} is a path in the container")
        return [on_path if draft.is_path else ("pvc", "the draft lies on a volume claim")]
    if context.target_claim:
        name = context.claim or context.target_claim[0]
        on_claim = ("pvc", f"the target lies on the claim {name}; the draft is downloaded once")
        return [on_claim, ("oci", "an image beside the claim"), at_start, by_engine]
    if is_oci(draft.uri):
        return [("oci", "the draft is an image")]
    if target is not None and is_oci(target.uri):
        return [
            ("oci", "the target is an image; the draft becomes one of its own"),
            once,
            at_start,
            by_engine,
        ]
    if context.cluster.air_gapped:
        return [
            ("pvc", "the cluster is air-gapped; the claim is filled once"),
            ("oci", "the cluster is air-gapped; an image comes from its own registry"),
        ]
    image = ("oci", "an image of its own")
    beside = ("storageUris", "the target is downloaded by KServe; the draft comes beside it")
    if target is not None:
        last = (
            "engine",
            "no other mode is available; the engine downloads the draft at every start",
        )
        return [beside, once, image, last]
    from_hub = ("engine", "the engine loads the target from the hub itself, and the draft likewise")
    if context.service.model and not context.service.model.startswith(("/", ".")):
        return [from_hub, beside, once, image]
    return [once, beside, image, from_hub]


# present: the draft is a path in the container


def _present(context: StagingContext, reason: str) -> StagingPlan:
    path = context.draft.name
    mounts = [*(storage.mount_path for storage in context.storage), *context.mounts]
    inside = next((mount for mount in mounts if PurePosixPath(path).is_relative_to(mount)), None)
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
        removes=("nothing",),
        leaves=(f"{path}, as it is",),
        warnings=(warning,),
        unmounted=inside is None and not context.draft.here,
    )


# storageUris: KServe's initializer downloads the draft


def _no_list(context: StagingContext) -> str | None:
    """The reason why ``storageUris`` cannot be used at all."""
    if context.service.kind != "InferenceService":
        return f"a {context.service.kind} is not staged by KServe"
    if context.draft.is_path:
        return "a path needs no staging"
    if context.kserve is None or context.kserve < OLDEST:
        supported = " and ".join(".".join(map(str, release)) for release in (OLDEST, NEWEST))
        present = f"this is KServe {context.cluster.kserve}; mpctl stages with KServe {supported}"
        return (
            present
            if context.kserve
            else "KServe's version is not known (kserve in --staging FILE)"
        )
    return _no_further_entry(context)


def _no_further_entry(context: StagingContext) -> str | None:
    """The reason why what the service has in its storage leaves no room for the draft."""
    if context.canary:
        return "KServe's canary (spec.canary) gets no storageUris: its pod would have no files"
    if context.keyed:
        return "model.storage excludes storageUris: KServe would not download the target; move it to model.storageUri"
    if context.cache and not context.listed:
        return f"{context.cache} holds the target for storageUri alone: in a list it is downloaded at every start"
    if context.env_storage:
        return "the container's STORAGE_URI excludes storageUris; move it to storageUris first"
    if not context.listed and context.target_claim and context.target_claim[1]:
        return f"pvc://{'/'.join(context.target_claim)} cannot move to storageUris: there the claim's root is mounted"
    if any(storage.mount_path == DRAFT_MOUNT for storage in context.storage):
        return f"{DRAFT_MOUNT} is taken already"
    others = [
        storage.mount_path for storage in context.storage if not storage.uri.startswith("pvc://")
    ]
    if others and common_parent([*others, DRAFT_MOUNT]) == "/":
        return f"KServe wants one directory above {', '.join(others)} and {DRAFT_MOUNT}"
    return None


def _no_entry(context: StagingContext) -> str | None:
    uri = context.draft.uri
    if not context.draft.is_path and not uri.startswith(DOWNLOADS):
        return f"KServe's initializer does not fetch {uri}"
    reason = _no_list(context)
    if reason:
        return reason
    if context.cluster.air_gapped:
        return "the pod would download at every start, and the cluster is air-gapped"
    if any(is_oci(storage.uri) for storage in context.storage) and _is_before(
        context, SEVERAL_IMAGES
    ):
        return "beside an image, KServe before 0.20 leaves other entries out"
    return _no_disk(context)


def _is_before(context: StagingContext, release: tuple[int, int]) -> bool:
    return context.kserve is not None and context.kserve < release


def _no_disk(context: StagingContext) -> str | None:
    free = context.cluster.node_disk_gib
    # Of two sizes the one that is known is a lower bound.
    needed = context.downloaded_gib or context.draft.size_gib
    if free is None or needed is None:
        return None
    return (
        None
        if needed <= free
        else f"{needed:.0f} GiB at every start do not fit on {free:.0f} GiB of node disk"
    )


def _by_entry(context: StagingContext, reason: str) -> StagingPlan:
    draft = context.draft
    unknown = context.downloaded_gib is None or context.cluster.node_disk_gib is None
    unchecked = (
        "a size or the node disk is not known, so whether the models fit on a node was not checked"
    )
    return StagingPlan(
        "storageUris",
        reason,
        DRAFT_MOUNT,
        with_entry(context.service, draft.fetched),
        steps=(
            f"KServe's initializer fetches {draft.fetched} to {DRAFT_MOUNT} before the engine starts",
        ),
        removes=(f"the entry of {draft.name} in storageUris", _moved_back(context)),
        leaves=("nothing: the files go with the pod",),
        warnings=(unchecked,) if unknown else (),
    )


def _moved_back(context: StagingContext) -> str:
    return (
        "storageUri is written as it was"
        if context.storage and not context.listed
        else "the other entries stay"
    )


# pvc: a folder on a volume claim, filled once by a Job


def _no_claim(context: StagingContext) -> str | None:
    source = context.service.source
    if source is None or source.pod is None:
        return f"a {context.service.kind} has no volumes that can be changed"
    if context.draft.is_path:
        return "a path needs no staging"
    if context.draft.uri.startswith("pvc://"):
        return None
    if not context.draft.uri.startswith(DOWNLOADS):
        return f"a download Job does not fetch {context.draft.uri}"
    return None if context.claim else "no volume claim is known (claim in --staging FILE)"


def _by_claim(context: StagingContext, reason: str) -> StagingPlan:
    draft, service = context.draft, context.service
    ready = draft.uri.startswith("pvc://")
    if ready:
        claim, _, folder = draft.uri.removeprefix("pvc://").rstrip("/").partition("/")
    else:
        claim, folder = context.claim or "", folder_of(draft.uri, draft.revision)
    mount = _mount_of(context, claim)
    path = f"{mount}/{folder}" if mount else DRAFT_MOUNT
    warnings = []
    if context.cluster.shared is None and not ready:
        warnings.append(
            f"whether pods of several nodes can mount {claim} is not known; a candidate may not start"
        )
    elif context.cluster.shared is False:
        warnings.append(
            f"{claim} is mounted by one node at a time: a candidate must run on the baseline's node"
        )
    job = None
    steps: list[str] = []
    if not ready and context.cluster.air_gapped:
        steps.append(
            f"copy {draft.name} at {draft.revision} to the folder {folder} of the claim {claim}"
        )
    elif not ready:
        job = download_job(service, draft.fetched, claim, folder, context.cluster)
        steps.append(
            f"the Job {job['metadata']['name']} downloads {draft.fetched} into {folder} of the claim {claim}"
        )
    size = "" if draft.size_gib is None else f" ({draft.size_gib:.1f} GiB)"
    return StagingPlan(
        "pvc",
        reason,
        path,
        service if mount else with_claim(service, claim, folder),
        documents=(job,) if job else (),
        by_hand=not ready and job is None,
        steps=(*steps, f"the engine reads {path}"),
        removes=("nothing of the storage" if mount else f"the volume of {claim} and its mount",),
        leaves=(
            f"the folder {folder} on the claim {claim}{size}",
            *(["the finished Job"] if job else []),
        ),
        warnings=tuple(warnings),
    )


def _mount_of(context: StagingContext, claim: str) -> str | None:
    """Return the path where KServe mounts the whole claim already, so that its folders need no further mount."""
    for storage in context.storage:
        name, _, folder = storage.uri.removeprefix("pvc://").partition("/")
        if (
            storage.uri.startswith("pvc://")
            and name == claim
            and (context.listed or not folder.strip("/"))
        ):
            return storage.mount_path.rstrip("/")
    return None


# oci: an image with the draft, which KServe calls a Modelcar


def _no_image(context: StagingContext) -> str | None:
    uri = context.draft.uri
    if not context.draft.is_path and uri.startswith("pvc://"):
        return "the draft lies on a volume claim"
    reason = _no_list(context)
    if reason:
        return reason
    if not is_oci(uri) and context.cluster.registry is None:
        return "no registry is known to push an image to (registry in --staging FILE)"
    if context.storage and _is_before(context, SEVERAL_IMAGES):
        return f"an image beside another entry is served since KServe 0.20, this is {context.cluster.kserve}"
    images = [storage for storage in context.storage if is_oci(storage.uri)]
    if len(images) >= MOST_IMAGES:
        return f"KServe mounts at most {MOST_IMAGES} images"
    if is_native(uri) and _is_before(context, SEVERAL_IMAGES):
        return f"oci+native:// came with KServe 0.20, this is {context.cluster.kserve}"
    return None


def _by_image(context: StagingContext, reason: str) -> StagingPlan:
    draft = context.draft
    entry, recipe, steps = draft.uri, None, [f"the image is mounted at {DRAFT_MOUNT}"]
    if not is_oci(draft.uri):
        entry = f"oci://{image_name(context.cluster.registry or '', draft.uri, draft.revision)}"
        recipe = containerfile(draft.fetched, context.cluster.image)
    image = entry.split("://", 1)[1]
    if recipe:
        steps.insert(0, f"build and push {image}")
    return StagingPlan(
        "oci",
        reason,
        DRAFT_MOUNT,
        with_entry(context.service, entry),
        recipe=recipe,
        image=image if recipe else None,
        steps=tuple(steps),
        removes=(f"the entry of {image} in storageUris", _moved_back(context)),
        leaves=(f"{image} in the registry and in the image caches of nodes",),
    )


# engine: the engine's own download from the hub


def _no_download(context: StagingContext) -> str | None:
    if not context.draft.uri.startswith("hf://"):
        return f"the engine itself fetches from Hugging Face alone, not {context.draft.name}"
    if context.cluster.air_gapped:
        return "the engine would download at every start, and the cluster is air-gapped"
    if context.offline:
        return f"{context.offline} is set in the container"
    return _no_disk(context)


def _by_engine(context: StagingContext, reason: str) -> StagingPlan:
    name = context.draft.uri.removeprefix("hf://")
    warnings = [
        "the pod needs network access to the hub and, for a gated repository, a token in its environment"
    ]
    if context.kserve is None and context.storage and context.service.kind == "InferenceService":
        warnings.append(
            "KServe's version is not known (kserve in --staging FILE): "
            "0.19 and 0.20 can fetch the draft beside the target"
        )
    if context.draft.revision == "main":
        warnings.append("no revision is pinned: a new upload changes what the next start loads")
    return StagingPlan(
        "engine",
        reason,
        name,
        context.service,
        steps=(f"the engine downloads {name} when it starts",),
        removes=("nothing of the storage",),
        leaves=("what the engine cached, if its cache outlives the pod",),
        warnings=tuple(warnings),
    )


# In the order they are explained.
MODES = {
    row.name: row
    for row in (
        StagingMode(
            "present",
            lambda context: (
                None
                if context.draft.is_path
                else f"{context.draft.name} is a source, not a path in the container"
            ),
            _present,
        ),
        StagingMode("storageUris", _no_entry, _by_entry),
        StagingMode("pvc", _no_claim, _by_claim),
        StagingMode("oci", _no_image, _by_image),
        StagingMode("engine", _no_download, _by_engine),
    )
}
