"""Reads of the API server: a burst without delay, then two per second."""

import pytest

from mpctl.platform.kubernetes.service.reader import BURST, READS_PER_S, ReadBudget


class Clock:
    def __init__(self):
        self.now = 1000.0

    def sleep(self, seconds):
        self.now += seconds


@pytest.mark.parametrize("reads_at_once", [1, 4, 7])
def test_the_first_reads_are_not_delayed_and_the_rate_holds_after_them(reads_at_once):
    clock = Clock()
    budget, sent, began = ReadBudget(lambda: clock.now, clock.sleep), 0, clock.now
    while sent < 200:
        budget.wait()
        before = sent
        budget.spent(reads_at_once)
        sent += reads_at_once
        passed = clock.now - began
        assert (passed == 0) == (before <= BURST)
        assert before <= BURST + READS_PER_S * passed + 1e-6


def test_a_pause_restores_the_burst():
    clock = Clock()
    budget = ReadBudget(lambda: clock.now, clock.sleep)
    budget.spent(50)
    clock.sleep(3600)
    began = clock.now
    for _ in range(BURST):
        budget.wait()
        budget.spent(1)
    assert clock.now == began
