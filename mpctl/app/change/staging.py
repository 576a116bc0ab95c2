"""The fourth question of a change: how does the draft get into the pod?"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from mpctl.app.change.resolve import Checkpoint, Selection, UnchangedService, is_below
from mpctl.app.files import read_file
from mpctl.app.session.base import Edit, Source
from mpctl.errors import InputError
from mpctl.estimate.shape import gpu_gib, gpus
from mpctl.manifest import Service
from mpctl.manifest.draft_storage import DRAFT_MOUNT, without_draft
from mpctl.methods import Finding, Spec
from mpctl.staging.modes import IMAGE, NAME, OPTION, DraftSource, StagingFacts, StagingPlan
from mpctl.staging.planner import MODES, plan_staging
from mpctl.yaml_lines import Node, document


@dataclass(frozen=True)
class StagedDraft:
    """The spec with the draft's path in the pod, how the draft gets there, and the edit of the service's storage; both
    None where nothing is staged."""

    spec: Spec
    plan: StagingPlan | None = None
    edit: Edit | None = None


_TEXTS = {
    "kserve": (r"v?\d+\.\d+(\.\d+)?([-+].+)?", 'a release, such as "0.20" in quotes'),
    "claim": (NAME, "the name of a PersistentVolumeClaim, such as models"),
    "token_secret": (NAME, "the name of a Secret with HF_TOKEN, such as hf-token; no token"),
    "image": (IMAGE, "an image, such as registry.example/busybox@sha256:..."),
    "registry": (
        r"[\w.-]+(:\d+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*/?",
        "a host and a path without scheme and tag, such as registry.example/models",
    ),
    "mode": ("|".join(MODES), f"one of {', '.join(MODES)}"),
}


def read_staging_file(path: str) -> StagingFacts:
    """Read the file behind ``--staging``.

    Raises:
        InputError: it cannot be read, or a fact cannot be used.
    """
    return read_staging(document(read_file(path, OPTION), path))


def read_staging(node: Node) -> StagingFacts:
    """Read the facts of a mapping.

    Raises:
        InputError: a field is unknown or cannot be used; with file, line and field.
    """
    texts = {
        name: node.text(name, pattern=form, what=form_in_words)
        for name, (form, form_in_words) in _TEXTS.items()
        if node.has(name)
    }
    facts = StagingFacts(
        **texts,
        air_gapped=node.value("air_gapped", bool, False),
        shared=node.value("shared", bool, None),
        node_disk_gib=_size(node, "node_disk_gib"),
        draft_size_gib=_size(node, "draft_size_gib"),
    )
    node.asked.update(_TEXTS)
    node.done()
    return facts


def _size(node: Node, name: str) -> float | None:
    """A size in GiB above zero; None where the file has none."""
    node.asked.add(name)
    size = node.body.get(name)
    if size is None or (isinstance(size, int | float) and 0 < size < math.inf and size is not True):
        return size
    raise node.error(name, f"{size!r} is no size in GiB")


def require_gpu(name: str | None) -> None:
    """Refuse a GPU of which nothing is known.

    Raises:
        InputError: the hint lists the GPUs that are in the table.
    """
    if name is not None and gpu_gib(name) is None:
        raise InputError(
            f"{name!r} is not in the table", field="--gpu", hint=f"known: {', '.join(gpus())}"
        )


def stage_draft(
    source: Source,
    target: UnchangedService,
    spec: Spec,
    facts: StagingFacts,
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
        facts.draft_size_gib or (draft.facts.weight_gib if draft.facts else None),
        selection.entry,
    )
    if size is None and entry is not None:
        size = entry.loaded_gib or (None if entry.size_b is None else entry.size_b * 2e9 / 2**30)
    revision, checkpoint = spec.settings.get("revision"), target.checkpoint.facts
    wanted = DraftSource(
        spec.draft,
        revision if isinstance(revision, str) else "",
        size,
        checkpoint.weight_gib if checkpoint else None,
        here=source.model_facts(spec.draft) is not None,
    )
    cluster = replace(facts, kserve=target.kserve)
    plan = plan_staging(bare, wanted, cluster, mode=facts.mode)

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
    source = "kserve/kserve v0.19.0 and v0.20.0, restated in mpctl/staging/planner.py"
    notes = (f"{plan.mode}: {plan.reason}; {'; '.join(plan.steps)}", *plan.warnings)
    if plan.mode == "present":
        source, notes = (
            "the manifest's mounts; their contents cannot be listed from here",
            plan.warnings,
        )
    if plan.mode == "present" and plan.unmounted:
        reason = f"{plan.warnings[0]}; otherwise the engine ends at its start"
        remedy = "mount it, or name its files with MPCTL_DRAFT_LISTING where the image holds it"
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
