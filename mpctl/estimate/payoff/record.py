"""A prediction as a JSON object: the one form of every document and of the record that a rollout keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpctl.estimate.payoff.constants import fitted_record
from mpctl.estimate.payoff.evidence import LEVELS
from mpctl.estimate.payoff.grid import Change, Choice, Entry, Grid
from mpctl.estimate.payoff.predict import Band


def rows_behind(regime: str) -> int:
    """Number of published ratios of a regime that were predicted with their own system left out."""
    figures = fitted_record()["accuracy"]["one_system_left_out"].get(regime, {})
    return int(figures.get("rows", 0))


def band_record(band: Band) -> dict[str, float]:
    """The point and the edges of the 90 % band."""
    return {"value": round(band.value, 4), "low": round(band.low, 4), "high": round(band.high, 4)}


def entry_record(entry: Entry) -> dict[str, Any]:
    """One answer."""
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


def choice_record(choice: Choice) -> dict[str, Any]:
    """The advice for one concurrency."""
    return {
        "concurrency": choice.concurrency,
        "k": choice.k,
        "equalK": list(choice.equal),
        "throughputRatio": band_record(choice.entry.prediction.throughput),
        "call": choice.entry.call,
    }


def grid_record(grid: Grid, changes: Sequence[Change] = ()) -> dict[str, Any]:
    """The whole table with its advice."""
    level = grid.choices[-1].entry.level
    return {
        "level": level,
        "levelMeans": LEVELS[level],
        "answers": [entry_record(entry) for entry in grid.entries],
        "best": [choice_record(choice) for choice in grid.choices],
        "crossover": {"low": grid.crossover.low, "high": grid.crossover.high, "text": grid.crossover.text()},
        "whatWouldChangeIt": [
            {"what": change.what, "throughputRatio": round(change.ratio, 4), "call": change.call} for change in changes
        ],
    }
