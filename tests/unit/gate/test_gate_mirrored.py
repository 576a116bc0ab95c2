"""A candidate on copies of users' requests: one ratio per slice of time; only an interval above the limit fails it."""

from __future__ import annotations

import random

import pytest

from mpctl.experiment.counters import Window
from mpctl.gate.mirrored import MIN_SLICES, compare_mirrored, judge_mirrored
from mpctl.gate.policy import Policy

POLICY = Policy()


def window(tpot_ms=10.0, *, requests=10, tokens=100.0, ttft_ms=50.0):
    times = {"tpot_seconds": requests * tpot_ms / 1000, "ttft_seconds": requests * ttft_ms / 1000}
    none = dict.fromkeys(("preemptions", "queue_seconds", "queue_count", "drafts", "draft_tokens", "accepted"))
    return Window(requests * tokens, per_position=(), tpot_count=requests, ttft_count=requests, **times, **none)


def slices(ratio, count, noise=0.0):
    chance = random.Random(1)
    return [(window(), window(10 * ratio * (1 + chance.uniform(-noise, noise)))) for _ in range(count)]


@pytest.mark.parametrize(
    ("ratio", "count", "noise", "fails"),
    [
        (1.5, 20, 0.1, True),
        (0.6, 20, 0.1, False),
        (1.06, 20, 0.3, False),  # above the limit, which lies inside the interval
        (1.5, MIN_SLICES - 1, 0.0, False),  # too few to say
        (1.5, 0, 0.0, False),
    ],
)
def test_only_an_interval_above_the_limit_fails(ratio, count, noise, fails):
    figures = compare_mirrored(slices(ratio, count, noise), POLICY)
    assert bool(judge_mirrored(figures, POLICY)) is fails


def test_a_slice_in_which_one_engine_finished_nothing_gives_no_ratio():
    quiet = (window(), window(requests=0))
    figures = compare_mirrored([*slices(0.5, 8), quiet], POLICY)
    assert figures.slices == 8
    assert figures.tpot_ratio.value == pytest.approx(0.5)
    assert (figures.baseline_requests, figures.candidate_requests) == (90, 80)


def test_the_figures_are_named_with_their_intervals():
    text = compare_mirrored(slices(0.5, 8), POLICY).describe()
    assert text == (
        "time per output token 0.50x (95% CI 0.50x to 0.50x), TTFT 1.00x (95% CI 1.00x to 1.00x), "
        "tokens per request 1.00x (95% CI 1.00x to 1.00x): 80 copies beside 80 requests of one serving pod"
    )
    assert compare_mirrored([], POLICY).describe() == (
        "too few requests to compare: 0 copies beside 0 requests of one serving pod"
    )
