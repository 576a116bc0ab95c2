"""Accuracy of the model on rows left out of the fit, at each level of what is known of a service."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mpctl.lab.payoff.grid import Call, answer
from mpctl.lab.payoff.published_evidence import Posterior
from mpctl.lab.payoff.roofline import ratios
from mpctl.lab.payoff.scenario import (
    BELOW,
    BEYOND,
    LOOKUP,
    LOOKUPS,
    NEAR,
    POOL,
    Acceptance,
    Scenario,
    class_acceptance,
    drafting_of,
    from_length,
    regime_of,
    serving_of,
)
from scripts.payoff.classes import classes_of, observations, traffic_of
from scripts.payoff.fit import NAMES, fit, problem_of
from scripts.payoff.rows import NEVER_FITTED, Record, Row, author_of

_COVERED, _ENOUGH = 0.9, 20
_EQUAL = 0.02  # of a gain: what two methods may differ by and be equally good, as with K
_LEAST_HUNDREDTHS = 8  # of the error at the knee: two sources got there, which cannot show less

REGIMES = (BELOW, NEAR, BEYOND, POOL, LOOKUP)


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
        "right_sign_beyond_5_percent": round(float(np.mean([a.right_sign for a in clear])), 3)
        if clear
        else None,
        "covered": round(float(np.mean([a.covered for a in answers])), 3),
        "called": round(float(np.mean([a.call != "measure first" for a in answers])), 3),
        "wrongly_called": sum(a.wrongly_called for a in answers),
    }


@dataclass(frozen=True)
class Unseen:
    """Rows with the constants of a fit that has not seen them, and the classes of traffic of other authors."""

    rows: tuple[Row, ...]
    posterior: Posterior
    classes: dict[str, Any]


Known = Callable[
    [Row, Unseen], Row | None
]  # a row as it is asked at a level; None where that level has no question


def leave_one_out(
    rows: Sequence[Row], records: Sequence[Record], group: Callable[[Row], str], start: np.ndarray
) -> tuple[Unseen, ...]:
    """Every group of rows with a fit of all others. ``start``: the fit of all rows, which is near."""
    groups = []
    for name in sorted({group(row) for row in rows}):
        unseen = tuple(row for row in rows if group(row) == name)
        logs, covariance = fit(problem_of([row for row in rows if group(row) != name]), start)
        lines = tuple(tuple(map(float, line)) for line in covariance)
        posterior = Posterior(NAMES, tuple(map(float, logs)), lines, 0.0)
        authors = {author_of(row.source) for row in unseen}
        groups.append(Unseen(unseen, posterior, classes_without(authors, rows, records, posterior)))
    return tuple(groups)


def classes_without(
    authors: set[str], rows: Sequence[Row], records: Sequence[Record], posterior: Posterior
) -> dict[str, Any]:
    """The classes of traffic by the figures of all other authors."""
    implied = {
        row.id: (row, implied_tokens(row, posterior))
        for row in rows
        if row.anchor is not None or _one_gain(row)
    }
    seen = [entry for entry in observations(records, implied) if entry.author not in authors]
    return classes_of(seen)


def _one_gain(row: Row) -> bool:
    """Return whether a lookup's acceptance is only known by its gain at concurrency 1."""
    return (
        row.cell.method in LOOKUPS and row.cell.concurrency == 1 and row.time_per_token is not None
    )


def implied_tokens(row: Row, posterior: Posterior) -> float:
    """Tokens per step that explain the gain at concurrency 1."""
    gain = row.anchor or 1 / (row.time_per_token or 1.0)
    single = replace(row.cell, concurrency=1.0)
    plain = replace(drafting_of(single), tokens_per_step=1.0)
    time = float(ratios(serving_of(single), plain, posterior.values).time_per_token)
    return min(max(gain * time, 1.0), row.cell.k + 0.98)


def with_pools(row: Row, unseen: Unseen) -> Row | None:
    """Acceptance of one's own traffic, and the pools that the engine logged, where they are published."""
    return row if row.anchor is None and not row.uncertain else None


def without_pools(row: Row, unseen: Unseen) -> Row | None:
    """Acceptance of one's own traffic; every pool is estimated."""
    known = with_pools(row, unseen)
    return None if known is None else replace(known, cell=_poolless(known.cell))


def by_class(row: Row, unseen: Unseen) -> Row | None:
    """The class of traffic alone, by what other authors published of it. Of a chart with its point at concurrency 1."""
    traffic = traffic_of(row.dataset)
    if traffic is None or row.cell.method in LOOKUPS:
        return None
    return _classed(row, traffic, unseen)


def lookups_by_class(row: Row, unseen: Unseen) -> Row | None:
    """Lookups, by the class of traffic alone."""
    traffic = traffic_of(row.dataset)
    return (
        _classed(row, traffic, unseen)
        if traffic is not None and row.cell.method in LOOKUPS
        else None
    )


def _classed(row: Row, traffic: str, unseen: Unseen) -> Row:
    acceptance = class_acceptance(row.cell.method, traffic, row.cell.k, unseen.classes)
    return replace(row, cell=replace(_poolless(row.cell), acceptance=acceptance))


def unfitted(row: Row, unseen: Unseen) -> Row | None:
    """Methods that the fit does not know, with the acceptance that their gain at concurrency 1 implies."""
    return (
        implied(row, unseen)
        if row.cell.method in NEVER_FITTED and row.cell.concurrency > 1
        else None
    )


def implied(row: Row, unseen: Unseen) -> Row:
    """A row with its acceptance: as published, or as its gain at concurrency 1 implies it."""
    if row.anchor is None:
        return row
    coverage = row.cell.acceptance.coverage if row.cell.method in LOOKUPS else 1.0
    length = 1 + (implied_tokens(row, unseen.posterior) - 1) / coverage
    rates = from_length(min(length, row.cell.k + 0.98), row.cell.k)
    return replace(row, cell=replace(row.cell, acceptance=Acceptance(rates, coverage)))


def _poolless(cell: Scenario) -> Scenario:
    return replace(cell, pool=None, draft_pool=None)


LEVELS: dict[str, Known] = {
    "one_source_left_out": with_pools,
    "one_source_left_out_no_pool": without_pools,
    "one_source_left_out_class_of_traffic": by_class,
    "one_source_left_out_ngram_by_class": lookups_by_class,
    "one_source_left_out_never_fitted": unfitted,
}


def predicted(unseen: Sequence[Unseen], load_error: float, known: Known = with_pools) -> Accuracy:
    """Every row predicted by the fit that has not seen it, with what is ``known``."""
    answers: list[Answer] = []
    for group in unseen:
        posterior = replace(group.posterior, load_error=load_error)
        for row in group.rows:
            asked = known(row, group)
            answers += [] if asked is None else _answers(asked, posterior)
    return Accuracy(tuple(answers))


def least_load_error(unseen: Sequence[Unseen]) -> float:
    """The smallest error at the knee, to the hundredth and no less than 8 %, with which bands cover 90 % of each regime
    of 20 ratios and more. It stands for what differs between sources, of which a fit to one of them knows nothing."""
    for hundredths in range(_LEAST_HUNDREDTHS, 31):
        figures = predicted(unseen, hundredths / 100).record()
        if all(
            regime["covered"] >= _COVERED
            for regime in figures.values()
            if regime["rows"] >= _ENOUGH
        ):
            return hundredths / 100
    raise ValueError("bands do not cover the published rows with any error at the knee")


def _answers(row: Row, posterior: Posterior) -> list[Answer]:
    entry = answer(row.cell, posterior, ())
    prediction = entry.prediction
    regime = regime_of(row.cell, prediction.load, bound=prediction.pool_bound)
    pairs = (
        (prediction.time_per_token, row.time_per_token),
        (prediction.throughput, row.throughput),
    )
    gained = row.throughput > 1 if row.throughput else (row.time_per_token or 1.0) < 1
    return [
        Answer(row, regime, ratio.value, ratio.low, ratio.high, measured, entry.call, gained)
        for ratio, measured in pairs
        if measured
    ]


def ranking(unseen: Sequence[Unseen]) -> dict[str, Any]:
    """How often the method predicted best was measured best, where a source compares several at one concurrency, each
    at its best K; without a pool. ``regret``: what the choice costs, as a share of the best."""
    right, regrets = [], []
    for group in unseen:
        compared: dict[tuple[Any, ...], list[tuple[str, float, float]]] = defaultdict(list)
        for row in group.rows:
            if row.anchor is not None and row.cell.concurrency == 1:
                continue  # its acceptance is what the gain implies
            asked = implied(row, group)
            cell, values = _poolless(asked.cell), group.posterior.values
            got = ratios(serving_of(cell), drafting_of(cell), values)
            time = row.throughput is None
            point = float(1 / got.time_per_token if time else got.throughput)
            measured = 1 / (row.time_per_token or 1.0) if time else row.throughput or 1.0
            key = (row.source, cell.target, row.dataset, cell.concurrency, time)
            compared[key].append((row.cell.method, point, measured))
        for contenders in compared.values():
            if len({name for name, _, _ in contenders}) > 1:
                best, choice = max(c[2] for c in contenders), max(contenders, key=lambda c: c[1])
                right.append(choice[0] == max(contenders, key=lambda c: c[2])[0])
                regrets.append(1 - choice[2] / best)
    return {
        "groups": len(right),
        "best_named": round(float(np.mean(right)), 3),
        "within_2_percent": round(float(np.mean([regret <= _EQUAL for regret in regrets])), 3),
        "mean_regret": round(float(np.mean(regrets)), 3),
    }


def report(title: str, accuracy: Accuracy) -> str:
    """A table of the figures."""
    lines = [
        f"{title:44}{'rows':>6}{'median':>9}{'p90':>8}{'sign':>8}{'sign >5 %':>11}{'covered':>9}"
        f"{'called':>8}{'wrongly':>9}"
    ]
    for name, row in accuracy.record().items():
        clear = row["right_sign_beyond_5_percent"]
        lines.append(
            f"  {name:42}{row['rows']:>6}{row['median_error']:>9.1%}{row['p90_error']:>8.1%}{row['right_sign']:>8.1%}"
            f"{'-' if clear is None else f'{clear:.1%}':>11}{row['covered']:>9.1%}"
            f"{row['called']:>8.1%}{row['wrongly_called']:>9}"
        )
    return "\n".join(lines)
