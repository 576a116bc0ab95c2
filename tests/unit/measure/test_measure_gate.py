"""Two arms compared, and the gate over the comparison: every rule, and how they are joined."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from dataclasses import replace

import pytest
from measure_samples import EDITS, SPECULATING, block, pair, speculating, window

from mpctl.errors import InputError
from mpctl.measure.analysis import Comparison
from mpctl.measure.arm import BASELINE, CANDIDATE, ArmSummary, Spread
from mpctl.measure.gate import RULES, Outcome, Verdict, assess
from mpctl.measure.policy import Policy

PASS, FAIL, MISSING = Outcome.PASS, Outcome.FAIL, Outcome.MISSING


def compared_in(blocks):
    return Comparison.of(EDITS, blocks)


def outcomes(comparison, policy=None):
    return {r.rule: r.outcome for r in assess(comparison, policy or Policy()).rules}


# Comparison


def test_prompts_are_paired_by_repeat_and_place():
    blocks = [
        block(BASELINE, 0, texts=("a", "b")),
        block(CANDIDATE, 1, texts=("c", "x")),
        block(CANDIDATE, 0, texts=("a", "b")),
        block(BASELINE, 1, texts=("c", "d")),
    ]
    for order in itertools.permutations(blocks):
        made = compared_in(order)
        assert (made.compared, made.different) == (4, 1)


def test_only_prompts_answered_by_both_are_compared():
    made = compared_in([block(BASELINE, texts=("a", None, "c", None)), block(CANDIDATE, texts=("a", "b", None, None))])
    assert (made.compared, made.different) == (1, 0)
    assert (made.baseline.failed, made.candidate.failed) == (2, 2)
    assert made.baseline.first_error == "refused"


def test_newly_failed_are_the_prompts_that_the_baseline_alone_answered():
    """Paired by repeat and place: paired otherwise, these blocks give 1."""
    blocks = [
        block(BASELINE, 0, texts=("a", None)),
        block(CANDIDATE, 0, texts=(None, "b")),
        block(CANDIDATE, 1, texts=(None, None)),
        block(BASELINE, 1, texts=(None, "d")),
    ]
    for order in itertools.permutations(blocks):
        assert compared_in(order).newly_failed == 2


@pytest.mark.parametrize(
    ("base", "cand", "new"),
    [
        ("a", "a", 0),
        ("a", "x", 0),
        ("a", None, 1),
        (None, "a", 0),
        (None, None, 0),
    ],
)
def test_who_answered_one_prompt(base, cand, new):
    made = compared_in([block(BASELINE, texts=("same", base)), block(CANDIDATE, texts=("same", cand))])
    assert made.newly_failed == new
    assert made.compared == 1 + (base is not None and cand is not None)


def test_answers_without_text_are_not_taken_for_equal_ones():
    empty = hashlib.sha256(b"").hexdigest()
    made = compared_in(
        [block(BASELINE, texts=("a", empty, empty, "d")), block(CANDIDATE, texts=("a", empty, "c", empty))]
    )
    assert (made.compared, made.different, made.textless) == (3, 2, 1)
    swallowed = compared_in(pair(texts=(empty,) * 8))
    assert (swallowed.compared, swallowed.textless) == (0, 8)
    assert outcomes(swallowed)["samples"] is MISSING
    assert assess(swallowed, Policy()).outcome is Outcome.UNDECIDED


def test_as_many_failures_of_other_prompts_are_not_the_same():
    texts = tuple(map(str, range(10)))
    made = compared_in(pair(base={"texts": (None, *texts[1:])}, cand={"texts": (*texts[:9], None)}))
    assert (made.baseline.failed, made.candidate.failed, made.newly_failed) == (1, 1, 1)
    assert assess(made, Policy()).outcome is Outcome.REJECT
    same = compared_in(pair(texts=(None, *texts[1:])))
    assert (same.baseline.failed, same.candidate.failed, same.newly_failed) == (1, 1, 0)
    assert assess(same, Policy()).outcome is Outcome.PROMOTE


def test_a_repeat_of_one_arm_alone_is_not_paired():
    made = compared_in([*pair(2), block(BASELINE, 1)])
    assert (made.compared, made.newly_failed) == (2, 0)
    assert len(made.throughput_ratios) == 1
    assert (made.baseline.blocks, made.candidate.blocks) == (2, 1)


def test_speedup_is_tokens_over_summed_time_and_ratios_show_the_spread():
    blocks = [
        block(BASELINE, 0, seconds=1.0),
        block(CANDIDATE, 0, seconds=0.5),
        block(CANDIDATE, 1, seconds=3.0),
        block(BASELINE, 1, seconds=6.0),
    ]
    made = compared_in(blocks)
    assert made.throughput_ratios == pytest.approx((2.0, 2.0))
    assert made.speedup == pytest.approx((40 / 3.5) / (40 / 7.0))
    assert made.candidate.throughput == pytest.approx(40 / 3.5)


def test_medians_are_over_requests_not_over_blocks():
    blocks = [
        block(BASELINE, 0, texts=("a",), ttft=1.0),
        block(BASELINE, 1, texts=("b", "c", "d"), ttft=100.0),
        block(CANDIDATE, 0, texts=("a",)),
    ]
    arm = ArmSummary.of(BASELINE, blocks)
    assert (arm.ttft_ms, arm.requests, arm.blocks) == (100.0, 4, 2)
    assert arm.e2e_ms == pytest.approx(118.0)


def test_an_arm_without_blocks_has_no_figures():
    arm = ArmSummary.of(CANDIDATE, [block(BASELINE)])
    assert (arm.throughput, arm.tpot_ms, arm.ttft_ms, arm.window) == (None, None, None, None)
    nothing = compared_in([])
    assert (nothing.speedup, nothing.compared, nothing.newly_failed) == (None, 0, 0)


def test_windows_are_pooled():
    blocks = [block(CANDIDATE, r, window=w) for r, w in enumerate((SPECULATING, window(1000.0, 0.0, 0.0, 0.0)))]
    assert ArmSummary.of(CANDIDATE, blocks).window.tokens_per_step == pytest.approx(1100 / 1040)


# Rules: (what is changed in a comparison that passes, rule, outcome)

GOOD = compared_in(pair())


def changed(summary, **changes):
    """An arm with other figures; throughput, tpot_ms and ttft_ms are given by what they are computed from."""
    for name in ("tpot", "ttft"):
        if f"{name}_ms" in changes:
            value = changes.pop(f"{name}_ms")
            changes[name] = None if value is None else Spread(value, value, value, value, 8)
    if "throughput" in changes:
        value = changes.pop("throughput")
        changes["seconds"] = summary.output_tokens / value if value else 0.0
    return replace(summary, **changes)


def with_arm(arm, **changes):
    return replace(GOOD, **{arm: changed(getattr(GOOD, arm), **changes)})


def with_failures(*, baseline, candidate, new):
    """How many requests failed on each arm, and how many of the candidate's the baseline had answered."""
    made = with_arm("candidate", failed=candidate, first_error="boom")
    return replace(made, baseline=replace(GOOD.baseline, failed=baseline), newly_failed=new)


def counted(counters):
    """The candidate's engine counted this, and usage says the same."""
    return with_arm("candidate", window=counters, output_tokens=int(counters.generation_tokens))


CASES = [
    (GOOD, "errors", PASS),
    (with_failures(baseline=0, candidate=1, new=1), "errors", FAIL),
    (with_failures(baseline=1, candidate=1, new=0), "errors", PASS),
    (with_failures(baseline=1, candidate=1, new=1), "errors", FAIL),  # as many, but another prompt
    (with_failures(baseline=3, candidate=1, new=1), "errors", FAIL),
    (with_failures(baseline=1, candidate=0, new=0), "errors", PASS),
    (with_arm("candidate", requests=0), "errors", MISSING),
    (replace(GOOD, compared=8), "samples", PASS),
    (replace(GOOD, compared=7), "samples", MISSING),
    (with_arm("candidate", output_tokens=76), "tokens", PASS),  # 5% of the engine's 80, either way
    (with_arm("candidate", output_tokens=84), "tokens", PASS),
    (with_arm("candidate", output_tokens=75), "tokens", MISSING),
    (with_arm("candidate", output_tokens=85), "tokens", MISSING),
    (with_arm("candidate", output_tokens=0), "tokens", MISSING),
    (with_arm("candidate", output_tokens=80_000), "tokens", MISSING),
    (with_arm("candidate", window=speculating(160.0)), "tokens", MISSING),  # somebody else's traffic
    (with_arm("candidate", window=None), "tokens", MISSING),
    (counted(window(0.0, 0.0, 0.0, 0.0)), "tokens", MISSING),
    (with_arm("baseline", output_tokens=76), "tokens", PASS),
    (with_arm("baseline", output_tokens=75), "tokens", MISSING),
    (with_arm("baseline", window=window(160.0)), "tokens", MISSING),  # users were served meanwhile
    (with_arm("baseline", window=None), "tokens", MISSING),
    (replace(GOOD, compared=0, textless=8), "samples", MISSING),
    (replace(GOOD, different=1), "outputs", FAIL),
    (replace(GOOD, compared=0), "outputs", MISSING),
    (counted(window()), "tokens per step", FAIL),
    (with_arm("candidate", window=None), "tokens per step", MISSING),
    (counted(window(0.0, 0.0, 0.0, 0.0)), "tokens per step", MISSING),
    (counted(window(110.0, 10.0, 50.0, 10.0)), "tokens per step", PASS),
    (counted(window(110.0, 10.0, 50.0, 9.0)), "tokens per step", FAIL),
    (counted(window(110.0, 0.0, 0.0, 0.0)), "tokens per step", FAIL),
    (counted(window(110.0, 40.0, 200.0, 110.0)), "tokens per step", MISSING),  # cut off more than was generated
    (counted(window(110.0, 40.0, 200.0, 150.0)), "tokens per step", MISSING),
    (with_arm("candidate", throughput=1.05 * GOOD.baseline.throughput), "throughput", PASS),
    (with_arm("candidate", throughput=1.04 * GOOD.baseline.throughput), "throughput", FAIL),
    (with_arm("candidate", throughput=None), "throughput", MISSING),
    (with_arm("baseline", throughput=None), "throughput", MISSING),
    (with_arm("candidate", tpot_ms=2.1), "TPOT", PASS),
    (with_arm("candidate", tpot_ms=2.2), "TPOT", FAIL),
    (with_arm("candidate", tpot_ms=None), "TPOT", MISSING),
    (with_arm("baseline", tpot_ms=None), "TPOT", MISSING),
    (with_arm("candidate", ttft_ms=30.0), "TTFT", PASS),  # 10 ms + 20 ms slack
    (with_arm("candidate", ttft_ms=30.1), "TTFT", FAIL),
    (replace(with_arm("candidate", ttft_ms=1250.0), baseline=changed(GOOD.baseline, ttft_ms=1000.0)), "TTFT", PASS),
    (replace(with_arm("candidate", ttft_ms=1251.0), baseline=changed(GOOD.baseline, ttft_ms=1000.0)), "TTFT", FAIL),
    (with_arm("candidate", ttft_ms=None), "TTFT", MISSING),
    (with_arm("baseline", ttft_ms=None), "TTFT", MISSING),
]
WHOLE = {FAIL: Outcome.REJECT, MISSING: Outcome.UNDECIDED, PASS: Outcome.PROMOTE}


def test_what_is_good_everywhere_is_promoted():
    verdict = assess(GOOD, Policy())
    assert verdict.outcome is Outcome.PROMOTE
    assert [r.outcome for r in verdict.rules] == [PASS] * len(RULES)
    assert len(verdict.reasons) == len(RULES)


@pytest.mark.parametrize(("comparison", "rule", "outcome"), CASES)
def test_one_rule_decides(comparison, rule, outcome):
    """Each case changes one datum. A missing one may be missing for other rules too, but never turns into a pass."""
    found = outcomes(comparison)
    assert found.pop(rule) is outcome
    assert FAIL not in found.values()
    if outcome is not MISSING:
        assert set(found.values()) == {PASS}
    assert assess(comparison, Policy()).outcome is WHOLE[outcome]


def test_every_rule_passes_fails_and_misses_somewhere():
    seen = {(rule, outcome) for _, rule, outcome in CASES} | {(r.rule, PASS) for r in assess(GOOD, Policy()).rules}
    names = [r.rule for r in assess(GOOD, Policy()).rules]
    never = {("samples", FAIL), ("tokens", FAIL)}  # neither too few samples nor other traffic are its fault
    assert seen == set(itertools.product(names, (PASS, FAIL, MISSING))) - never


@pytest.mark.parametrize("failing", [c for c, _, o in CASES if o is FAIL])
def test_any_fail_rejects_whatever_is_missing(failing):
    verdict = assess(replace(failing, compared=1) if failing.compared > 1 else failing, Policy())
    assert MISSING in {r.outcome for r in verdict.rules}
    assert verdict.outcome is Outcome.REJECT
    assert verdict.reasons == tuple(r.message for r in verdict.rules if r.outcome is FAIL)


def test_nothing_measured_is_undecided():
    verdict = assess(compared_in([]), Policy())
    assert verdict.outcome is Outcome.UNDECIDED
    assert {r.outcome for r in verdict.rules} == {MISSING}
    assert len(verdict.reasons) == len(RULES)


def test_the_trap_cell_is_rejected():
    """Published measurement (facts/domain.md 4.2): the draft ate the KV pool, so few run, and those look fast."""
    base = changed(GOOD.baseline, tpot_ms=65.4, throughput=3225.0, ttft_ms=2300.0)
    cand = changed(GOOD.candidate, tpot_ms=41.0, throughput=1926.0, ttft_ms=17400.0)
    verdict = assess(replace(GOOD, baseline=base, candidate=cand), Policy())
    assert verdict.outcome is Outcome.REJECT
    assert verdict.reasons == (
        "throughput 0.60x the baseline's (at least 1.05x)",
        "TTFT 17400.0 ms, baseline 2300.0 ms (limit 2875.0 ms)",
    )
    (tpot,) = (r for r in verdict.rules if r.rule == "TPOT")
    assert (tpot.outcome, tpot.message) == (PASS, "TPOT 0.63x the baseline's (limit 1.05x)")


def test_messages_carry_value_and_limit():
    failing = replace(
        with_failures(baseline=1, candidate=3, new=2),
        candidate=replace(GOOD.candidate, failed=3, first_error="boom", output_tokens=78),
    )
    messages = {r.rule: r.message for r in assess(failing, Policy()).rules}
    assert messages == {
        "errors": (
            "3 of 8 requests failed, 1 on the baseline; the candidate failed 2 that the baseline answered; first: boom"
        ),
        "samples": "8 prompts answered by both arms, at least 8 needed",
        "tokens": (
            "baseline: 80 tokens by usage, 80 by the engine (limit 5% apart); "
            "candidate: 78 tokens by usage, 80 by the engine (limit 5% apart)"
        ),
        "outputs": "0 of 8 greedy outputs differ (limit 0%)",
        "tokens per step": "tokens per step 2.50 (at least 1.10)",
        "throughput": "throughput 1.95x the baseline's (at least 1.05x)",
        "TPOT": "TPOT 1.00x the baseline's (limit 1.05x)",
        "TTFT": "TTFT 10.0 ms, baseline 10.0 ms (limit 30.0 ms)",
    }


@pytest.mark.parametrize(
    ("comparison", "rule", "message"),
    [
        (GOOD, "errors", "0 of 8 requests failed, 0 on the baseline"),
        (with_failures(baseline=2, candidate=1, new=0), "errors", "1 of 8 requests failed, 2 on the baseline"),
        (with_arm("candidate", window=None), "tokens", "the candidate's engine counted no token"),
        (counted(window(0.0)), "tokens", "the candidate's engine counted no token"),
        (with_arm("baseline", window=None), "tokens", "the baseline's engine counted no token"),
        (
            with_arm("baseline", window=window(160.0)),
            "tokens",
            "baseline: 80 tokens by usage, 160 by the engine (limit 5% apart)",
        ),
        (
            replace(GOOD, compared=0, textless=8),
            "samples",
            "0 prompts answered by both arms, at least 8 needed; "
            "8 more were answered without text and cannot be compared (a reasoning parser?)",
        ),
    ],
)
def test_other_messages(comparison, rule, message):
    assert {r.rule: r.message for r in assess(comparison, Policy()).rules}[rule] == message


def test_taking_speculation_away_is_not_asked_for_drafts():
    """``mpctl rollout --spec none`` sets this limit to 0; an engine without the counters then passes."""
    plain = counted(window())
    assert outcomes(plain)["tokens per step"] is FAIL
    assert assess(plain, Policy(min_tokens_per_step=0.0)).outcome is Outcome.PROMOTE
    none = with_arm("candidate", window=None)
    assert outcomes(none, Policy(min_tokens_per_step=0.0))["tokens per step"] is MISSING


@pytest.mark.parametrize(
    ("policy", "rule"),
    [
        (Policy(min_speedup=2.01), "throughput"),
        (Policy(max_tpot_ratio=0.99), "TPOT"),
        (Policy(max_ttft_ratio=0.5, ttft_slack_ms=0.0), None),
        (Policy(min_tokens_per_step=2.51), "tokens per step"),
        (Policy(min_compared=9), "samples"),
    ],
)
def test_every_limit_is_heard(policy, rule):
    changed = [name for name, outcome in outcomes(GOOD, policy).items() if outcome is not PASS]
    assert changed == ([rule] if rule else [])  # without slack the limit of TTFT is the baseline's own time


def test_a_share_of_different_outputs_can_be_allowed():
    some = replace(GOOD, different=2)
    assert outcomes(some, Policy(max_different=0.25))["outputs"] is PASS
    assert outcomes(some, Policy(max_different=0.24))["outputs"] is FAIL


def test_the_gap_between_token_counts_can_be_limited():
    apart = with_arm("candidate", output_tokens=72)  # 10% of the engine's 80
    assert outcomes(apart)["tokens"] is MISSING
    assert outcomes(apart, Policy.from_record({"max_token_gap": 0.1}))["tokens"] is PASS
    assert outcomes(apart, Policy.from_record({"max_token_gap": 0.09}))["tokens"] is MISSING
    assert outcomes(with_arm("candidate", output_tokens=79), Policy(max_token_gap=0.0))["tokens"] is MISSING
    assert outcomes(GOOD, Policy(max_token_gap=0.0))["tokens"] is PASS


@pytest.mark.parametrize("value", [-0.1, "1.2", None, True, math.nan, [1]])
def test_a_limit_that_is_no_number_is_refused_by_name(value):
    with pytest.raises(InputError, match=r"^gate.yaml: min_speedup: must be a number of zero or more") as caught:
        Policy.from_record({"min_speedup": value}, file="gate.yaml")
    assert caught.value.field == "min_speedup"


def test_an_unknown_limit_is_refused_and_the_known_ones_listed():
    with pytest.raises(InputError, match=r"^gate.yaml: min_speedpu: unknown; known are .*min_speedup"):
        Policy.from_record({"min_speedpu": 1}, file="gate.yaml")


def test_policies_and_verdicts_round_trip():
    policy = Policy.from_record({"min_speedup": 2, "max_different": 0.5})
    assert policy == Policy(min_speedup=2, max_different=0.5)
    assert Policy.from_record(json.loads(json.dumps(policy.to_record()))) == policy
    assert Policy.from_record({}) == Policy()
    for comparison, _, _ in CASES:
        verdict = assess(comparison, policy)
        assert Verdict.from_record(json.loads(json.dumps(verdict.to_record()))) == verdict
