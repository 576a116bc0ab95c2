"""The figures that get a confidence interval, with the significance level of each bound.

A bound that can promote has the policy's error for one side. A bound that can reject has the same error divided by the
number of cells, because one rejected cell is enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mpctl.experiment.pairing import Pairing
from mpctl.gate.policy import Policy
from mpctl.stats.alpha_spending import nominal_levels
from mpctl.stats.confidence import Stage, mean_interval, ratio_interval, spread_of
from mpctl.stats.interval import Interval
from mpctl.stats.quantiles import quantile_ratio

TAIL = 0.99


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


def measure_intervals(pairing: Pairing, stages: Stages) -> tuple[dict[str, Interval], dict[str, float]]:
    """Return intervals by the names of :class:`mpctl.gate.analysis.Comparison`, and the spread of a round of each."""
    rows: list[tuple[str, list[float], Callable[[Sequence[float], Stage], Interval], Stage]] = [
        ("throughput_ratio", pairing.throughput_logs(), ratio_interval, stages.higher),
        ("time_per_token_ratio", pairing.time_per_token_logs(), ratio_interval, stages.lower),
        ("length_ratio", pairing.length_logs(), ratio_interval, stages.lower),
        ("tokens_per_step", pairing.of_windows("tokens_per_step"), mean_interval, stages.higher),
        ("first_acceptance", pairing.of_windows("first_acceptance"), mean_interval, stages.higher),
        ("coverage", pairing.of_windows("coverage"), mean_interval, stages.higher),
        ("tpot", _logs(pairing.times("tpot_ms")), ratio_interval, stages.lower),
    ]
    for name in ("ttft", "queue_wait"):
        times = pairing.times(f"{name}_ms")
        rows.append((name, _logs(times), ratio_interval, stages.lower))
        rows.append((f"{name}_ms", [cand - base for base, cand in times], mean_interval, stages.lower))
    found = {name: make(values, stage) for name, values, make, stage in rows if values}
    spreads = {name: spread_of(values) for name, values, _, _ in rows if values}
    return {**found, **_tails(pairing, stages)}, spreads


def _tails(pairing: Pairing, stages: Stages) -> dict[str, Interval]:
    """Return the ratios of the 99th percentiles of the load client's times."""
    found: dict[str, Interval] = {}
    if not stages.tail:
        return found
    for name in ("ttft", "tpot", "e2e"):
        base, cand = (
            [v for r in pairing.rounds for pair in r.pairs if (v := getattr(pair[arm], f"{name}_ms")) is not None]
            for arm in (0, 1)
        )
        if base and cand:
            ratio = quantile_ratio(cand, base, TAIL, stages.tail)
            if ratio is not None:
                found[f"{name}_p99"] = replace(ratio, level=stages.lower.level)  # simultaneous, as everywhere
    return found


def _logs(times: list[tuple[float, float]]) -> list[float]:
    if not all(base > 0 and cand > 0 for base, cand in times):
        return []
    return [math.log(cand / base) for base, cand in times]
