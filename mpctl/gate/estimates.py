"""The figures that get a confidence interval, with the significance level of each bound.

A bound that can promote has the policy's error for one side. A bound that can reject has the same error divided by the
number of cells, because one rejected cell is enough.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from mpctl.experiment.pairing import Pairing
from mpctl.gate.policy import Policy
from mpctl.stats.alpha_spending import nominal_levels
from mpctl.stats.confidence import Stage, Trimmed, gap_beyond, joined, mean_interval, ratio_interval, widened
from mpctl.stats.interval import Interval
from mpctl.stats.quantiles import quantile_ratio

TAIL = 0.99
TRIM = 0.1  # of the rounds at each end, of figures that one request that stalls would decide
SPEED = ("throughput_ratio", "time_per_token_ratio", "tpot", "ttft", "queue_wait")
SETTLED_FROM = 8  # planned rounds from which on the first does not count for speed: an engine may still warm up in it


@dataclass(frozen=True)
class Stages:
    """``higher`` for figures that are better when they are higher, ``lower`` for the others."""

    higher: Stage
    lower: Stage

    @classmethod
    def of(cls, policy: Policy, *, rounds: int, planned: int, cells: int = 1) -> Stages:
        """Return the stages of the interim analysis after ``rounds`` of ``planned`` rounds."""
        promote, reject = policy.side, policy.side / max(cells, 1)
        return cls(
            Stage(rounds, planned, below=promote, above=reject), Stage(rounds, planned, below=reject, above=promote)
        )

    @property
    def exact(self) -> float:
        """The level of one interim analysis for tests that count: the error is divided evenly among all of them."""
        return self.lower.below / self.lower.looks

    @property
    def tail(self) -> float:
        """The level of this interim analysis for bounds of a quantile; 0 where it may not decide."""
        least = min(self.lower.below, self.lower.above)  # one level serves both bounds
        return nominal_levels(self.lower.looks, least)[self.lower.look - 1]


@dataclass(frozen=True)
class Figure:
    """One number per round: ``values`` in order, of ratios their logarithms, and how their mean is estimated.
    ``pooled``: the same figure with every stall and every round, None where nothing is cut or trimmed. ``allowance``:
    the error, of ratios in logarithms, that no number of rounds shows. ``correlated``: the arms were measured one after
    the other, so that a round resembles the one before it and a drift may be as large as the allowance.
    """

    values: tuple[float, ...]
    ratio: bool
    stage: Stage
    trim: float = 0.0
    pooled: float | None = None
    allowance: float = 0.0
    correlated: bool = False

    @property
    def interval(self) -> Interval:
        """The mean with its confidence interval."""
        make = ratio_interval if self.ratio else mean_interval
        return self.allowed(make(self.values, self.stage, self.trim, self.correlated))

    def allowed(self, interval: Interval) -> Interval:
        """The interval with the allowance: a drift moves both bounds outwards, a constant difference between two
        engines is an error of its own beside that of the rounds."""
        return (widened if self.correlated else joined)(interval, self.allowance, ratio=self.ratio)

    def gap(self, gap: float) -> float:
        """Return how far beyond a limit the mean is as far as rounds can show it."""
        return gap - self.allowance if self.correlated else gap_beyond(gap, self.allowance)

    @property
    def trimmed(self) -> Trimmed:
        """The mean and its spread, of ratios in logarithms."""
        return Trimmed.of(self.values, self.trim, correlated=self.correlated)


def measure_figures(pairing: Pairing, stages: Stages, margin: float = 0.0) -> dict[str, Figure]:
    """Return the figures of a cell by the names of :class:`mpctl.gate.analysis.Comparison`.

    ``margin``: the share by which equal arms may differ in every round, by which the bounds of speed move outwards.

    Requests that stall are cut. Means of a block's requests (throughput, TPOT, TTFT, queue wait) are also trimmed over
    the rounds; times per token are not, which are ratios of prompts.
    """
    steady = pairing.without_first() if stages.lower.looks >= SETTLED_FROM else pairing
    cut = steady.without_stalls()
    every = steady.time_per_token_logs()
    mean = math.exp(math.fsum(every) / len(every)) if every else None
    figures = {
        "throughput_ratio": Figure(
            tuple(cut.throughput_logs()), True, stages.higher, TRIM, steady.pooled_throughput_ratio
        ),
        "time_per_token_ratio": Figure(tuple(cut.time_per_token_logs()), True, stages.lower, pooled=mean),
        "length_ratio": Figure(tuple(pairing.length_logs()), True, stages.lower),
        "tpot": _trimmed_ratio(cut.times("tpot_ms"), steady.times("tpot_ms"), stages),
    }
    for name in ("tokens_per_step", "first_acceptance", "coverage"):
        figures[name] = Figure(tuple(pairing.of_windows(name)), False, stages.higher)
    for name in ("ttft", "queue_wait"):
        times, raw = cut.times(f"{name}_ms"), steady.times(f"{name}_ms")
        figures[name] = _trimmed_ratio(times, raw, stages)
        differences = tuple(cand - base for base, cand in times)
        mean = math.fsum(cand - base for base, cand in raw) / len(raw) if raw else None
        figures[f"{name}_ms"] = Figure(differences, False, stages.lower, TRIM, mean)
    known = {name: figure for name, figure in figures.items() if figure.values}
    if not margin:
        return known
    allowances = dict.fromkeys(SPEED, math.log1p(margin))
    for name in ("ttft", "queue_wait"):
        times = steady.times(f"{name}_ms")
        allowances[f"{name}_ms"] = margin * math.fsum(base for base, _ in times) / max(len(times), 1)
    return {
        name: replace(figure, allowance=allowances[name], correlated=pairing.separate) if name in allowances else figure
        for name, figure in known.items()
    }


def _trimmed_ratio(times: list[tuple[float, float]], raw: list[tuple[float, float]], stages: Stages) -> Figure:
    base, cand = (math.fsum(pair[arm] for pair in raw) for arm in (0, 1))
    return Figure(tuple(_logs(times)), True, stages.lower, TRIM, cand / base if base else None)


def measure_intervals(
    pairing: Pairing, stages: Stages, figures: Mapping[str, Figure], margin: float = 0.0
) -> dict[str, Interval]:
    """Return the confidence intervals of the figures, and of the ratios of 99th percentiles."""
    return {**{name: figure.interval for name, figure in figures.items()}, **_tails(pairing, stages, margin)}


def _tails(pairing: Pairing, stages: Stages, margin: float) -> dict[str, Interval]:
    """Return the ratios of the 99th percentiles of the load client's times."""
    ratios: dict[str, Interval] = {}
    if not stages.tail:
        return ratios
    for name in ("ttft", "tpot", "e2e"):
        base, cand = (
            [v for r in pairing.rounds for pair in r.pairs if (v := getattr(pair[arm], f"{name}_ms")) is not None]
            for arm in (0, 1)
        )
        if base and cand:
            ratio = quantile_ratio(cand, base, TAIL, stages.tail)
            if ratio is not None:
                wide = (widened if pairing.separate else joined)(ratio, math.log1p(margin), ratio=True)
                ratios[f"{name}_p99"] = replace(wide, level=stages.lower.level)  # simultaneous, as everywhere
    return ratios


def _logs(times: list[tuple[float, float]]) -> list[float]:
    """The rounds' logarithms. A round with a mean of 0, whose answers arrived in one chunk, has no ratio; where more
    than a tenth of the rounds have none, the figure has none."""
    logs = [math.log(cand / base) for base, cand in times if base > 0 and cand > 0]
    return logs if len(times) - len(logs) <= TRIM * len(times) else []
