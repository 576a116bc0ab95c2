"""What holds a training of a stale draft back, and what its policy file may say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpctl.errors import InputError
from mpctl.watch.refresh import DAY_S, RefreshAct, RefreshPolicy, StaleDraft, decide_refresh
from mpctl.watch.watch_policy import WatchPolicy

NOW = 1e6
APPLIES = RefreshPolicy({"edits": "edits.jsonl"}, apply=True)
STALE = StaleDraft("heads/old", "WorseDraft", prompts=500, gain=0.5, needed_gpu_hours=2.0)


@pytest.mark.parametrize(
    ("policy", "stale", "act", "reason"),
    [
        (APPLIES, STALE, RefreshAct.TRAIN, "heads/old went stale (WorseDraft) and is trained anew"),
        (replace(APPLIES, apply=False), STALE, RefreshAct.PROPOSE, "went stale"),
        (
            replace(APPLIES, apply=False),
            replace(STALE, prompts=9),
            RefreshAct.NOTHING,
            "9 prompts, min_prompts is 500",
        ),
        (
            APPLIES,
            replace(STALE, unmeasured=("ngram", "suffix")),
            RefreshAct.MEASURE,
            "ngram needs no training",
        ),
        (
            APPLIES,
            replace(STALE, unmeasured=("ngram",), attempts=2),
            RefreshAct.NOTHING,
            "2 attempts were made",
        ),
        (APPLIES, replace(STALE, needed_gpu_hours=None), RefreshAct.PROPOSE, "went stale"),
        (APPLIES, replace(STALE, prompts=499), RefreshAct.NOTHING, "499 prompts"),
        (
            APPLIES,
            replace(STALE, gain=0.04),
            RefreshAct.NOTHING,
            "gain over what serves now is 4%, below 5%",
        ),
        (APPLIES, replace(STALE, gain=None), RefreshAct.TRAIN, "trained anew"),
        (
            APPLIES,
            replace(STALE, trained_at=NOW - DAY_S + 60),
            RefreshAct.NOTHING,
            "cool-down: 60 s are left",
        ),
        (APPLIES, replace(STALE, trained_at=NOW - DAY_S), RefreshAct.TRAIN, "trained anew"),
        (
            APPLIES,
            replace(STALE, spent_gpu_hours=6.5),
            RefreshAct.NOTHING,
            "6.5 were spent and 2.0 are needed",
        ),
        (APPLIES, replace(STALE, spent_gpu_hours=6.0), RefreshAct.TRAIN, "trained anew"),
        (
            replace(APPLIES, gpu_hours_per_week=0),
            replace(STALE, needed_gpu_hours=0),
            RefreshAct.NOTHING,
            "0 GPU hours",
        ),
    ],
)
def test_a_training_is_held_back(policy, stale, act, reason):
    decision = decide_refresh(policy, stale, NOW)
    assert decision.act is act
    assert reason in decision.reason


def test_a_policy_file_has_a_refresh():
    text = "refresh: {prompts: {edits: /captures/edits.jsonl}, min_prompts: 100, free_methods: [ngram, suffix]}\n"
    refresh = WatchPolicy.parse(text, file="watch.yaml").refresh
    assert refresh is not None
    assert refresh.free_methods == ("ngram", "suffix")
    assert (refresh.min_prompts, refresh.apply, refresh.attempts) == (100, False, 2)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("true", "expected a mapping"),
        ("{min_prompts: 5}", "prompts: required field is missing"),
        ("{prompts: {}}", "prompts: expected a mapping of length >= 1"),
        ("{prompts: {a: b}, gpus: 3}", "gpus: unknown field"),
        ("{prompts: {a: b}, apply: 7}", "apply"),
        ("{prompts: {a: b}, attempts: -1}", "attempts: expected a whole number >= 0"),
        (
            "{prompts: {a: b}, gpu_hours_per_week: .nan}",
            "gpu_hours_per_week: expected a number >= 0",
        ),
        ("{prompts: {a: b}, free_methods: [eagle3]}", "eagle3 is none of"),
        ("{prompts: {a: b}, accepted: [licence]}", "licence is none of unknown-licence"),
        ("{prompts: {a: b}, steps: 0}", "steps: expected a whole number >= 1"),
    ],
)
def test_a_wrong_refresh_is_named_with_its_line(text, fault):
    with pytest.raises(InputError, match=fault) as caught:
        WatchPolicy.parse(f"fall_back: true\nrefresh: {text}\n", file="watch.yaml")
    assert caught.value.line == 2
    assert caught.value.field.startswith("refresh")
