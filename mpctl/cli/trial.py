"""``mpctl try``: from a first look at a service to a measured answer, with a question before an engine starts."""

from __future__ import annotations

import itertools
import math
import shlex
from importlib.util import find_spec
from pathlib import Path

from mpctl import annex, commands
from mpctl.app.bench.recorded import compare
from mpctl.app.bench_requests import CompareRequest
from mpctl.app.planned_workload import read_workload
from mpctl.app.requests import MeasurementRequest, SpeculationRequest
from mpctl.app.session.base import Session
from mpctl.app.session.open import open_sessions
from mpctl.cli import root
from mpctl.cli.command import ASKS, command, service_argument
from mpctl.cli.context import CliContext
from mpctl.errors import InputError, Refused
from mpctl.gate.rule import Outcome

_START_S, _ANSWER_S = 60.0, 8.0  # of an engine and of an answer that nobody measured
_PLAIN = SpeculationRequest("ngram")  # needs no draft, and no model refuses it


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
    place, terminal = context.place, context.terminal
    cluster = place.platform == "kubernetes"
    if cluster and (code := _step(context, commands.line("doctor", namespace=place.namespace))):
        terminal.note("mend what fails first: a rollout would stop there, too")
        return code
    sessions = open_sessions(place, terminal, name, everywhere=False, listed=True)
    if not sessions:
        return _without_service(context, cluster=cluster)
    names = {session.name: session for session in sessions}
    chosen = sessions[0].name if len(names) == 1 else terminal.ask("Service", tuple(names))
    session = context.open_session(chosen)
    speculation = _best_method(context, session)
    words = [word for text in speculation.settings for word in ("--set", text)]
    spec = ("--spec", speculation.method, *words)
    workload = read_workload(MeasurementRequest())
    prompts = workload.repeats * workload.per_round
    minutes = math.ceil(((session.start_s() or _START_S) + 2 * prompts * _ANSWER_S) / 60)
    terminal.confirm(
        f"{' '.join(spec[1:])} is measured next to {session.title}: one more engine with as many GPUs as the first, "
        f"for at most about {minutes} min and {prompts} prompts to each; users stay where they are\nMeasure it?"
    )
    numbered = (f"try-{session.name}-{number}.json.gz" for number in itertools.count(1))
    file = next(name for name in numbered if not Path(name).exists())
    if code := _step(context, session.command("bench", *spec, "--run", file)):
        return code
    plots = all(map(find_spec, ("jinja2", "matplotlib")))
    page = file.removesuffix(".json.gz") + (".html" if plots else ".md")
    if code := _step(context, commands.line("report", file, "--output-file", page)):
        return code
    promotes = compare(CompareRequest(file)).verdict.outcome is Outcome.PROMOTE
    again = session.command("rollout", *spec) if promotes else commands.line("gate", "explain", file)
    terminal.next_command(again)
    return 0


def _step(context: CliContext, line: str) -> int:
    """Print a command, run it as if it had been typed, and return its exit code."""
    context.terminal.aside(f"\n$ {line}")
    return root.run(context.program, shlex.split(line)[len(context.program.split()) :])


def _best_method(context: CliContext, session: Session) -> SpeculationRequest:
    """The method that is predicted to gain most; n-gram where nothing is predicted."""
    terminal, choose = context.terminal, annex.find("choose-method")
    if choose is None:
        terminal.note("mpctl/lab is not part of this installation, so nothing is predicted")
        return _PLAIN
    _step(context, session.command("plan", "--spec", "all"))
    try:
        best: SpeculationRequest = choose(session, SpeculationRequest("auto"), (1,))
    except Refused:
        terminal.note("no gain is predicted for any method; n-gram, which needs no draft, can be measured all the same")
        return _PLAIN
    return best


def _without_service(context: CliContext, *, cluster: bool) -> int:
    """Predict for a model that nobody serves yet.

    Raises:
        InputError: no model was named.
    """
    where = "in this namespace" if cluster else "on this machine, and no cluster is chosen"
    model = context.terminal.ask(f"No service is up {where}. Model to predict for, as ORG/MODEL")
    if "/" not in model:
        raise InputError(
            f"{model or 'nothing'} names no model",
            hint=f"start a service with {commands.line('local', 'up', '-f', 'FILE')}, or choose a cluster with --context",
        )
    plan = commands.line("plan", model, "--spec", "all", "--gpu", context.terminal.ask("GPU"))
    return _step(context, plan)
