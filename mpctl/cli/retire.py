"""``mpctl retire``: let an old engine go that a rollout kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mpctl.cli.options import ask_options, name_argument, output_option, shared_options
from mpctl.cli.settings import Settings

if TYPE_CHECKING:
    from mpctl.cli.session import Session
    from mpctl.rollout.operation import Plan


@click.command("retire")
@name_argument
@ask_options
@output_option
@shared_options
@click.pass_context
def command(ctx: click.Context, /, name: str | None, output: str, **options: Any) -> None:
    """End the old engine that mpctl rollout --keep-baseline left running, and give its GPUs back.

    A rollback then takes an engine start. A next rollout and a rollback end it by themselves.
    """
    settings = Settings.of(ctx, options)
    from mpctl.cli.outcome import carry_out
    from mpctl.cli.session import open_session
    from mpctl.rollout import machine

    session = open_session(settings, name)
    plan = planned(session)
    if plan is None:
        session.terminal.note(f"nothing is kept beside {session.title}")
        return
    question = f"{plan.why}; a rollback then takes an engine start"
    session.terminal.confirm(f"{question}\nGo on ({session.place})?", yes=options["yes"])
    with session.store.lease("retire"), session.world() as world:
        plan = planned(session)
        if plan is not None:
            carry_out(session, world, machine.open_plan(world, plan), output)


def planned(session: Session) -> Plan | None:
    """What ends, from the service as it is now; None when nothing is kept.

    Raises:
        Conflict: an operation is unfinished, and its arms are not ours to end.
    """
    from mpctl.errors import Conflict
    from mpctl.rollout.operation import Kind, Plan, Strategy, open_operation

    unfinished = open_operation(session.store.entries())
    if unfinished is not None:
        raise Conflict(
            f"{unfinished.id} of {session.title} is unfinished ({unfinished.plan.spec})",
            hint="mpctl resume goes on with it, mpctl rollback restores the service",
        )
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
