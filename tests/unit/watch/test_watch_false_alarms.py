"""False alarms and detection times over simulated services; scripts/watch-table runs the whole month."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mpctl.watch.assessment import Signal
from mpctl.watch.sentinel import Check
from mpctl.watch.watch_policy import WatchPolicy
from tests.simulation import caches
from tests.simulation.drift import Change, Truth, found
from tests.simulation.many import found_in_many
from tests.simulation.sentinels import Life, live, sound

pytestmark = pytest.mark.exhaustive

POLICY = WatchPolicy()
DAY = 5760  # windows


@pytest.mark.parametrize(
    "truth", [Truth(), Truth(lasting=0.06, off=1.05), Truth(restart=5e-4, gap=0.05)], ids=str
)
def test_sound_services_raise_no_alarm(truth):
    found = found_in_many(truth, POLICY, 20, DAY, 1)
    assert set(found.signals) <= {Signal.RESTARTING}


@pytest.mark.parametrize(
    "truth",
    [
        Truth(),
        Truth(restart=2e-3, gap=0.1, peak=1.0),
        Truth(lasting=0.1, memory=12.0),
        Truth(off=0.5),
        Truth(peak=40.0),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "change", [Change(900, accepted=0.5), Change(900, step=1.3), Change(900, accepted=0.0)], ids=str
)
def test_many_services_are_judged_as_the_watch_judges_each(truth, change):
    found = found_in_many(truth, POLICY, 3, 1200, 3, change, compare=range(3))
    assert (found.compared, found.different) == (3, 0)
    assert found.signals


@pytest.mark.parametrize(
    ("change", "signal"),
    [
        (Change(400, accepted=0.636), Signal.WORSE_DRAFT),  # a fifth fewer tokens per step
        (Change(400, step=1.25), Signal.COSTLIER_STEP),
    ],
)
def test_a_fifth_is_found_within_five_minutes(change, signal):
    found = found_in_many(Truth(), POLICY, 100, change.at + 40, 1, change, since=change.at)
    assert found.first.min() >= change.at
    assert np.quantile(found.first - change.at + 1, 0.98) * POLICY.interval_s <= 300
    assert set(found.signals) == {signal}


def test_zero_is_found_in_one_interval():
    assert found(Truth(peak=8.0), POLICY, 110, 1, Change(100, accepted=0.0))[0] == (
        100,
        Signal.STEP_TO_ZERO,
    )


@pytest.mark.parametrize("noise", [0.15, 0.3])
def test_rounding_raises_no_alarm_of_sentinels(noise):
    ends = [sound(Life(noise=noise), POLICY, 30 * 86400.0, number) for number in range(100)]
    assert [end.finding for end in ends] == [None] * 100
    day = live(Life(noise=noise), replace(POLICY, interval_s=POLICY.sentinel_s), 86400.0, 1)
    assert 280 < day.sent <= POLICY.sentinel_share * day.users


def test_rounding_raises_alarms_where_ties_are_wider_than_what_was_recorded():
    ends = [
        sound(Life(noise=0.5, known=False), POLICY, 30 * 86400.0, number) for number in range(4)
    ]
    assert any(end.finding for end in ends)


@pytest.mark.parametrize("poisoned", [True, False])
def test_an_answer_that_is_always_wrong_is_found_within_two_sentinels(poisoned):
    ends = [
        live(Life(fault=1.0, at=7200.0, poisoned=poisoned), POLICY, 20_000.0, number)
        for number in range(20)
    ]
    assert {end.finding for end in ends} == {Check.POISONED if poisoned else Check.WRONG}
    assert max(end.found_s for end in ends) <= 2 * POLICY.sentinel_s


def test_a_fault_of_one_answer_in_ten_is_found_within_hours():
    ends = [live(Life(fault=0.1, at=7200.0), POLICY, 200_000.0, number) for number in range(20)]
    found = sorted(end.found_s / 60 for end in ends)
    assert found[10] < 90 and found[-1] < 600


@pytest.mark.parametrize(
    "truth",
    [caches.Truth(), caches.Truth(lasting=0.2, changes=60.0), caches.Truth(evicted=0.05)],
    ids=str,
)
def test_traffic_that_changes_loses_no_cache(truth):
    found = caches.found_in_many(truth, POLICY, 40, DAY, 1, compare=range(2))
    assert (found.alarms.sum(), found.compared, found.different) == (0, 2, 0)
    assert found.known.mean() > 0.3


@pytest.mark.parametrize(
    ("agents", "lost", "median_s"), [(0.5, 1e9, 900), (0.95, 1e9, 600), (0.95, 2144.0, 2400)]
)
def test_a_cache_that_forgets_is_found(agents, lost, median_s):
    """One request a second on average, by users and agents."""
    truth = caches.Truth(agents=agents, swing=0.1)
    found = caches.found_in_many(truth, POLICY, 60, 2600, 2, lost=lost, at=2000, compare=range(2))
    assert found.different == 0
    after = np.where(found.first < 0, np.inf, found.first - 1999) * POLICY.interval_s
    assert np.median(after) <= median_s
