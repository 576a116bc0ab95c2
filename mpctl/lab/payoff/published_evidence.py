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
from typing import Literal

from mpctl import commands
from mpctl.json_types import Json
from mpctl.lab.payoff.scenario import Scenario, family_of
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
def fitted_record() -> Json:
    """The file as it is: constants, correlation, the ids of its rows, accuracy."""
    text = (resources.files("mpctl.lab.payoff") / "constants.json").read_text(encoding="utf-8")
    record: Json = json.loads(text)
    return record


def published_classes() -> Json:
    """Return, of each family of methods, the figure by class of traffic, and the deviation between systems."""
    classes: Json = fitted_record()["classes"]
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
    row, family = METHODS.get(cell.method), family_of(cell.method)
    reach = max((pair.concurrency for pair in mine), default=0.0) * _REACH
    lacks = {
        f"no published row with a baseline covers {cell.method}": row is None
        or not row.published_ratios,
        f"no fitted row covers a method of the kind {family} on {cell.gpu.name}": cell.gpu.name
        not in fitted_record()["gpus"].get(family, ()),
        f"no published row covers {cell.precision} weights": cell.precision not in ("bf16", "fp16"),
        "no published row covers a target with windowed or linear attention": cell.target.hybrid,
        "the fit holds for no mixture of experts": cell.target.experts,
        f"no published row covers an engine with {cell.unfitted}": cell.unfitted,
        f"prompts of {cell.prompt:,.0f} tokens are longer than {LONGEST_PROMPT:,}": cell.prompt
        > LONGEST_PROMPT,
        f"{load:.1f} times the tokens per step at which compute takes over": load > _MOST_LOAD,
        f"concurrency {cell.concurrency:g} is more than twice the largest measured": mine
        and cell.concurrency > reach,
    }
    reasons = [EvidenceGap(reason, remedy) for reason, lacking in lacks.items() if lacking]
    if bound and cell.pool is None:
        pool = cell.pool_ranges()[0].text("tokens")
        give = "start the engine once: mpctl reads the pool from its log (in a file of cells: pool_tokens)"
        reasons.append(EvidenceGap(f"the KV pool limits the batch and is estimated, {pool}", give))
    return tuple(reasons)
