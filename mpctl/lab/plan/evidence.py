"""Evidence about a service before its plan: acceptance, measured pairs, lengths, devices, and their sources."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from mpctl.app.bench.recorded import FinishedRun, measured_by, read_run, rollouts_of
from mpctl.app.change import Change
from mpctl.app.change.resolve import load_catalogue
from mpctl.app.planned_workload import read_classes_of
from mpctl.app.session.base import Session, Source
from mpctl.errors import InputError, MpctlError
from mpctl.experiment.block import BASELINE, CANDIDATE
from mpctl.experiment.counters import Window
from mpctl.experiment.prompt_files import text_of
from mpctl.experiment.run import Run
from mpctl.gate.analysis import Comparison
from mpctl.lab.payoff.predict import predict
from mpctl.lab.payoff.published_evidence import MeasuredPair, Posterior, published_classes
from mpctl.lab.payoff.scenario import Acceptance, Scenario, check_rates, class_acceptance
from mpctl.lab.plan.cells import acceptance_of
from mpctl.lab.plan.measure import (
    acceptance_in,
    counters_of,
    measure_candidates,
    replay_transcripts,
)
from mpctl.lab.requests import PlanRequest
from mpctl.methods import Spec

_PROMPT, _OUTPUT = 512.0, 256.0
_CHARACTERS = 4.0  # of a token of English text or code
_LEAST_NOISE, _NOISE = 0.02, 0.05
_Z95 = 1.96


@dataclass(frozen=True)
class Evidence:
    """The facts known of a service before its plan."""

    # Acceptance by method, each with its source.
    measured: Mapping[str, tuple[Acceptance, str]] = field(default_factory=dict)
    pairs: tuple[MeasuredPair, ...] = ()
    # Tokens of the KV pool without and with speculation, by method.
    pools: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    notes: tuple[str, ...] = ()

    def pairs_of(self, method: str) -> tuple[MeasuredPair, ...]:
        """The measured pairs of a method."""
        return tuple(pair for pair in self.pairs if pair.method == method)

    def describe(self, method: str, acceptance: Acceptance) -> str:
        """Describe the source of an acceptance."""
        measured, source = self.measured.get(method, (None, ""))
        if measured is not None and measured == acceptance:
            return f"acceptance from {source}"
        words = {
            "measured": "given",
            "published": "published of this draft",
            "class": "of a class of traffic",
        }
        return f"acceptance {words[acceptance.origin]}"

    def learned(self, cell: Scenario, posterior: Posterior, pairs: Sequence[MeasuredPair]) -> str:
        """Describe how measured pairs moved the prediction and its band, at the largest measured concurrency."""
        if not pairs:
            return ""
        largest = replace(cell, concurrency=max(pair.concurrency for pair in pairs))
        before, after = (predict(largest, posterior, some).throughput for some in ((), pairs))
        return (
            f"{len(pairs)} measured pairs: at concurrency {largest.concurrency:g} and K={largest.k} the throughput "
            f"ratio {before.text()} became {after.text()}"
        )

    def with_run(self, name: str, finished: FinishedRun, spec: Spec) -> Evidence:
        """The evidence with one more measurement: its acceptance replaces that of earlier ones, pairs add up.
        ``name``: of the rollout or the file; ``spec`` of its candidate."""
        run, method = finished.run, spec.method
        comparisons = [c for c in finished.judge()[0].cells if c.cell.rate is None]
        lengths = [
            c.baseline.output_tokens / n for c in comparisons if (n := c.baseline.requests) > 0
        ]
        acceptance = _acceptance(run, method)
        pool = run.arms[BASELINE].kv_pool_tokens
        return replace(
            self,
            measured={
                **self.measured,
                **({method: (acceptance, name)} if acceptance is not None else {}),
            },
            pairs=(
                *self.pairs,
                *(pair for c in comparisons if (pair := _pair(c, spec, name)) is not None),
            ),
            pools={
                **self.pools,
                **({method: (pool, run.arms[CANDIDATE].kv_pool_tokens)} if pool else {}),
            },
            devices=tuple(
                dict.fromkeys(
                    (*self.devices, *(arm.device for arm in run.arms.values() if arm.device))
                )
            ),
            output_tokens=sum(lengths) / len(lengths) if lengths else self.output_tokens,
        )


def gather(source: Source, request: PlanRequest, methods: Sequence[str]) -> Evidence:
    """Gather evidence from earlier measurements, transcripts or an engine, or measure a candidate of each method.

    Raises:
        InputError: a file or an address cannot be used, or no engine serves that a candidate could run next to.
    """
    session = source if isinstance(source, Session) else None
    evidence = earlier_measurements(session, request.runs)
    if request.transcripts is not None:
        replayed = replay_transcripts(source, request)
        evidence = replace(
            evidence, prompt_tokens=replayed.prompt_tokens, output_tokens=replayed.output_tokens
        )
        return replace(evidence, measured={**evidence.measured, **replayed.measured})
    if request.url is not None:
        method, acceptance, words = counters_of(request.url, request.methods)
        return replace(evidence, measured={**evidence.measured, method: (acceptance, words)})
    if not request.measure:
        return evidence
    if session is None:
        raise InputError(
            "nothing serves here: a file has no engine to start a candidate beside",
            field="--measure",
            hint="name the service instead of -f, or measure with --transcripts FILE or --url URL",
        )
    measured, notes = measure_candidates(session, request, methods)
    return replace(
        evidence, measured={**evidence.measured, **measured}, notes=(*evidence.notes, *notes)
    )


def earlier_measurements(session: Session | None, files: Sequence[str]) -> Evidence:
    """The evidence of files, then of a service's rollouts, the oldest first. Unreadable records are skipped.

    Raises:
        InputError: a file is not a measurement.
    """
    runs = [(path, FinishedRun(read_run(path))) for path in files]
    if session is not None:
        for operation in rollouts_of(session):
            try:
                measured = measured_by(session, operation)
            except MpctlError as error:
                session.console.warn(f"measurement of {operation.id} not used: {error.message}")
                continue
            if measured is not None and measured.run.blocks:
                runs.append((operation.id, measured))
    evidence, names = Evidence(), []
    for name, finished in runs:
        spec = candidate_spec(finished.run)
        if spec is not None:
            evidence = evidence.with_run(name, finished, spec)
            names.append(name)
    notes = (f"evidence of {len(names)} measurements: {', '.join(names)}",) if names else ()
    return replace(evidence, notes=notes)


def candidate_spec(run: Run) -> Spec | None:
    """The speculation of the candidate; None where it has none, is not known, or was compared with nothing."""
    arm = run.arms.get(CANDIDATE)
    spec = arm.speculation if arm and BASELINE in run.arms else None
    return None if spec is None or spec.is_none else spec


def _pair(comparison: Comparison, spec: Spec, name: str) -> MeasuredPair | None:
    through, time = comparison.throughput_ratio, comparison.time_per_token_ratio
    interval = through or time
    if interval is None:
        return None
    noise = _NOISE
    if (
        interval.low and interval.high and interval.low > 0
    ):  # the standard deviation that the interval stands for
        noise = max(math.log(interval.high / interval.low) / (2 * _Z95), _LEAST_NOISE)
    return MeasuredPair(
        method=spec.method,
        k=spec.k or 5,
        concurrency=float(comparison.cell.concurrency),
        throughput=through.value if through else None,
        time_per_token=time.value if time else None,
        noise=noise,
        source=name,
    )


def _acceptance(run: Run, method: str) -> Acceptance | None:
    """The acceptance of the candidate at the lowest concurrency measured."""
    cells = [cell for cell in run.cells if cell.rate is None]
    least = min((cell.concurrency for cell in cells), default=None)
    windows = tuple(
        b.window
        for b in run.blocks
        if b.arm == CANDIDATE and b.cell.rate is None and b.cell.concurrency == least
    )
    return acceptance_in(Window.total(windows), method) if windows else None


def acceptance_for(
    request: PlanRequest, change: Change, evidence: Evidence, k: int, *, thinking: bool
) -> Acceptance | None:
    """Return the acceptance of a method: as given, as measured, as published for its draft, or of a class of traffic.

    Raises:
        InputError: the given rates are impossible, or a class of traffic is given beside them.
    """
    method = change.spec.method
    if request.rates and request.traffic is not None:
        raise InputError(
            "--acceptance and --traffic are both given", field="--traffic", hint="keep one of them"
        )
    if request.coverage is not None and not request.rates:
        raise InputError(
            "says nothing without --acceptance", field="--coverage", hint="--acceptance 0.7,0.5,0.3"
        )
    if request.rates:
        wrong = check_rates(request.rates)
        if wrong is not None:
            raise InputError(
                wrong, field="--acceptance", hint="one share from 0 to 1 per position: 0.7,0.5,0.3"
            )
        return Acceptance(request.rates, request.coverage or 1.0)
    if method in evidence.measured:
        return evidence.measured[method][0]
    entry = change.selection.entry
    if entry is None and change.spec.draft:
        entry = load_catalogue(None).published(change.spec.draft, None)
    published = acceptance_of(entry, k) if entry is not None and request.traffic is None else None
    if published is not None:
        return published
    classes = published_classes()
    return (
        class_acceptance(method, request.traffic, k, classes, thinking=thinking)
        if request.traffic
        else None
    )


@dataclass(frozen=True)
class Lengths:
    """Mean tokens of a prompt and of an answer, and what was assumed."""

    prompt: float
    output: float
    notes: tuple[str, ...]


def lengths_of(request: PlanRequest, evidence: Evidence) -> Lengths:
    """Return the lengths as given, else from transcripts, prompt files or measured runs, else assumed.

    Raises:
        InputError: a file of prompts cannot be used.
    """
    traffic = [kind for text in request.prompts for kind in read_classes_of(text)]
    notes = [f"prompts of {kind.name}: {note}" for kind in traffic for note in kind.notes]
    prompt = request.prompt_tokens or evidence.prompt_tokens
    if prompt is None and traffic:
        every = [text_of(prompt) for kind in traffic for prompt in kind.prompts]
        prompt = max(sum(map(len, every)) / len(every) / _CHARACTERS, 1.0)
        notes.append(
            f"prompts of {prompt:.0f} tokens on average, at {_CHARACTERS:g} characters each"
        )
    output = request.output_tokens or evidence.output_tokens
    missing = [
        name
        for name, value in (("--prompt-tokens", prompt), ("--output-tokens", output))
        if value is None
    ]
    if missing:
        notes.append(
            f"{' and '.join(missing)} not given: "
            + " and ".join(f"{_PROMPT if 'prompt' in option else _OUTPUT:g}" for option in missing)
            + " assumed"
        )
    return Lengths(prompt or _PROMPT, output or _OUTPUT, tuple(notes))
