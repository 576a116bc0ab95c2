"""``mpctl retire``: let an old engine go that a rollout kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mpctl.cli.options.shared import ask_options, name_argument, output_option, shared_options
from mpctl.cli.settings import Settings

if TYPE_CHECKING:
    from mpctl.app.session.base import Session
    from mpctl.rollout.decide import Decision
    from mpctl.rollout.plan import Plan


@click.command("retire")
@name_argument
@ask_options
@output_option
@shared_options
@click.pass_context
def command(ctx: click.Context, /, name: str | None, output: str, **options: Any) -> None:
    """End the old engine that mpctl rollout --keep-baseline left running, and give its GPUs back.

    A rollback then takes an engine start. A next rollout and a rollback end it by themselves. Interrupted, the same
    command goes on.
    """
    settings = Settings.of(ctx, options)
    from mpctl.app.session.open import open_session
    from mpctl.cli.outcome import carry_out
    from mpctl.rollout import runner
    from mpctl.rollout.decide import Act

    session = open_session(settings.place, settings.terminal, name)
    decision = decide(session)
    if decision.act is Act.ALREADY:
        session.console.note(f"nothing is kept beside {session.title}")
        return
    if decision.plan is not None:
        question = f"{decision.plan.why}; a rollback then takes an engine start"
        session.console.confirm(f"{question}\nGo on ({session.place})?")
    with session.store.lease("retire"), session.world() as world:
        decision = decide(session)
        operation = decision.operation
        if operation is not None:
            session.console.note(f"going on with {operation.id}, opened {operation.opened_at}")
        elif decision.plan is not None:
            operation = runner.open_plan(world, decision.plan)
        if operation is not None:
            carry_out(session, settings.terminal, world, operation, output)


def decide(session: Session) -> Decision:
    """What to end, from the service and the ledger as they are now.

    Raises:
        Conflict: an operation is unfinished, and its arms are not ours to end.
    """
    from mpctl.rollout.decide import decide_retire
    from mpctl.rollout.operation import open_operation, open_retirement

    entries = session.store.entries()
    return decide_retire(planned(session), session.platform.read(), open_operation(entries), open_retirement(entries))


def planned(session: Session) -> Plan | None:
    """What ends, from the service as it is now; None when nothing is kept."""
    from mpctl.rollout.plan import Kind, Plan, Strategy

    status = session.status()
    beside = [arm.id for arm in status.arms if arm.id != status.routed]
    if not beside:
        return None
    text = session.text()
    return Plan(
        kind=Kind.RETIRE,
        strategy=Strategy.SIDE_BY_SIDE,
        baseline=text,
        text=text,
        spec=status.spec,
        baseline_spec=status.spec,
        why=f"{', '.join(beside)} beside {session.title} ends",
    )
