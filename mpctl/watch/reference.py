"""The gate's measurements, recorded with the promotion so that the watch compares like with like.

Acceptance alone is the wrong signal: in a published run it stayed at 0.86 to 0.91 while speculation went from a gain of
23 % at batch 1 to a loss of 16 % at batch 32 (vllm pull request 26504). So the reference holds time per token, step
time and tokens per step for each class of traffic and load, together with the baseline's.

The load of a band is the mean number of requests that decoded at once, from the same counters as everything else:
seconds between tokens, summed over requests, per second (Little's law). It needs no gauge, which a scrape may miss.

A profile of live traffic is compared with it, in counts: how long answers are, how many requests run at once, and how
drafts are accepted. No text and no request is kept, and its size does not grow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mpctl.experiment.block import BASELINE, CANDIDATE, Block
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import CacheUse, Window
from mpctl.experiment.run import Run
from mpctl.experiment.users import UsersTraffic
from mpctl.json_types import Json
from mpctl.methods import METHODS, Spec
from mpctl.records import Record, decode
from mpctl.stats.confidence import Stage, mean_interval
from mpctl.watch.reading import ServiceWindow

RECORD = "reference"  # the name of the record of the operation that promoted
LEVEL = 0.95
_LEAST_REQUESTS = 200.0  # whose use of the prefix cache is a reference
_USERS = "users"  # the class of traffic of users' requests
_REACH, _REACH_MORE = (
    1.25,
    0.5,
)  # times and plus the largest measured load, up to which the last band still holds


@dataclass(frozen=True)
class MeanFigure:
    """A figure over the rounds of the measurement with its 95 % confidence interval; open where a round has none."""

    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, values: Iterable[float | None]) -> MeanFigure | None:
        """The mean over rounds; None without a single value."""
        present = [v for v in values if v is not None]
        if not present:
            return None
        side = (1.0 - LEVEL) / 2
        mean = mean_interval(present, Stage(1, 1, below=side, above=side))
        return cls(mean.value, mean.low, mean.high)


@dataclass(frozen=True)
class LoadBand:
    """A class of traffic at one load. ``batch``: requests that decoded at once; ``baseline_*``: the arm without the
    change; ``answer_tokens``: mean length of an answer. Times are None where the engine reports none."""

    traffic: str
    temperature: float
    batch: float
    rounds: int
    tokens_per_step: MeanFigure
    time_per_token_ms: MeanFigure | None = None
    step_ms: MeanFigure | None = None
    first_acceptance: MeanFigure | None = None
    coverage: MeanFigure | None = None
    baseline_tokens_per_step: float = 1.0
    baseline_step_ms: float | None = None
    answer_tokens: float | None = None


_RATES = ("tokens_per_step", "baseline_tokens_per_step")
_MEANS = ("time_per_token_ms", "step_ms", "baseline_step_ms", "first_acceptance", "coverage")


@dataclass(frozen=True)
class Expected:
    """The reference at a load. ``slack``: logarithm of the upper confidence bound of the time per token over
    its value; ``within``: whether the load was measured."""

    tokens_per_step: float
    time_per_token_ms: float | None
    step_ms: float | None
    baseline_step_ms: float | None
    baseline_tokens_per_step: float
    first_acceptance: float | None
    coverage: float | None
    slack: float
    within: bool

    @property
    def break_even(self) -> float | None:
        """Tokens per step at which speculation costs as much as it gains: the step with a draft over the one without.
        Load and contention slow both, so that the ratio holds where times do not."""
        if not self.step_ms or not self.baseline_step_ms:
            return None
        return self.baseline_tokens_per_step * self.step_ms / self.baseline_step_ms


@dataclass(frozen=True)
class Reference(Record):
    """The measurement behind a promotion. ``spec``: in words; ``lookup``: the method drafts from text that repeats, so
    that a low acceptance says nothing of a model; ``shares`` of the classes of traffic, empty where unknown; ``cache``:
    use of the prefix cache by users' requests, None where unknown or where the method costs no hits."""

    operation: str
    created: str
    spec: str
    method: str
    lookup: bool
    bands: tuple[LoadBand, ...]
    shares: Mapping[str, float] = field(default_factory=dict)
    cache: CacheUse | None = None

    @classmethod
    def of(cls, run: Run, spec: Spec) -> Reference | None:
        """Condense the measurement of a promoted spec; None where nothing of it can be compared with an engine. Where
        users' requests were measured, their load is the one that holds, and not that of the prompts sent beside them.
        """
        if run.placement.users_set_load:
            bands = tuple(band for band in (_band_of_users(run.traffic),) if band is not None)
        else:
            bands = tuple(
                band for cell in run.cells if (band := _band(cell, run.of_cell(cell))) is not None
            )
        if not bands:
            return None
        row = METHODS.get(spec.method)
        return cls(
            operation=run.id,
            created=run.created,
            spec=spec.describe(),
            method=spec.method,
            lookup=row is not None and not row.loads_weights,
            bands=bands,
            shares=dict(run.shares),
            cache=_users_cache(run) if row is None or row.prompt_states else None,
        )

    def expected(self, batch: float) -> Expected:
        """The service's figures at this load; between two measured loads linearly, as the time of a step grows.

        Classes of traffic are weighted by their shares. Where these are unknown the slowest class counts, so that a
        service is not reported as slow for having more of it.
        """
        classes = sorted({(b.traffic, b.temperature) for b in self.bands})
        curves = [[b for b in self.bands if (b.traffic, b.temperature) == name] for name in classes]
        by_class = [_at(sorted(bands, key=lambda b: b.batch), batch) for bands in curves]
        if len(by_class) == 1:
            return by_class[0]
        weights = [self.shares.get(traffic, 0.0) for traffic, _ in classes]
        if not sum(weights):
            slowest = max(
                range(len(by_class)),
                key=lambda i: (by_class[i].time_per_token_ms or 0.0, -by_class[i].tokens_per_step),
            )
            weights = [float(i == slowest) for i in range(len(by_class))]
        return _mixed(by_class, [w / sum(weights) for w in weights])

    @classmethod
    def from_record(cls, record: Any) -> Reference:
        """The value :meth:`to_record` wrote.

        Raises:
            ValueError: a field is missing, unknown or of another type, or there is no band.
        """
        reference = decode(cls, record)
        if not reference.bands or any(
            not b.batch > 0 or not b.tokens_per_step.value > 0 for b in reference.bands
        ):
            raise ValueError("no band with a load and tokens per step above zero")
        return reference


def batch_of(window: Window, seconds: float, engines: int = 1) -> float | None:
    """Mean number of requests that decoded at once on an engine; None where the engine reports no step times."""
    if window.itl_seconds is None or seconds <= 0 or engines < 1:
        return None
    return window.itl_seconds / seconds / engines


@dataclass(frozen=True, slots=True)
class Figures:
    """A window. ``batch``: requests that decoded at once on an engine; ``answer_tokens``: generated per request that
    got its first token; the others as in the reference."""

    batch: float | None
    tokens_per_step: float | None
    step_ms: float | None
    time_per_token_ms: float | None
    first_acceptance: float | None
    coverage: float | None
    tokens_per_second: float
    answer_tokens: float | None = None

    @classmethod
    def of(cls, interval: ServiceWindow) -> Figures:
        """Read a window that is whole."""
        window = interval.window
        assert window is not None
        return cls(
            batch=batch_of(window, interval.seconds, interval.engines),
            tokens_per_step=window.tokens_per_step,
            step_ms=window.step_ms,
            time_per_token_ms=window.time_per_token_ms,
            first_acceptance=next(iter(window.position_rates), None),
            coverage=window.coverage,
            tokens_per_second=window.generation_tokens / interval.seconds,
            answer_tokens=window.generation_tokens / window.ttft_count
            if window.ttft_count
            else None,
        )


def _band(cell: Cell, blocks: Sequence[Block]) -> LoadBand | None:
    mine = [b for b in blocks if b.arm == CANDIDATE]
    loads = [load for b in mine if (load := batch_of(b.window, b.duration_s))]
    return _band_of(
        [b.window for b in mine],
        [b.window for b in blocks if b.arm == BASELINE],
        traffic=cell.traffic,
        temperature=cell.temperature,
        batch=math.fsum(loads) / len(loads) if loads else float(cell.concurrency),
        tokens=sum(b.output_tokens for b in mine),
        answered=sum(len(b.completed) for b in mine),
    )


def _users_cache(run: Run) -> CacheUse | None:
    """What users had from the prefix cache: of the candidate where it answered them, else of the baseline since its
    start. None where they were too few to tell."""
    if run.traffic is not None:
        use = Window.total(tuple(w.candidate for w in run.traffic.windows)).cache_use
    else:
        conditions = run.arms.get(BASELINE)
        use = None if conditions is None else conditions.cache_use
    return use if use is not None and use.requests >= _LEAST_REQUESTS else None


def _band_of_users(traffic: UsersTraffic | None) -> LoadBand | None:
    windows = () if traffic is None else traffic.windows
    loads = [load for w in windows if (load := batch_of(w.candidate, w.seconds))]
    if not loads:
        return None
    return _band_of(
        [w.candidate for w in windows],
        [w.baseline for w in windows],
        traffic=_USERS,
        temperature=0.0,
        batch=math.fsum(loads) / len(loads),
        tokens=math.fsum(w.candidate.generation_tokens for w in windows),
        answered=math.fsum(w.candidate.tpot_count or 0.0 for w in windows),
    )


def _band_of(
    candidate: Sequence[Window],
    baseline: Sequence[Window],
    *,
    traffic: str,
    temperature: float,
    batch: float,
    tokens: float,
    answered: float,
) -> LoadBand | None:
    """The band of windows of both arms; None where the candidate's tokens per step are unknown. ``tokens``: of the
    ``answered`` requests of the candidate."""
    per_step = MeanFigure.of(w.tokens_per_step for w in candidate)
    if per_step is None or per_step.value <= 0:
        return None
    return LoadBand(
        traffic=traffic,
        temperature=temperature,
        batch=batch,
        rounds=len(candidate),
        tokens_per_step=per_step,
        time_per_token_ms=MeanFigure.of(w.time_per_token_ms for w in candidate),
        step_ms=MeanFigure.of(w.step_ms for w in candidate),
        first_acceptance=MeanFigure.of(next(iter(w.position_rates), None) for w in candidate),
        coverage=MeanFigure.of(w.coverage for w in candidate),
        baseline_tokens_per_step=_mean(w.tokens_per_step for w in baseline) or 1.0,
        baseline_step_ms=_mean(w.step_ms for w in baseline),
        answer_tokens=tokens / answered if answered else None,
    )


def _mean(values: Iterable[float | None]) -> float | None:
    mean = MeanFigure.of(values)
    return None if mean is None else mean.value


def _at(bands: list[LoadBand], batch: float) -> Expected:
    """A class of traffic at a load; ``bands`` sorted by load."""
    lower = max((i for i, b in enumerate(bands) if b.batch <= batch), default=0)
    upper = min(lower + 1, len(bands) - 1)
    low, high = bands[lower], bands[upper]
    share = 0.0
    if upper != lower and batch > low.batch:
        share = (batch - low.batch) / (high.batch - low.batch)

    def interpolated(name: str) -> float | None:
        figures = (getattr(band, name) for band in (low, high))
        at_low, at_high = (f.value if isinstance(f, MeanFigure) else f for f in figures)
        return None if at_low is None or at_high is None else at_low + share * (at_high - at_low)

    figures: Json = {name: interpolated(name) for name in (*_RATES, *_MEANS)}
    within = batch <= bands[-1].batch * _REACH + _REACH_MORE
    return Expected(**figures, slack=max(_slack(low), _slack(high)), within=within)


def _slack(band: LoadBand) -> float:
    """The slack of the time per token, or where there is none of tokens per step."""
    figure = band.time_per_token_ms
    if figure is not None:
        return math.log(figure.high / figure.value) if figure.high and figure.value > 0 else 0.0
    low = band.tokens_per_step.low
    return math.log(band.tokens_per_step.value / low) if low and low > 0 else 0.0


def _mixed(by_class: list[Expected], weights: list[float]) -> Expected:
    """Classes of traffic by their weights: times are means, tokens per step the mean over steps."""

    weighted = [(e, w) for e, w in zip(by_class, weights, strict=True) if w]

    def mean(name: str, power: int = 1) -> float | None:
        values = [(getattr(e, name), w) for e, w in weighted]
        if any(v is None for v, _ in values):
            return None
        return math.fsum(v**power * w for v, w in values)

    figures: Json = {name: mean(name) for name in _MEANS}
    figures |= {name: 1.0 / (mean(name, -1) or 1.0) for name in _RATES}
    return Expected(
        **figures,
        slack=max(e.slack for e, _ in weighted),
        within=all(e.within for e, _ in weighted),
    )


_MEMORY = 240.0  # windows: an hour at the default interval
_LEAST = 40.0  # windows of a profile that is compared
_OTHER = math.log(2.0)  # a mean that doubled or halved
_HIGH, _LOW = 1.5, 0.25  # of the gain in tokens per step that was measured
_BATCHES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)


@dataclass(frozen=True, slots=True)
class Profile:
    """Exponentially weighted means over windows. ``loads``: share of the windows by requests at once (powers of two);
    ``answer_tokens``: mean length of an answer."""

    weight: float = 0.0
    answer_tokens: float | None = None
    tokens_per_step: float | None = None
    loads: tuple[float, ...] = (0.0,) * (len(_BATCHES) + 1)

    def after(self, figures: Figures) -> Profile:
        """Return the profile with one more window."""
        weight = min(self.weight + 1.0, _MEMORY)
        part = 1.0 / weight
        index = sum(1 for least in _BATCHES if (figures.batch or 0.0) >= least)
        return replace(
            self,
            weight=weight,
            answer_tokens=_towards(self.answer_tokens, figures.answer_tokens, part),
            tokens_per_step=_towards(self.tokens_per_step, figures.tokens_per_step, part),
            loads=tuple(old + part * (float(i == index) - old) for i, old in enumerate(self.loads)),
        )

    def differences(self, reference: Reference) -> tuple[str, ...]:
        """Differences of the traffic from what the gate measured; empty while it resembles it or little is known."""
        if self.weight < _LEAST:
            return ()
        differences = []
        measured = [b.answer_tokens for b in reference.bands if b.answer_tokens]
        if measured and self.answer_tokens and is_outside(self.answer_tokens, measured):
            differences.append(
                f"answers have {self.answer_tokens:.0f} tokens, measured were {_span(measured)}"
            )
        if odd := self._odd_acceptance([b.tokens_per_step.value for b in reference.bands]):
            differences.append(odd)
        most = max(b.batch for b in reference.bands) * 1.25
        above = math.fsum(
            s for least, s in zip(_BATCHES, self.loads[1:], strict=True) if least > most
        )
        if above > 0.2:
            differences.append(
                f"{above:.0%} of the time more requests decode at once than the {most:.0f} measured"
            )
        return tuple(differences)

    def _odd_acceptance(self, measured: list[float]) -> str:
        """Note an acceptance that no class of traffic had: answers that loop are foreseen better than any text, and
        garbled ones hardly at all."""
        high, low = 1.0 + _HIGH * (max(measured) - 1.0), 1.0 + _LOW * (min(measured) - 1.0)
        if self.tokens_per_step is None or low <= self.tokens_per_step <= high:
            return ""
        cause = "answers may loop" if self.tokens_per_step > high else "answers may be garbled"
        return f"tokens per step are {self.tokens_per_step:.2f}, measured were {_span(measured, 2)}: {cause}"


def _towards(old: float | None, new: float | None, part: float) -> float | None:
    if new is None:
        return old
    return new if old is None else old + part * (new - old)


def is_outside(value: float, measured: list[float]) -> bool:
    """Return whether a mean doubled or halved against everything that was measured."""
    return value > max(measured) * math.exp(_OTHER) or value < min(measured) / math.exp(_OTHER)


def _span(values: list[float], digits: int = 0) -> str:
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"
