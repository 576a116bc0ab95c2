"""Plan the staging of a draft: the modes that this service and cluster allow, and the reason for the best one.

Pure. A service, a draft and what is known of the cluster go in; the edited service, what has to be prepared before
it, and what a rollback removes and leaves come out. KServe's rules are :mod:`mpctl.staging.kserve`; the bytes are
:mod:`mpctl.manifest.storage.edits`.
"""

from __future__ import annotations

from mpctl.errors import InputError
from mpctl.manifest import Service, Storage
from mpctl.staging.availability import UNAVAILABLE
from mpctl.staging.kserve import is_oci, problems
from mpctl.staging.modes import (
    OPTION,
    STAGING_MODES,
    Cluster,
    DraftSource,
    ModeCheck,
    StagingContext,
    StagingPlan,
    document_of,
)
from mpctl.staging.plans import PLANS


def plan_staging(service: Service, draft: DraftSource, cluster: Cluster, *, mode: str | None = None) -> StagingPlan:
    """Plan how ``draft`` reaches the pod of ``service``: by ``mode``, else by the best one available.

    Raises:
        InputError: the mode asked for, or every mode, is unavailable; the message gives the reason for each.
    """
    if mode is not None and mode not in STAGING_MODES:
        raise InputError(f"unknown staging mode {mode!r}", field=OPTION, hint=f"use one of {', '.join(STAGING_MODES)}")
    context = StagingContext(service, draft, cluster)
    checks = tuple(ModeCheck(name, UNAVAILABLE[name](context)) for name in STAGING_MODES)
    selected, reason = _select(context, checks, mode)
    plan = PLANS[selected](context, reason, checks)
    _require_served(service, plan, cluster.kserve or "")
    return plan


def _select(context: StagingContext, checks: tuple[ModeCheck, ...], mode: str | None) -> tuple[str, str]:
    """The mode to use and why."""
    service, unavailable = context.service.name, {check.mode: check.unavailable for check in checks}
    if mode is not None:
        if unavailable[mode] is not None:
            available = ", ".join(check.mode for check in checks if check.unavailable is None)
            hint = f"use one of {available}" if available else "the stage command tells the reason of every mode"
            raise InputError(
                f"staging mode {mode} is unavailable for {service}: {unavailable[mode]}", field=OPTION, hint=hint
            )
        return mode, f"requested with {OPTION}"
    best = next(((name, why) for name, why in _preferences(context) if unavailable[name] is None), None)
    if best is None:
        reasons = "; ".join(f"{check.mode}: {check.unavailable}" for check in checks)
        raise InputError(
            f"no staging mode is available for {context.draft.name} in {service}: {reasons}",
            field="--draft",
            hint="give --kserve VERSION, --claim NAME or --registry PREFIX, whichever the cluster has",
        )
    return best


def _require_served(service: Service, plan: StagingPlan, kserve: str) -> None:
    """Refuse a plan after which KServe would not serve the service, unless that was so before."""
    if plan.service.kind != "InferenceService":
        return
    before = problems(document_of(service), kserve)
    new = [problem for problem in problems(document_of(plan.service), kserve) if problem not in before]
    if new:
        reasons = "; ".join(f"{problem.field}: {problem.text}" for problem in new)
        raise InputError(f"KServe would not serve {service.name} staged as {plan.mode}: {reasons}", file=service.file)


def _preferences(context: StagingContext) -> list[tuple[str, str]]:
    """The staging modes from best to worst for this target, each with its reason."""
    target = context.target
    if context.draft.is_path:
        return [("present", f"{context.draft.name} is a path in the container")]
    if context.target_claim:
        name = context.target_claim[0]
        return [
            ("pvc", f"the target lies on the claim {context.claim or name}; the draft is downloaded once"),
            ("oci+native", "an image, mounted by the node"),
            ("oci", "an image beside the claim"),
            ("storageUris", "KServe downloads the draft at every start"),
            ("engine", "the engine downloads the draft at every start"),
        ]
    if is_oci(context.draft.uri):
        return [("oci+native" if context.draft.uri.startswith("oci+native") else "oci", "the draft is an image")]
    return _of_image(target) if target is not None and is_oci(target.uri) else _of_download(context)


def _of_image(target: Storage) -> list[tuple[str, str]]:
    """Modes for a target that is an image."""
    native = target.uri.startswith("oci+native")
    return [
        ("oci+native" if native else "oci", "the target is an image; the draft becomes one of its own"),
        ("image", "the target is an image, and this KServe serves one image only: both go into one"),
        ("pvc", "the claim holds the draft"),
        ("storageUris", "KServe downloads the draft at every start"),
        ("engine", "the engine downloads the draft at every start"),
    ]


def _of_download(context: StagingContext) -> list[tuple[str, str]]:
    """Modes for a target that KServe or the engine downloads, or that has volumes of its own."""
    if context.cluster.air_gapped:
        return [
            ("pvc", "the cluster is air-gapped; the claim is filled once"),
            ("oci+native", "the cluster is air-gapped; an image comes from its own registry"),
            ("oci", "the cluster is air-gapped; an image comes from its own registry"),
            ("image", "the cluster is air-gapped; one image from its own registry holds both"),
        ]
    if context.draft.uri.startswith("pvc://"):
        return [("pvc", "the draft lies on a volume claim")]
    at_start = ("storageUris", "the target is downloaded by KServe; the draft comes beside it")
    by_engine = ("engine", "the engine loads the target from the hub itself, and the draft likewise")
    once = ("pvc", "the claim holds the draft, downloaded once")
    images = [("oci+native", "an image, mounted by the node"), ("oci", "an image of its own")]
    if context.target is not None:
        last = ("engine", "no other mode is available; the engine downloads the draft at every start")
        return [at_start, once, *images, ("image", "one image holds both"), last]
    if context.service.model and not context.service.model.startswith(("/", ".")):
        return [by_engine, at_start, once, *images]
    return [once, at_start, *images, by_engine]
