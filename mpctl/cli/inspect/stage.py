"""``mpctl stage``: how a draft gets into the pod, and the artifacts to prepare for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mpctl.app.inspect_requests import ChangeRequest
from mpctl.app.option import Option
from mpctl.cli.command import FILE, OUTPUT, SHOW_SECRETS, command, presentable, service_argument
from mpctl.cli.context import CliContext
from mpctl.cli.printer import columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mpctl.app.change import Change
    from mpctl.staging.modes import StagingPlan


_EXPLAIN = Option(
    "--plan",
    "explain",
    section="Output",
    type=bool,
    help="Explain the staging mode, the steps and what a rollback leaves.",
)


@command("stage", service_argument(), FILE, ChangeRequest, _EXPLAIN, SHOW_SECRETS, OUTPUT)
def stage(
    context: CliContext,
    /,
    name: str | None,
    file: str | None,
    request: ChangeRequest,
    *,
    explain: bool,
    show_secrets: bool,
) -> None:
    """Print what to prepare before a rollout with a draft: a Job for its volume, or a Containerfile for its image.

    \b
    Examples:
      mpctl stage -f service.yaml --spec eagle3 --kserve 0.20 --plan
      mpctl stage qwen --spec eagle3 --claim models | kubectl apply -f -
      mpctl stage qwen --spec draft_model --air-gapped --registry registry.example/models --plan

    Changes nothing. --plan explains the staging mode: why it is the best that the service, KServe's release and the
    cluster allow, the change to the manifest, and what a rollback removes and leaves.
    """
    from mpctl.app.change import prepare

    change = prepare(context.open_source(name, file), request.speculation)
    plan = change.staging
    if plan is None:
        need = "needs no second artifact" if change.spec.draft is None else "reads its draft where it is named"
        context.terminal.note(f"nothing to stage: {change.spec.describe()} on {change.before.name} {need}")
        return
    context.emit(
        "StagingPlan",
        record=lambda: _record(
            change, plan, presentable(context.terminal, change.new_text, show_secrets=show_secrets or file is not None)
        ),
        names=lambda: [plan.mode],
        table=lambda _wide: "\n".join(_explained(change, plan)) if explain else _artifacts(plan),
    )
    if not explain and context.output in ("table", "wide"):
        _note_steps(context, plan)


def _artifacts(plan: StagingPlan) -> str:
    """Return the Job to apply or the Containerfile to build; empty when nothing has to be prepared."""
    if not plan.documents:
        return (plan.recipe or "").rstrip()
    import yaml

    return str(yaml.safe_dump_all(plan.documents, sort_keys=False)).rstrip()


def _note_steps(context: CliContext, plan: StagingPlan) -> None:
    for step in plan.steps:
        context.terminal.note(f"step: {step}")
    for warning in plan.warnings:
        context.terminal.note(f"note: {warning}")
    if not plan.prepares:
        context.terminal.note("nothing has to be prepared; --plan explains")


def _explained(change: Change, plan: StagingPlan) -> Iterator[str]:
    selection = change.selection
    if selection.draft:
        yield f"draft: {selection.draft}" + (f" ({selection.reason})" if selection.reason else "")
    yield f"staging mode: {plan.mode}: {plan.reason}"
    yield f"path in the pod: {plan.path}\n"
    modes = [[check.mode, check.unavailable or "available"] for check in plan.checks]
    yield columns([["MODE", "UNAVAILABLE BECAUSE"], *modes]) + "\n"
    for title, entries in (
        ("steps", plan.steps),
        ("a rollback removes", plan.removes),
        ("and leaves", plan.leaves),
        ("not certain", plan.warnings),
    ):
        if entries:
            yield "\n".join([f"{title}:", *(f"  - {entry}" for entry in entries)])
    if plan.recipe:
        yield f"\nContainerfile of {plan.image}:\n\n{plan.recipe.rstrip()}"
    if diff := change.diff():
        yield f"\nthe change to the service:\n\n{diff}"


def _record(change: Change, plan: StagingPlan, manifest: str) -> dict[str, Any]:
    return {
        "service": change.before.name,
        "draft": change.selection.draft,
        "mode": plan.mode,
        "reason": plan.reason,
        "path": plan.path,
        "modes": [{"mode": check.mode, "unavailable": check.unavailable} for check in plan.checks],
        "documents": list(plan.documents),
        "image": plan.image,
        "containerfile": plan.recipe,
        "steps": list(plan.steps),
        "rollbackRemoves": list(plan.removes),
        "rollbackLeaves": list(plan.leaves),
        "warnings": list(plan.warnings),
        "manifest": manifest,
    }
