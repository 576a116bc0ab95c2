"""What each way of staging does: the edited service, what is made before it, what a rollback removes and leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath

from mpctl.manifest.storage.edits import DRAFT_MOUNT, with_claim, with_entry, with_image
from mpctl.staging.kserve import is_oci
from mpctl.staging.modes import Considered, Situation, StagingPlan
from mpctl.staging.recipes import containerfile, download_job, folder_of, image_name


def _present(facts: Situation, reason: str, considered: tuple[Considered, ...]) -> StagingPlan:
    path = facts.draft.name
    places = [*(one.mount_path for one in facts.storage), *facts.mounts]
    inside = next((one for one in places if PurePosixPath(path).is_relative_to(one)), None)
    warning = (
        f"{path} is below {inside}; whether the draft is there cannot be seen from here"
        if inside
        else f"nothing that the manifest mounts holds {path}; it must be in the engine's image"
    )
    return StagingPlan(
        "present",
        reason,
        path,
        facts.service,
        considered,
        removes=("nothing",),
        leaves=(f"{path}, as it is",),
        warnings=(warning,),
    )


def _by_entry(facts: Situation, reason: str, considered: tuple[Considered, ...]) -> StagingPlan:
    draft = facts.draft
    warnings = []
    if facts.downloaded_gib is None or facts.cluster.node_disk_gib is None:
        warnings.append("a size or the node disk is not known, so whether the models fit on a node was not checked")
    return StagingPlan(
        "storageUris",
        reason,
        DRAFT_MOUNT,
        with_entry(facts.service, draft.fetched),
        considered,
        steps=(f"KServe's initializer fetches {draft.fetched} to {DRAFT_MOUNT} before the engine starts",),
        removes=(f"the entry of {draft.name} in storageUris", _moved_back(facts)),
        leaves=("nothing: the files go with the pod",),
        warnings=tuple(warnings),
    )


def _moved_back(facts: Situation) -> str:
    return "storageUri is written as it was" if facts.storage and not facts.listed else "the other entries stay"


def _by_claim(facts: Situation, reason: str, considered: tuple[Considered, ...]) -> StagingPlan:
    draft, service = facts.draft, facts.service
    ready = draft.uri.startswith("pvc://")
    if ready:
        claim, _, folder = draft.uri.removeprefix("pvc://").rstrip("/").partition("/")
    else:
        claim, folder = facts.claim or "", folder_of(draft.uri, draft.revision)
    place = _mounted_at(facts, claim)
    edited = service if place else with_claim(service, claim, folder)
    path = f"{place}/{folder}" if place else DRAFT_MOUNT
    warnings = []
    if facts.cluster.shared is None and not ready:
        warnings.append(f"whether pods of several nodes can mount {claim} is not known; a candidate may not start")
    elif facts.cluster.shared is False:
        warnings.append(f"{claim} is mounted by one node at a time: a candidate must run on the baseline's node")
    job = None
    steps: list[str] = []
    if not ready and facts.cluster.air_gapped:
        steps.append(f"copy {draft.name} at {draft.revision} to the folder {folder} of the claim {claim}")
    elif not ready:
        job = download_job(service, draft.fetched, claim, folder, facts.cluster.kserve, facts.cluster.token_secret)
        steps.append(f"the Job {job['metadata']['name']} downloads {draft.fetched} into {folder} of the claim {claim}")
    steps.append(f"the engine reads {path}")
    size = "" if draft.size_gib is None else f" ({draft.size_gib:.1f} GiB)"
    return StagingPlan(
        "pvc",
        reason,
        path,
        edited,
        considered,
        documents=(job,) if job else (),
        by_hand=not ready and job is None,
        steps=tuple(steps),
        removes=("nothing of the storage" if place else f"the volume of {claim} and its mount",),
        leaves=(f"the folder {folder} on the claim {claim}{size}", *(["the finished Job"] if job else [])),
        warnings=tuple(warnings),
    )


def _mounted_at(facts: Situation, claim: str) -> str | None:
    """Where the whole claim is mounted already by KServe, so that a folder of it needs no further mount."""
    for one in facts.storage:
        name, _, folder = one.uri.removeprefix("pvc://").partition("/")
        if one.uri.startswith("pvc://") and name == claim and (facts.listed or not folder.strip("/")):
            return one.mount_path.rstrip("/")
    return None


def _by_image(facts: Situation, reason: str, considered: tuple[Considered, ...], *, native: bool) -> StagingPlan:
    draft = facts.draft
    built = not is_oci(draft.uri)
    image = (
        image_name(facts.cluster.registry or "", draft.uri, draft.revision) if built else draft.uri.split("://", 1)[1]
    )
    steps = [f"build and push {image}"] if built else []
    return StagingPlan(
        "oci+native" if native else "oci",
        reason,
        DRAFT_MOUNT,
        with_entry(facts.service, f"{'oci+native' if native else 'oci'}://{image}"),
        considered,
        recipe=containerfile(draft.fetched) if built else None,
        image=image if built else None,
        steps=(*steps, f"the image is mounted at {DRAFT_MOUNT}"),
        removes=(f"the entry of {image} in storageUris", _moved_back(facts)),
        leaves=(f"{image} in the registry and in the image caches of nodes",),
    )


def _by_oci(facts: Situation, reason: str, considered: tuple[Considered, ...]) -> StagingPlan:
    return _by_image(facts, reason, considered, native=False)


def _by_native(facts: Situation, reason: str, considered: tuple[Considered, ...]) -> StagingPlan:
    return _by_image(facts, reason, considered, native=True)


def _by_combined(facts: Situation, reason: str, considered: tuple[Considered, ...]) -> StagingPlan:
    held, draft = facts.target, facts.draft
    assert held is not None
    image = image_name(facts.cluster.registry or "", draft.uri, draft.revision, target=held.uri)
    scheme = held.uri.split("://", 1)[0] if is_oci(held.uri) else "oci"
    path = f"{held.mount_path.rstrip('/')}/draft"
    return StagingPlan(
        "image",
        reason,
        path,
        with_image(facts.service, f"{scheme}://{image}"),
        considered,
        recipe=containerfile(draft.fetched, target=held.uri),
        image=image,
        steps=(f"build and push {image}, which holds target and draft", f"the engine reads {path}"),
        removes=(f"{image}: the target comes from {held.uri} again",),
        leaves=(f"{image} in the registry and in the image caches of nodes",),
        warnings=("the image holds a second copy of the target",),
    )


def _by_engine(facts: Situation, reason: str, considered: tuple[Considered, ...]) -> StagingPlan:
    name = facts.draft.uri.removeprefix("hf://")
    warnings = ["the pod needs a way out to the hub and, for a gated repository, a token in its environment"]
    if facts.kserve is None and facts.storage:
        warnings.append(
            "KServe's version is not known (--kserve): 0.16 and newer can fetch the draft beside the target"
        )
    if facts.draft.revision == "main":
        warnings.append("no revision is pinned: a new upload changes what the next start loads")
    return StagingPlan(
        "engine",
        reason,
        name,
        facts.service,
        considered,
        steps=(f"the engine downloads {name} when it starts",),
        removes=("nothing of the storage",),
        leaves=("what the engine cached, if its cache outlives the pod",),
        warnings=tuple(warnings),
    )


PLANS: dict[str, Callable[[Situation, str, tuple[Considered, ...]], StagingPlan]] = {
    "present": _present,
    "storageUris": _by_entry,
    "pvc": _by_claim,
    "oci": _by_oci,
    "oci+native": _by_native,
    "image": _by_combined,
    "engine": _by_engine,
}
