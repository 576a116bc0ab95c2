"""Runs as they are kept."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from measure_samples import pair

from mpctl.errors import InputError
from mpctl.experiment.cell import Cell
from mpctl.experiment.run import ArmConditions, Calibration, PromptSet, Run
from mpctl.gate.policy import Policy
from mpctl.methods import Spec
from mpctl.records import decode, encode
from mpctl.stats.confidence import Interval

CHAT = Cell("chat", 8, 0.7)
ARM = ArmConditions("none", "0.32.0", ("vllm", "serve"), "Qwen3-8B", "ab12", "NVIDIA L4", 28_000)
RUN = Run(
    id="bench-1",
    created="2026-11-21T04:58:46+00:00",
    who="somebody@here",
    mpctl_version="0.1.0",
    arms={"baseline": ARM, "candidate": replace(ARM, spec="ngram K=5", kv_pool_tokens=None)},
    prompts={"edits": PromptSet("edits", "cd34", 94, 2)},
    shares={"edits": 0.7, "chat": 0.3},
    calibration=Calibration(0.8, 9.0, 200, 8),
    policy=Policy(min_scored_answers=9).to_record(),
    blocks=tuple(pair() + [replace(b, cell=CHAT) for b in pair(2)]),
)


def test_a_run_round_trips():
    for run in (RUN, replace(RUN, calibration=None, blocks=(), arms={})):
        record = json.loads(json.dumps(run.to_record()))
        assert (record["apiVersion"], record["kind"]) == ("mpctl.dev/v1alpha1", "Run")
        assert Run.from_record(record) == run


def test_the_speculation_of_an_arm_is_recorded_as_the_engine_got_it():
    spec = Spec("suffix", {"suffix_decoding_max_cached_requests": 0})
    for speculation in (spec, Spec("none"), None):
        arm = replace(ARM, speculation=speculation)
        assert ArmConditions.from_record(json.loads(json.dumps(arm.to_record()))) == arm
    assert (
        ArmConditions.from_record({k: v for k, v in ARM.to_record().items() if k != "speculation"})
        == ARM
    )


def test_cells_and_their_blocks():
    assert RUN.cells == (CHAT, Cell("edits", 1))
    assert [len(b.samples) for b in RUN.of_cell(CHAT)] == [2, 2]
    assert RUN.of_cell(Cell("math", 1)) == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "Operation"}, "run.json: kind: must be Run, not 'Operation'"),
        (
            {"apiVersion": "mpctl.dev/v9"},
            "run.json: apiVersion: must be mpctl.dev/v1alpha1, not 'mpctl.dev/v9'",
        ),
        ({"arms": {"baseline": {}}}, "run.json: not a whole Run record"),
        ({"blocks": [{}]}, "run.json: not a whole Run record: field blocks: block 1: no field arm"),
        ({"surplus": 1}, "run.json: not a whole Run record"),
        (
            {"policy": {"level": "high"}},
            "run.json: not a whole Run record: field policy[...]: expected `float | null`",
        ),
    ],
)
def test_what_is_no_run_is_refused_by_name(change, message):
    with pytest.raises(InputError) as caught:
        Run.from_record({**RUN.to_record(), **change}, file="run.json")
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (("blocks", 1, "duration_s"), 0, "field blocks: block 2: duration_s must be above zero"),
        (
            ("blocks", 0, "duration_s"),
            float("nan"),
            "field blocks: block 1: duration_s must be a number of zero or more, not nan",
        ),
        (
            ("blocks", 0, "arm"),
            "control",
            "field blocks: block 1: arm must be baseline or candidate, not 'control'",
        ),
        (
            ("blocks", 0, "repeat"),
            "a",
            "field blocks: block 1: field repeat: expected `int`, got `str`",
        ),
        (
            ("blocks", 0, "cell", "concurrency"),
            0,
            "field blocks: block 1: field cell: concurrency: must be at least 1, not 0",
        ),
        (
            ("blocks", 0, "samples", 1, 0),
            "soon",
            "field blocks: block 1: field samples[1][0]: expected `float | null`",
        ),
        (
            ("blocks", 0, "samples", 0, 2),
            None,
            "field blocks: block 1: field samples[0][2]: expected `int`",
        ),
        (
            ("blocks", 0, "samples", 0, 3),
            5,
            "field blocks: block 1: field samples[0][3]: expected `str`",
        ),
        (
            ("blocks", 0, "window", "generation_tokens"),
            None,
            "field blocks: block 1: field window.generation_tokens: expected",
        ),
        (
            ("blocks", 0, "window", "per_position"),
            ["x"],
            "field blocks: block 1: field window.per_position[0]: expected `float`",
        ),
        (
            ("blocks", 0, "step_ms"),
            [1.0],
            "field blocks: block 1: field step_ms: expected `array` of length 3",
        ),
        (("shares", "edits"), "half", "field shares[...]: expected `float`, got `str`"),
        (("planned",), "12", "field planned: expected `int`, got `str`"),
        (("max_tokens",), -1, "max_tokens must be a number of zero or more, not -1"),
        (("prompts", "edits", "count"), "x", "field prompts[...].count: expected `int`"),
        (
            ("prompts", "edits", "digest"),
            None,
            "field prompts[...].digest: expected `str`, got `null`",
        ),
        (("calibration", "p99_ms"), None, "field calibration.p99_ms: expected `float`"),
        (("calibration", "requests"), [], "field calibration.requests: expected `int`"),
        (("planned",), 200_000, "planned rounds and repeats of blocks must be at most 1000"),
        (("arms", "baseline", "spec"), None, "field arms.spec: expected `str`, got `null`"),
        (("arms", "baseline", "device"), "\ud800", "'utf-8' codec can't encode"),
        (("arms", "baseline", "argv"), [None], "field arms.argv[0]: expected `str`"),
        (
            ("arms", "baseline", "kv_pool_tokens"),
            "x",
            "field arms.kv_pool_tokens: expected `int | null`",
        ),
        (
            ("blocks", 0, "samples", 0, 2),
            10**400,
            "field blocks: block 1: request 1.tokens must be a number",
        ),
        (
            ("blocks", 0, "duration_s"),
            10**400,
            "field blocks: block 1: field duration_s: number out of range",
        ),
        (
            ("blocks", 1, "window", "accepted"),
            1e6,
            "field blocks: block 2: 1000000 tokens accepted of",
        ),
        (("blocks", 1, "arm"), "baseline", "duplicate block: baseline, edits-c1-t0, repeat 0"),
    ],
)
def test_figures_that_were_never_measured_are_refused_by_name(where, value, message):
    record = json.loads(json.dumps(RUN.to_record()))
    place = record
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = value
    with pytest.raises(InputError) as caught:
        Run.from_record(record, file="run.json")
    assert caught.value.message.startswith(f"run.json: not a whole Run record: {message}")


@pytest.mark.parametrize("record", [[], None, "x", {}])
def test_other_json_is_refused(record):
    with pytest.raises(InputError, match="kind: must be Run"):
        Run.from_record(record)


def test_intervals_round_trip_with_open_sides():
    for one in (Interval(2.0, 1.5, 2.5, 8, "t", 0.95), Interval(2.0, None, None, 1, "t", 0.95)):
        assert decode(Interval, json.loads(json.dumps(encode(one), allow_nan=False))) == one
