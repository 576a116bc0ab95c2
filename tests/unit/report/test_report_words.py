"""The result of a rollout in words, row by row: it never claims more than the verdict and the interval."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mpctl.experiment.cell import Cell
from mpctl.gate.rule import Outcome, RuleResult
from mpctl.gate.verdict import CellVerdict, Verdict
from mpctl.report import result_in_words
from mpctl.rollout.operation import Ending
from mpctl.stats.confidence import Interval

PROMOTE, REJECT, UNDECIDED = Outcome.PROMOTE, Outcome.REJECT, Outcome.UNDECIDED


def cell(outcome, low, value, high, *rules, at=1, traffic="edits", **fields):
    """A judged cell with its throughput ratio; ``rules``: names of those that failed, or are open."""
    result = Outcome.FAIL if outcome is REJECT else UNDECIDED
    judged = CellVerdict(
        Cell(traffic, at, **fields),
        1.0,
        outcome,
        tuple(RuleResult(result, "why", rule=r) for r in rules),
    )
    ratio = None if value is None else Interval(value, low, high, 8, "rounds", 0.975)
    return judged, SimpleNamespace(cell=judged.cell, throughput_ratio=ratio)


def words(ending, *cells, **seconds):
    verdict = Verdict(cells[0][0].outcome, tuple(judged for judged, _ in cells))
    return result_in_words(verdict, [compared for _, compared in cells], ending, seconds)


FAST = cell(PROMOTE, 2.1, 2.61, 3.3)
CASES = [
    ("faster", [FAST], "2.6x faster for one user at a time."),
    ("a little faster", [cell(PROMOTE, 1.1, 1.31, 1.5)], "1.31x faster for one user at a time."),
    ("slower", [cell(REJECT, 0.7, 0.8, 0.9, "E2E")], "0.80x as fast for one user at a time."),
    (
        "equal",
        [cell(PROMOTE, 0.97, 1.02, 1.06)],
        "No clear difference in speed (1.02x) for one user at a time.",
    ),
    (
        "wide and rejected",
        [cell(REJECT, 0.5, 0.8, 1.4, "TTFT")],
        "No clear difference in speed (0.80x) for one user at a time, but TTFT failed.",
    ),
    (
        "without bounds",
        [cell(PROMOTE, None, 2.6, None)],
        "No clear difference in speed (2.6x) for one user at a time.",
    ),
    (
        "faster and rejected",
        [cell(REJECT, 2.1, 2.6, 3.3, "TTFT", "queue wait")],
        "2.6x faster for one user at a time, but TTFT, queue wait failed.",
    ),
    (
        "answers",
        [cell(REJECT, 2.1, 2.6, 3.3, "rendering", "TTFT")],
        "Answers differ for one user at a time (rendering).",
    ),
    ("errors", [cell(REJECT, 2.1, 2.6, 3.3, "errors")], "Requests fail for one user at a time."),
    (
        "open",
        [cell(UNDECIDED, 2.1, 2.6, 3.3, "TTFT", "errors")],
        "Unclear for one user at a time (TTFT, errors).",
    ),
    ("no speed", [cell(REJECT, 0, None, 0)], "No speed measured for one user at a time."),
    (
        "several loads",
        [FAST, cell(UNDECIDED, 0.8, 1.1, 1.4, "TTFT", at=8)],
        "2.6x faster for one user at a time; unclear with 8 at once (TTFT).",
    ),
    (
        "several classes",
        [FAST, cell(REJECT, 0.5, 0.6, 0.7, traffic="chat", at=8)],
        "2.6x faster on edits for one user at a time; 0.60x as fast on chat with 8 at once.",
    ),
    (
        "a rate",
        [cell(PROMOTE, 1.6, 1.8, 2.0, at=32, rate=4.0, temperature=0.7)],
        "1.8x faster with 4/s and at most 32 at once, temperature 0.7.",
    ),
]


@pytest.mark.parametrize(
    ("cells", "speed"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_the_speed_in_words(cells, speed):
    assert words(Ending.ABANDONED, *cells) == speed


@pytest.mark.parametrize(
    ("ending", "sentence"),
    [
        (Ending.PROMOTED, "Promoted."),
        (Ending.REJECTED, "Rejected: the service is unchanged."),
        (Ending.UNDECIDED, "Undecided: the service is unchanged."),
        (Ending.FAILED, "Failed after the verdict: the service was restored."),
    ],
)
def test_the_ending_and_the_time_in_words(ending, sentence):
    text = words(ending, FAST, engines=94.0, answers=25.2, rounds=300.0, promotion=0.4)
    took = "Took 7 min: 94 s engines, 25 s answers, 5 min rounds."
    assert text == f"2.6x faster for one user at a time. {sentence} {took}"
