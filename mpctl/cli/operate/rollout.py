"""``mpctl rollout``: speculation onto a service, behind a measured gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mpctl.cli.options.measurement import load_options
from mpctl.cli.options.shared import (
    STRATEGIES,
    ask_options,
    dry_run_option,
    name_argument,
    output_option,
    shared_options,
    timeout_option,
)
from mpctl.cli.options.speculation import change_options
from mpctl.cli.options.traffic import traffic_options
from mpctl.cli.options.types import File, Word, option
from mpctl.cli.settings import Settings

if TYPE_CHECKING:
    from mpctl.app.session.base import Session
    from mpctl.experiment.workload import Workload
    from mpctl.rollout.plan import Plan


@click.command("rollout")
@name_argument
@change_options()
@option(
    "--strategy",
    type=Word(("auto", *STRATEGIES)),
    default="auto",
    help="side-by-side: candidate beside baseline, no downtime; in-place: one engine at a time; auto: what fits.",
)
@option("--accept-downtime", is_flag=True, help="On a cluster without a free GPU: the old pod may go first.")
@load_options
@option("--policy", type=File(), metavar="FILE", help="Gate limits, YAML (defaults: docs/explanation/gate.md).")
@traffic_options
@option("--force", is_flag=True, help="Change a service that Argo CD, Flux or Helm writes, too.")
@dry_run_option
@timeout_option(None)
@ask_options
@output_option
@shared_options
@click.pass_context
def command(ctx: click.Context, /, name: str | None, **options: Any) -> None:  # noqa: PLR0915
    """Roll speculation onto a service behind a measured gate.

    The service is recorded, a candidate engine is started, both are sent the same prompts in alternating blocks, and
    the gate promotes the candidate or everything goes back. Killed at any point, the same command goes on.

    \b
    Examples:
      mpctl rollout --spec ngram                               the only service
      mpctl rollout qwen --spec ngram --set num_speculative_tokens=3
      mpctl rollout qwen --spec eagle3 --draft /models/eagle3 --prompts traffic.jsonl
      mpctl rollout --spec ngram --prompts edits:0.7 --prompts chat:0.3 --concurrency 1,8
      mpctl rollout qwen --spec ngram --traffic-steps 1,10,50  then users' traffic, step by step
      mpctl rollout --spec ngram --dry-run=client              checks and the change, nothing done
    """
    settings = Settings.of(ctx, options)
    from dataclasses import replace

    from mpctl.app.session.load_client import place_load
    from mpctl.app.session.open import open_session
    from mpctl.cli.change import read_change, require_allowed, show_findings, show_pool
    from mpctl.cli.outcome import carry_out
    from mpctl.cli.preview import require_client, show_preview
    from mpctl.cli.request import loader_for, make_plan, read_workload
    from mpctl.cli.strategy import first_choice, fitting, with_traffic
    from mpctl.rollout import runner
    from mpctl.rollout.decide import Act, decide_rollout
    from mpctl.rollout.operation import open_operation
    from mpctl.rollout.plan import Kind

    require_client(options["dry_run"], settings.place.platform)
    session = open_session(settings.place, settings.terminal, name)
    options["timeout"] = session.ready_timeout_s(options["timeout"])
    workload = read_workload(options, loader_for(session))
    change = read_change(session, options, concurrency=workload.most, temperature=max(workload.temperatures))
    unfinished = open_operation(session.store.entries())
    session.load = options["load"] = place_load(options["load"], settings.place.platform, unfinished=unfinished)
    plan = with_traffic(make_plan(change, first_choice(options, unfinished), workload), options)
    decision = decide_rollout(plan, session.platform.read(), unfinished)
    if decision.act is Act.ALREADY:
        session.console.note(f"{session.title} already runs {change.spec.describe()}")
        return
    if decision.act is Act.OPEN and (owner := session.owned(force=options["force"])):
        session.console.warn(owner)
    ignored = tuple(options["ignore"])
    show_findings(settings.terminal, change, ignored)
    require_allowed(change, ignored)
    if unfinished is None or unfinished.plan.kind is Kind.ROLLOUT:  # a way back measures nothing
        session.require_load_client()
    if decision.act is Act.OPEN:
        plan, notes = fitting(session, plan, options)
        for note in notes:
            session.console.note(f"note: {note}")
    if options["dry_run"] != "none":
        show_preview(session, settings.terminal, plan, explain(session, plan, workload), options["output"])
        return
    if decision.act is Act.OPEN:
        session.console.confirm(f"{explain(session, plan, workload)}\nGo on ({session.place})?")
    with session.store.lease("rollout"), session.world() as world:
        # Read again under the lease: what was true while we asked may not be now.
        decision = decide_rollout(plan, session.platform.read(), open_operation(session.store.entries()))
        if decision.operation is not None:
            session.console.note(f"going on with {decision.operation.id}, opened {decision.operation.opened_at}")
            carry_out(session, settings.terminal, world, decision.operation, options["output"])
        elif decision.plan is not None:
            session.store.save(plan.workload, "workload", workload.to_record())
            found = replace(decision.plan, scaling=session.platform.scaling())
            if found.route is not None:
                route = session.platform.route(found.route["name"], found.traffic_steps, force=options["force"])
                found = replace(found, route=route)
            carry_out(session, settings.terminal, world, runner.open_plan(world, found), options["output"])
    show_pool(session, change)


def explain(session: Session, plan: Plan, workload: Workload) -> str:
    """What will happen, for the one who is asked."""
    from mpctl.cli.request import describe_workload
    from mpctl.cli.strategy import describe_back, describe_place, describe_traffic

    place, back = describe_place(session, plan), describe_back(session, plan)
    sent = " from a Job beside the engines" if plan.load == "job" else ""
    return (
        f"{session.title}: {plan.baseline_spec} -> {plan.spec}, {place}; "
        f"{describe_workload(workload)} to each arm{sent}; {describe_traffic(plan)}"
        f"an engine is waited for at most {plan.ready_timeout_s:.0f} s; "
        f"rollback from there takes {back}"
    )
