"""The evidence behind a prediction: its level, its limits, and the user's own measured pairs.

``constants.json`` holds the fitted constants with their uncertainty; ``scripts/fit-payoff`` writes it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from mpctl import commands
from mpctl.lab.payoff.scenario import Scenario
from mpctl.methods import METHODS


@dataclass(frozen=True)
class Posterior:
    """Logarithms of the constants and their covariance. ``load_error``: standard deviation of the model's own error at
    the knee, as a logarithm."""

    names: tuple[str, ...]
    logs: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    load_error: float

    @property
    def values(self) -> dict[str, float]:
        """The constants."""
        return {name: math.exp(value) for name, value in zip(self.names, self.logs, strict=True)}


@cache
def fitted_record() -> dict[str, Any]:
    """The file as it is: constants, correlation, the ids of its rows, accuracy."""
    text = (resources.files("mpctl.lab.payoff") / "constants.json").read_text(encoding="utf-8")
    record: dict[str, Any] = json.loads(text)
    return record


def published_classes() -> dict[str, Any]:
    """Return, of each family of methods, the figure by class of traffic, and the deviation between systems."""
    classes: dict[str, Any] = fitted_record()["classes"]
    return classes


@cache
def fitted() -> Posterior:
    """The posterior of the published rows."""
    record = fitted_record()
    constants = record["constants"]
    names = tuple(constants)
    spread = [math.log(constants[name]["factor"]) for name in names]
    lower = record["correlation"]
    covariance = tuple(
        tuple(spread[i] * spread[j] * lower[max(i, j)][min(i, j)] for j in range(len(names)))
        for i in range(len(names))
    )
    return Posterior(
        names,
        tuple(math.log(constants[name]["value"]) for name in names),
        covariance,
        record["load_error"],
    )


Level = Literal["L0", "L1", "L2"]
LEVELS: dict[Level, str] = {
    "L0": "a class of traffic or a published figure: screening, no promise",
    "L1": "acceptance measured on your own traffic",
    "L2": "a pair of arms measured on your own traffic",
}

CPU = "CPU"
LONGEST_PROMPT = 2000
_MOST_LOAD = 2.0  # tokens per step over the knee
_REACH = 2.0  # times the largest concurrency that was measured


@dataclass(frozen=True)
class MeasuredPair:
    """A measured pair of arms of one service. Ratios: candidate over baseline; ``noise``: the standard deviation of
    their logarithms."""

    method: str
    k: int
    concurrency: float
    throughput: float | None
    time_per_token: float | None
    noise: float = 0.03
    baseline_tpot_ms: float | None = None
    source: str = ""


@dataclass(frozen=True)
class EvidenceGap:
    """A reason why a cell lies outside the evidence, and what would bring it inside."""

    reason: str
    todo: str


def level_of(cell: Scenario, pairs: Sequence[MeasuredPair]) -> Level:
    """The level of a cell: L2 needs a pair of the same method at no less than half its concurrency and half its K."""
    mine = [pair for pair in pairs if pair.method == cell.method and pair.k * _REACH >= cell.k]
    if any(pair.concurrency * _REACH >= cell.concurrency for pair in mine):
        return "L2"
    return "L1" if cell.acceptance.origin == "measured" else "L0"


def outside(
    cell: Scenario, load: float, pairs: Sequence[MeasuredPair], *, bound: bool
) -> tuple[EvidenceGap, ...]:
    """The reasons why evidence does not cover a cell; empty where published rows or a measured pair cover it.
    ``bound``: the KV pool limits the batch."""
    mine = [pair for pair in pairs if pair.method == cell.method]
    if any(pair.concurrency == cell.concurrency and pair.k * _REACH >= cell.k for pair in mine):
        return ()
    remedy = f"measure one pair at concurrency {cell.concurrency:g} ({commands.line('bench')})"
    reasons = []
    if cell.gpu.name == CPU:
        reasons.append(EvidenceGap("no published row was measured on a CPU", remedy))
    if (row := METHODS.get(cell.method)) is None or not row.published_ratios:
        reasons.append(
            EvidenceGap(f"no published row with a baseline covers {cell.method}", remedy)
        )
    if cell.precision not in ("bf16", "fp16"):
        reasons.append(EvidenceGap(f"no published row covers {cell.precision} weights", remedy))
    if cell.target.hybrid:
        reasons.append(
            EvidenceGap(
                "no published row covers a target with windowed or linear attention", remedy
            )
        )
    if cell.prompt > LONGEST_PROMPT:
        reasons.append(
            EvidenceGap(
                f"prompts of {cell.prompt:,.0f} tokens are longer than {LONGEST_PROMPT:,}", remedy
            )
        )
    if bound and cell.pool is None:
        pool = cell.pool_ranges()[0].text("tokens")
        give = "start the engine once: mpctl reads the pool from its log (in a file of cells: pool_tokens)"
        reasons.append(EvidenceGap(f"the KV pool limits the batch and is estimated, {pool}", give))
    if load > _MOST_LOAD:
        reasons.append(
            EvidenceGap(f"{load:.1f} times the tokens per step at which compute takes over", remedy)
        )
    reach = max((pair.concurrency for pair in mine), default=0.0) * _REACH
    if mine and cell.concurrency > reach:
        reasons.append(
            EvidenceGap(
                f"concurrency {cell.concurrency:g} is more than twice the largest measured", remedy
            )
        )
    return tuple(reasons)
