"""``mpctl stage``: how a draft gets into the pod, and what has to be prepared for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import click

from mpctl.cli.context import CliContext
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import file_option, name_argument, output_option, shared_options
from mpctl.cli.options.speculation import SpeculationOptions, change_options, speculation_request
from mpctl.cli.options.types import option
from mpctl.cli.settings import in_context

if TYPE_CHECKING:
    from mpctl.app.change import Change
    from mpctl.cli.terminal import Terminal
    from mpctl.staging.modes import StagingPlan


@click.command("stage", cls=SectionedCommand)
@name_argument
@file_option
@change_options()
@option(
    "--plan",
    "explain",
    is_flag=True,
    help="Explain the staging mode, the steps and what a rollback leaves.",
)
@output_option
@shared_options
@in_context
def command(
    context: CliContext,
    /,
    name: str | None,
    file: str | None,
    *,
    explain: bool,
    **given: Unpack[SpeculationOptions],
) -> None:
    """Print what must be there before a rollout with a draft: a Job for its volume, or a Containerfile for its image.

    Nothing is changed. With --plan the staging mode is explained: why it is the best that the service, KServe's
    release and the cluster allow, what the service's manifest will say, and what a rollback removes and leaves.

    \b
    Examples:
      mpctl stage -f service.yaml --spec eagle3 --kserve 0.20 --plan
      mpctl stage qwen --spec eagle3 --claim models | kubectl apply -f -
      mpctl stage qwen --spec draft_model --air-gapped --registry registry.example/models --plan
    """
    from mpctl.app.change import prepare

    source = context.open_source(name, file)
    change = prepare(source, speculation_request(given))
    terminal, output = context.terminal, context.output
    plan = change.staging
    if plan is None:
        kind = "needs no second artifact" if change.spec.draft is None else "reads its draft where it is named"
        terminal.note(f"nothing to stage: {change.spec.describe()} on {source.name} {kind}")
        return
    if output in ("json", "yaml"):
        terminal.record("StagingPlan", _record(change, plan), output)
    elif output == "name":
        terminal.result(plan.mode)
    elif explain:
        _explain(terminal, change, plan)
    else:
        _documents(terminal, plan)


def _documents(terminal: Terminal, plan: StagingPlan) -> None:
    """What to apply or to build, on standard output; what it is for beside it."""
    import yaml

    if plan.documents:
        terminal.result(yaml.safe_dump_all(plan.documents, sort_keys=False).rstrip())
    elif plan.recipe:
        terminal.result(plan.recipe.rstrip())
    for step in plan.steps:
        terminal.note(f"step: {step}")
    for warning in plan.warnings:
        terminal.note(f"note: {warning}")
    if not plan.prepares:
        terminal.note("nothing has to be prepared; --plan explains")


def _explain(terminal: Terminal, change: Change, plan: StagingPlan) -> None:
    from mpctl.cli.printer import columns

    chosen = change.selection
    lines = [f"staging mode: {plan.mode}: {plan.reason}", f"path in the pod: {plan.path}"]
    if chosen.draft:
        lines.insert(0, f"draft: {chosen.draft}" + (f" ({chosen.reason})" if chosen.reason else ""))
    terminal.result("\n".join(lines) + "\n")
    rows = [[one.mode, one.unavailable or "available"] for one in plan.checks]
    terminal.result(columns([["MODE", "UNAVAILABLE BECAUSE"], *rows]) + "\n")
    for title, entries in (
        ("steps", plan.steps),
        ("a rollback removes", plan.removes),
        ("and leaves", plan.leaves),
        ("not certain", plan.warnings),
    ):
        if entries:
            terminal.result("\n".join([f"{title}:", *(f"  - {entry}" for entry in entries)]))
    if plan.recipe:
        terminal.result(f"\nContainerfile of {plan.image}:\n\n{plan.recipe.rstrip()}")
    diff = change.diff()
    if diff:
        terminal.result(f"\nthe change to the service:\n\n{diff}")


def _record(change: Change, plan: StagingPlan) -> dict[str, Any]:
    return {
        "service": change.before.name,
        "draft": change.selection.draft,
        "mode": plan.mode,
        "reason": plan.reason,
        "path": plan.path,
        "modes": [{"mode": one.mode, "unavailable": one.unavailable} for one in plan.checks],
        "documents": list(plan.documents),
        "image": plan.image,
        "containerfile": plan.recipe,
        "steps": list(plan.steps),
        "rollbackRemoves": list(plan.removes),
        "rollbackLeaves": list(plan.leaves),
        "warnings": list(plan.warnings),
        "manifest": change.new_text,
    }
