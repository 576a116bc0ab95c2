"""The configurations that a search starts with, in the order of what the plan predicts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mpctl.app.plan.result import MethodPlan, ServicePlan
from mpctl.estimate.payoff.advice import batch_ranges, honours_schedule, schedule_setting
from mpctl.estimate.payoff.grid import Grid
from mpctl.methods import METHODS

MOST = 16
_NEAR_BEST = 0.9  # of the best predicted ratio: the other K are not worth an engine start
_MOST_KS = 4  # of one method
_UNPREDICTED_KS = (3, 5, 2)
_WINDOWS = ((1, 3), (3, 6))  # of a lookup besides its default
_K, _SCHEDULE, _LOW, _HIGH = (
    "num_speculative_tokens",
    "num_speculative_tokens_per_batch_size",
    "prompt_lookup_min",
    "prompt_lookup_max",
)


@dataclass(frozen=True)
class Configuration:
    """A method with settings as ``--set`` takes them. ``predicted``: geometric mean of its throughput ratios."""

    method: str
    settings: tuple[str, ...] = ()
    predicted: float | None = None

    @property
    def name(self) -> str:
        """``ngram num_speculative_tokens=3``."""
        return " ".join((self.method, *self.settings))

    @property
    def k(self) -> int | None:
        """K where the configuration sets one for every batch size."""
        values = dict(setting.partition("=")[::2] for setting in self.settings)
        return int(values[_K]) if _K in values and _SCHEDULE not in values else None


def starting_field(plan: ServicePlan, fixed: frozenset[str]) -> tuple[Configuration, ...]:
    """Return the configurations to try, the best predicted first, those without a prediction last. ``fixed``: settings
    that the user chose, which are not varied."""
    configurations = [
        configuration for method in plan.methods if not method.refused for configuration in _of_method(method, fixed)
    ]
    return tuple(sorted(configurations, key=lambda configuration: -(configuration.predicted or 0.0)))[:MOST]


def _of_method(plan: MethodPlan, fixed: frozenset[str]) -> Iterator[Configuration]:
    method, row = plan.method, METHODS[plan.method]
    if row.k_from == "method" or _K in fixed:
        yield Configuration(method, (), max(_scores(plan.grid).values(), default=None))
        return
    scores = _scores(plan.grid)
    default = plan.change.spec.k if plan.change else None
    ks = _best(scores) or tuple(dict.fromkeys((*((default,) if default else ()), *_UNPREDICTED_KS)))
    for k in ks:
        yield Configuration(method, (f"{_K}={k}",), scores.get(k))
    if "lookup" in row.key_groups and not fixed & {_LOW, _HIGH}:
        for low, high in _WINDOWS:
            settings = (f"{_K}={ks[0]}", f"{_LOW}={low}", f"{_HIGH}={high}")
            yield Configuration(method, settings, scores.get(ks[0]))
    if plan.grid is not None and _SCHEDULE not in fixed and honours_schedule(plan.grid.entries[0].cell.engine):
        best = {choice.concurrency: choice.k for choice in plan.grid.choices}
        scheduled = schedule(method, best)
        if scheduled is not None:
            ratios = [choice.entry.prediction.throughput.value for choice in plan.grid.choices]
            yield Configuration(method, scheduled, _mean(ratios))


def schedule(method: str, best: Mapping[float, int]) -> tuple[str, ...] | None:
    """Settings of a schedule from the best K by concurrency; None where one K serves all."""
    ranges = batch_ranges(best)
    return (f"{_K}={max(best.values())}", schedule_setting(ranges)) if len(ranges) > 1 else None


def _scores(grid: Grid | None) -> dict[int, float]:
    """The geometric mean of the throughput ratio over all concurrencies, by K."""
    entries = grid.entries if grid is not None else ()
    ks = sorted({entry.cell.k for entry in entries})
    return {k: _mean([e.prediction.throughput.value for e in entries if e.cell.k == k]) for k in ks}


def _best(scores: Mapping[int, float]) -> tuple[int, ...]:
    best = max(scores.values(), default=0.0)
    near = [k for k, score in scores.items() if score >= _NEAR_BEST * best]
    return tuple(sorted(near, key=lambda k: -scores[k])[:_MOST_KS])


def _mean(ratios: list[float]) -> float:
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
