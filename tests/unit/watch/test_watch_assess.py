"""The truth table of the watch: one row per cause, by the counters that an engine with it would show."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpctl.experiment.counters import Counters
from mpctl.watch.assessment import MEANINGS, ZERO, Signal, State, assess, at_most, remedy_of
from mpctl.watch.reading import Reading
from mpctl.watch.reference import LoadBand, MeanFigure, Reference
from mpctl.watch.watch_policy import WatchPolicy

POLICY = WatchPolicy()
STEP_S, COST = 0.02, 1.2


def band(batch=1.0, step_s=STEP_S, cost=COST, accepted=1.5):
    per_step = 1 + accepted
    step = 1000 * step_s
    return LoadBand(
        *("edits", 0.0, batch, 8, MeanFigure(per_step, per_step * 0.98, per_step * 1.02)),
        time_per_token_ms=MeanFigure(
            step / per_step, step / per_step * 0.98, step / per_step * 1.02
        ),
        step_ms=MeanFigure(step, step * 0.98, step * 1.02),
        first_acceptance=MeanFigure(0.8, 0.75, 0.85),
        coverage=MeanFigure(1.0, 1.0, 1.0),
        baseline_step_ms=step / cost,
        answer_tokens=60.0,
    )


REFERENCE = Reference(
    "rollout-1", "2026-01-01", "eagle3 K=3", "eagle3", False, (band(), band(16.0, 0.03))
)


def engine(
    total=None, *, batch=4.0, seconds=15.0, step_s=0.022, accepted=1.5, coverage=1.0, first=0.8
):
    """An engine's counters after ``seconds`` more of this traffic; at 4 at once the gate measured steps of 22 ms."""
    total = total or Counters(
        0.0, drafts=0.0, draft_tokens=0.0, accepted=0.0, per_position=(0.0, 0.0), started=1.0
    )
    steps = round(seconds * batch / step_s)
    drafts = round(steps * coverage)
    taken = round(drafts * accepted)
    hits = min(round(drafts * first), taken)
    return replace(
        total,
        generation_tokens=total.generation_tokens + steps + taken,
        drafts=total.drafts + drafts,
        draft_tokens=total.draft_tokens + 3 * drafts,
        accepted=total.accepted + taken,
        per_position=(total.per_position[0] + hits, total.per_position[1] + taken - hits),
        ttft_seconds=1.0,
        ttft_count=(total.ttft_count or 0) + steps // 20,
        itl_seconds=(total.itl_seconds or 0) + (steps - steps // 20) * step_s,
        itl_count=(total.itl_count or 0) + steps - steps // 20,
    )


def run(
    windows,
    reference=REFERENCE,
    *,
    policy=POLICY,
    speculates=True,
    state=None,
    at=0.0,
    total=None,
    **traffic,
):
    """Judge ``windows`` of the same traffic; the last assessment."""
    state, total = state or State(), total or engine(seconds=0.0)
    seen = None
    for number in range(windows + 1):
        reading = Reading(at + number * 15.0, {"pod": total})
        state, seen = assess(policy, reference, state, reading, speculates=speculates)
        total = engine(total, **traffic)
    return state, seen


@pytest.mark.parametrize(
    ("windows", "traffic", "signal", "pays"),
    [
        pytest.param(40, {}, Signal.HEALTHY, True, id="as measured"),
        pytest.param(
            20,
            {"accepted": 1.0},
            Signal.WORSE_DRAFT,
            True,
            id="a fifth slower by the draft: still pays",
        ),
        pytest.param(
            20, {"step_s": 0.0275}, Signal.COSTLIER_STEP, True, id="a fifth slower by the step"
        ),
        pytest.param(
            8,
            {"accepted": 0.1, "first": 0.1},
            Signal.WORSE_DRAFT,
            None,
            id="too early for the break-even",
        ),
        pytest.param(
            20, {"accepted": 0.1, "first": 0.1}, Signal.WORSE_DRAFT, False, id="below break-even"
        ),
        pytest.param(
            1,
            {"accepted": 0.0, "first": 0.0},
            Signal.STEP_TO_ZERO,
            False,
            id="zero in one interval",
        ),
        pytest.param(
            1,
            {"accepted": 0.004, "first": 0.004},
            Signal.STEP_TO_ZERO,
            False,
            id="accepted by accident",
        ),
        pytest.param(
            1, {"accepted": 0.06, "first": 0.05}, Signal.HEALTHY, True, id="poor, in one window"
        ),
        pytest.param(
            6, {"accepted": 0.06, "first": 0.05}, Signal.WORSE_DRAFT, None, id="novel traffic"
        ),
        pytest.param(
            30,
            {"accepted": 0.06, "first": 0.05},
            Signal.WORSE_DRAFT,
            False,
            id="novel traffic: no gain",
        ),
        pytest.param(1, {"coverage": 0.0}, Signal.NO_DRAFTS, None, id="drafts nothing"),
        pytest.param(
            1, {"batch": 40.0}, Signal.UNMEASURED_LOAD, None, id="more load than was measured"
        ),
        pytest.param(1, {"batch": 0.05}, Signal.IDLE, None, id="next to nothing to judge by"),
        pytest.param(10, {"accepted": 1.35}, Signal.HEALTHY, True, id="a small loss is none"),
        pytest.param(
            10, {"accepted": 1.9, "step_s": 0.018}, Signal.HEALTHY, True, id="faster than measured"
        ),
    ],
)
def test_truth_table(windows, traffic, signal, pays):
    _, assessment = run(windows, **traffic)
    assert (assessment.signal, assessment.pays) == (signal, pays), assessment.text
    assert assessment.finding == MEANINGS[signal].finding


def test_past_the_crossover_that_the_gate_measured():
    crossed = replace(REFERENCE, bands=(band(), band(16.0, 0.06, cost=3.0)))
    _, assessment = run(40, crossed, batch=15.0, step_s=0.06)
    assert (assessment.signal, assessment.pays) == (Signal.PAST_CROSSOVER, False)


def test_a_fifth_is_found_within_five_minutes_and_passes_again():
    state, assessment = run(20, accepted=1.0)
    assert assessment.signal is Signal.WORSE_DRAFT
    assert assessment.detects_in_s <= 300
    _, again = run(20, state=state, at=1000.0)
    assert again.signal is Signal.HEALTHY


@pytest.mark.parametrize(
    ("hits", "drafts", "zero"), [(0, 100, False), (0, 150, True), (5, 600, True), (12, 600, False)]
)
def test_few_drafts_prove_no_zero(hits, drafts, zero):
    bound = at_most(hits / drafts, drafts)
    assert (bound < ZERO) is zero
    assert bound > hits / drafts


def test_a_lookup_that_finds_nothing_acceptable_is_no_engine_fault():
    lookup = replace(REFERENCE, lookup=True, method="ngram", spec="ngram K=5")
    _, assessment = run(3, lookup, accepted=0.0, first=0.0)
    assert assessment.signal is not Signal.STEP_TO_ZERO
    _, assessment = run(20, lookup, accepted=0.0, first=0.0)
    assert (assessment.signal, assessment.pays) == (Signal.WORSE_DRAFT, False)


def test_an_engine_without_counters_is_not_speculating_whatever_the_ledger_says():
    plain = [Counters(1000.0 * n, started=1.0) for n in range(4)]
    state, signals = State(), []
    for number, counters in enumerate(plain):
        state, assessment = assess(
            POLICY, REFERENCE, state, Reading(15.0 * number, {"pod": counters}), speculates=True
        )
        signals.append(assessment.signal)
    assert signals[-1] is Signal.NOT_SPECULATING
    _, assessment = assess(
        POLICY,
        REFERENCE,
        State(Reading(0.0, {"pod": plain[0]})),
        Reading(15.0, {"pod": plain[1]}),
        speculates=False,
    )
    assert assessment.signal is Signal.HEALTHY  # after a rollback nothing is wrong


def test_without_a_reference_nothing_is_compared():
    assert run(3, None, accepted=0.0)[1].signal is Signal.NO_REFERENCE


@pytest.mark.parametrize(
    ("reading", "why"),
    [
        (Reading(15.0, {}, {"pod": "the answer is NaN"}), "pod: the answer is NaN"),
        (Reading(15.0, {"pod": replace(engine(), started=9.0)}), "pod restarted"),
        (Reading(15.0, {"pod": replace(engine(), generation_tokens=0.0)}), "pod restarted"),
        (Reading(15.0, {"pod": replace(engine(), accepted=None)}), "disappeared"),
        (Reading(15.0, {"other": engine()}), "other is new"),
        (Reading(15.0, {}), "no engine could be read"),
        (Reading(-5.0, {"pod": engine()}), "the clock went back"),
        (Reading(900.0, {"pod": engine()}), "no reading for 900 s"),
        (
            Reading(
                15.0, {"pod": engine(engine())}, {"two": "timeout", "three": "timeout"}, wanted=3
            ),
            "1 of 3 engines",
        ),
    ],
)
def test_missing_data_is_blind_and_changes_no_sum(reading, why):
    state, _ = run(20, accepted=0.9)
    before = replace(state, base=Reading(0.0, {"pod": engine()}))
    after, assessment = assess(POLICY, REFERENCE, before, reading, speculates=True)
    assert assessment.signal is Signal.BLIND
    assert why in assessment.text
    assert not assessment.finding
    assert (after.slower, after.unpaid) == (before.slower, before.unpaid)
    assert after.base is reading


def test_two_restarts_in_half_an_hour_are_a_finding():
    state = State()
    for number in range(3):
        counters = {"pod": replace(engine(), started=float(number))}
        state, assessment = assess(
            POLICY, REFERENCE, state, Reading(60.0 * number, counters), speculates=True
        )
    assert assessment.signal is Signal.RESTARTING
    assert assessment.restarted == ("pod",)


def test_engines_are_summed_before_anything_is_divided():
    actual_engine, two = engine(seconds=0.0), engine(seconds=0.0)
    first = Reading(0.0, {"a": actual_engine, "b": two}, wanted=2)
    then = Reading(
        15.0,
        {"a": engine(actual_engine, accepted=2.0), "b": engine(two, accepted=1.0, batch=2.0)},
        wanted=2,
    )
    _, assessment = assess(POLICY, REFERENCE, State(base=first), then, speculates=True)
    assert assessment.figures.batch == pytest.approx(3.0 * 0.95, rel=0.01)
    assert assessment.figures.tokens_per_step == pytest.approx((3 * 4 + 2 * 2) / 6, rel=0.01)


def test_low_traffic_is_pooled_until_it_can_be_judged():
    state, total, signals = State(), engine(seconds=0.0), []
    for number in range(6):
        state, assessment = assess(
            POLICY, REFERENCE, state, Reading(15.0 * number, {"pod": total}), speculates=True
        )
        signals.append(assessment.signal)
        total = engine(total, batch=0.06)
    assert Signal.IDLE in signals
    assert Signal.HEALTHY in signals


def test_every_finding_has_a_remedy():
    for signal, meaning in MEANINGS.items():
        assert meaning.text
        assert not meaning.finding or remedy_of(signal, "ml", "qwen").startswith("mpctl ")


def test_an_engine_that_could_not_be_read_while_it_started_again_is_known_to_have_restarted():
    first = engine()
    state, _ = assess(POLICY, REFERENCE, State(), Reading(0.0, {"a": first}), speculates=True)
    for at in (15.0, 30.0, 400.0):  # longer than any gap of a scrape
        state, assessment = assess(
            POLICY, REFERENCE, state, Reading(at, {}, {"a": "refused"}), speculates=True
        )
        assert (assessment.signal, assessment.restarted) == (Signal.BLIND, ())
    back = replace(engine(), started=400.0)
    state, assessment = assess(
        POLICY, REFERENCE, state, Reading(415.0, {"a": back}), speculates=True
    )
    assert assessment.restarted == ("a",)
    state, assessment = assess(
        POLICY, REFERENCE, state, Reading(430.0, {"a": engine(back)}), speculates=True
    )
    assert (assessment.signal, assessment.restarted) == (Signal.HEALTHY, ())


def test_an_engine_that_only_missed_a_scrape_has_not_restarted():
    first = engine()
    state, _ = assess(POLICY, REFERENCE, State(), Reading(0.0, {"a": first}), speculates=True)
    state, _ = assess(
        POLICY, REFERENCE, state, Reading(15.0, {}, {"a": "no answer"}), speculates=True
    )
    _, assessment = assess(
        POLICY, REFERENCE, state, Reading(30.0, {"a": engine(first)}), speculates=True
    )
    assert assessment.restarted == ()
