"""A way back that cannot go on lets the autoscaler go, so that the service can scale until somebody looks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_rollout_rolling import FOUND, HELD, RollingWorld, check, rollback, rollout, unmeasured  # noqa: F401
from world import BASELINE_TEXT, FASTER, Behaviour

from mpctl.errors import MpctlError
from mpctl.rollout.operation import Strategy
from mpctl.rollout.ports import Arm, Phase


def stuck():
    """A rollback whose engine does not start."""
    memory = RollingWorld(FASTER)
    rollout(memory, Strategy.SIDE_BY_SIDE)
    memory.behaviours = {**FASTER, BASELINE_TEXT: Behaviour(failures=1000)}
    with pytest.raises(MpctlError, match="did not start"):
        rollback(memory)
    return memory


def test_it_is_free_while_nobody_goes_on():
    memory = stuck()
    assert memory.unfinished() is not None
    assert memory.disk.limits == FOUND


def test_going_on_holds_it_again_and_puts_it_back():
    memory = stuck().again()
    engine = memory.disk.engines[Arm(BASELINE_TEXT).id]
    memory.disk.engines[Arm(BASELINE_TEXT).id] = replace(engine, phase=Phase.READY)
    held = []
    memory.watch = lambda where: held.append(memory.disk.limits == HELD)
    rollback(memory)
    assert any(held)
    check(memory, BASELINE_TEXT)


def test_one_that_cannot_be_freed_is_said_and_the_cause_stays_the_message(monkeypatch):
    memory = RollingWorld(FASTER)
    rollout(memory, Strategy.SIDE_BY_SIDE)
    memory.behaviours = {**FASTER, BASELINE_TEXT: Behaviour(failures=1000)}

    def lost(scaling):
        raise MpctlError("the lease is lost")

    monkeypatch.setattr(memory.world.platform, "unpin", lost)
    notes = []
    monkeypatch.setattr(memory.world.progress, "note", notes.append)
    with pytest.raises(MpctlError, match="did not start"):
        rollback(memory)
    assert "the autoscaler is still held: the lease is lost" in notes
