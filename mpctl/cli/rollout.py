"""``mpctl rollout``: speculation onto a service, behind a measured gate."""

from __future__ import annotations

from importlib import resources
from typing import Any

import click

from mpctl.cli.change import Change, change_diff, change_options, read_change, require_allowed, show_findings
from mpctl.cli.options import name_argument, option, output_option, shared_options, timeout_option, yes_option
from mpctl.cli.outcome import carry_out
from mpctl.cli.session import Session, Settings, open_session, read_file
from mpctl.errors import InputError
from mpctl.measure.gate import Policy
from mpctl.measure.workload import Workload, read_prompts
from mpctl.rollout import machine
from mpctl.rollout.decide import Act, decide_rollout
from mpctl.rollout.operation import Kind, Plan, Strategy, open_operation
from mpctl.rollout.ports import Arm

BUILT_IN = ("edits", "fresh")


@click.command("rollout")
@name_argument
@change_options()
@option(
    "--strategy",
    type=click.Choice([s.value for s in Strategy]),
    default=Strategy.SIDE_BY_SIDE.value,
    help="side-by-side: candidate beside baseline, no downtime; in-place: one engine at a time.",
)
@option("--prompts", default="edits", metavar="edits|fresh|FILE", help="Built-in set, or JSONL with your own prompts.")
@option("--requests", default=8, type=click.IntRange(1), help="Prompts per block.")
@option("--repeats", default=4, type=click.IntRange(1), help="Blocks per arm; they alternate.")
@option("--concurrency", default=1, type=click.IntRange(1), help="Requests in flight.")
@option("--max-tokens", default=384, type=click.IntRange(1), help="Limit of an answer.")
@option("--policy", default=None, metavar="FILE", help="Limits of the gate, YAML; the defaults stand in docs/gate.md.")
@option("--keep-baseline", is_flag=True, help="Leave the old engine running after promotion, for an instant way back.")
@option(
    "--dry-run",
    type=click.Choice(["none", "client"]),
    default="none",
    help="client: all checks and the change, but nothing is done.",
)
@timeout_option("10m")
@yes_option
@output_option("table", "json", "yaml")
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
    session = open_session(settings, name)
    change = read_change(session, options, concurrency=options["concurrency"])
    ignored = tuple(options["ignore"])
    workload = read_workload(options)
    plan = make_plan(change, options, workload)
    decision = decide_rollout(plan, session.platform.read(), open_operation(session.store.entries()))
    if decision.act is Act.ALREADY:
        session.terminal.note(f"service {session.namespace}/{session.name} already runs {change.spec.describe()}")
        return
    show_findings(session.terminal, change, ignored)
    require_allowed(change, ignored)
    for note in session.platform.check(Arm(plan.text), beside=plan.strategy is Strategy.SIDE_BY_SIDE):
        session.terminal.note(f"note: {note}")
    if options["dry_run"] != "none":
        session.terminal.result(change_diff(change))
        session.terminal.note(f"dry run: {explain(session, plan, workload)}")
        return
    if decision.act is Act.OPEN:
        session.terminal.confirm(explain(session, plan, workload) + "\nGo on?", yes=options["yes"])
    with session.store.lease("rollout"), session.world() as world:
        # Read again under the lease: what was true while we asked may not be now.
        decision = decide_rollout(plan, session.platform.read(), open_operation(session.store.entries()))
        if decision.operation is not None:
            session.terminal.note(f"going on with {decision.operation.id}, opened {decision.operation.opened_at}")
            carry_out(session, world, decision.operation, options["output"])
        elif decision.plan is not None:
            session.store.save(plan.workload, "workload", workload.to_record())
            carry_out(session, world, machine.open_plan(world, decision.plan), options["output"])


def read_workload(options: dict[str, Any]) -> Workload:
    """The prompts and how they are sent.

    Raises:
        InputError: the file cannot be used, or holds too few distinct prompts.
    """
    source = options["prompts"]
    if source in BUILT_IN:
        text = (resources.files("mpctl.measure") / "prompts" / f"{source}.jsonl").read_text(encoding="utf-8")
    else:
        text = read_file(source, "--prompts")
    prompts, _ = read_prompts(text, file=source)
    return Workload(
        prompts=prompts,
        repeats=options["repeats"],
        requests=options["requests"],
        concurrency=options["concurrency"],
        max_tokens=options["max_tokens"],
    )


def make_plan(change: Change, options: dict[str, Any], workload: Workload) -> Plan:
    """Pin everything that the rollout will do."""
    policy = read_policy(options["policy"])
    if change.spec.config() is None:
        # Taking speculation away is judged by speed and output; there are no drafts to count.
        policy = Policy.from_record({**policy.to_record(), "min_tokens_per_step": 0})
    return Plan(
        kind=Kind.ROLLOUT,
        strategy=Strategy(options["strategy"]),
        baseline=change.before.to_yaml(),
        text=change.after.to_yaml(),
        spec=change.spec.describe(),
        baseline_spec=change.old_spec.describe(),
        policy=policy,
        workload=f"workload-{workload.digest()[:12]}",
        ready_timeout_s=options["timeout"],
        keep_baseline=options["keep_baseline"],
        why=f"rollout of {change.spec.describe()}",
    )


def read_policy(path: str | None) -> Policy:
    """The gate's limits from a file, or the defaults.

    Raises:
        InputError: the file is no mapping of known limits to numbers.
    """
    if path is None:
        return Policy()
    import yaml

    try:
        record = yaml.safe_load(read_file(path, "--policy"))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise InputError("not YAML", file=path, line=mark.line + 1 if mark else None) from error
    if not isinstance(record, dict):
        raise InputError("must be a mapping of limits to numbers", file=path)
    return Policy.from_record(record, file=path)


def explain(session: Session, plan: Plan, workload: Workload) -> str:
    """What will happen, for the one who is asked."""
    place = {
        Strategy.SIDE_BY_SIDE: "beside the serving engine, no downtime",
        Strategy.IN_PLACE: "in the place of the serving engine, which is down while the other starts",
    }[plan.strategy]
    back = "at once, the old engine is kept" if plan.keep_baseline else "as long as one engine start"
    return (
        f"service {session.namespace}/{session.name}: {plan.baseline_spec} -> {plan.spec}, {place}; "
        f"{workload.repeats} x {workload.requests} prompts to each arm at concurrency {workload.concurrency}; "
        f"rollback from there takes {back}"
    )
