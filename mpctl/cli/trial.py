"""``mpctl try``: from a first look at a service to a measured answer, with a question before an engine starts."""

from __future__ import annotations

import math
import shlex
from datetime import UTC, datetime
from importlib.util import find_spec

import click

from mpctl import annex, commands
from mpctl.app.bench.recorded import compare
from mpctl.app.bench_requests import CompareRequest
from mpctl.app.planned_workload import read_workload
from mpctl.app.requests import MeasurementRequest, SpeculationRequest
from mpctl.app.session.base import EngineCounters, ServiceNotFound, Session
from mpctl.cli import root
from mpctl.cli.bench.run import run as bench
from mpctl.cli.command import ASKS, command, read_request, service_argument
from mpctl.cli.context import CliContext
from mpctl.errors import Refused
from mpctl.experiment.workload import Workload
from mpctl.gate.rule import Outcome
from mpctl.methods import METHODS

_START_S = 60.0  # of an engine that nobody measured
_PLAIN = SpeculationRequest(
    next(name for name, row in METHODS.items() if row.engine_method and row.needs_draft == "none")
)


@command("try", service_argument(), *ASKS)
def try_(context: CliContext, /, name: str | None) -> int:
    """Find out whether speculation would pay on a service. Nothing that serves is changed.

    \b
    Examples:
      mpctl try              the only service
      mpctl try qwen -n ml
      mpctl try qwen --yes   without a question

    Checks the cluster, predicts what each method would bring, asks before an engine is started next to the service,
    measures the best method on it, and writes a report. Every step prints the command that it stands for, so each can
    be run alone. Exit code: that of the first step that failed.
    """
    terminal = context.terminal
    if context.place.platform == "kubernetes" and (code := _step(context, commands.line("doctor"))):
        terminal.note("mend what fails first: a rollout would stop there, too")
        return code
    try:
        session = context.open_session(name)
    except ServiceNotFound as error:
        plan = commands.line("plan", "ORG/MODEL", "--spec", "all", "--gpu", "L4")
        raise ServiceNotFound(
            error.message, hint=f"{error.hint}; {plan} predicts for a model without a service"
        ) from None
    before = session.counters()
    workload = _workload(context)
    speculation = _best_method(context, session, workload.concurrency)
    words = [word for text in speculation.settings for word in ("--set", text)]
    minutes = math.ceil(((session.start_s() or _START_S) + 2 * workload.arm_s()) / 60)
    terminal.confirm(
        f"{' '.join((speculation.method, *words))} is measured next to {session.title}: one more engine with as many "
        f"GPUs as the first, for at most about {minutes} min; users stay where they "
        f"are{_users_warning(before, session.counters())}\n"
        "Measure it?"
    )
    stem = f"try-{session.name}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    file = f"{stem}.json.gz"
    if code := _step(
        context, session.command("bench", "--spec", speculation.method, *words, "--run", file)
    ):
        return code
    # The extra "report" brings matplotlib, which the page needs.
    page = stem + (".html" if find_spec("matplotlib") else ".md")
    if code := _step(context, commands.line("report", file, "--output-file", page)):
        return code
    if compare(CompareRequest(file)).verdict.outcome is Outcome.PROMOTE:
        terminal.next_command(session.command("rollout", "--spec", speculation.method, *words))
    else:
        terminal.next_command(commands.line("gate", "explain", file))
    return 0


def _step(context: CliContext, line: str) -> int:
    """Print a command, run it as if it had been typed, and return its exit code."""
    context.terminal.aside(f"\n$ {line}")
    return root.run(context.program, shlex.split(line)[len(context.program.split()) :])


def _users_warning(before: EngineCounters, now: EngineCounters) -> str:
    """What users on the service mean for the measurement, as a clause; empty where none was seen since ``before``."""
    tokens = [
        sum(counters.generation_tokens or 0 for counters in reading.engines.values())
        for reading in (before, now)
    ]
    if tokens[0] == tokens[1] and not any(counters.running for counters in now.engines.values()):
        return ""
    return (
        ". Users are on the service: their tokens count with the baseline's, so this measurement will probably end "
        "undecided; a rollout measures apart from them"
    )


def _workload(context: CliContext) -> Workload:
    """The workload of the bench that follows, which reads the same settings files and variables."""
    group = click.Context(root.cli, click.get_current_context().find_root(), "bench")
    defaults = context.files.defaults(("bench", "run"), bench)
    with bench.make_context("run", [], group, default_map=defaults) as call:
        return read_workload(read_request(MeasurementRequest, call.params))


def _best_method(
    context: CliContext, session: Session, concurrency: tuple[int, ...]
) -> SpeculationRequest:
    """The method that is predicted to gain most at the measured concurrency; n-gram where nothing is predicted."""
    choose = annex.find("choose-method")
    if choose is None:
        context.terminal.note("mpctl/lab is not part of this installation, so nothing is predicted")
        return _PLAIN
    _step(context, session.command("plan", "--spec", "all"))
    try:
        best: SpeculationRequest = choose(session, SpeculationRequest("auto"), concurrency)
    except Refused as refused:
        context.terminal.note(
            f"{refused.message}; n-gram, which needs no draft, can be measured all the same"
        )
        return _PLAIN
    return best
