"""Copies of users' requests for a candidate: it is compared, users never meet it, and the route is restored wherever
the command dies."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rolling import RollingWorld, crashes, guard
from test_rollout_traffic import check, rollback, unmeasured, wanted  # noqa: F401
from world import BASELINE_TEXT, CANDIDATE_TEXT, FASTER, FEW, SLOWER

from mpctl.rollout import runner
from mpctl.rollout.decide import Act, decide_rollout
from mpctl.rollout.steps.users import MirrorResult

SCALED = replace(FEW, traffic_window_s=1.0, traffic_window_requests=2)
MIRROR = {"mirror_percent": 50, "traffic_steps": (), "step_duration_s": 20.0, "policy": SCALED}


def mirrored(memory, **changes):
    decision = decide_rollout(wanted(**MIRROR | changes), memory.live(), memory.unfinished())
    if decision.act is not Act.ALREADY:
        runner.run(
            memory.context, decision.operation or runner.open_plan(memory.context, decision.plan)
        )


def shortly(memory):
    mirrored(memory, step_duration_s=1.0, policy=replace(SCALED, traffic_window_s=0.5))


def checked(memory, *texts):
    check(memory, *texts)
    assert memory.disk.copied == 0


def test_a_candidate_that_is_faster_on_copies_of_users_requests_is_promoted():
    memory = guard(RollingWorld(FASTER))
    mirrored(memory)
    checked(memory, CANDIDATE_TEXT)
    (operation,) = memory.operations()
    steps = list(operation.done)
    assert steps[steps.index("judge") + 1 : steps.index("promote")] == ["mirror", "unshift"]
    result = operation.result("mirror", MirrorResult)
    assert result.percent == 50
    assert result.slices >= 5
    assert result.time_per_output_token_ratio == pytest.approx(0.6, rel=0.01)
    assert result.length_ratio == pytest.approx(1.0, rel=0.01)
    assert memory.disk.sent == []  # no user was routed to it


def test_the_mirror_comes_before_the_traffic_steps_and_ends_with_the_first():
    memory = guard(RollingWorld(FASTER))
    mirrored(memory, traffic_steps=(10, 50), step_duration_s=2.0)
    checked(memory, CANDIDATE_TEXT)
    steps = list(memory.operations()[0].done)
    between = ["mirror", "shift-10", "shift-50", "unshift"]
    assert steps[steps.index("judge") + 1 : steps.index("promote")] == between


def test_a_candidate_that_the_gate_rejects_gets_no_copy():
    memory = guard(RollingWorld(SLOWER))
    mirrored(memory)
    checked(memory, BASELINE_TEXT)
    assert "mirror" not in memory.operations()[0].done


@pytest.mark.parametrize(
    ("world", "said"),
    [
        (
            {"copy_ms": 15},
            "copies of 50 % of the requests: time per output token 1.50x (96.6% CI 1.36x to 1.65x) of the baseline's",
        ),
        (
            {"accepted": 5},
            "on copies of 50 % of users' requests: tokens per step 0.95 (at least 1.10; 99.9% CI",
        ),
    ],
)
def test_a_candidate_that_does_badly_on_copies_is_rolled_back_and_the_route_first(world, said):
    memory = guard(RollingWorld(FASTER, **world))
    mirrored(memory)
    checked(memory, BASELINE_TEXT)
    assert memory.endings() == ["failed", "rolled back"]
    assert said in memory.operations()[0].detail
    assert next(iter(memory.operations()[1].done)) == "unshift"


def test_killed_anywhere_and_run_again_it_ends_the_same():
    count = 0
    for boundary, left in crashes(FASTER, shortly):
        again = guard(left.again())
        shortly(again)
        checked(again, CANDIDATE_TEXT)
        assert set(again.endings()) == {"promoted"}, f"boundary {boundary}"
        count += 1
    assert count > 60


def test_killed_anywhere_a_rollback_restores_route_and_service():
    for _, left in crashes(FASTER, shortly):
        if left.disk.ledger:
            back = guard(left.again())
            rollback(back)
            checked(back, BASELINE_TEXT)
