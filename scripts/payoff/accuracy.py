"""Accuracy of the model on systems left out of the fit, by load and method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mpctl.estimate.payoff.evidence import Posterior
from mpctl.estimate.payoff.grid import Call, answer
from mpctl.estimate.payoff.scenario import REGIMES, regime_of
from scripts.payoff.fit import NAMES, fit, problem_of
from scripts.payoff.rows import Row

_COVERED, _ENOUGH = 0.9, 20
_LEAST_HUNDREDTHS = 8  # of the error at the knee: two sources got there, which cannot show less


@dataclass(frozen=True)
class Answer:
    """A row's throughput or time-per-token ratio: predicted, with its band, and measured."""

    row: Row
    regime: str
    predicted: float
    low: float
    high: float
    measured: float
    call: Call
    gained: bool

    @property
    def wrongly_called(self) -> bool:
        """Whether a gain or a loss was called, and the opposite was measured."""
        return self.call != "measure first" and (self.call == "gain") != self.gained

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return abs(self.predicted / self.measured - 1)

    @property
    def covered(self) -> bool:
        """True when the 90 % band contains the measured ratio."""
        return self.low <= self.measured <= self.high

    @property
    def right_sign(self) -> bool:
        """True when gain or loss is predicted correctly."""
        return (self.predicted > 1) == (self.measured > 1)


@dataclass(frozen=True)
class Accuracy:
    """All answers of the systems, each left out of the fit that predicts it."""

    answers: tuple[Answer, ...]

    def record(self) -> dict[str, Any]:
        """Figures per regime, and of all rows."""
        groups = {"all": self.answers}
        groups |= {name: tuple(a for a in self.answers if a.regime == name) for name in REGIMES}
        return {name: _figures(answers) for name, answers in groups.items() if answers}


def _figures(answers: Sequence[Answer]) -> dict[str, Any]:
    errors = [a.error for a in answers]
    clear = [a for a in answers if abs(a.measured - 1) > 0.05]
    return {
        "rows": len(answers),
        "median_error": round(float(np.median(errors)), 3),
        "p90_error": round(float(np.quantile(errors, 0.9)), 3),
        "right_sign": round(float(np.mean([a.right_sign for a in answers])), 3),
        "right_sign_beyond_5_percent": round(float(np.mean([a.right_sign for a in clear])), 3) if clear else None,
        "covered": round(float(np.mean([a.covered for a in answers])), 3),
        "called": round(float(np.mean([a.call != "measure first" for a in answers])), 3),
        "wrongly_called": sum(a.wrongly_called for a in answers),
    }


@dataclass(frozen=True)
class Unseen:
    """Rows with the constants of a fit that has not seen them."""

    rows: tuple[Row, ...]
    posterior: Posterior


def leave_one_out(rows: Sequence[Row], group: Callable[[Row], str]) -> tuple[Unseen, ...]:
    """Every group of rows with a fit of all others. Rows whose acceptance is implied have no answer."""
    groups = []
    for name in sorted({group(row) for row in rows}):
        unseen = tuple(row for row in rows if group(row) == name and row.anchor is None and not row.uncertain)
        if unseen:
            logs, covariance = fit(problem_of([row for row in rows if group(row) != name]))
            lines = tuple(tuple(map(float, line)) for line in covariance)
            groups.append(Unseen(unseen, Posterior(NAMES, tuple(map(float, logs)), lines, 0.0)))
    return tuple(groups)


def predicted(unseen: Sequence[Unseen], load_error: float) -> Accuracy:
    """Every row predicted by the fit that has not seen it."""
    answers: list[Answer] = []
    for group in unseen:
        posterior = replace(group.posterior, load_error=load_error)
        for row in group.rows:
            answers += _answers(row, posterior)
    return Accuracy(tuple(answers))


def least_load_error(unseen: Sequence[Unseen]) -> float:
    """The smallest error at the knee, to the hundredth and no less than 8 %, with which bands cover 90 % of each regime
    of 20 ratios and more. It stands for what differs between sources, of which a fit to one of them knows nothing."""
    for hundredths in range(_LEAST_HUNDREDTHS, 31):
        figures = predicted(unseen, hundredths / 100).record()
        if all(regime["covered"] >= _COVERED for regime in figures.values() if regime["rows"] >= _ENOUGH):
            return hundredths / 100
    raise ValueError("bands do not cover the published rows with any error at the knee")


def _answers(row: Row, posterior: Posterior) -> list[Answer]:
    entry = answer(row.cell, posterior, ())
    prediction = entry.prediction
    regime = regime_of(row.cell, prediction.load, bound=prediction.pool_bound)
    pairs = ((prediction.time_per_token, row.time_per_token), (prediction.throughput, row.throughput))
    gained = row.throughput > 1 if row.throughput else (row.time_per_token or 1.0) < 1
    return [
        Answer(row, regime, ratio.value, ratio.low, ratio.high, measured, entry.call, gained)
        for ratio, measured in pairs
        if measured
    ]


def report(title: str, accuracy: Accuracy) -> str:
    """A table of the figures."""
    lines = [
        f"{title:22}{'rows':>6}{'median':>9}{'p90':>8}{'sign':>8}{'sign >5 %':>11}{'covered':>9}"
        f"{'called':>8}{'wrongly':>9}"
    ]
    for name, row in accuracy.record().items():
        clear = row["right_sign_beyond_5_percent"]
        lines.append(
            f"{name:22}{row['rows']:>6}{row['median_error']:>9.1%}{row['p90_error']:>8.1%}{row['right_sign']:>8.1%}"
            f"{'-' if clear is None else f'{clear:.1%}':>11}{row['covered']:>9.1%}"
            f"{row['called']:>8.1%}{row['wrongly_called']:>9}"
        )
    return "\n".join(lines)
