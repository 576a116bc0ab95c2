"""``mpctl rollout``: speculation onto a service, behind a measured gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mpctl.cli.options import (
    STRATEGIES,
    Word,
    ask_options,
    change_options,
    dry_run_option,
    name_argument,
    option,
    output_option,
    shared_options,
    timeout_option,
)
from mpctl.cli.settings import Settings

if TYPE_CHECKING:
    from mpctl.cli.session import Session
    from mpctl.measure.workload import Workload
    from mpctl.rollout.operation import Plan


@click.command("rollout")
@name_argument
@change_options()
@option(
    "--strategy",
    type=Word(STRATEGIES),
    default=STRATEGIES[0],
    help="side-by-side: candidate beside baseline, no downtime; in-place: one engine at a time.",
)
@option("--prompts", default="edits", metavar="edits|fresh|FILE", help="Built-in set, or JSONL with your own prompts.")
@option("--requests", default=8, type=click.IntRange(1), help="Prompts per block.")
@option("--repeats", default=4, type=click.IntRange(1), help="Blocks per arm; they alternate.")
@option("--concurrency", default=1, type=click.IntRange(1), help="Requests in flight.")
@option("--max-tokens", default=384, type=click.IntRange(1), help="Limit of an answer, in tokens.")
@option("--policy", metavar="FILE", help="Limits of the gate, YAML; the defaults stand in docs/gate.md.")
@option("--keep-baseline", is_flag=True, help="Leave the old engine running after promotion, for an instant way back.")
@dry_run_option
@timeout_option("10m")
@ask_options
@output_option
@shared_options
@click.pass_context
def command(ctx: click.Context, /, name: str | None, **options: Any) -> None:
    """Roll speculation onto a service behind a measured gate.

    The service is recorded, a candidate engine is started, both are sent the same prompts in alternating blocks, and
    the gate promotes the candidate or everything goes back. Killed at any point, the same command goes on.

    \b
    Examples:
      mpctl rollout --spec ngram                               the only service
      mpctl rollout qwen --spec ngram --set num_speculative_tokens=3
      mpctl rollout qwen --spec eagle3 --draft /models/eagle3 --prompts traffic.jsonl
      mpctl rollout --spec ngram --dry-run=client              checks and the change, nothing done
    """
    settings = Settings.of(ctx, options)
    from mpctl.cli.change import read_change, require_allowed, show_findings
    from mpctl.cli.outcome import carry_out
    from mpctl.cli.preview import require_client, show_preview
    from mpctl.cli.request import make_plan, read_workload
    from mpctl.cli.session import open_session
    from mpctl.rollout import machine
    from mpctl.rollout.decide import Act, decide_rollout
    from mpctl.rollout.operation import Strategy, open_operation
    from mpctl.rollout.ports import Arm

    require_client(options["dry_run"])
    session = open_session(settings, name)
    change = read_change(session, options, concurrency=options["concurrency"])
    workload = read_workload(options)
    plan = make_plan(change, options, workload)
    decision = decide_rollout(plan, session.platform.read(), open_operation(session.store.entries()))
    if decision.act is Act.ALREADY:
        session.terminal.note(f"{session.title} already runs {change.spec.describe()}")
        return
    ignored = tuple(options["ignore"])
    show_findings(session.terminal, change, ignored)
    require_allowed(change, ignored)
    for note in session.platform.check(Arm(plan.text), beside=plan.strategy is Strategy.SIDE_BY_SIDE):
        session.terminal.note(f"note: {note}")
    if options["dry_run"] == "client":
        show_preview(session, plan, explain(session, plan, workload), options["output"])
        return
    if decision.act is Act.OPEN:
        session.terminal.confirm(f"{explain(session, plan, workload)}\nGo on?", yes=options["yes"])
    with session.store.lease("rollout"), session.world() as world:
        # Read again under the lease: what was true while we asked may not be now.
        decision = decide_rollout(plan, session.platform.read(), open_operation(session.store.entries()))
        if decision.operation is not None:
            session.terminal.note(f"going on with {decision.operation.id}, opened {decision.operation.opened_at}")
            carry_out(session, world, decision.operation, options["output"])
        elif decision.plan is not None:
            session.store.save(plan.workload, "workload", workload.to_record())
            carry_out(session, world, machine.open_plan(world, decision.plan), options["output"])


def explain(session: Session, plan: Plan, workload: Workload) -> str:
    """What will happen, for the one who is asked."""
    from mpctl.rollout.operation import Strategy

    place = {
        Strategy.SIDE_BY_SIDE: "beside the serving engine, no downtime",
        Strategy.IN_PLACE: "in the place of the serving engine, which is down while the other starts",
    }[plan.strategy]
    back = "at once, the old engine is kept" if plan.keep_baseline else "as long as one engine start"
    return (
        f"{session.title}: {plan.baseline_spec} -> {plan.spec}, {place}; "
        f"{workload.repeats} x {workload.requests} prompts to each arm at concurrency {workload.concurrency}; "
        f"rollback from there takes {back}"
    )
