"""The gate through its front door on measurements of known truth."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import math
import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from mpctl.experiment.block import BASELINE
from mpctl.experiment.run import Run
from mpctl.experiment.users import Placement
from mpctl.gate.advice import more_to_decide
from mpctl.gate.analysis import Analysis, Figure, Stages, overall_gain
from mpctl.gate.assess import assess, is_futile
from mpctl.gate.policy import Policy
from mpctl.stats.confidence import Trimmed
from mpctl.stats.sequential import FIRST_LOOK
from tests.simulation.conversations import Caches
from tests.simulation.conversations import verdicts as of_conversations
from tests.simulation.measurements import Truth, rounds

pytestmark = pytest.mark.exhaustive

SIDE_BY_SIDE = Policy(
    min_tokens_per_step=0, max_failed_excess=1.0
)  # no request fails here, and none was sent before
PLAIN = replace(
    SIDE_BY_SIDE, max_pod_gap=0.0
)  # engines that differ in nothing: the statistics alone


def verdicts(truth, *, looks, repetitions, policy=PLAIN, every=1):
    """Outcome and look of each simulated rollout; a look after every ``every`` rounds stops at the first verdict."""
    rows = []
    for seed in range(repetitions):
        blocks = []
        outcome, look = "undecided", looks
        for number, both in enumerate(rounds(truth, looks, seed), start=1):
            blocks += both
            if number % every and number < looks:
                continue
            outcome = assess(
                Analysis.of(blocks, policy, rounds=number, planned=looks)
            ).outcome.value
            if outcome != "undecided":
                look = number
                break
        rows.append((outcome, look))
    return Counter(o for o, _ in rows), sorted(look for _, look in rows)


def test_rollouts_that_change_nothing():
    """Looked at after each of 30 rounds, prompts correlated between the arms, latencies lognormal with a heavy tail.
    ``test_measure_statistics`` counts 20 000, ``scripts/gate-table`` prints the table."""
    truth = Truth(prompt_sigma=0.8, request_sigma=0.6, prompts=4)
    outcomes, _ = verdicts(truth, looks=30, repetitions=40)
    assert (
        outcomes["promote"] + outcomes["reject"] <= 5
    )  # more than 5 of 40 in one of 70 tests, if one of 20 is decided


@pytest.mark.parametrize("block_sigma", [0.05, 0.2])
def test_the_demo_is_promoted_within_its_rounds(block_sigma):
    """2.4x with drafts, eleven rounds of eight prompts at most, on a machine that others use too."""
    truth = Truth(
        tpot=1 / 2.4,
        request_sigma=0.2,
        prompt_sigma=0.2,
        block_sigma=block_sigma,
        accepted=0.8,
        ttft_ms=16.0,
    )
    outcomes, looks = verdicts(
        truth, looks=11, repetitions=40, policy=Policy(max_failed_excess=1.0)
    )
    assert outcomes["promote"] >= 38
    assert outcomes["reject"] == 0
    assert looks[len(looks) // 2] <= 8  # the first round that may decide
    outcomes, _ = verdicts(truth, looks=4, repetitions=40, policy=Policy(max_failed_excess=1.0))
    assert outcomes["promote"] >= (38 if block_sigma < 0.1 else 28)
    assert outcomes["reject"] == 0


def test_a_method_that_slows_novel_text_down_is_rejected_in_few_rounds():
    truth = Truth(tpot=1 / 0.7, request_sigma=0.2, prompt_sigma=0.2, accepted=0.15)
    outcomes, looks = verdicts(truth, looks=12, repetitions=40, policy=Policy(max_pod_gap=0.0))
    assert outcomes["reject"] >= 38
    assert outcomes["promote"] == 0
    assert looks[len(looks) // 2] <= 8  # the first round that may decide


@pytest.mark.parametrize(("slower", "looks"), [(1.2, 14), (1.1, 48)])
def test_a_planted_regression_is_caught_with_the_power_that_the_policy_states(slower, looks):
    """``rounds_to_show`` says 11 and 32 rounds of 8 prompts for 20 % and 10 % at this noise; a few more, for chance."""
    truth = Truth(tpot=slower, request_sigma=0.2, prompt_sigma=0.35, block_sigma=0.05)
    outcomes, _ = verdicts(truth, looks=looks, repetitions=60, every=4)
    assert outcomes["reject"] >= 0.9 * 60
    assert outcomes["promote"] == 0


def ended(truth, seed, *, looks=24, stop=True):
    """Outcome and look of one simulated measurement by the default plan."""
    blocks = []
    for number, both in enumerate(rounds(truth, looks, seed), start=1):
        blocks += both
        if number < FIRST_LOOK:
            continue
        analysis = Analysis.of(blocks, PLAIN, rounds=number, planned=looks)
        verdict = assess(analysis)
        if verdict.outcome.value != "undecided" or (stop and is_futile(analysis, verdict)):
            return verdict.outcome.value, number
    return "undecided", looks


def test_noise_with_a_rhythm_decides_nothing():
    """A period of four blocks fell in step with A B B A: 24 to 88 of 100 measurements of equal engines were decided."""
    truth = Truth(
        prompts=4, block_sigma=0.02, request_sigma=0.1, prompt_sigma=0.2, period=4.0, amplitude=0.2
    )
    counter = Counter(ended(truth, seed)[0] for seed in range(30))
    assert counter["promote"] + counter["reject"] <= 4


def test_a_candidate_that_changes_nothing_ends_early_and_a_good_one_does_not():
    looks = [ended(Truth(prompts=4), seed)[1] for seed in range(20)]
    assert sum(looks) / len(looks) <= 0.65 * 24
    found = [ended(Truth(prompts=4, tpot=0.75), seed) for seed in range(20)]
    assert sum(outcome == "promote" for outcome, _ in found) >= 17


def test_a_cold_first_block_is_discarded():
    """Without the rule, 6 of 100 candidates that were 20 % faster were promoted, for 82 with a warm first block."""
    cold = [ended(Truth(prompts=4, tpot=0.75, cold=3.0), seed) for seed in range(20)]
    assert sum(outcome == "promote" for outcome, _ in cold) >= 17


def with_lengths(block, ratio, seed):
    """A block: half of the prompts have short answers, on the candidate 0.3x, and half long ones, ``ratio`` x."""
    samples = []
    for sample in block.samples:
        short = random.Random(f"{seed} {sample.prompt}").random() < 0.5
        factor = 1.0 if block.arm == BASELINE else 0.3 if short else ratio
        tokens = 16 if short else 400
        later = factor * sample.tpot_ms * (tokens - 1)
        samples.append(replace(sample, tokens=tokens, e2e_ms=sample.ttft_ms + later))
    window = replace(block.window, generation_tokens=float(sum(s.tokens for s in samples)))
    seconds = sum(s.e2e_ms for s in samples) / 1000
    return replace(block, samples=tuple(samples), window=window, duration_s=seconds)


def whole_requests(ratio, seed):
    """The rule E2E at the first interim analysis that may decide, and all requests' times, candidate over baseline."""
    blocks = [
        with_lengths(b, ratio, seed) for both in rounds(Truth(prompts=2), 8, seed) for b in both
    ]
    analysis = Analysis.of(blocks, PLAIN, rounds=8, planned=48)
    base, cand = (
        sum(s.e2e_ms for block in blocks[2 + arm :: 2] for s in block.samples) for arm in (0, 1)
    )
    return next(rule for rule in assess(analysis).rules if rule.rule == "E2E"), cand / base


@pytest.mark.parametrize("seed", [108, 110])
def test_short_answers_that_are_much_faster_hide_no_long_ones_that_are_slower(seed):
    """In truth all requests together take 1.11x; interval and sums of these eight rounds said at most 1.05x."""
    rule, ratio = whole_requests(1.15, seed)
    assert ratio < 1.05
    assert rule.interval.high < 1.05
    assert rule.outcome.value == "undecided"
    assert "over all requests, stalls included, it may be 1.1" in rule.message


@pytest.mark.parametrize("seed", range(4))
def test_a_candidate_that_is_faster_at_every_length_passes(seed):
    assert whole_requests(0.5, seed)[0].outcome.value == "pass"


def test_every_verdict_says_how_many_prompts_get_much_slower():
    """The mean gains, and a tenth of the users waits more than twice as long."""
    truth, blocks = Truth(0.5, prompts=2, block_sigma=0.005, request_sigma=0.02), []
    for repeat, (base, cand) in enumerate(rounds(truth, 24, 3)):
        first, second = cand.samples
        if repeat % 5 == 1:
            first = replace(first, e2e_ms=2.4 * base.samples[0].e2e_ms)
        blocks += [base, replace(cand, samples=(first, second))]
    verdict = assess(Analysis.of(blocks, PLAIN, rounds=24, planned=48))
    whole = next(rule for rule in verdict.rules if rule.rule == "E2E")
    assert whole.value < 0.9
    assert "(10% of prompts take more than 1.5x as long, 88% less than 1/1.5)" in whole.message


def of_factors(factors, seed):
    """The rule time per token on a quiet GPU after rounds with these times per token, of 48 planned."""
    blocks = []
    for number, factor in enumerate(factors):
        truth = Truth(factor, prompts=2, block_sigma=0.005, request_sigma=0.025)
        blocks += [replace(b, repeat=number) for b in list(rounds(truth, number + 1, seed))[-1]]
    analysis = Analysis.of(blocks, PLAIN, rounds=len(factors), planned=48)
    return next(r for r in assess(analysis).rules if r.rule == "time per token")


@pytest.mark.parametrize("seed", range(3))
def test_a_candidate_that_gets_slower_from_round_to_round_passes_no_time_per_token(seed):
    """0.6x at first, 1.5x in the last planned round; over the first sixteen the mean is 0.7x."""
    rule = of_factors([0.6 * 2.5 ** (number / 47) for number in range(16)], seed)
    assert rule.outcome.value == "undecided"
    assert rule.interval.high < 1
    assert "it rises over the rounds, by the last planned one to 1." in rule.message


@pytest.mark.parametrize("seed", range(3))
def test_a_steady_gain_and_one_that_grows_pass_at_the_first_look(seed):
    assert of_factors([0.6] * 8, seed).outcome.value == "pass"
    assert of_factors([0.8 * 0.97**number for number in range(8)], seed).outcome.value == "pass"


def test_stalls_of_the_candidate_alone_are_no_noise_to_trim():
    """Two of 24 rounds with a request of 40 s on the candidate: trimmed, its requests look 20 % faster."""
    items = []
    for repeat, (base, cand) in enumerate(rounds(Truth(prompts=4, tpot=0.75), 24, 1)):
        slow = cand
        if repeat in (7, 15):
            samples = (
                replace(cand.samples[0], e2e_ms=cand.samples[0].e2e_ms + 40_000.0),
                *cand.samples[1:],
            )
            slow = replace(cand, samples=samples, duration_s=cand.duration_s + 40.0)
        items += [base, slow]
    verdict = assess(Analysis.of(items, PLAIN, rounds=24, planned=24))
    rule = next(r for r in verdict.rules if r.rule == "E2E")
    assert rule.interval.value < 0.83
    assert rule.outcome.value == "undecided"
    assert re.search(r"over all requests, stalls included, it may be \d", rule.message)


def test_a_gain_in_every_cell_is_shown_over_all_of_them():
    """Each cell's own gain is not certain yet; asked for in each of eight, 4 of 10 such measurements were promoted."""

    def measured(tpots, seed):
        kinds = [Truth(prompts=4, tpot=t, traffic=f"class-{n}") for n, t in enumerate(tpots)]
        blocks = [
            b
            for s, kind in enumerate(kinds, start=seed)
            for both in rounds(kind, 14, s)
            for b in both
        ]
        return Analysis.of(blocks, PLAIN, rounds=14, planned=24)

    together = [assess(measured([0.75] * 4, 100 * seed)) for seed in range(6)]
    shared = [
        r
        for v in together
        for r in v.rules
        if r.rule == "time per token" and "over all cells" in r.message
    ]
    assert shared and all(r.outcome.value == "pass" for r in shared)
    null = [assess(measured([1.0] * 4, 100 * seed)) for seed in range(6)]
    assert not any("over all cells" in r.message for v in null for r in v.rules)
    mixed = assess(measured([0.6, 0.6, 0.6, 1.5], 7))
    assert mixed.outcome.value == "reject"


def test_a_gain_over_all_cells_excuses_no_stalls_of_a_cell():
    """Its other rounds are as fast as those of the other cells; with its stalls the cell has lost time per token."""

    def outcomes(stall_ms):
        blocks = []
        for number in range(4):
            truth = Truth(prompts=4, tpot=0.75, traffic=f"class-{number}")
            for repeat, (base, cand) in enumerate(rounds(truth, 14, number)):
                stall = stall_ms if number == 0 and repeat in (3, 7, 11) else 0.0
                slowest = replace(cand.samples[0], e2e_ms=cand.samples[0].e2e_ms + stall)
                blocks += [base, replace(cand, samples=(slowest, *cand.samples[1:]))]
        verdict = assess(Analysis.of(blocks, PLAIN, rounds=14, planned=24))
        return [
            next(r.outcome.value for r in c.rules if r.rule == "time per token")
            for c in verdict.cells
        ]

    assert outcomes(0.0) == ["pass"] * 4
    assert outcomes(600_000.0) == ["undecided", "pass", "pass", "pass"]


def _gain(values, numbers, correlated=False):
    stage = Stages.of(PLAIN, rounds=len(values), planned=len(values)).lower
    return Figure(tuple(values), True, stage, correlated=correlated, rounds=tuple(numbers)), stage


def test_cells_are_joined_by_the_rounds_that_they_share():
    (first, stage), (second, _) = _gain([-0.2] * 8, range(8)), _gain([-0.2] * 8, range(1, 9))
    assert overall_gain([first, first], [0.5, 0.5], stage) is not None
    assert overall_gain([first, second], [0.5, 0.5], stage) is None


def test_rounds_that_resemble_their_neighbours_widen_the_gain_over_all_cells():
    drifting = [-0.3 + 0.02 * number for number in range(12)]
    alone, together = (
        overall_gain([figure, figure], [0.5, 0.5], stage)
        for figure, stage in (
            _gain(drifting, range(12)),
            _gain(drifting, range(12), correlated=True),
        )
    )
    assert together.high > alone.high


@pytest.mark.parametrize(
    ("values", "trim", "mean", "cut"),
    [
        ((1.0, 2.0, 3.0), 0.1, 2.0, 0),
        (tuple(range(10)), 0.1, 4.5, 1),
        ((*range(9), 1000.0), 0.1, 4.5, 1),
    ],
)
def test_a_trimmed_mean_leaves_the_extreme_rounds_out(values, trim, mean, cut):
    made = Trimmed.of(values, trim)
    assert (made.mean, made.cut, made.count) == (mean, cut, len(values))
    assert made.freedom == len(values) - 1 - 2 * cut
    if not cut:
        assert made.spread == pytest.approx(1.0)


def one_after_the_other(blocks, *, days=1):
    """The same blocks as a measurement in place has them: all of the baseline, then all of the candidate."""
    return [
        replace(
            b, started=f"2026-01-{1 + days * (b.arm == 'candidate'):02}T{b.repeat:02}:00:00+00:00"
        )
        for b in blocks
    ]


def apart(seed, *, drift, tpot=1.0):
    """24 rounds in place on a machine that is ``drift`` slower when the candidate has its turn."""
    actual_rounds = [
        b
        for both in rounds(Truth(prompts=4, block_sigma=0.02, tpot=tpot * drift), 24, seed)
        for b in both
    ]
    return assess(Analysis.of(one_after_the_other(actual_rounds), PLAIN, rounds=24, planned=24))


def test_a_drift_between_arms_measured_one_after_the_other_decides_nothing():
    """Two equal days 8 % apart were "promote"; the intervals are widened, and the verdict says so."""
    for drift in (0.9, 1.1):
        ranges = [apart(seed, drift=drift) for seed in range(8)]
        assert {v.outcome.value for v in ranges} == {"undecided"}
        assert "not measured in turns" in ranges[0].summary
        assert any("widened by 15%" in r.message for r in ranges[0].rules)
    assert [apart(seed, drift=1.05, tpot=0.5).outcome.value for seed in range(4)] == ["promote"] * 4
    assert [apart(seed, drift=1.0, tpot=2.0).outcome.value for seed in range(4)] == ["reject"] * 4


@pytest.mark.parametrize("gap", [0.96, 1.04])
def test_equal_engines_that_differ_by_4_percent_for_good_are_told_apart_in_no_more_than_1_of_20(
    gap,
):
    """Two processes of one manifest were 4 % apart in five of five measurements. Without the margin 80 rounds promoted
    the faster one."""
    truth = Truth(prompts=4, request_sigma=0.2, prompt_sigma=0.2, block_sigma=0.05, tpot=gap)
    outcomes, _ = verdicts(truth, looks=80, repetitions=25, policy=SIDE_BY_SIDE, every=8)
    assert outcomes["promote"] + outcomes["reject"] == 0
    wrong, _ = verdicts(truth, looks=80, repetitions=5, policy=PLAIN, every=8)
    assert wrong["promote"] >= (1 if gap < 1 else 0)


def test_a_gain_of_a_quarter_is_usually_promoted_side_by_side():
    truth = Truth(prompts=4, request_sigma=0.2, prompt_sigma=0.2, block_sigma=0.05, tpot=0.8)
    outcomes, _ = verdicts(truth, looks=24, repetitions=20, policy=SIDE_BY_SIDE)
    assert outcomes["promote"] >= 16


def test_no_plan_is_offered_for_what_a_constant_alone_could_decide():
    actual_rounds = [
        b for both in rounds(Truth(prompts=8, block_sigma=0.02, tpot=0.95), 30, 1) for b in both
    ]
    analysis = Analysis.of(actual_rounds, SIDE_BY_SIDE, rounds=30, planned=30)
    verdict = assess(analysis)
    assert (verdict.outcome.value, more_to_decide(analysis, verdict)) == ("undecided", None)
    assert not any("--repeats" in rule.message for rule in verdict.rules)
    assert any(
        "equal engines may differ by 10% for as long as both live" in rule.message
        for rule in verdict.rules
    )


def test_turns_of_fresh_engines_need_no_margin():
    blocks = tuple(b for both in rounds(Truth(prompts=16), 6, 1) for b in both)
    run = replace(
        loads_run(),
        blocks=blocks,
        policy=SIDE_BY_SIDE.to_record(),
        placement=Placement.TURNS,
        planned=6,
    )
    turns = Analysis.of(run, SIDE_BY_SIDE).cells[0]
    pair = Analysis.of(replace(run, placement=Placement.PAIR), SIDE_BY_SIDE).cells[0]
    assert [c.order.margin(SIDE_BY_SIDE) for c in (turns, pair)] == [0.0, SIDE_BY_SIDE.max_pod_gap]
    fresh, lasting = (
        math.log(c.intervals["tpot"].high / c.intervals["tpot"].value) for c in (turns, pair)
    )
    assert lasting == pytest.approx(math.hypot(fresh, math.log(1.1)))


def loads_run():
    return Run(
        "r", "2026-01-01T00:00:00+00:00", "a@b", "0", {}, {}, {}, None, SIDE_BY_SIDE.to_record(), ()
    )


def test_rounds_in_turns_are_not_widened_for_a_drift():
    actual_rounds = [b for both in rounds(Truth(prompts=4), 8, 1) for b in both]
    for blocks in (
        actual_rounds,
        [replace(b, started=f"2026-01-01T{b.repeat:02}:00:00+00:00") for b in actual_rounds],
    ):
        verdict = assess(Analysis.of(blocks, PLAIN, rounds=8, planned=24))
        assert not any("widened" in r.message for r in verdict.rules)


def test_rounds_that_resemble_their_neighbours_are_less_evidence():
    alike = Trimmed.of([0.0, 0.1, 0.2, 0.3, 0.4, 0.5], correlated=True)
    plain = Trimmed.of([0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
    assert alike.spread == pytest.approx(plain.spread * math.sqrt(1.5 / 0.5))
    assert Trimmed.of([0.0, 1.0] * 4, correlated=True).spread == Trimmed.of([0.0, 1.0] * 4).spread


def test_the_table_of_equal_engines_is_printed(capsys):
    """``scripts/aa-rounds`` prints it after twenty minutes of measuring."""
    root = Path(__file__).parents[3]
    spec = importlib.util.spec_from_file_location("aa_table", root / "scripts/aa_table.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    measured = [f"12.5={root / 'tests/data/run-demo.json.gz'}"]
    assert module.main(48, measured) in (0, 1)
    assert module.main(48, measured, gain=True) in (0, 1)
    out = capsys.readouterr().out
    assert "of 1 measurements of equal arms decided" in out
    assert "12.5 s in the median" in out and "of 1 measurements promoted" in out


def gate_table(monkeypatch, *arguments):
    """Run ``scripts/gate-table``."""
    path = Path(__file__).parents[3] / "scripts/gate-table"
    monkeypatch.syspath_prepend(str(path.parent))
    monkeypatch.setattr("sys.argv", ["gate-table", *arguments])
    loader = importlib.machinery.SourceFileLoader("gate_table", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gate_table", loader))
    loader.exec_module(module)
    return module.main()


@pytest.mark.parametrize("noise", ["usual", "5 % stalls", "Pareto(1.3)"])
def test_the_copy_in_numpy_decides_as_the_gate_does(noise, monkeypatch, capsys):
    assert gate_table(monkeypatch, "--check", "4", "--only", noise) == 0, capsys.readouterr().out
    assert "0 of 4 differ" in capsys.readouterr().out


@pytest.mark.parametrize(
    "trick",
    [
        "open loop",
        "another device",
        "equal texts at the same time, 20 % more tokens",
        "a baseline that knows",
        "usage and counters of 20 % more tokens",
        "the same, engines without token ids",
        "bench without token ids",
    ],
)
def test_what_fooled_the_gate_once_is_promoted_no_more(trick, monkeypatch, capsys):
    gate_table(monkeypatch, "--tricks", "--repetitions", "2", "--only", trick)
    _, _, row, *_ = capsys.readouterr().out.splitlines()
    before, now = row.split(" | ")[-2:]
    assert now.startswith(("undecided", "refused")), (before, now)


def test_blocks_of_a_rate_that_reach_their_queue_reject_an_engine_with_half_the_slots(
    monkeypatch, capsys
):
    gate_table(monkeypatch, "--tricks", "--repetitions", "2", "--only", "96 requests a block")
    _, _, row, *_ = capsys.readouterr().out.splitlines()
    assert row.split(" | ")[-1].startswith("rejected"), row


@pytest.mark.parametrize("evicted", [0.0, 0.03])
def test_equal_engines_that_evict_by_chance_forget_nothing(evicted):
    """``scripts/gate-table --caches`` counts 1,000."""
    outcomes = of_conversations(Caches(evicted), 60)
    assert not any(rule == "fail" for rule, _ in outcomes)


def test_a_candidate_that_forgets_its_turns_is_rejected_and_one_that_forgets_a_block_is_not():
    """1,648 tokens a hit: vllm-project/vllm#53670. 16: a dense model."""
    assert of_conversations(Caches(0.01, 1648), 20) == {("fail", "reject"): 20}
    assert not any(rule == "fail" for rule, _ in of_conversations(Caches(0.01, 16), 20))
