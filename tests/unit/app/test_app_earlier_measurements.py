"""What earlier measurements of a pair leave the next one of the error."""

from __future__ import annotations

from dataclasses import replace

import pytest
from session import MemorySession

from mpctl.app.operate import rollout
from mpctl.app.requests import MeasurementRequest, RolloutRequest, SpeculationRequest
from mpctl.rollout.operation import Ending
from mpctl.rollout.steps.measure import verdict_of

ASKED = RolloutRequest(SpeculationRequest("ngram"), MeasurementRequest(requests=5, rounds=6))


def repeated(disk=None, **asked):
    """A rollout to an arm that is half as fast: its verdict takes an analysis, which equal arms may never reach."""
    session = MemorySession(seconds=0.2, disk=disk)
    measurement = MeasurementRequest(requests=5, rounds=8, **asked)
    return session.memory.disk, rollout.run(
        session, replace(ASKED, measurement=measurement)
    ).operation


def test_measurements_of_a_pair_that_did_not_promote_leave_the_next_less_of_the_error():
    """Equal engines were told apart in 18 of 100 series of five measurements that each had the whole error."""
    disk, operation = repeated()
    levels, messages = [], []
    for earlier in (0, 1, 2):
        assert (operation.ending, operation.plan.earlier) == (Ending.REJECTED, earlier)
        rule = next(r for r in verdict_of(operation).rules if r.rule == "time per token")
        levels.append(1 - rule.interval.level)
        messages.append(rule.message)
        disk, operation = repeated(disk)
    assert levels == pytest.approx([levels[0], levels[0] / 2, levels[0] / 6])
    assert "of the same pair" not in messages[0]
    assert (
        "2 earlier measurements of the same pair did not promote, so this one spends 16.7% of the"
        in messages[2]
    )
    assert (
        repeated(disk, prompts=("fresh",))[1].plan.earlier == 0
    )  # other prompts are another question
