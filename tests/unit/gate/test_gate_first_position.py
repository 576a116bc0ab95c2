"""The warm-up check at its boundaries: what stops a rollout must be beyond doubt, what fits must never stop one."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpctl.experiment.counters import Counters, Window
from mpctl.gate.first_position import LEVEL, MIN_DRAFTS, FirstPosition, judge_served_drafts
from mpctl.gate.policy import Policy
from mpctl.gate.rule import Outcome

PASS, FAIL, UNDECIDED, MISSING = Outcome.PASS, Outcome.FAIL, Outcome.UNDECIDED, Outcome.MISSING
LIMIT = Policy().min_first_acceptance


def counted(drafts, accepted, limit=LIMIT):
    return FirstPosition(drafts, accepted, limit)


def window(**counted: object) -> Window:
    empty = {"generation_tokens": 0.0}
    if counted:
        empty |= {"drafts": 0.0, "draft_tokens": 0.0, "accepted": 0.0}
    return Window.between(Counters(**empty), Counters(**{"generation_tokens": 500.0, **counted}))


@pytest.mark.parametrize(
    ("drafts", "accepted", "outcome"),
    [
        (0, 0, MISSING),
        (MIN_DRAFTS - 1, 0, MISSING),
        (MIN_DRAFTS - 1, MIN_DRAFTS - 1, MISSING),
        (MIN_DRAFTS, 0, FAIL),
        (MIN_DRAFTS, MIN_DRAFTS, PASS),
        (100, 30, PASS),  # the limit itself is not below it
        (100, 29, UNDECIDED),
        (100, 10, FAIL),
        (10_000, 2999, UNDECIDED),
        (10_000, 2700, FAIL),  # the same share says more of more drafts
        (100, 27, UNDECIDED),
    ],
)
def test_the_verdict_at_its_boundaries(drafts, accepted, outcome):
    assert counted(drafts, accepted).outcome is outcome


@settings(deadline=None, max_examples=40)
@given(st.integers(MIN_DRAFTS, 400))
def test_a_sound_draft_is_hardly_ever_called_mismatched(drafts):
    """At an acceptance of exactly the limit, all counts that would stop a rollout are together that improbable."""
    stopped = [k for k in range(drafts + 1) if counted(drafts, k).outcome is FAIL]
    chance = sum(comb(drafts, k) * LIMIT**k * (1 - LIMIT) ** (drafts - k) for k in stopped)
    assert stopped
    assert chance <= 1 - LEVEL


@given(st.integers(0, 500), st.integers(0, 500))
def test_more_accepted_never_looks_worse(drafts, accepted):
    order = [FAIL, UNDECIDED, PASS]
    here, more = counted(drafts, min(accepted, drafts)), counted(drafts, min(accepted + 1, drafts))
    if here.outcome is not MISSING:
        assert order.index(more.outcome) >= order.index(here.outcome)


def test_it_is_read_from_the_counters_of_position_0():
    actual_window = window(
        drafts=80.0, draft_tokens=240.0, accepted=90.0, per_position=(60.0, 20.0, 10.0)
    )
    assert FirstPosition.of(Policy(), actual_window) == counted(80, 60)
    assert (
        FirstPosition.of(Policy(), window()) == FirstPosition.of(Policy()) == counted(0, 0)
    )  # speculation is off


def test_warm_ups_add_up():
    assert counted(30, 2) + counted(40, 3) == counted(70, 5)


def test_the_message_names_both_models_the_figure_and_the_limit():
    text = counted(200, 4).describe_mismatch(draft="/models/head", target="demo")
    assert text.startswith(
        "draft /models/head does not match target demo: first-position acceptance "
    )
    assert "2.0% of 200 drafts" in text
    assert "at least 30%" in text
    assert "99.9% CI" in text


def test_the_record_holds_what_the_verdict_rests_on():
    assert counted(200, 4).to_record() == {
        "drafts": 200,
        "accepted": 4,
        "rate": 0.02,
        "limit": 0.3,
        "outcome": "fail",
    }
    assert counted(0, 0).to_record()["rate"] is None


SEEN = {"drafts": 600.0, "draft_tokens": 1800.0, "accepted": 400.0, "per_position": (120.0, 280.0)}


def test_the_limit_is_the_policys():
    """A user who lowers the limit is not stopped by a constant, at the warm-up or on production traffic."""
    actual_window = window(generation_tokens=1400.0, **SEEN)
    loose = Policy(min_first_acceptance=0.1)
    assert FirstPosition.of(Policy(), actual_window).outcome is FAIL
    assert FirstPosition.of(loose, actual_window).outcome is PASS
    assert "first-position acceptance 20.0%" in judge_served_drafts(
        [actual_window] * 5, Policy(), draft_model=True
    )
    assert judge_served_drafts([actual_window] * 5, loose, draft_model=True) == ""


def test_drafts_without_counts_by_position_are_not_judged():
    """An engine that reports no vllm:spec_decode_num_accepted_tokens_per_pos says nothing of its first position."""
    uncounted = window(drafts=400.0, draft_tokens=1200.0, accepted=600.0)
    first = FirstPosition.of(Policy(), uncounted)
    assert (first.outcome, first.rate, first.interval) == (MISSING, None, None)
    assert first.describe() == "the engine counts no acceptance by position, of 400 drafts"
    counted_ = FirstPosition.of(
        Policy(),
        window(
            drafts=400.0, draft_tokens=1200.0, accepted=600.0, per_position=(300.0, 200.0, 100.0)
        ),
    )
    assert (FirstPosition.of(Policy()) + first + counted_).outcome is MISSING
    assert (FirstPosition.of(Policy()) + counted_).outcome is PASS


def polls_of(share, correlation, seed, count=20):
    """Polls of four answers of 25 drafts each, whose first positions resemble each other within an answer."""
    rng, spread = np.random.default_rng(seed), (1 - correlation) / correlation
    for _ in range(count):
        rates = rng.beta(share * spread, (1 - share) * spread, 4)
        accepted = float(rng.binomial(25, rates).sum())
        yield window(drafts=100.0, draft_tokens=100.0, accepted=accepted, per_position=(accepted,))


def first_stop(share, correlation, seed):
    """The poll at which production traffic stops a candidate; None where it does not."""
    polls, policy = [], Policy(min_tokens_per_step=0.0)
    for poll in polls_of(share, correlation, seed):
        polls.append(poll)
        if judge_served_drafts(polls, policy, draft_model=True):
            return len(polls)
    return None


def test_drafts_of_one_answer_that_resemble_each_other_stop_no_sound_candidate():
    stops = [first_stop(0.35, 0.3, seed) for seed in range(300)]
    assert sum(stop is not None for stop in stops) <= 3


def test_a_draft_for_another_target_is_stopped_at_the_fifth_poll():
    assert {first_stop(0.012, 0.01, seed) for seed in range(20)} == {5}
