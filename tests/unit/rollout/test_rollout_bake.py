"""A bake: the promoted arm is watched before the rollout ends, with the baseline retained where a route can return to
it. Dying at every boundary, and an arm that does not do well."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rolling import BESIDE, RollingWorld, crashes, guard
from test_rollout_traffic import check, rollback, rollout, unmeasured  # noqa: F401
from world import BASELINE_TEXT, CANDIDATE_TEXT, FASTER

from mpctl.rollout.ports import Phase
from mpctl.rollout.steps.traffic import BakeResult

BAKE_S = 30.0


def baked(memory, **changes):
    rollout(memory, **{"traffic_steps": (), "bake_s": BAKE_S, "bake_baseline": True} | changes)


def falls_in_the_bake(memory, monkeypatch):
    """The promoted engine restarts once the bake has begun."""
    inner, looks = memory.context.platform.state, []

    def state(arm):
        found, unfinished = inner(arm), memory.unfinished()
        if unfinished is not None and unfinished.begun == "bake" and arm.manifest == CANDIDATE_TEXT:
            looks.append(arm)
            return replace(found, restarts=len(looks) - 1)
        return found

    monkeypatch.setattr(memory.context.platform, "state", state)


@pytest.mark.parametrize(
    "beside", [True, False], ids=["baseline retained", "no route to return to"]
)
def test_the_promoted_arm_is_watched_and_then_the_baseline_ends(beside):
    memory = guard(RollingWorld(FASTER))
    baked(memory, bake_baseline=beside)
    check(memory, CANDIDATE_TEXT)
    (operation,) = memory.operations()
    steps = list(operation.done)
    assert ("keep-baseline" in steps) is beside
    assert steps[steps.index("verify") :] == [
        "verify",
        "bake",
        *(["retire-baked"] if beside else []),
    ]
    assert operation.result("bake", BakeResult).seconds == BAKE_S


def test_a_baseline_that_is_to_be_kept_stays_after_the_bake():
    memory = guard(RollingWorld(FASTER))
    baked(memory, keep_baseline=True)
    check(memory, CANDIDATE_TEXT, kept=True)
    assert BESIDE in memory.disk.engines


@pytest.mark.parametrize(
    "beside", [True, False], ids=["baseline retained", "no route to return to"]
)
def test_an_arm_that_does_not_do_well_in_the_bake_is_rolled_back_and_users_go_first(
    beside, monkeypatch
):
    memory = guard(RollingWorld(FASTER))
    falls_in_the_bake(memory, monkeypatch)
    baked(memory, bake_baseline=beside)
    check(memory, BASELINE_TEXT)
    assert memory.endings() == ["failed", "rolled back"]
    rolled_out, back = memory.operations()
    assert "became unhealthy under production traffic: it restarted" in rolled_out.detail
    assert (next(iter(back.done)) == "redirect") is beside
    assert memory.disk.sent == ([100] if beside else [])


@pytest.mark.parametrize(
    "beside", [True, False], ids=["baseline retained", "no route to return to"]
)
def test_died_anywhere_the_same_command_goes_on(beside):
    def change(memory):
        baked(memory, bake_baseline=beside)

    for boundary, left in crashes(FASTER, change):
        again = guard(left.again())
        change(again)
        check(again, CANDIDATE_TEXT)
        assert set(again.endings()) == {"promoted"}, f"boundary {boundary}"


def test_died_anywhere_a_rollback_restores_the_service():
    for _, left in crashes(FASTER, baked):
        if left.unfinished() is not None:
            again = guard(left.again())
            rollback(again)
            check(again, BASELINE_TEXT)


def grows_in_the_bake(memory, monkeypatch, **changes):
    """The autoscaler asks for a pod more once the bake has begun; the others serve."""
    inner = memory.context.platform.state

    def state(arm):
        found, unfinished = inner(arm), memory.unfinished()
        begun = unfinished is not None and unfinished.begun == "bake"
        return (
            replace(found, message="2 of 3 new pods ready", **changes)
            if begun and arm.manifest == CANDIDATE_TEXT
            else found
        )

    monkeypatch.setattr(memory.context.platform, "state", state)


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.FAILED], ids=["starts", "has no node"])
def test_a_pod_that_the_autoscaler_adds_undoes_no_promotion_however_long_it_takes(
    phase, monkeypatch
):
    memory = guard(RollingWorld(FASTER))
    grows_in_the_bake(memory, monkeypatch, phase=phase, pods_ready=2)
    serve_users(memory, monkeypatch, per_reading=5)
    baked(memory, bake_s=150.0)
    check(memory, CANDIDATE_TEXT)
    result = memory.operations()[0].result("bake", BakeResult)
    assert (result.seconds, bool(result.drafts)) == (150.0, True)


@pytest.mark.parametrize(
    "changes",
    [
        {"phase": Phase.STARTING, "pods_ready": 1},
        {"phase": Phase.FAILED, "pods_ready": 2, "restarts": 1},
    ],
    ids=["fewer serve than were held", "the added pod restarts"],
)
def test_fewer_pods_than_were_held_or_one_that_restarts_undo_the_promotion(changes, monkeypatch):
    memory = guard(RollingWorld(FASTER))
    grows_in_the_bake(memory, monkeypatch, **changes)
    baked(memory, bake_s=150.0)
    check(memory, BASELINE_TEXT)
    assert memory.endings() == ["failed", "rolled back"]


def serve_users(memory, monkeypatch, per_reading=100):
    """Every reading finds the promoted engine with so many drafts more, four of five accepted."""
    inner, readings = memory.context.meter.counters, []

    def counters(endpoint):
        found, unfinished = inner(endpoint), memory.unfinished()
        if unfinished is None or unfinished.begun != "bake":
            return found
        drafts = per_reading * len(readings)
        readings.append(endpoint)
        counted = {
            "drafts": drafts,
            "draft_tokens": drafts,
            "accepted": 0.8 * drafts,
            "per_position": (0.8 * drafts,),
        }
        return replace(found, generation_tokens=1.8 * drafts, **counted)

    monkeypatch.setattr(memory.context.meter, "counters", counters)


def test_a_bake_ends_when_users_have_shown_enough_and_says_so_before(monkeypatch):
    memory = guard(RollingWorld(FASTER))
    serve_users(memory, monkeypatch)
    baked(memory, bake_s=600.0)
    check(memory, CANDIDATE_TEXT)
    result = memory.operations()[0].result("bake", BakeResult)
    assert (result.seconds, result.drafts) == (60.0, 1200.0)
    (line,) = (text for text in memory.progress.lines if text.startswith("bake: ngram"))
    assert line.endswith(
        "for at most 600 s; 1,000 drafts are enough, by which acceptance is known to 3 %"
    )


def test_a_bake_with_few_drafts_lasts_as_long_as_planned_and_counts_aloud(monkeypatch):
    memory = guard(RollingWorld(FASTER))
    serve_users(memory, monkeypatch, per_reading=5)
    baked(memory, bake_s=150.0)
    assert memory.operations()[0].result("bake", BakeResult).seconds == 150.0
    ticks = [
        line for line in memory.progress.lines if line.startswith("bake: ") and line.endswith("s)")
    ]
    assert ticks == [
        "bake: 108 tokens, 60 drafts, 1.80 tokens per step (60 s)",
        "bake: 216 tokens, 120 drafts, 1.80 tokens per step (120 s)",
    ]


def test_a_bake_without_requests_says_that_it_shows_nothing():
    memory = guard(RollingWorld(FASTER))
    baked(memory, bake_s=150.0)
    lines = [line for line in memory.progress.lines if line.startswith("bake: no request")]
    assert len(lines) == 2
    assert "bake: no request in 60 s" in lines[0]
    assert "it showed nothing" in lines[1]


def test_a_bake_says_what_ctrl_c_leaves():
    memory = guard(RollingWorld(FASTER))
    baked(memory)
    (line,) = (text for text in memory.progress.lines if text.startswith("Ctrl-C"))
    assert "leaves ngram K=4 serving" in line
    assert "mpctl resume" in line
    assert "mpctl rollback" in line
