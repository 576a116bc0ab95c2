"""The command line of a drill."""

from __future__ import annotations

import argparse
import json
import sys

from mpctl.app.session.base import Place
from mpctl.app.session.open import open_session
from mpctl.app.watch.loop import read_policy, reopen
from mpctl.cli.printer import columns
from mpctl.cli.terminal import Terminal
from mpctl.errors import MpctlError
from scripts import drills
from scripts.drills.faults import DrillOutcome, Fault, Result
from scripts.drills.rig import rig_of
from scripts.drills.run import DrillRequest, run

FAILED = 9  # exit code


def main() -> int:
    """Run a drill and print what became of each fault."""
    parser = argparse.ArgumentParser(
        prog="scripts/drill", description=drills.__doc__, allow_abbrev=False
    )
    parser.add_argument("name", nargs="?", metavar="SERVICE")
    parser.add_argument(
        "--fault", action="append", choices=[fault.value for fault in Fault], help="default: all"
    )
    parser.add_argument(
        "--prompts", action="append", default=[], help="the usual traffic (default: as measured)"
    )
    parser.add_argument(
        "--drift-to", default="chat", help="what the traffic turns to (default: chat)"
    )
    parser.add_argument("--newer-target", help="another version of the target, for stale-head")
    parser.add_argument(
        "--watch-policy", help="limits of the watch; its waiting times are shortened"
    )
    parser.add_argument(
        "--interval", type=float, default=2.0, help="seconds between two readings (default: 2)"
    )
    parser.add_argument(
        "--window", type=float, default=20.0, help="seconds of each measurement (default: 20)"
    )
    parser.add_argument("-n", "--namespace")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument(
        "--json", action="store_true", help="print a JSON object instead of a table"
    )
    options = parser.parse_args()
    terminal, place = Terminal.of_environment(yes=options.yes), Place("local", options.namespace)
    faults = tuple(options.fault or Fault)
    request = DrillRequest(
        faults,
        tuple(options.prompts),
        options.drift_to,
        options.newer_target,
        options.window,
    )
    try:
        session = open_session(place, terminal, options.name)
        policy = read_policy(options.watch_policy, options.interval)
        outcome = run(session, request, policy, reopen(terminal, place), rig_of(session))
    except MpctlError as error:
        terminal.error(error.message, error.hint)
        return error.exit_code
    print(json.dumps(outcome.to_record(), indent=2) if options.json else _table(outcome))
    return 0 if outcome.passed else FAILED


def _table(outcome: DrillOutcome) -> str:
    header = ["FAULT", "FOUND", "DETECTED", "RECOVERED", "RE-ARMED", "FAILED", "SENTINELS"]
    header += ["TOKENS/S BEFORE", "WITHOUT FALLBACK"]
    return columns(
        [[*header, "WITH", "RE-ARMED", "RESULT"], *(_row(result) for result in outcome.results)]
    )


def _row(result: Result) -> list[str]:
    if result.skipped:
        return [result.fault.value, *["-"] * 10, f"left out: {result.skipped}"]
    seconds = [
        _in("s", value) for value in (result.detected_s, result.recovered_s, result.re_armed_s)
    ]
    rates = [
        _in("", value) for value in (result.before, result.during, result.after, result.re_armed)
    ]
    counts = f"{result.failed} of {result.requests}"
    sentinels = (
        "-" if result.load_share is None else f"{result.sentinels} ({result.load_share:.2%})"
    )
    return [
        *(result.fault.value, result.signal or "-", *seconds, counts, sentinels, *rates),
        f"FAILED: {result.failure}" if result.failure else f"passed: {result.action}",
    ]


def _in(unit: str, value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} {unit}".rstrip()


if __name__ == "__main__":
    sys.exit(main())
