"""``mpctl rollback``: the exact way back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mpctl.cli.options.shared import (
    STRATEGIES,
    ask_options,
    dry_run_option,
    name_argument,
    output_option,
    shared_options,
    timeout_option,
)
from mpctl.cli.options.types import Word, option
from mpctl.cli.settings import Settings
from mpctl.errors import InputError, Refused

if TYPE_CHECKING:
    from mpctl.app.session.base import Session
    from mpctl.rollout.decide import Decision
    from mpctl.rollout.plan import Plan


@click.command("rollback")
@name_argument
@option("--to-revision", type=click.IntRange(1), help="Revision to restore; default: the one before.")
@option("--strategy", type=Word(STRATEGIES), help="Default: that of the rollout which is taken back.")
@option("--force", is_flag=True, help="Overwrite somebody else's change; it is kept as a revision first.")
@option("--accept-downtime", is_flag=True, help="The service may be down while an engine starts, on a full node.")
@dry_run_option
@timeout_option(None)
@ask_options
@output_option
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
      mpctl rollback --dry-run=client         what would be restored
    """
    settings = Settings.of(ctx, options)
    from mpctl.app.session.open import open_session
    from mpctl.cli.outcome import carry_out
    from mpctl.cli.preview import require_client, show_preview
    from mpctl.rollout import runner
    from mpctl.rollout.decide import Act

    require_client(options["dry_run"], settings.place.platform)
    session = open_session(settings.place, settings.terminal, name)
    timeout_s = session.ready_timeout_s(options["timeout"])
    decision = decide(session, options, timeout_s)
    if decision.act is Act.ALREADY:
        wanted = options["to_revision"]
        done = f"is revision {wanted}" if wanted else "was rolled back; --to-revision goes further"
        session.console.note(f"{session.title} already {done}")
        return
    plan = decision.operation.plan if decision.operation else None
    if decision.plan is not None:
        plan, notes = as_found(session, decision.plan)
        for note in notes:
            session.console.note(f"note: {note}")
    assert plan is not None
    if options["dry_run"] != "none":
        show_preview(session, settings.terminal, plan, explain(session, plan), options["output"])
        return
    if (owner := session.owned(force=True)) is not None:
        session.console.warn(owner)
    if decision.act is Act.OPEN:
        session.console.confirm(f"{explain(session, plan)}\nGo on ({session.place})?")
    with session.store.lease("rollback"), session.world() as world:
        decision = decide(session, options, timeout_s)
        operation = decision.operation
        if decision.plan is not None:
            operation = runner.open_plan(world, as_found(session, decision.plan)[0])
        if operation is not None:
            carry_out(session, settings.terminal, world, operation, options["output"])


def as_found(session: Session, plan: Plan) -> tuple[Plan, tuple[str, ...]]:
    """The plan with autoscaler and route as they are now, unless it undoes an operation that found them before; and
    notes on a kept arm that cannot be used."""
    from dataclasses import replace

    if plan.undoes is not None:
        return plan, ()
    plan = replace(plan, scaling=session.platform.scaling())
    kept = session.platform.retained_baseline()
    if kept is None:
        return plan, ()
    gone = f"{kept.arm} was kept and ends"
    if kept.arm != plan.arm.id:
        return plan, (f"{gone}: it is not what is restored",)
    if kept.pods_ready < kept.pods:
        return plan, (f"{gone}: {kept.pods_ready} of its pods are ready, the service has {kept.pods}",)
    try:
        # Whoever writes the route: it is put back once the service is restored.
        return replace(plan, instant=True, route=session.platform.route(kept.route, (), force=True)), ()
    except (InputError, Refused) as error:
        return plan, (f"{gone}: {error.message}",)


def decide(session: Session, options: dict[str, Any], timeout_s: float) -> Decision:
    """What to restore, from the service and the ledger as they are now."""
    from dataclasses import replace

    from mpctl.rollout.decide import accepting_downtime, decide_rollback
    from mpctl.rollout.ledger import lost_revisions
    from mpctl.rollout.operation import last_change, open_operation
    from mpctl.rollout.plan import Strategy

    entries, revisions = session.store.entries(), session.store.revisions()
    decision = decide_rollback(
        session.platform.read(),
        open_operation(entries),
        last_change(entries),
        revisions,
        options["to_revision"],
        strategy=Strategy(options["strategy"]) if options["strategy"] else None,
        force=options["force"],
        lost=lost_revisions(entries, revisions),
    )
    # What is undone has a time of its own.
    if decision.plan is not None and (options["timeout"] is not None or decision.plan.undoes is None):
        decision = replace(decision, plan=replace(decision.plan, ready_timeout_s=timeout_s))
    return accepting_downtime(decision) if options["accept_downtime"] else decision


def explain(session: Session, plan: Plan) -> str:
    """What will happen, for the one who is asked."""
    from mpctl.rollout.plan import Strategy

    down = {
        Strategy.SIDE_BY_SIDE: "no downtime",
        Strategy.IN_PLACE: "the service is down while the other engine starts",
    }[plan.strategy]
    if session.platform.rolls:
        down = "the old pod goes before the new one comes" if plan.downtime else "no downtime"
        down += session.start_time() + f", at most {plan.ready_timeout_s:.0f} s are waited for each"
    if plan.instant and plan.route is not None:
        moved = f"one write gives the kept engine all traffic of HTTPRoute {plan.route['name']}"
        down = f"{moved}, then the service is restored behind it: {down}"
    if plan.overwrites:
        down += "; what is live now was changed by somebody else and is kept as a revision"
    return f"{session.title}: back to {plan.spec} ({plan.why}); {down}"
