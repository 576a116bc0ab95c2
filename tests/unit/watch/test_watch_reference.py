"""The reference that a promotion leaves, and the load it is compared at."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from run_samples import block, make_run

from mpctl.experiment.cell import Cell
from mpctl.experiment.users import Placement, TrafficWindow, UsersTraffic
from mpctl.methods import Spec
from mpctl.watch.reference import Figures, LoadBand, MeanFigure, Profile, Reference

NGRAM = Spec("ngram", {"num_speculative_tokens": 5})


def timed(run, step_s):
    """The run with step times, which the samples leave out: of the baseline, and a quarter more of the candidate."""
    blocks = []
    for b in run.blocks:
        steps = b.window.steps or b.window.generation_tokens
        cost = step_s * b.cell.concurrency * (1.25 if b.arm == "candidate" else 1.0)
        window = replace(b.window, itl_seconds=steps * cost, itl_count=steps, ttft_count=0.0)
        blocks.append(replace(b, window=window, duration_s=steps * cost / b.cell.concurrency))
    return replace(run, blocks=tuple(blocks))


def test_what_the_gate_measured_by_class_and_load():
    run = timed(
        make_run({Cell("edits", 1): 2.0, Cell("edits", 8): 1.5, Cell("chat", 1): 1.2}), 0.01
    )
    reference = Reference.of(run, NGRAM)
    assert [(b.traffic, round(b.batch, 3)) for b in reference.bands] == [
        ("chat", 1.0),
        ("edits", 1.0),
        ("edits", 8.0),
    ]
    band = reference.bands[1]
    assert band.tokens_per_step.value == pytest.approx(2.0)
    assert band.step_ms.value == pytest.approx(12.5)
    assert band.baseline_step_ms == pytest.approx(10.0)
    assert band.first_acceptance.value == pytest.approx(1.0)
    assert band.coverage.value == pytest.approx(0.5)
    assert (band.rounds, reference.lookup, reference.method) == (8, True, "ngram")
    assert reference.expected(1.0).break_even == pytest.approx(1.25)
    assert Reference.from_record(json.loads(json.dumps(reference.to_record()))) == reference


def test_an_engine_without_step_times_is_compared_by_tokens_per_step():
    reference = Reference.of(make_run(), NGRAM)
    expected = reference.expected(3.0)
    assert (expected.step_ms, expected.break_even) == (None, None)
    assert expected.tokens_per_step == pytest.approx(2.0)


def test_nothing_is_left_of_a_run_without_counters():
    run = make_run()
    plain = tuple(
        replace(b, window=replace(b.window, generation_tokens=0.0, drafts=0.0, accepted=0.0))
        for b in run.blocks
    )
    assert Reference.of(replace(run, blocks=plain), NGRAM) is None


def band(traffic, batch, per_step, step, base=10.0):
    return LoadBand(
        traffic,
        0.0,
        batch,
        4,
        MeanFigure(per_step),
        MeanFigure(step / per_step),
        MeanFigure(step),
        baseline_step_ms=base,
    )


def test_between_two_loads_and_beyond_the_last():
    reference = Reference(
        "r", "", "s", "eagle3", False, (band("a", 1.0, 2.0, 10.0), band("a", 9.0, 2.0, 18.0))
    )
    assert reference.expected(5.0).step_ms == pytest.approx(14.0)
    assert reference.expected(0.2).step_ms == 10.0
    assert reference.expected(11.0).within
    assert not reference.expected(12.0).within


def test_classes_count_by_their_shares_and_without_shares_the_slowest():
    bands = (band("a", 1.0, 3.0, 12.0), band("b", 1.0, 1.5, 12.0))
    reference = Reference("r", "", "s", "eagle3", False, bands)
    assert reference.expected(1.0).tokens_per_step == pytest.approx(1.5)
    shared = replace(reference, shares={"a": 0.75, "b": 0.25})
    assert shared.expected(1.0).tokens_per_step == pytest.approx(1 / (0.75 / 3 + 0.25 / 1.5))
    assert shared.expected(1.0).time_per_token_ms == pytest.approx(0.75 * 4 + 0.25 * 8)


@pytest.mark.parametrize("wrong", [{"bands": []}, {"bands": [{}]}, {"extra": 1}])
def test_a_damaged_record_is_no_reference(wrong):
    with pytest.raises(ValueError, match=r"band|field"):
        Reference.from_record({**Reference.of(make_run(), NGRAM).to_record(), **wrong})


def test_a_profile_says_how_traffic_differs_and_does_not_grow():
    reference = Reference(
        "r", "", "s", "eagle3", False, (replace(band("a", 4.0, 2.0, 10.0), answer_tokens=100.0),)
    )
    like = Figures(3.0, 2.0, 10.0, 5.0, 0.8, 1.0, 400.0, answer_tokens=120.0)
    unlike = replace(like, batch=20.0, answer_tokens=900.0)
    profile = Profile()
    for _ in range(100):
        profile = profile.after(like)
    assert profile.differences(reference) == ()
    assert Profile().after(unlike).differences(reference) == ()
    for _ in range(500):
        profile = profile.after(unlike)
    answers, load = profile.differences(reference)
    assert answers.startswith("answers have")
    assert "measured were 100" in answers
    assert load.endswith("than the 5 measured")
    assert len(profile.loads) == 9


def test_a_block_alone_has_open_intervals():
    reference = Reference.of(make_run(rounds=1), NGRAM)
    assert (reference.bands[0].tokens_per_step.low, reference.bands[0].rounds) == (None, 1)
    assert block("candidate", Cell("edits", 1), 0, 2.0, prompts=["p"]).window.step_ms is None


def test_where_users_were_measured_the_reference_has_their_load_and_not_that_of_the_prompts():
    """0.5 requests of 2 s each at once: nothing is expected of eight at once."""
    whole = make_run()
    window = whole.blocks[0].window
    served = {"drafts": 300.0, "draft_tokens": 300.0, "accepted": 240.0, "per_position": (240.0,)}
    times = {
        "itl_seconds": 30.0,
        "itl_count": 300.0,
        "ttft_count": 15.0,
        "tpot_count": 15.0,
        "tpot_seconds": 0.2,
    }
    ours = replace(window, generation_tokens=540.0, **served, **times)
    theirs = replace(ours, drafts=None, draft_tokens=None, accepted=None, per_position=())
    traffic = UsersTraffic((TrafficWindow(60.0, 1, theirs, ours),) * 5, 30)
    run = replace(whole, placement=Placement.SPLIT, traffic=traffic)
    reference = Reference.of(run, Spec("ngram", {"num_speculative_tokens": 1}))
    (only,) = reference.bands
    assert (only.traffic, only.batch, only.rounds) == ("users", 0.5, 5)
    assert reference.expected(0.6).within
    assert not reference.expected(8.0).within
    assert Reference.from_record(reference.to_record()) == reference
    assert Reference.of(replace(run, traffic=None), Spec("ngram")) is None
