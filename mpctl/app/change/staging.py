"""The fourth question of a change: how does the draft get into the pod?"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mpctl.app.change.resolve import Checkpoint, Selection, UnchangedService, is_below
from mpctl.app.requests import SpeculationRequest, StagingRequest
from mpctl.app.session.base import Edit, Source
from mpctl.errors import InputError
from mpctl.estimate.shape import gpu_gib, gpus
from mpctl.manifest import Service
from mpctl.manifest.draft_storage import DRAFT_MOUNT, without_draft
from mpctl.methods import Finding, Spec
from mpctl.staging.kserve_storage import release
from mpctl.staging.modes import DraftSource, StagingCluster, StagingPlan
from mpctl.staging.planner import plan_staging


@dataclass(frozen=True)
class StagedDraft:
    """The spec with the draft's path in the pod, how the draft gets there, and the edit of the service's storage; both
    None where nothing is staged."""

    spec: Spec
    plan: StagingPlan | None = None
    edit: Edit | None = None


def check_options(request: SpeculationRequest) -> None:
    """Refuse invalid numbers, versions and names before anything is looked up.

    Raises:
        InputError: with the option; of a GPU, the hint lists those that are in the table.
    """
    staging = request.staging
    if staging.kserve_version and release(staging.kserve_version) is None:
        raise InputError(
            f"{staging.kserve_version!r} is no version", field="--kserve", hint="such as 0.20"
        )
    for field, size in (
        ("--node-disk", staging.node_disk_gib),
        ("--draft-size", staging.draft_size_gib),
    ):
        if size is not None and not 0 < size < float("inf"):
            raise InputError(f"{size:g} is no size in GiB", field=field)
    cluster_of(staging)  # which refuses names
    if request.gpu is not None and gpu_gib(request.gpu) is None:
        raise InputError(
            f"{request.gpu!r} is not in the table",
            field="--gpu",
            hint=f"known: {', '.join(gpus())}",
        )


def cluster_of(request: StagingRequest, kserve: str | None = None) -> StagingCluster:
    """The facts about the cluster. ``kserve``: its release as read, where the request names none."""
    return StagingCluster(
        kserve=request.kserve_version or kserve,
        air_gapped=request.air_gapped,
        node_disk_gib=request.node_disk_gib,
        claim=request.claim,
        shared=request.claim_is_shared,
        registry=request.registry,
        token_secret=request.token_secret,
        staging_image=request.staging_image,
    )


def stage_draft(
    source: Source,
    target: UnchangedService,
    spec: Spec,
    request: StagingRequest,
    *,
    draft: Checkpoint,
    selection: Selection,
) -> StagedDraft:
    """Plan the staging. A draft that an earlier rollout staged is removed by the edit, so that two never pile up.

    Raises:
        InputError: no staging mode is available.
    """
    before = target.service
    if spec.draft is None:
        return StagedDraft(spec, edit=without_draft)
    bare = without_draft(before)
    if bare is not before and is_below(spec.draft, DRAFT_MOUNT):
        bare = before  # it names what is staged already
    size, entry = (
        request.draft_size_gib or (draft.facts.weight_gib if draft.facts else None),
        selection.entry,
    )
    if size is None and entry is not None:
        size = entry.loaded_gib or (None if entry.size_b is None else entry.size_b * 2e9 / 2**30)
    revision, facts = spec.settings.get("revision"), target.checkpoint.facts
    wanted = DraftSource(
        spec.draft,
        revision if isinstance(revision, str) else "",
        size,
        facts.weight_gib if facts else None,
        here=source.model_facts(spec.draft) is not None,
    )
    cluster = cluster_of(request, target.kserve)
    plan = plan_staging(bare, wanted, cluster, mode=request.mode)

    def edit(service: Service) -> Service:
        clean = service if bare is before else without_draft(service)
        return plan_staging(clean, wanted, cluster, mode=plan.mode).service

    settings = {**spec.settings, "model": plan.path}
    if plan.mode != "engine":
        settings.pop("revision", None)
    elif wanted.revision != "main":
        settings["revision"] = wanted.revision
    return StagedDraft(replace(spec, settings=settings), plan, edit)


def staging_findings(plan: StagingPlan | None) -> tuple[Finding, ...]:
    """The staging plan in a preflight; a draft that must be prepared refuses until the user overrides that."""
    if plan is None:
        return ()
    source = "kserve/kserve v0.19.0 and v0.20.0, restated in mpctl/staging/kserve_storage.py"
    notes = (f"{plan.mode}: {plan.reason}; {'; '.join(plan.steps)}", *plan.warnings)
    if plan.mode == "present":
        source, notes = (
            "the manifest's mounts; their contents cannot be listed from here",
            plan.warnings,
        )
    if plan.mode == "present" and plan.unmounted:
        reason = f"{plan.warnings[0]}; otherwise the engine ends at its start"
        remedy = "mount it, or name its files with --draft-listing where the image holds it"
        return (Finding("draft-unmounted", "refuse", reason, source, remedy),)
    findings = [
        Finding(
            "draft-staging",
            "note",
            text,
            source,
            "preflight -v with the same options explains it",
        )
        for text in notes
    ]
    if plan.mode != "present" and plan.prepares:
        reason = (
            f"{plan.steps[0]}; the pod would not start, or the engine would not find {plan.path}"
        )
        remedy = "preflight -v with the same options prints what to prepare; once it is there"
        findings.insert(0, Finding("draft-not-staged", "refuse", reason, source, remedy))
    return tuple(findings)
