"""The result of ``mpctl bench --tune``, printed, and its exit code."""

from __future__ import annotations

from dataclasses import replace

from mpctl.app.bench_requests import BenchRequest
from mpctl.app.requests import SpeculationRequest
from mpctl.app.session.base import Session
from mpctl.cli.context import CliContext, Conclusion
from mpctl.cli.printer import columns
from mpctl.errors import GateRejected, InputError, Undecided
from mpctl.formatting import bounds, ratio
from mpctl.gate.rule import Outcome
from mpctl.json_types import Json
from mpctl.lab.requests import TuneRequest
from mpctl.lab.tune.trials import Tried
from mpctl.lab.tune.tune import Tuned, tune


def search(context: CliContext, bench: BenchRequest) -> None:
    """Search the fastest configuration of a service, and print what was tried.

    Raises:
        InputError: an option has no place in a search.
        GateRejected: no configuration is better than the one that serves.
        Undecided: the gate needs more measurements to decide.
    """
    request = _request(bench)
    session = context.open_session(bench.service)
    _conclude(context, session, tune(session, request))


def _request(request: BenchRequest) -> TuneRequest:
    """The request of a search: ``--spec`` names its methods.

    Raises:
        InputError: an option has no place in it.
    """
    for flag, value in (("--candidate", request.candidate), ("--url", request.url)):
        if value:
            raise InputError(
                "cannot be combined with --tune, which starts the engines itself", field=flag
            )
    methods = tuple(
        text.strip() for text in (request.speculation.method or "all").split(",") if text.strip()
    )
    bench = replace(request, speculation=SpeculationRequest())
    return TuneRequest(methods, replace(request.speculation, method=""), bench)


def _conclude(context: CliContext, session: Session, tuned: Tuned) -> None:
    """Print the configurations tried and the command that rolls out the best.

    Raises:
        GateRejected: no configuration is better than the one that serves.
        Undecided: the gate needs more measurements to decide.
    """
    context.emit(
        "Search",
        record=lambda: _record(tuned),
        names=lambda: [trial.configuration.name for trial in tuned.tried[:1]],
        table=lambda _wide: _table(tuned),
    )
    terminal, best = context.terminal, tuned.tried[0].configuration.name
    context.conclusion = Conclusion("searched", f"{best}: {_row(tuned.tried[0])[2]}")
    terminal.note(
        f"{len(tuned.tried)} configurations in {tuned.seconds:.0f} s ({tuned.ended}); best: {tuned.file}"
    )
    if tuned.untried:
        terminal.note(
            f"{len(tuned.untried)} not tried for lack of time: {', '.join(c.name for c in tuned.untried)}"
        )
    reasons = f"throughput ratio {_row(tuned.tried[0])[2]}"
    if tuned.verdict.outcome is tuned.outcome:
        reasons = "; ".join(tuned.verdict.reasons)
    if tuned.outcome is Outcome.REJECT:
        raise GateRejected(
            f"no configuration is better than what serves; the best, {best}: {reasons}"
        )
    if tuned.outcome is Outcome.UNDECIDED:
        raise Undecided(
            f"the best configuration, {best}, is not proven better: {reasons}",
            hint="give it more time or prompts: --max-time, --repeats, --requests",
        )
    terminal.next_command(session.command("rollout", "--spec", f"@{tuned.spec_file}"))


def _table(tuned: Tuned) -> str:
    rows = [["CONFIGURATION", "PREDICTED", "THROUGHPUT RATIO", "ROUNDS", "GATE"]]
    return columns(rows + [_row(trial) for trial in tuned.tried])


def _row(trial: Tried) -> list[str]:
    predicted, gain = trial.configuration.predicted, trial.gain
    return [
        trial.configuration.name,
        ratio(predicted) if predicted else "-",
        "-" if gain is None else f"{ratio(gain.value)} {bounds(gain)}".rstrip(),
        str(trial.rounds),
        trial.failed or trial.outcome,
    ]


def _record(tuned: Tuned) -> Json:
    return {
        "metadata": {"name": tuned.id, "file": tuned.file, "specFile": tuned.spec_file},
        "status": {
            "outcome": tuned.outcome.value,
            "reasons": list(tuned.verdict.reasons),
            "best": tuned.spec.config(),
            "seconds": round(tuned.seconds, 1),
            "ended": tuned.ended,
            "tried": [_tried(trial) for trial in tuned.tried],
            "untried": [configuration.name for configuration in tuned.untried],
        },
    }


def _tried(trial: Tried) -> Json:
    gain = trial.gain
    return {
        "configuration": trial.configuration.name,
        "method": trial.configuration.method,
        "settings": list(trial.configuration.settings),
        "predicted": trial.configuration.predicted,
        "throughputRatio": None
        if gain is None
        else {"value": gain.value, "low": gain.low, "high": gain.high},
        "rounds": trial.rounds,
        "outcome": trial.outcome,
        "failed": trial.failed or None,
    }
