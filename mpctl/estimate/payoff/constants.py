"""The fitted constants with their uncertainty, as ``constants.json`` holds them. ``scripts/fit-payoff`` writes it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any


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
    text = (resources.files("mpctl.estimate.payoff") / "constants.json").read_text(encoding="utf-8")
    record: dict[str, Any] = json.loads(text)
    return record


@cache
def fitted() -> Posterior:
    """The posterior of the published rows."""
    record = fitted_record()
    constants = record["constants"]
    names = tuple(constants)
    spread = [math.log(constants[name]["factor"]) for name in names]
    lower = record["correlation"]
    covariance = tuple(
        tuple(spread[i] * spread[j] * lower[max(i, j)][min(i, j)] for j in range(len(names))) for i in range(len(names))
    )
    return Posterior(
        names, tuple(math.log(constants[name]["value"]) for name in names), covariance, record["load_error"]
    )
