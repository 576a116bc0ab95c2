"""Search the configuration that serves fastest, on real engines, within a time limit; nothing that serves changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mpctl.app.bench.arms import INTERRUPTED, place_client, require_no_retained
from mpctl.app.bench.measure import directory_of, locked
from mpctl.app.bench.recorded import choose_file, write_run
from mpctl.app.change import prepare
from mpctl.app.planned_workload import describe_workload, read_workload_with_notes
from mpctl.app.session.base import Session, who
from mpctl.errors import InputError, MpctlError, Refused
from mpctl.gate.rule import Outcome
from mpctl.gate.verdict import Verdict
from mpctl.json_types import Json
from mpctl.lab.payoff.schedule import honours_schedule
from mpctl.lab.plan import service_plan
from mpctl.lab.plan.result import ServicePlan
from mpctl.lab.requests import PlanRequest, TuneRequest
from mpctl.lab.tune.halving import search
from mpctl.lab.tune.trials import (
    Configuration,
    Trials,
    Tried,
    best_by_concurrency,
    judged_among,
    schedule,
    speculation_of,
    starting_field,
)
from mpctl.methods import Spec, from_config, parse_version
from mpctl.platform.file_store import FileStore
from mpctl.platform.state_files import state_root


@dataclass(frozen=True)
class Tuned:
    """``tried``, the best first; ``verdict`` of the gate on the first; ``spec`` of it; ``spec_file``: where it was
    written, None unless the outcome is to promote it. ``ended``: why the search ended."""

    id: str
    tried: tuple[Tried, ...]
    untried: tuple[Configuration, ...]
    verdict: Verdict
    spec: Spec
    file: str
    spec_file: str | None
    seconds: float
    ended: str

    @property
    def outcome(self) -> Outcome:
        """The gate's, and never promote without a gain, whatever the policy allows."""
        gain = self.tried[0].gain
        return self.verdict.outcome if gain is not None and gain.value > 1 else Outcome.REJECT


def tune(session: Session, request: TuneRequest) -> Tuned:
    """Run a search; after an interruption, the same request continues it.

    Raises:
        InputError: an option cannot be used.
        Refused: no configuration can run.
        Conflict: the same search runs in another process, or the service has an unfinished operation.
        MpctlError: no configuration could be measured.
    """
    measurement = request.bench.measurement
    bench = replace(request.bench, measurement=replace(measurement, time_limit_s=0.0))
    if measurement.asks_for_variants:
        raise InputError(
            "cannot be combined with contexts, thinking and adapters: a search measures one class at a time",
            field="--tune",
        )
    workload = read_workload_with_notes(
        session.console, bench.measurement, request.speculation.accepted
    )
    config: Json | None = session.service().speculation()
    serving = from_config(config)
    if serving.known is not None and serving.known.remembers_answers:
        raise Refused(
            f"{session.title} runs {serving.method}, which remembers answers: each trial would find it faster",
            hint=f"measure against another engine: '{session.command('rollout', '--spec', 'none')}' first",
        )
    require_no_retained(session)
    place_client(session, bench)
    methods, speculation = request.methods, replace(request.speculation, method="")
    question = PlanRequest(
        methods, speculation, workload.concurrency or (1,), prompts=measurement.prompts
    )
    plan = service_plan.run(session, question)
    field = _field(session, request, plan, serving)
    home = state_root() / "bench"
    names = "\n".join(configuration.name for configuration in field)
    directory = directory_of(
        home, f"tune {session.title} {session.text()}\n{names}\n{workload.digest()}"
    )
    run_id = f"bench-{directory.name}"
    file = choose_file(bench.run_file, run_id)
    console = session.console
    with locked(home, directory.name), session.context(interrupted=INTERRUPTED) as context:
        store = FileStore(directory, who())
        limit = f", within {measurement.time_limit_s:.0f} s" if measurement.time_limit_s else ""
        console.note(
            f"{run_id}: {len(field)} configurations{limit}; {describe_workload(workload)} to each arm"
        )
        trials = Trials(
            session, context, bench, request.speculation, workload, store, run_id, list(field)
        )
        search_outcome = search(
            len(field), workload.repeats, trials, limit_s=measurement.time_limit_s
        )
        seconds, best = search_outcome.seconds, search_outcome.best
        ended = (
            "the best configuration had all rounds"
            if search_outcome.finished
            else "the time is over"
        )
        if best is not None and (
            not measurement.time_limit_s or seconds < measurement.time_limit_s / 2
        ):
            best = _with_schedule(trials, plan, best, workload.repeats)
        result = _result(trials, best, search_outcome.untried, seconds, ended, file)
        store.save(run_id, "finished", {"file": str(Path(file).absolute())})
    return result


def _field(
    session: Session, request: TuneRequest, plan: ServicePlan, serving: Spec
) -> tuple[Configuration, ...]:
    """Return the configurations to try: those of the plan except the serving one, and no speculation if some serves.

    Raises:
        Refused: no configuration can run.
    """
    fixed = {text.partition("=")[0].replace("-", "_") for text in request.speculation.settings}
    configurations = starting_field(plan, frozenset(fixed))
    if not serving.is_none:
        configurations = (*configurations, Configuration("none"))
    configurations = tuple(
        configuration
        for configuration in configurations
        if configuration.method == "none"
        or prepare(session, speculation_of(configuration, request.speculation)).spec != serving
    )
    if not configurations:
        reasons = [
            f"{method.method}: {method.refusal.reason if method.refusal else 'refused by the preflight'}"
            for method in plan.methods
        ]
        raise Refused(
            f"{session.title}: no configuration to try ({'; '.join(reasons) or 'no method is named'})",
            hint=f"{session.command('plan', '--spec', 'all')} says what is missing",
        )
    return configurations


def _with_schedule(trials: Trials, plan: ServicePlan, best: int, rounds: int) -> int:
    """Return the best configuration, or a schedule of the best K at each concurrency if the engine supports one."""
    method = trials.configurations[best].method
    grid = next((planned.grid for planned in plan.methods if planned.method == method), None)
    session = trials.session
    engine = (
        grid.entries[0].cell.engine
        if grid
        else parse_version(session.engine_version(session.service()))
    )
    settings = schedule(method, best_by_concurrency(trials.known, method))
    if settings is None or not honours_schedule(engine):
        return best
    scheduled = Configuration(method, settings)
    if scheduled.settings in {configuration.settings for configuration in trials.configurations}:
        return best
    trials.configurations.append(scheduled)
    index = len(trials.configurations) - 1
    standing = trials(index, rounds)
    return best if standing.out or _value(trials, index) <= _value(trials, best) else index


def _result(
    trials: Trials,
    best: int | None,
    untried: Sequence[int],
    seconds: float,
    ended: str,
    file: str,
) -> Tuned:
    order = sorted(
        trials.known,
        key=lambda i: (
            i != best,
            bool(trials.known[i].failed),
            -trials.known[i].rounds,
            -_value(trials, i),
        ),
    )
    tried = tuple(trials.known[index] for index in order)
    if all(trial.failed for trial in tried):
        reasons = "; ".join(f"{trial.configuration.name}: {trial.failed}" for trial in tried)
        raise MpctlError(
            f"no configuration could be measured: {reasons}",
            hint=f"{trials.session.command('plan', '--spec', 'all')} checks each",
        )
    first = tried[0]
    run, verdict = judged_among(first, len(tried))
    write_run(file, replace(run, id=trials.run_id))
    change = prepare(trials.session, speculation_of(first.configuration, trials.speculation))
    skipped = tuple(trials.configurations[index] for index in untried)
    spec_file = file.removesuffix(".gz").removesuffix(".json") + ".spec.json"
    tuned = Tuned(
        trials.run_id, tried, skipped, verdict, change.spec, file, spec_file, seconds, ended
    )
    if tuned.outcome is not Outcome.PROMOTE:
        return replace(tuned, spec_file=None)
    config = change.spec.config() or {"method": "none"}
    if change.selection.draft is not None:  # as it was named, not where it was staged
        config["model"] = change.selection.draft
    Path(spec_file).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return tuned


def _value(trials: Trials, index: int) -> float:
    gain = trials.known[index].gain
    return gain.value if gain else 0.0
