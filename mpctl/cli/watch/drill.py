"""``mpctl drill``: prove that the watch finds a fault and falls back."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from mpctl.cli.context import CliContext
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import ask_options, name_argument, output_option, shared_options
from mpctl.cli.options.types import Duration, File, Word, option
from mpctl.cli.printer import columns
from mpctl.cli.settings import in_context
from mpctl.watch.drill import Fault

if TYPE_CHECKING:
    from mpctl.app.session.base import Session
    from mpctl.app.watch.drill import DrillOutcome
    from mpctl.watch.drill import Result

FAILED = 9


class DrillOptions(TypedDict):
    """The options as click hands them over."""

    faults: tuple[str, ...]
    prompts: tuple[str, ...]
    drift_to: str
    newer_target: str | None
    watch_policy: str | None
    interval: float
    window: float


@click.command("drill", cls=SectionedCommand)
@name_argument
@option(
    "--fault",
    "faults",
    type=Word(tuple(Fault)),
    multiple=True,
    default=tuple(Fault),
    show_default=False,
    help="What is broken; repeatable (default: everything).",
)
@option(
    "--prompts",
    type=File(),
    multiple=True,
    metavar="[NAME=]FILE|SET",
    help="The usual traffic (default: the built-in sets that the gate measured).",
)
@option("--drift-to", type=File(), metavar="[NAME=]FILE|SET", default="chat", help="What the traffic turns to.")
@option("--newer-target", type=File(), metavar="MODEL", help="Another version of the target, for stale-head.")
@option("--watch-policy", type=File(), metavar="FILE", help="Limits of the watch; its waiting times are shortened.")
@option("--interval", type=Duration(), metavar="DURATION", default="2s", help="Time between two readings.")
@option("--window", type=Duration(), metavar="DURATION", default="20s", help="How long each throughput is measured.")
@ask_options
@output_option
@shared_options
@in_context
def command(context: CliContext, /, name: str | None, **given: Unpack[DrillOptions]) -> None:
    """Break a service of this machine on purpose, and report how the watch meets it.

    \b
    Examples:
      mpctl drill                                   every fault that the service can have
      mpctl drill demo --fault drift --drift-to rag
      mpctl drill demo --fault killed-engine -o json

    Needs a speculation that was promoted behind the gate. Exit code 0: every fault was detected, the service recovered,
    and only a killed engine cost requests. 9: not so. The service ends as it was.
    """
    from mpctl.app.requests import DrillRequest
    from mpctl.app.watch import drill
    from mpctl.cli.watch.run import read_policy, reopen

    policy = read_policy(given["watch_policy"], given["interval"])
    request = DrillRequest(given["faults"], given["prompts"], given["drift_to"], given["newer_target"], given["window"])
    session: Session = context.open_session(name)
    outcome = drill.run(session, request, policy, reopen(context, context.place))
    context.emit(
        "Drill",
        record=lambda: {
            "service": outcome.title,
            "spec": outcome.spec,
            "reference": outcome.reference,
            "intervalSeconds": outcome.interval_s,
            "passed": outcome.passed,
            "faults": [result.to_record() for result in outcome.results],
        },
        names=lambda: [result.fault.value for result in outcome.results],
        table=lambda _wide: _table(outcome),
    )
    if not outcome.passed:
        raise click.exceptions.Exit(FAILED)


def _table(outcome: DrillOutcome) -> str:
    header = ["FAULT", "FOUND", "DETECTED", "RECOVERED", "RE-ARMED", "FAILED", "TOKENS/S BEFORE", "WITHOUT FALLBACK"]
    rows = [[*header, "WITH", "RE-ARMED", "RESULT"], *(_row(result) for result in outcome.results)]
    return columns(rows)


def _row(result: Result) -> list[str]:
    if result.skipped:
        return [result.fault.value, *["-"] * 9, f"left out: {result.skipped}"]
    seconds = [_in("s", value) for value in (result.detected_s, result.recovered_s, result.re_armed_s)]
    rates = [_in("", value) for value in (result.before, result.during, result.after, result.re_armed)]
    counts = f"{result.failed} of {result.requests}"
    return [
        *(result.fault.value, result.signal or "-", *seconds, counts, *rates),
        f"FAILED: {result.failure}" if result.failure else f"passed: {result.action}",
    ]


def _in(unit: str, value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} {unit}".rstrip()
