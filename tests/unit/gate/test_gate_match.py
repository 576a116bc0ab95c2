"""The warm-up check at its boundaries: what stops a rollout must be beyond doubt, what fits must never stop one."""

from __future__ import annotations

from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpctl.experiment.counters import Counters, Window
from mpctl.gate.first_acceptance import LEVEL, LIMIT, MIN_DRAFTS, Fit, Match, mismatch_message


def window(**counted: object) -> Window:
    empty = {"generation_tokens": 0.0}
    if counted:
        empty |= {"drafts": 0.0, "draft_tokens": 0.0, "accepted": 0.0}
    return Window.between(Counters(**empty), Counters(**{"generation_tokens": 500.0, **counted}))


@pytest.mark.parametrize(
    ("drafts", "accepted", "fit"),
    [
        (0, 0, Fit.UNKNOWN),
        (MIN_DRAFTS - 1, 0, Fit.UNKNOWN),
        (MIN_DRAFTS - 1, MIN_DRAFTS - 1, Fit.UNKNOWN),
        (MIN_DRAFTS, 0, Fit.MISMATCHED),
        (MIN_DRAFTS, MIN_DRAFTS, Fit.FITS),
        (100, 30, Fit.FITS),  # the limit itself is not below it
        (100, 29, Fit.DOUBTFUL),
        (100, 10, Fit.MISMATCHED),
        (10_000, 2999, Fit.DOUBTFUL),
        (10_000, 2700, Fit.MISMATCHED),  # the same share says more of more drafts
        (100, 27, Fit.DOUBTFUL),
    ],
)
def test_the_verdict_at_its_boundaries(drafts, accepted, fit):
    assert Match(drafts, accepted).fit is fit


@settings(deadline=None, max_examples=40)
@given(st.integers(MIN_DRAFTS, 400))
def test_a_sound_draft_is_hardly_ever_called_mismatched(drafts):
    """At an acceptance of exactly the limit, all counts that would stop a rollout are together that improbable."""
    stopped = [k for k in range(drafts + 1) if Match(drafts, k).fit is Fit.MISMATCHED]
    chance = sum(comb(drafts, k) * LIMIT**k * (1 - LIMIT) ** (drafts - k) for k in stopped)
    assert stopped
    assert chance <= 1 - LEVEL


@given(st.integers(0, 500), st.integers(0, 500))
def test_more_accepted_never_looks_worse(drafts, accepted):
    order = [Fit.MISMATCHED, Fit.DOUBTFUL, Fit.FITS]
    here, more = Match(drafts, min(accepted, drafts)), Match(drafts, min(accepted + 1, drafts))
    if here.fit is not Fit.UNKNOWN:
        assert order.index(more.fit) >= order.index(here.fit)


def test_it_is_read_from_the_counters_of_position_0():
    counted = window(drafts=80.0, draft_tokens=240.0, accepted=90.0, per_position=(60.0, 20.0, 10.0))
    assert Match.of(counted) == Match(80, 60)
    assert Match.of(window()) == Match(0, 0)  # no counters: speculation is off, which is not for this check to say


def test_warm_ups_add_up():
    assert Match(30, 2) + Match(40, 3) == Match(70, 5)


def test_the_message_names_both_models_the_figure_and_the_limit():
    text = mismatch_message(Match(200, 4), draft="/models/head", target="demo")
    assert "/models/head drafting for demo" in text
    assert "2.0% of 200 drafts" in text
    assert "limit 30%" in text
    assert "at most" in text


def test_the_record_holds_what_the_verdict_rests_on():
    assert Match(200, 4).to_record() == {"drafts": 200, "accepted": 4, "position0": 0.02, "fit": "mismatched"}
    assert Match(0, 0).to_record()["position0"] is None
