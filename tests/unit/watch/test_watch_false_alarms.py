"""False alarms and detection times over simulated services; scripts/watch-table runs the whole month."""

from __future__ import annotations

import pytest

from mpctl.watch.policy import WatchPolicy
from mpctl.watch.signals import Signal
from tests.simulation.drift import Change, Truth, found

POLICY = WatchPolicy()
DAY = 5760  # windows


@pytest.mark.parametrize("truth", [Truth(), Truth(lasting=0.06, off=1.05), Truth(restart=5e-4, gap=0.05)], ids=str)
def test_sound_services_raise_no_alarm(truth):
    alarms = [f for seed in range(2) for f in found(truth, POLICY, DAY, seed) if f[1] is not Signal.RESTARTING]
    assert alarms == []


@pytest.mark.parametrize(
    ("change", "signal"),
    [
        (Change(400, accepted=0.636), Signal.WORSE_DRAFT),  # a fifth fewer tokens per step
        (Change(400, step=1.25), Signal.COSTLIER_STEP),
    ],
)
def test_a_fifth_is_found_within_five_minutes(change, signal):
    for seed in range(5):
        (at, what), *_ = [f for f in found(Truth(), POLICY, 440, seed, change) if f[0] >= change.at]
        assert what is signal
        assert (at - change.at + 1) * POLICY.interval_s <= 300


def test_zero_is_found_in_one_interval():
    assert found(Truth(peak=8.0), POLICY, 110, 1, Change(100, accepted=0.0))[0] == (100, Signal.STEP_TO_ZERO)
