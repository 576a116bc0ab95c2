"""``mpctl rollback``: the exact way back."""

from __future__ import annotations

from typing import Any

import click

from mpctl.cli.options import name_argument, option, output_option, shared_options, timeout_option, yes_option
from mpctl.cli.outcome import carry_out
from mpctl.cli.session import Session, Settings, open_session
from mpctl.rollout import machine
from mpctl.rollout.decide import Act, Decision, decide_rollback
from mpctl.rollout.operation import Strategy, open_operation, operations


@click.command("rollback")
@name_argument
@option("--to-revision", type=click.IntRange(1), default=None, help="Revision to restore; default: the one before.")
@option(
    "--strategy",
    type=click.Choice([s.value for s in Strategy]),
    default=None,
    help="Default: that of the rollout which is taken back.",
)
@timeout_option("10m")
@yes_option
@output_option("table", "json", "yaml")
@shared_options
@click.pass_context
def command(ctx: click.Context, /, name: str | None, **options: Any) -> None:
    """Restore a recorded revision exactly, and prove it by comparing after the write.

    An unfinished rollout is undone; otherwise the service goes back to the revision before, or to the one named. It
    works from every point a rollout can be stopped at, and can itself be interrupted and run again.

    \b
    Examples:
      mpctl rollback                          undo the last change of the only service
      mpctl rollback qwen --to-revision 1
    """
    session = open_session(Settings.of(ctx, options), name)
    decision = decide(session, options)
    if decision.act is Act.ALREADY:
        session.terminal.note(
            f"service {session.namespace}/{session.name} already is revision {options['to_revision']}"
        )
        return
    plan = decision.plan or (decision.operation.plan if decision.operation else None)
    assert plan is not None
    if decision.act is Act.OPEN:
        question = f"service {session.namespace}/{session.name}: back to {plan.spec} ({plan.why})\nGo on?"
        session.terminal.confirm(question, yes=options["yes"])
    with session.store.lease("rollback"), session.world() as world:
        decision = decide(session, options)
        operation = decision.operation or (machine.open_plan(world, decision.plan) if decision.plan else None)
        if operation is not None:
            carry_out(session, world, operation, options["output"])


def decide(session: Session, options: dict[str, Any]) -> Decision:
    """What to restore, from the service and the ledger as they are now."""
    entries = session.store.entries()
    every = operations(entries)
    return decide_rollback(
        session.platform.read(),
        open_operation(entries),
        every[-1] if every else None,
        session.store.revisions(),
        options["to_revision"],
        strategy=Strategy(options["strategy"]) if options["strategy"] else None,
        timeout_s=options["timeout"],
    )
