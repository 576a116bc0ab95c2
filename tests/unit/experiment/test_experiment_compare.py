"""Arms of two measurements as the two arms of one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpctl.errors import InputError, Refused
from mpctl.experiment.block import Block, Sample
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import Window
from mpctl.experiment.run import ArmConditions, Calibration, PromptSet, Run, arm_of, combine
from mpctl.gate.analysis import Analysis, ArmOrder
from mpctl.gate.arms import differences, require_alike
from mpctl.gate.policy import Policy

CELL = Cell("edits", 1)
WINDOW = Window(20.0, 0.0, 0.0, 2.0, None, None, None, ())
CONDITIONS = ArmConditions(
    "none", "0.32.0", ("--model=m",), "m", "ab" * 32, "cpu", 1000, context_tokens=8192
)


def block(arm, repeat, prompts=("a", "b"), cell=CELL):
    samples = tuple(Sample(10.0, 100.0, 10, "d", "", p) for p in prompts)
    return Block(arm, cell, repeat, "2026-11-21T00:00:00+00:00", 1.0, samples, WINDOW)


def run(*blocks, name="one", arms=None, digest="d1"):
    return Run(
        id=name,
        created="2026-11-21T00:00:00+00:00",
        who="somebody@here",
        mpctl_version="0",
        arms=arms if arms is not None else {b.arm: CONDITIONS for b in blocks},
        prompts={"edits": PromptSet("edits", digest, 2, 0)},
        shares={"edits": 1.0},
        calibration=None,
        policy=Policy().to_record(),
        blocks=blocks,
    )


BOTH = run(block("baseline", 0), block("candidate", 0))
ALONE = run(block("baseline", 0), block("baseline", 1, ("c", "d")), name="two")


def test_the_worse_calibration_stands_for_both():
    good, bad = Calibration(1.0, 5.0, 75, 8), Calibration(1.0, 50.0, 75, 8)
    for one, two in ((good, bad), (bad, good)):
        combination = combine(
            replace(BOTH, calibration=one), "baseline", replace(BOTH, calibration=two), "candidate"
        )
        assert combination.calibration == bad
    assert (
        combine(replace(BOTH, calibration=good), "baseline", BOTH, "candidate").calibration is None
    )


def test_answers_of_another_limit_are_no_comparison():
    actual_differences = differences(
        replace(BOTH, max_tokens=32), "baseline", replace(BOTH, max_tokens=256), "candidate"
    )
    assert actual_differences == ("limit of an answer: 32 and 256 tokens",)


@pytest.mark.parametrize(
    ("source", "asked", "arm"),
    [(BOTH, None, "candidate"), (BOTH, "baseline", "baseline"), (ALONE, None, "baseline")],
)
def test_which_arm_is_meant(source, asked, arm):
    assert arm_of(source, asked) == arm


def test_an_arm_that_is_not_there():
    with pytest.raises(InputError, match="two has no arm candidate; known: baseline"):
        arm_of(ALONE, "candidate")
    with pytest.raises(InputError, match="holds no block"):
        arm_of(run(), None)


def test_blocks_with_the_same_prompts_are_paired_wherever_they_stood():
    result = run(
        block("baseline", 0, ("c", "d")), block("baseline", 1), block("candidate", 1, ("x", "y"))
    )
    combination = combine(result, "baseline", ALONE, "baseline")
    assert [(b.arm, b.repeat, tuple(s.prompt for s in b.samples)) for b in combination.blocks] == [
        ("baseline", 0, ("c", "d")),
        ("candidate", 0, ("c", "d")),
        ("baseline", 1, ("a", "b")),
        ("candidate", 1, ("a", "b")),
    ]
    assert set(combination.arms) == {"baseline", "candidate"}
    assert combination.id == "one:baseline and two:baseline"


def test_a_block_is_used_once():
    twice = run(block("baseline", 0), block("baseline", 1))
    combination = combine(twice, "baseline", BOTH, "candidate")
    assert len(combination.blocks) == 2


@pytest.mark.parametrize(
    "other",
    [
        block("candidate", 0, ("x", "y")),
        block("candidate", 0, ("b", "a")),
        block("candidate", 0, cell=Cell("edits", 8)),
    ],
)
def test_nothing_in_common_cannot_be_compared(other):
    with pytest.raises(InputError, match="no block with the same prompts"):
        combine(BOTH, "baseline", run(other, name="two"), "candidate")


@pytest.mark.parametrize(
    ("second", "told"),
    [
        (BOTH, ()),
        (
            replace(BOTH, prompts={"edits": PromptSet("edits", "d2", 2, 0)}),
            ("prompts of edits: d1 and d2",),
        ),
        (replace(BOTH, prompts={}, id="two"), ("prompts of edits: only in one",)),
        (
            run(block("candidate", 0, cell=Cell("edits", 8))),
            ("traffic: edits, 1 at once; edits, 8 at once in one",),
        ),
        (run(block("candidate", 0), arms={}), ("conditions: not recorded in both",)),
    ],
)
def test_what_was_measured_differently_is_named(second, told):
    actual_differences = differences(BOTH, "candidate", second, "candidate")
    assert len(actual_differences) == len(told)
    assert all(f.startswith(t) for f, t in zip(actual_differences, told, strict=True))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {
                "spec": "ngram",
                "argv": (*CONDITIONS.argv, "--speculative-config={}", "--port=1"),
                "kv_pool_tokens": 1,
            },
            (),
        ),
        ({"argv": ("--model=n", "--dtype=half")}, ("--dtype: absent and half",)),
        ({"argv": ()}, ()),
        ({"context_tokens": 4096}, ("served context: 8192 and 4096",)),
        ({"model_digest": "cd" * 32}, ("model: m (abababababab) and m (cdcdcdcdcdcd)",)),
        ({"model_digest": "", "argv": ("--model=n",)}, ("model: m and n",)),
        # KServe's runtime serves the model by the name of its object, which a candidate has another of.
        ({"model_digest": "", "model": "m-candidate"}, ()),
        ({"model_digest": ""}, ()),
        ({"device": "gpu"}, ("device: cpu and gpu",)),
        ({"engine_version": ""}, ("engine version: 0.32.0 and unknown",)),
    ],
)
def test_conditions_that_differ_are_named(changes, told):
    second = replace(BOTH, arms={"candidate": replace(CONDITIONS, **changes)})
    assert differences(BOTH, "candidate", second, "candidate") == told


def test_unlike_arms_are_refused_with_the_name_that_accepts_each_difference():
    arms = {
        "baseline": CONDITIONS,
        "candidate": replace(CONDITIONS, device="gpu", argv=("--enforce-eager",)),
    }
    with pytest.raises(
        Refused, match="device: cpu and gpu; --enforce-eager: absent and set"
    ) as caught:
        require_alike(arms, ())
    assert "--accept device --accept --enforce-eager" in caught.value.hint
    require_alike(arms, ("device", "--enforce-eager"))
    require_alike({"baseline": CONDITIONS}, ())


def test_arms_of_two_measurements_are_separate_whatever_their_clocks_say():
    """Two runs that overlapped in time counted as measured in turns, and were judged without the margin for a drift."""
    at = "2026-11-21T00:{:02}:00+00:00".format
    first = run(*(replace(block("baseline", n), started=at(n)) for n in range(3)))
    second = run(*(replace(block("candidate", n), started=at(n)) for n in range(3)), name="two")
    together = Analysis.of(combine(first, "baseline", second, "candidate"), Policy()).cells[0]
    assert together.order is ArmOrder.SEPARATE
    turns = Analysis.of(run(*first.blocks, *second.blocks), Policy()).cells[0]
    assert turns.order is ArmOrder.SIDE_BY_SIDE
