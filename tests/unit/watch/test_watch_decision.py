"""What the watch may do: a report by default, and everything that holds a fallback back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpctl.errors import InputError
from mpctl.watch.assessment import Assessment, Signal
from mpctl.watch.decision import Fleet, Rung, Situation, WatchAct, decide, ladder
from mpctl.watch.watch_policy import WatchPolicy

ACTS = WatchPolicy(fall_back=True, re_arm=True, ladder=("eagle3", "ngram", "none"))
NGRAM, NONE, EAGLE = (
    Rung(3, "ngram", "ngram K=5"),
    Rung(1, "none", "none"),
    Rung(4, "eagle3", "eagle3 K=3"),
)
NOW = 100_000.0
CALM = Situation(NOW, NOW - 60.0, rungs=(NGRAM, NONE))
REPLACED = replace(CALM, replaced_spec="eagle3")
FLEET = Fleet(20)
BAD = Assessment(Signal.WORSE_DRAFT, "why", pays=False)
ZERO = replace(BAD, signal=Signal.STEP_TO_ZERO)
GOOD = Assessment(Signal.HEALTHY, "as measured", pays=True)
IDLE = Assessment(Signal.IDLE, "no traffic")


@pytest.mark.parametrize(
    ("policy", "seen", "situation", "fleet", "act", "why"),
    [
        (ACTS, BAD, CALM, FLEET, WatchAct.FALL_BACK, "why"),
        (WatchPolicy(), BAD, CALM, FLEET, WatchAct.REPORT, "why"),
        (ACTS, replace(BAD, pays=True), CALM, FLEET, WatchAct.REPORT, "still pays"),
        (ACTS, replace(BAD, pays=None), CALM, FLEET, WatchAct.REPORT, "is not certain yet"),
        (ACTS, ZERO, CALM, FLEET, WatchAct.RESTART, "StepToZero: why"),
        (ACTS, ZERO, replace(CALM, found_at=NOW - 5), FLEET, WatchAct.HOLD, "lasted 5 of 30 s"),
        (ACTS, ZERO, replace(CALM, busy="held by ada"), FLEET, WatchAct.HOLD, "held by ada"),
        (ACTS, ZERO, replace(CALM, changes=(NOW - 600,)), FLEET, WatchAct.RESTART, "why"),
        (ACTS, ZERO, replace(CALM, rungs=()), FLEET, WatchAct.RESTART, "why"),
        (ACTS, ZERO, CALM, Fleet(1, (NOW - 10,)), WatchAct.HOLD, "brake"),
        (ACTS, ZERO, replace(CALM, restarts=(NOW - 60,)), FLEET, WatchAct.FALL_BACK, "why"),
        (ACTS, ZERO, replace(CALM, restarts=(NOW - 9e4,)), FLEET, WatchAct.RESTART, "why"),
        (replace(ACTS, restart=False), ZERO, CALM, FLEET, WatchAct.FALL_BACK, "why"),
        (WatchPolicy(), ZERO, CALM, FLEET, WatchAct.REPORT, "why"),
        (
            ACTS,
            replace(BAD, signal=Signal.NO_DRAFTS, pays=None),
            CALM,
            FLEET,
            WatchAct.FALL_BACK,
            "why",
        ),
        (
            ACTS,
            replace(BAD, signal=Signal.CACHE_LOST, pays=None),
            CALM,
            FLEET,
            WatchAct.FALL_BACK,
            "CacheLost: why",
        ),
        (
            WatchPolicy(),
            replace(BAD, signal=Signal.CACHE_LOST, pays=None),
            CALM,
            FLEET,
            WatchAct.REPORT,
            "why",
        ),
        (ACTS, replace(BAD, signal=Signal.COSTLIER_STEP), CALM, FLEET, WatchAct.REPORT, "why"),
        (ACTS, replace(BAD, signal=Signal.NOT_SPECULATING), CALM, FLEET, WatchAct.REPORT, "why"),
        (ACTS, replace(BAD, signal=Signal.RESTARTING), CALM, FLEET, WatchAct.REPORT, "why"),
        (ACTS, Assessment(Signal.BLIND, "NaN"), CALM, FLEET, WatchAct.NOTHING, "NaN"),
        (ACTS, BAD, replace(CALM, found_at=NOW - 5), FLEET, WatchAct.HOLD, "lasted 5 of 30 s"),
        (ACTS, BAD, replace(CALM, busy="held by ada"), FLEET, WatchAct.HOLD, "held by ada"),
        (ACTS, BAD, replace(CALM, changes=(NOW - 600,)), FLEET, WatchAct.HOLD, "3000 s are left"),
        (
            ACTS,
            BAD,
            replace(CALM, fallbacks=(NOW - 7e3, NOW - 9e3)),
            FLEET,
            WatchAct.HOLD,
            "2 fallbacks within a day",
        ),
        (
            ACTS,
            BAD,
            replace(CALM, fallbacks=(NOW - 9e4, NOW - 9e3)),
            FLEET,
            WatchAct.FALL_BACK,
            "why",
        ),
        (ACTS, BAD, replace(CALM, rungs=()), FLEET, WatchAct.REPORT, "no revision of the ladder"),
        (ACTS, BAD, CALM, Fleet(20, (NOW - 10, NOW - 20)), WatchAct.HOLD, "2 of 20 services"),
        (ACTS, BAD, CALM, Fleet(20, (NOW - 10, NOW - 9e3)), WatchAct.FALL_BACK, "why"),
        (ACTS, BAD, CALM, Fleet(1, (NOW - 10,)), WatchAct.HOLD, "brake"),
        (ACTS, GOOD, CALM, FLEET, WatchAct.NOTHING, "as measured"),
        (ACTS, GOOD, REPLACED, FLEET, WatchAct.RE_ARM, "eagle3 is measured again"),
        (ACTS, IDLE, REPLACED, FLEET, WatchAct.RE_ARM, "eagle3 is measured again"),
        (ACTS, GOOD, replace(REPLACED, changes=(NOW - 5,)), FLEET, WatchAct.NOTHING, "cool-down"),
        (ACTS, GOOD, replace(REPLACED, busy="held"), FLEET, WatchAct.HOLD, "held"),
        (replace(ACTS, re_arm=False), GOOD, REPLACED, FLEET, WatchAct.NOTHING, "as measured"),
        (ACTS, BAD, replace(CALM, interrupted="rollback-4"), FLEET, WatchAct.RESUME, "rollback-4"),
        (
            WatchPolicy(),
            BAD,
            replace(CALM, interrupted="rollback-4"),
            FLEET,
            WatchAct.REPORT,
            "rollback-4",
        ),
    ],
)
def test_truth_table(policy, seen, situation, fleet, act, why):
    decided = decide(policy, seen, situation, fleet)
    assert decided.act is act, decided.reason
    assert why in decided.reason
    assert (decided.rung is not None) == (act is WatchAct.FALL_BACK)


def test_the_ladder_takes_the_newest_served_revision_of_each_method():
    served = (NONE, Rung(2, "ngram", "ngram K=3"), NGRAM, EAGLE)
    assert ladder(ACTS, served, EAGLE, previous=3) == (NGRAM, NONE)
    assert ladder(ACTS, served, NGRAM, previous=1) == (NONE,)
    assert ladder(ACTS, served, NONE, previous=None) == ()
    assert ladder(WatchPolicy(), served, EAGLE, previous=3) == (NGRAM,)
    assert ladder(WatchPolicy(), served, EAGLE, previous=None) == ()
    same = Rung(9, "eagle3", "eagle3 K=3")
    assert ladder(WatchPolicy(ladder=("eagle3",)), (same,), EAGLE, previous=None) == ()


def test_a_fault_of_all_references_turns_off_the_stated_share_and_stops():
    fleet, fallen = Fleet(200), 0
    for number in range(200):
        decided = decide(ACTS, BAD, replace(CALM, now=NOW + number), fleet)
        if decided.act is WatchAct.FALL_BACK:
            fallen += 1
            fleet = replace(fleet, actions=(*fleet.actions, NOW + number))
        else:
            assert decided.brake
    assert fallen == 20


def test_a_policy_file_is_read_by_line():
    text = (
        "fall_back: true\nladder: [ngram, none]\ncool_down_s: 60\nre_arm_prompts: {edits: p.txt}\n"
    )
    policy = WatchPolicy.parse(text, file="watch.yaml")
    assert (policy.fall_back, policy.ladder, policy.cool_down_s) == (True, ("ngram", "none"), 60)
    assert WatchPolicy.parse("", file="watch.yaml") == WatchPolicy()
    for wrong in (
        "laddr: []",
        "ladder: [zero]",
        "ladder: []",
        "loss: 2",
        "fall_back: 1",
        "per_day: 1.5",
        "re_arm_prompts: 3",
    ):
        with pytest.raises(InputError) as error:
            WatchPolicy.parse(f"interval_s: 10\n{wrong}\n", file="watch.yaml")
        assert error.value.message.startswith(f"watch.yaml:2: {wrong.partition(':')[0]}: ")
