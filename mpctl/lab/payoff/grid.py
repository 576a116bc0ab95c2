"""The table of a plan, concurrency by K: ratios with bands, the call, the best K, the crossover. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from mpctl.json_types import Json
from mpctl.lab.payoff.predict import Band, Prediction, break_even, predict, throughput_point
from mpctl.lab.payoff.published_evidence import (
    LEVELS,
    EvidenceGap,
    Level,
    MeasuredPair,
    Posterior,
    fitted_record,
    level_of,
    outside,
)
from mpctl.lab.payoff.scenario import LOOKUPS, Scenario, regime_of

Call = Literal["gain", "loss", "measure first"]

_GAIN = 1.02  # the lower edge of a gain
_NEAR_ONE = 0.10  # a lookup this near to 1 has no sign
_EQUAL = 0.98  # of the best: a smaller K is as good
_CROSSOVER_FACTOR = 1.5
_MOST_CONCURRENCY = 512


@dataclass(frozen=True)
class GridEntry:
    """A cell of the table with its prediction and what may be said of it."""

    cell: Scenario
    prediction: Prediction
    call: Call
    level: Level
    regime: str
    outside: tuple[EvidenceGap, ...]


@dataclass(frozen=True)
class Choice:
    """For one concurrency: the smallest K within 2 % of the best, all K that are as good, and its entry. ``even``:
    tokens per step at which it neither gains nor loses, None where no acceptance is enough."""

    concurrency: float
    k: int
    equal: tuple[int, ...]
    entry: GridEntry
    even: float | None = None


@dataclass(frozen=True)
class PredictedCrossover:
    """The range of concurrency in which speculation stops paying. ``low`` None: it pays up to ``_MOST_CONCURRENCY``;
    ``high`` None: the range ends above it. Both 0: it never pays."""

    low: float | None
    high: float | None

    def text(self) -> str:
        """``between 40 and 90 concurrent requests``."""
        if self.low is None:
            return f"not found up to {_MOST_CONCURRENCY} concurrent requests"
        if self.low == 0:
            return "speculation does not pay at any concurrency"
        above = f"{self.high:.0f}" if self.high is not None else f"more than {_MOST_CONCURRENCY}"
        return f"between {self.low:.0f} and {above} concurrent requests"


@dataclass(frozen=True)
class Grid:
    """All entries, one choice per concurrency, and the crossover of the best K."""

    entries: tuple[GridEntry, ...]
    choices: tuple[Choice, ...]
    crossover: PredictedCrossover


def answer(cell: Scenario, posterior: Posterior, pairs: Sequence[MeasuredPair] = ()) -> GridEntry:
    """The prediction of one cell and its call."""
    prediction = predict(cell, posterior, pairs)
    level = level_of(cell, pairs)
    unproven = outside(cell, prediction.load, pairs, bound=prediction.pool_bound)
    regime = regime_of(cell, prediction.load, bound=prediction.pool_bound)
    return GridEntry(
        cell, prediction, _call(cell, prediction, level, unproven), level, regime, unproven
    )


def _call(
    cell: Scenario, prediction: Prediction, level: Level, unproven: tuple[EvidenceGap, ...]
) -> Call:
    band = prediction.throughput
    if level == "L0" or unproven:
        return "measure first"
    if cell.method in LOOKUPS and level != "L2" and abs(band.value - 1) < _NEAR_ONE:
        return "measure first"
    if band.low > _GAIN:
        return "gain"
    return "loss" if band.high < 1 else "measure first"


def table(
    cell: Scenario,
    concurrency: Sequence[float],
    ks: Sequence[int],
    posterior: Posterior,
    pairs: Sequence[MeasuredPair] = (),
    *,
    answered: Callable[[], None] = lambda: None,
) -> Grid:
    """Every concurrency with every K of one method. ``answered`` is called after each."""

    def entry(c: float, k: int) -> GridEntry:
        computed = answer(replace(cell, concurrency=float(c), k=k), posterior, pairs)
        answered()
        return computed

    entries = tuple(entry(c, k) for c in concurrency for k in ks)
    best = (best_of([e for e in entries if e.cell.concurrency == c]) for c in concurrency)
    choices = tuple(
        replace(choice, even=break_even(choice.entry.cell, posterior)) for choice in best
    )
    return Grid(
        entries,
        choices,
        crossover(cell, sorted({choice.k for choice in choices}), posterior, pairs),
    )


def best_of(entries: Sequence[GridEntry]) -> Choice:
    """The smallest K within 2 % of the best throughput among entries of one concurrency."""
    best = max(entry.prediction.throughput.value for entry in entries)
    equal = [entry for entry in entries if entry.prediction.throughput.value >= _EQUAL * best]
    first = min(equal, key=lambda entry: entry.cell.k)
    return Choice(
        first.cell.concurrency, first.cell.k, tuple(entry.cell.k for entry in equal), first
    )


def crossover(
    cell: Scenario, ks: Sequence[int], posterior: Posterior, pairs: Sequence[MeasuredPair] = ()
) -> PredictedCrossover:
    """The concurrency at which the best K stops gaining throughput; a range, as the model errs by a factor."""

    def ratio(at: float) -> float:
        return max(
            throughput_point(replace(cell, concurrency=at, k=k), posterior, pairs) for k in ks
        )

    low, high = 1.0, 2.0
    if ratio(low) <= 1:
        return PredictedCrossover(0, 0)
    while high <= _MOST_CONCURRENCY and ratio(high) > 1:
        low, high = high, high * 2
    if high > _MOST_CONCURRENCY:
        return PredictedCrossover(None, None)
    for _ in range(3):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if ratio(middle) > 1 else (low, middle)
    point = (low * high) ** 0.5
    upper = point * _CROSSOVER_FACTOR
    return PredictedCrossover(
        max(point / _CROSSOVER_FACTOR, 1.0), upper if upper <= _MOST_CONCURRENCY else None
    )


def rows_behind(regime: str) -> int:
    """Number of published ratios of a regime that were predicted with their own system left out."""
    figures = fitted_record()["accuracy"]["one_system_left_out"].get(regime, {})
    return int(figures.get("rows", 0))


def _behind() -> dict[str, int]:
    """Number of published rows that the constants were fitted to, and how many of them are one author's."""
    authors: dict[str, int] = fitted_record()["by_author"]
    return {"rows": sum(authors.values()), "ofOneAuthor": max(authors.values())}


def band_record(band: Band) -> dict[str, float]:
    """The point and the edges of the 90 % band."""
    return {"value": round(band.value, 4), "low": round(band.low, 4), "high": round(band.high, 4)}


def entry_record(entry: GridEntry) -> Json:
    """An answer."""
    prediction = entry.prediction
    return {
        "method": entry.cell.method,
        "k": entry.cell.k,
        "concurrency": entry.cell.concurrency,
        "throughputRatio": band_record(prediction.throughput),
        "timePerTokenRatio": band_record(prediction.time_per_token),
        "call": entry.call,
        "level": entry.level,
        "regime": entry.regime,
        "poolBound": prediction.pool_bound,
        "publishedRows": rows_behind(entry.regime),
        "tokensPerStep": round(prediction.tokens_per_step, 3),
        "loadOverKnee": round(prediction.load, 3),
        "outsideTheEvidence": [{"reason": gap.reason, "toDo": gap.todo} for gap in entry.outside],
    }


def choice_record(choice: Choice) -> Json:
    """The advice for one concurrency."""
    cell, even = choice.entry.cell, choice.even
    drafted = cell.k * cell.acceptance.coverage_at(cell.k)
    return {
        "concurrency": choice.concurrency,
        "k": choice.k,
        "equalK": list(choice.equal),
        "throughputRatio": band_record(choice.entry.prediction.throughput),
        "call": choice.entry.call,
        "breakEven": {
            "tokensPerStep": None if even is None else round(even, 3),
            "acceptanceRate": round((even - 1) / drafted, 3)
            if even is not None and drafted
            else None,
            "assumed": round(cell.acceptance.tokens_per_step(cell.k), 3),
        },
    }


def grid_record(grid: Grid) -> Json:
    """The whole table with its advice."""
    level = grid.choices[-1].entry.level
    return {
        "level": level,
        "levelMeans": LEVELS[level],
        "fittedTo": _behind(),
        "answers": [entry_record(entry) for entry in grid.entries],
        "best": [choice_record(choice) for choice in grid.choices],
        "crossover": {
            "low": grid.crossover.low,
            "high": grid.crossover.high,
            "text": grid.crossover.text(),
        },
    }
