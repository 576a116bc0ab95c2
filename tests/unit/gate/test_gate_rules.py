"""Every rule of the gate, and how the rules are joined."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import pytest
from measure_samples import EDITS, TIMED, pair, results, rounds_of, speculating, timed, window

from mpctl.experiment.answers import (
    AnswerCheck,
    AnswerFinding,
    AnswerRule,
    Level,
    Reproduction,
    RuleCount,
    Tie,
)
from mpctl.experiment.block import BASELINE, CANDIDATE
from mpctl.experiment.cell import Cell
from mpctl.experiment.run import ArmConditions, Burst, PromptSet
from mpctl.experiment.users import Placement, UserLoad
from mpctl.gate.advice import more_to_decide
from mpctl.gate.analysis import Analysis, Comparison
from mpctl.gate.assess import assess, is_futile
from mpctl.gate.policy import Policy
from mpctl.gate.rule import Case, Outcome
from mpctl.gate.rules import RULES, rule_named
from mpctl.gate.verdict import Verdict
from mpctl.methods import Spec
from mpctl.records import decode, encode
from mpctl.stats.confidence import Interval

PASS, FAIL, UNDECIDED, MISSING, SKIP = (
    Outcome.PASS,
    Outcome.FAIL,
    Outcome.UNDECIDED,
    Outcome.MISSING,
    Outcome.SKIP,
)
ALIKE = Policy(max_pod_gap=0.0)  # engines that differ in nothing: the rules alone
BEFORE = Burst(requests=60)  # answered by both arms before the rounds
GOOD = Analysis.of(timed(rounds_of(4, jitter=0.02)), ALIKE)
GOOD = replace(GOOD, cells=(replace(GOOD.cells[0], burst=BEFORE),))


def of_run(analysis, **changes):
    """The analysis of the same measurement under other conditions."""
    return replace(analysis, run=replace(analysis.run, **changes))


def good(**changes):
    """The good analysis with another comparison."""
    return replace(GOOD, cells=(replace(GOOD.cells[0], **changes),))


def with_arm(name, **changes):
    return good(**{name: replace(getattr(GOOD.cells[0], name), **changes)})


def with_interval(name, value, low, high, **policy):
    intervals = {**GOOD.cells[0].intervals, name: Interval(value, low, high, 4, "t", 0.96)}
    return replace(good(intervals=intervals), policy=Policy(**policy))


def without(*names):
    return good(intervals={k: v for k, v in GOOD.cells[0].intervals.items() if k not in names})


def counted(counters):
    """The candidate's engine counted this, and usage says the same."""
    return with_arm("candidate", window=counters, output_tokens=int(counters.generation_tokens))


def arms(method="ngram", base=28_000, cand=28_000, **settings):
    arm_conditions = ArmConditions("none", "0.32.0", (), "m", "", "NVIDIA L4", base)
    return {
        BASELINE: arm_conditions,
        CANDIDATE: replace(arm_conditions, speculation=Spec(method, settings), kv_pool_tokens=cand),
    }


def other_arms(**changes):
    """A candidate on which this differs besides its speculation."""
    both = arms()
    return {**both, CANDIDATE: replace(both[CANDIDATE], **changes)}


def with_command(*flags):
    """A baseline without a flag, and a candidate with these."""
    command = ("vllm", "serve", "m")
    both = other_arms(argv=(*command, *flags))
    return {**both, BASELINE: replace(both[BASELINE], argv=command)}


def drafted(rate):
    """A window whose first position is accepted at this rate."""
    return replace(
        window(400.0, 100.0, 500.0, 100 * rate + 60, (100 * rate, 20.0, 20.0, 10.0, 10.0)), **TIMED
    )


HEAD = of_run(GOOD, arms=arms("eagle3"))


def first(rate, low=0.0, high=1.0):
    arm = with_arm("candidate", window=drafted(rate), output_tokens=400)
    cell = arm.cells[0]
    fields = {**cell.intervals, "first_acceptance": Interval(rate, low, high, 4, "t", 0.96)}
    return of_run(replace(arm, cells=(replace(cell, intervals=fields),)), arms=arms("eagle3"))


def cached(base, cand, explained=None, ttft=None, prompt=100.0):
    """Prompts of ``prompt`` tokens of which the prefix caches held these shares; None: they are not counted.
    ``explained``: of them by the measurement's own prompts, as far as it is known; ``ttft``: bounds of the ratio."""
    cell = GOOD.cells[0]
    changed = {}
    for arm, share in ((cell.baseline, base), (cell.candidate, cand)):
        number = prompt * arm.requests
        counts = {} if share is None else {"prefix_queries": number, "prefix_hits": share * number}
        if explained is not None:
            counts["prefix_expected"] = explained * number
        changed[arm.arm] = replace(arm, window=replace(arm.window, **counts))
    made = good(**changed)
    if ttft is None:
        return made
    (measured,) = made.cells
    intervals = {name: of for name, of in measured.intervals.items() if name != "ttft"}
    if ttft:
        low, high = ttft
        intervals["ttft"] = Interval((low * high) ** 0.5, low, high, 5, "t", 0.96)
    return replace(made, cells=(replace(measured, intervals=intervals),))


def answered(rule, *findings, tokens=8, **count):
    """The result of a pass of answers, in which one rule has this count and these findings."""
    counts = {
        AnswerRule.TOKENS: RuleCount(tokens),
        rule: RuleCount(**{"compared": tokens, **count}),
    }
    check = AnswerCheck(
        "quick", Level.IDS, 8, 8, counts, tie=Tie(1.0, 0.02, 0.1, 8, 99), findings=findings
    )
    return of_run(GOOD, answers=check)


def faulty(rule, outcome):
    """A fault that was confirmed, or that the baseline has as well."""
    confirmed = outcome is FAIL
    finding = AnswerFinding(
        rule, 3, "tools", "a fault", 2, 7, 9, 4.5, confirmed=confirmed, on_baseline=not confirmed
    )
    return answered(rule, finding, candidate=1, alone=1, p=0.001)


OTHER_TOKEN = AnswerFinding(AnswerRule.TOKENS, 3, "edits", "a token", 2, 7, 9, 4.5, confirmed=True)


def rounds_compared(*findings, equal=31, tied=0, **count):
    """The rounds' own 32 answers, compared by their token ids."""
    rules = {
        AnswerRule.TOKENS: RuleCount(**{"compared": 32, **count}),
        AnswerRule.RENDERING: RuleCount(32),
    }
    check = AnswerCheck(
        "rounds", Level.IDS, 32, 1, rules, {"edits": 32}, equal, tied, findings=findings
    )
    return of_run(GOOD, round_answers=check)


def cut(*counts):
    """So many of the 32 answers of baseline and candidate ended at a limit of tokens."""
    changed = zip((GOOD.cells[0].baseline, GOOD.cells[0].candidate), counts, strict=True)
    return good(**{arm.arm: replace(arm, cut=count) for arm, count in changed})


def lengths(*logs, temperature=0.7):
    """Answers were so much longer in each round, in logarithms."""
    of = replace(GOOD.cells[0].figures["length_ratio"], values=logs)
    figures = {**GOOD.cells[0].figures, "length_ratio": of}
    return good(cell=replace(EDITS, temperature=temperature), figures=figures)


FORGETS = {"suffix_decoding_max_cached_requests": 0}


def remembering(served, method="suffix", **settings):
    """A candidate whose process had generated so many tokens before it was measured."""
    actual_arms = arms(method, **settings)
    return {**actual_arms, CANDIDATE: replace(actual_arms[CANDIDATE], served_tokens=served)}


USERS = UserLoad(5.0, 1, seen=True, window_s=10.0, answer_s=5.8)


def next_to(users, **changes):
    """Measured on a quiet pair while users were on the service."""
    return of_run(GOOD, placement=Placement.PAIR, users=users, **changes)


CASES = [
    (of_run(GOOD, arms=arms()), "comparable", PASS),
    (of_run(GOOD, arms=other_arms(device="NVIDIA H100")), "comparable", MISSING),
    (
        of_run(GOOD, arms=other_arms(device="NVIDIA H100"), accepted=("device",)),
        "comparable",
        PASS,
    ),
    (of_run(GOOD, arms=with_command("--max-num-seqs", "64")), "comparable", MISSING),
    (of_run(GOOD, arms=with_command("--speculative-config", "{}")), "comparable", PASS),
    (good(cell=Cell("edits", 256, rate=4.0)), "comparable", PASS),  # 8 requests a block, 28 ms each
    (good(cell=Cell("edits", 256, rate=400.0)), "comparable", MISSING),
    (GOOD, "users' load", SKIP),
    (next_to(USERS), "users' load", MISSING),  # sent one at once, users keep 29
    (next_to(USERS, accepted=("users-load",)), "users' load", PASS),
    (next_to(replace(USERS, answer_s=0.4)), "users' load", PASS),
    (good(miscounted=0.2), "comparable", UNDECIDED),
    (GOOD, "errors", PASS),
    (good(newly_failed=1), "errors", UNDECIDED),  # one of 92 may be 7 %
    (good(newly_failed=1, burst=Burst(requests=168)), "errors", PASS),
    (good(burst=Burst(requests=30)), "errors", UNDECIDED),  # too few to tell 5 % from nothing
    (good(burst=replace(BEFORE, newly_failed=1)), "errors", UNDECIDED),
    (good(burst=replace(BEFORE, newly_failed=12)), "errors", FAIL),
    (good(newly_failed=9, newly_answered=1), "errors", UNDECIDED),
    (good(newly_failed=12), "errors", FAIL),
    (with_arm("candidate", requests=0), "errors", MISSING),
    (good(compared=8), "comparable", PASS),
    (good(compared=7), "comparable", UNDECIDED),
    (replace(good(compared=7), planned=48), "comparable", PASS),  # nothing decides before round 8
    (good(compared=7, textless=8), "comparable", UNDECIDED),
    (good(repeated=3), "comparable", PASS),
    (good(repeated=4), "comparable", UNDECIDED),
    (good(sent=0), "comparable", UNDECIDED),
    (
        with_arm("candidate", output_tokens=304),
        "comparable",
        PASS,
    ),  # 5% of the engine's 320, either way
    (with_arm("candidate", output_tokens=337), "comparable", UNDECIDED),
    (with_arm("candidate", window=None), "comparable", UNDECIDED),
    (
        with_arm("baseline", window=replace(window(640.0), **TIMED)),
        "comparable",
        UNDECIDED,
    ),  # users were served meanwhile
    (cached(0.3, 0.35), "comparable", PASS),
    (cached(0.0, 0.94), "comparable", MISSING),
    (cached(0.94, 0.0), "comparable", MISSING),
    (cached(0.5, None), "comparable", MISSING),
    (cached(None, 0.5), "comparable", MISSING),
    (cached(0.2, 0.0), "comparable", MISSING),
    (
        cached(0.5, 0.94, explained=0.5),
        "comparable",
        MISSING,
    ),  # the candidate knows more than it was told
    (cached(0.94, 0.5, explained=0.5), "comparable", MISSING),
    (cached(0.94, 0.9, explained=0.94), "cache kept", PASS),  # 4 tokens a request
    (cached(0.94, 0.78, explained=0.94, ttft=(0.9, 1.9)), "cache kept", PASS),  # a block of 16
    (
        cached(0.94, 0.5, explained=0.94, ttft=(1.1, 1.2)),
        "cache kept",
        PASS,
    ),  # TTFT may rise so far
    (cached(0.94, 0.95, explained=0.95), "cache kept", PASS),
    (cached(0.0, 0.0, explained=0.0), "cache kept", SKIP),  # nothing was told before
    (cached(0.94, 0.5), "cache kept", SKIP),
    (cached(None, None), "cache kept", SKIP),
    (cached(0.94, 0.5, explained=0.94, ttft=(1.3, 2.1)), "cache kept", FAIL),
    (cached(0.94, 0.5, explained=0.94, ttft=(0.7, 1.9)), "cache kept", UNDECIDED),
    (cached(0.94, 0.5, explained=0.94, ttft=(0.7, 0.9)), "cache kept", PASS),
    (cached(0.94, 0.5, explained=0.94, ttft=()), "cache kept", MISSING),
    (cached(None, None), "comparable", PASS),
    (of_run(GOOD, arms=remembering(0.0)), "comparable", PASS),
    (of_run(GOOD, arms=remembering(32.0)), "comparable", PASS),  # as of a completion at its start
    (of_run(GOOD, arms=remembering(320.0)), "comparable", MISSING),
    (of_run(GOOD, arms=remembering(320.0, "ngram")), "comparable", PASS),
    (of_run(GOOD, arms=remembering(320.0, **FORGETS)), "comparable", PASS),
    *[(answered(rule), rule.value, PASS) for rule in AnswerRule],
    *[
        (faulty(rule, outcome), rule.value, outcome)
        for rule in AnswerRule
        for outcome in (FAIL, MISSING)
    ],
    (answered(AnswerRule.TOKENS, tokens=3), "chosen tokens", MISSING),
    (answered(AnswerRule.TOKENS, missing="no ids"), "chosen tokens", MISSING),
    (answered(AnswerRule.LAW, missing="no ids"), "sampled tokens", SKIP),  # greedy traffic
    (answered(AnswerRule.SEEDS, applies=False), "seeds", SKIP),
    (GOOD, "outputs", PASS),
    (good(different=3), "outputs", MISSING),  # without token ids nothing tells ties from faults
    (replace(good(different=3), policy=Policy(min_scored_answers=0)), "outputs", SKIP),
    (cut(0, 2), "length", PASS),
    (cut(0, 24), "length", UNDECIDED),
    (cut(24, 0), "length", UNDECIDED),
    (cut(30, 32), "length", PASS),
    (cut(None, 24), "length", PASS),
    (lengths(0.02, -0.05, 0.01, 0.0, 0.03), "length", PASS),
    (lengths(-0.2, -0.15, -0.1, -0.2, -0.25), "length", UNDECIDED),
    (lengths(0.2, 0.15, 0.1, 0.2, 0.25), "length", PASS),  # E2E limits how much longer a user waits
    (lengths(-0.2, -0.15, -0.1, -0.2, -0.25, temperature=0.0), "length", PASS),
    (rounds_compared(equal=32), "outputs", PASS),
    (rounds_compared(equal=20, tied=12), "outputs", PASS),
    (rounds_compared(equal=31, missing="no ids"), "outputs", MISSING),
    (replace(rounds_compared(equal=31), policy=Policy(min_scored_answers=0)), "outputs", SKIP),
    (rounds_compared(equal=31, missing="no baseline", impossible=True), "outputs", SKIP),
    (rounds_compared(OTHER_TOKEN, equal=31, candidate=1, alone=1), "outputs", FAIL),
    (
        rounds_compared(replace(OTHER_TOKEN, on_baseline=True), equal=31, candidate=1),
        "outputs",
        MISSING,
    ),
    (
        rounds_compared(replace(OTHER_TOKEN, confirmed=None), equal=31, candidate=1),
        "outputs",
        MISSING,
    ),
    (with_interval("length_ratio", 1.0, 0.81, 1.24), "length", PASS),
    (with_interval("length_ratio", 1.1, 0.9, 1.3), "length", UNDECIDED),
    (with_interval("length_ratio", 3.0, 2.7, 3.3), "length", FAIL),
    (with_interval("length_ratio", 0.5, 0.4, 0.7), "length", FAIL),
    (with_interval("length_ratio", 1.1, 0.7, 1.45), "length", UNDECIDED),
    (without("length_ratio"), "length", MISSING),
    (good(compared=0), "outputs", MISSING),
    (good(cell=replace(EDITS, temperature=0.7), different=30), "outputs", SKIP),
    (counted(replace(window(320.0), **TIMED)), "tokens per step", FAIL),
    (with_arm("candidate", window=None), "tokens per step", MISSING),
    (counted(replace(window(320.0, 10.0, 50.0, 30.0), **TIMED)), "tokens per step", PASS),
    (counted(replace(window(320.0, 10.0, 50.0, 29.0), **TIMED)), "tokens per step", UNDECIDED),
    (GOOD, "first position", SKIP),
    (of_run(GOOD, arms=arms("ngram")), "first position", SKIP),
    (HEAD, "first position", PASS),
    (first(0.29, 0.2, 0.31), "first position", UNDECIDED),
    (first(0.05, 0.01, 0.2), "first position", FAIL),
    (
        of_run(counted(replace(window(320.0), **TIMED)), arms=arms("eagle3")),
        "first position",
        MISSING,
    ),
    (GOOD, "KV pool", SKIP),
    (of_run(GOOD, arms=arms(base=None)), "KV pool", SKIP),
    (of_run(GOOD, arms=arms(base=69_232, cand=32_528)), "KV pool", PASS),
    (of_run(GOOD, arms=arms(base=69_232, cand=18_560)), "KV pool", FAIL),
    (with_interval("time_per_token_ratio", 0.8, 0.7, 0.999), "time per token", PASS),
    (
        with_interval("time_per_token_ratio", 0.8, 0.7, 1.0),
        "time per token",
        UNDECIDED,
    ),  # a gain must be shown
    (with_interval("time_per_token_ratio", 1.1, 1.01, 1.2), "time per token", FAIL),
    (without("time_per_token_ratio"), "time per token", MISSING),
    (with_interval("tpot", 1.0, 0.9, 1.05), "TPOT", PASS),
    (with_interval("tpot", 1.0, 0.9, 1.06), "TPOT", UNDECIDED),
    (with_interval("tpot", 1.2, 1.06, 1.3), "TPOT", FAIL),
    (without("tpot"), "TPOT", MISSING),
    (with_interval("ttft_ms", 30.0, 10.0, 50.0), "TTFT", PASS),
    (with_interval("ttft_ms", 30.0, -90.0, 50.1), "TTFT", UNDECIDED),
    (with_interval("ttft_ms", 90.0, 50.1, 99.0), "TTFT", FAIL),
    (without("ttft_ms"), "TTFT", MISSING),
    (with_interval("queue_wait_ms", 90.0, 50.1, 99.0), "queue wait", FAIL),
    (with_interval("queue_wait_ms", 40.0, 0.0, 99.0), "queue wait", UNDECIDED),
    (without("queue_wait_ms"), "queue wait", MISSING),
    (GOOD, "queue wait", PASS),
    (with_interval("e2e", 1.0, 0.9, 1.05), "E2E", PASS),
    (with_interval("e2e", 1.0, 0.9, 1.06), "E2E", UNDECIDED),
    (with_interval("e2e", 1.2, 1.06, 1.3), "E2E", FAIL),
    (without("e2e"), "E2E", MISSING),
]
WHOLE = {FAIL: Outcome.REJECT, MISSING: Outcome.UNDECIDED, UNDECIDED: Outcome.UNDECIDED}


def test_what_is_good_everywhere_is_promoted():
    verdict = assess(GOOD)
    assert verdict.outcome is Outcome.PROMOTE
    assert len(verdict.rules) == len(RULES)
    assert {r.outcome for r in verdict.rules} == {PASS, SKIP}
    assert verdict.summary == "promote for edits"


@pytest.mark.parametrize(
    ("analysis", "rule", "outcome"), CASES, ids=lambda v: v if isinstance(v, str) else ""
)
def test_one_rule_decides(analysis, rule, outcome):
    """Each case changes one datum. A missing one may be missing for other rules too, but never turns into a pass."""
    verdict = assess(analysis)
    outcomes_by_rule = {r.rule: r.outcome for r in verdict.rules}
    assert outcomes_by_rule.pop(rule) is outcome
    if outcome is PASS:
        assert verdict.outcome is Outcome.PROMOTE
    elif outcome is not SKIP:
        assert verdict.outcome is WHOLE[outcome] or FAIL in outcomes_by_rule.values()


def test_a_refused_answer_names_the_request_the_tokens_and_the_margin():
    (failed,) = (r for r in assess(faulty(AnswerRule.TOKENS, FAIL)).rules if r.outcome is FAIL)
    assert "request 3 (tools): a fault, position 2, token 7 for 9, 4.5 nats" in failed.message
    (own,) = (r for r in assess(faulty(AnswerRule.TOKENS, MISSING)).rules if r.outcome is MISSING)
    assert own.message.startswith("the baseline itself is broken: request 3")


def test_a_rule_about_answers_never_passes_where_it_could_not_run():
    blind = answered(AnswerRule.TOKENS, missing="the endpoint gives no token ids")
    (rule,) = (r for r in assess(blind).rules if r.outcome is MISSING)
    assert rule.message == "could not run because the endpoint gives no token ids"
    lax = replace(blind, policy=replace(ALIKE, min_scored_answers=0))
    assert assess(lax).outcome is Outcome.PROMOTE
    assert rule.message in [r.message for r in assess(lax).rules if r.outcome is SKIP]
    assert {r.message for r in assess(GOOD).rules if r.rule in set(AnswerRule)} == {
        "not asked: this measurement holds no pass of answers, as those of rollouts do"
    }


def test_every_rule_passes_fails_and_misses_somewhere():
    rows = {(rule, outcome) for _, rule, outcome in CASES if outcome in (PASS, FAIL, MISSING)}
    rows |= {(r.rule, PASS) for r in assess(GOOD).rules if r.outcome is PASS}
    names = [r.rule for r in assess(GOOD).rules]
    # that arms cannot be compared is not the candidate's fault; a pool need not be known
    never = {("comparable", FAIL), ("users' load", FAIL), ("KV pool", MISSING)}
    assert rows == set(itertools.product(names, (PASS, FAIL, MISSING))) - never


@pytest.mark.parametrize("failing", [c for c, _, o in CASES if o is FAIL])
def test_any_fail_rejects_whatever_is_missing(failing):
    verdict = assess(of_run(failing, placement=Placement.PAIR, users=USERS))
    assert MISSING in {r.outcome for r in verdict.rules}
    assert verdict.outcome is Outcome.REJECT
    assert {r.message for r in verdict.rules if r.outcome is FAIL} <= set(verdict.reasons)


def test_what_the_candidate_forgets_is_no_knowledge_of_before_and_its_speed_may_reject():
    """vllm-project/vllm#51771: hits from 72.7 % to none, the time to first token from 1.0 to 12.4 s."""
    verdict = assess(cached(0.727, 0.0, explained=0.727, ttft=(11.0, 14.0)))
    outcomes = {r.rule: r.outcome for r in verdict.rules}
    assert (outcomes["comparable"], outcomes["cache kept"]) == (PASS, FAIL)
    assert verdict.outcome is Outcome.REJECT
    (reason,) = (r.message for r in verdict.rules if r.rule == "cache kept")
    assert reason.startswith("speculation forgets 73 of 73 cached tokens a request")
    assert "computes 266% more of the prompts" in reason
    assert "TTFT 12.41x" in reason


@pytest.mark.parametrize(
    ("thread", "hits", "ttft"),
    [
        ("vllm-project/vllm#53670", (0.975, 0.895), (1.4, 1.7)),  # 30 to 40 % of the throughput
        ("vllm-project/vllm#57032", (0.988, 0.0), (22.0, 26.0)),
        ("sgl-project/sglang#32459", (0.97, 0.465), (4.0, 5.0)),
    ],
)
def test_published_counters_of_a_loss_reject(thread, hits, ttft):
    """Hit shares without and with speculation of prompts of 20,600 tokens, of which #53670 computes 1,648 again; the
    time to first token as published, or as the throughput has it."""
    verdict = assess(cached(*hits, explained=hits[0], ttft=ttft, prompt=20_600.0))
    outcomes = {r.rule: r.outcome for r in verdict.rules}
    assert (thread, outcomes["cache kept"]) == (thread, FAIL)
    assert verdict.outcome is Outcome.REJECT


def test_a_baseline_that_knew_more_than_it_was_told_has_kept_what_it_was_told():
    verdict = assess(cached(0.94, 0.5, explained=0.5, ttft=(11.0, 14.0)))
    outcomes = {r.rule: r.outcome for r in verdict.rules}
    assert (outcomes["comparable"], outcomes["cache kept"]) == (MISSING, PASS)
    assert verdict.outcome is Outcome.UNDECIDED


def test_an_engine_that_knows_the_prompts_neither_promotes_nor_rejects():
    """Two equal engines: reject at 0.29x where the baseline was warm, promote at 7.56x where the candidate was."""
    for base, cand, speed in ((0.94, 0.0, 3.5), (0.0, 0.94, 0.13)):
        made = cached(base, cand)
        cell = made.cells[0]
        interval = Interval(speed, 0.9 * speed, 1.1 * speed, 5, "t", 0.96)
        made = replace(
            made,
            cells=(replace(cell, intervals={**cell.intervals, "time_per_token_ratio": interval}),),
        )
        verdict = assess(made)
        assert verdict.outcome is Outcome.UNDECIDED
        assert "the prefix cache held" in verdict.reasons[0]
        assert "below 1.00x" not in " ".join(verdict.reasons)
        wrong = of_run(
            made, round_answers=rounds_compared(OTHER_TOKEN, candidate=1, alone=1).run.round_answers
        )
        assert assess(wrong).outcome is Outcome.REJECT  # other answers are no matter of speed


@pytest.mark.parametrize("placement", [p for p in Placement if p.users_set_load])
@pytest.mark.parametrize("ratio", [0.5, 2.0])
def test_where_users_set_the_load_throughput_neither_passes_nor_fails(placement, ratio):
    analysis = of_run(with_interval("throughput_ratio", ratio, ratio, ratio), placement=placement)
    rule = next(r for r in assess(analysis).rules if r.rule == "saturation")
    assert rule.outcome is SKIP
    assert rule.message.startswith("throughput is not identified")


def test_nothing_measured_is_undecided():
    assert assess(Analysis.of([], ALIKE)).outcome is Outcome.UNDECIDED
    empty = replace(GOOD, cells=(Comparison.of(EDITS, []),))
    verdict = assess(empty)
    assert verdict.outcome is Outcome.UNDECIDED
    assert {r.outcome for r in verdict.rules} == {MISSING, UNDECIDED, SKIP}


def test_a_gain_far_below_the_users_load_promotes_nothing_and_names_the_prompts_that_judge_it():
    """Users keep 29 requests in flight, and prompts for one at once were given: promoted in an earlier version."""
    verdict = assess(next_to(USERS))
    assert verdict.outcome is Outcome.UNDECIDED
    gap = "users keep about 29 requests in flight on each pod, prompts are sent 1 at once"
    assert verdict.summary == f"undecided for edits; {verdict.reasons[0]}"
    assert verdict.reasons[0].startswith(gap)
    assert "--concurrency 29 with 466 distinct prompts" in verdict.reasons[0]
    accepted = assess(next_to(USERS, accepted=("users-load",)))
    assert accepted.outcome is Outcome.PROMOTE
    assert accepted.summary.startswith(f"promote for edits; {gap}")


def test_longer_answers_are_not_a_gain_in_speed():
    """Answers three times as long at nearly the same time per token: 1.26x faster per token, 2.4x slower to a user."""

    def longer(sample, factor, tpot):
        tokens = round(sample.tokens * factor)
        return replace(
            sample, tokens=tokens, e2e_ms=sample.ttft_ms + tpot * (tokens - 1), text_digest="other"
        )

    changed_blocks = []
    for block in timed(rounds_of(12, faster=(1.0,) * 8, cell=replace(EDITS, temperature=0.7))):
        factor = 3.0 + 0.2 * (block.repeat % 3)
        samples = tuple(
            longer(s, factor, 2.06) if block.arm == CANDIDATE else s for s in block.samples
        )
        counted = replace(window(float(sum(s.tokens for s in samples))), **TIMED)
        seconds = sum(s.e2e_ms for s in samples) / 1000
        changed_blocks.append(replace(block, samples=samples, window=counted, duration_s=seconds))
    verdict = assess(Analysis.of(changed_blocks, replace(ALIKE, min_tokens_per_step=0)))
    rules_by_rule = {r.rule: r for r in verdict.rules}
    assert rules_by_rule["time per token"].outcome is PASS
    assert verdict.outcome is Outcome.REJECT
    assert verdict.cells[0].broken  # no share of the traffic excuses it
    assert rules_by_rule["length"].message.startswith(
        "answers are 3.20x as long (32.0 tokens, baseline 10.0)"
    )


def failing(worse, better, n):
    cell = replace(GOOD.cells[0], newly_failed=worse, newly_answered=better, burst=Burst())
    cell = replace(cell, candidate=replace(cell.candidate, requests=n))
    return results(replace(GOOD, cells=(cell,)))["errors"]


def test_failures_are_judged_by_their_interval():
    """Equal arms that fail now and then are not held up; few requests without a failure prove nothing."""
    assert [failing(1, 0, n).outcome for n in (96, 135, 200)] == [UNDECIDED, PASS, PASS]
    assert [failing(w, 0, 200).outcome for w in (0, 1, 2, 6)] == [PASS, PASS, PASS, UNDECIDED]
    assert failing(5, 4, 400).outcome is PASS
    assert failing(0, 0, 20).outcome is UNDECIDED
    assert "0.0% more, 90% CI -16.8% to 16.8% (at most 5%)" in failing(0, 0, 20).message
    assert failing(30, 0, 96).outcome is FAIL


def test_the_rounds_own_answers_name_what_differs():
    rule, made = (
        rule_named("outputs"),
        rounds_compared(OTHER_TOKEN, equal=20, tied=11, candidate=1, alone=1),
    )
    message = rule(Case(made.cells[0], made)).message
    assert message == (
        "20 of 32 greedy answers have equal token ids; request 3 (edits): a token, position 2, token 7 for 9, "
        "4.5 nats, proved by a second score"
    )
    ties = replace(made.run.round_answers, findings=(), tied=12, tie=Tie(1.0, 0.0, 0.1, 4, 0))
    ties = replace(ties, rules={**ties.rules, AnswerRule.TOKENS: RuleCount(32)})
    assert rule(Case(made.cells[0], of_run(made, round_answers=ties))).message == (
        "20 of 32 greedy answers have equal token ids, 12 differ by a tie of at most 1.00 nats"
    )


def test_a_request_is_listed_once_with_all_that_is_wrong_and_what_proves_it():
    def fault(rule, number, words, reproduction=None):
        return AnswerFinding(
            rule, number, "tools", words, confirmed=True, reproduction=reproduction
        )

    rendering, validity = AnswerRule.RENDERING, AnswerRule.VALIDITY
    findings = (
        fault(rendering, 46, "other tool calls", Reproduction.TRANSIENT),
        fault(rendering, 46, "other tool calls when streamed"),
        fault(validity, 46, "no valid tool call"),
        fault(rendering, 134, "another text", Reproduction.ALONE),
        fault(rendering, 180, "another text"),
    )
    counts = {rendering: RuleCount(155, 0, 3, 3), validity: RuleCount(155, 0, 1, 1)}
    check = AnswerCheck("full", Level.IDS, 155, 1, counts, findings=findings)
    made = of_run(GOOD, answers=check)
    result = rule_named("rendering")(Case(made.cells[0], made))
    assert result.outcome is FAIL
    assert result.message == (
        "3 of 155 answers have a fault that the baseline has not; "
        "request 46 (tools): other tool calls, other tool calls when streamed, no valid tool call, "
        "proved by the answer itself; it did not reproduce alone; "
        "request 134 (tools): another text, proved by the answer itself; it reproduces; and 1 more"
    )


def test_messages_carry_value_limit_interval_and_n():
    actual_results = results(GOOD)
    assert actual_results["time per token"].message.startswith(
        "time-per-token ratio 0.50x, 96.1% CI 0.4"
    )
    assert actual_results["time per token"].message.endswith(
        "over 4 rounds of 8 prompts (below 1.00x)"
    )
    assert actual_results["TTFT"].message == (
        "TTFT 0.00 ms (10.0 ms, baseline 10.0 ms), 94% CI 0.00 ms to 0.00 ms over 4 rounds of 8 prompts "
        "(at most +50.0 ms)"
    )
    assert actual_results["outputs"].message == "32 of 32 greedy texts are equal"
    assert actual_results["tokens per step"].message == (
        "tokens per step 2.50, 94% CI 2.50 to 2.50 over 4 rounds and 32 requests (at least 1.10)"
    )
    for name in (
        "time per token",
        "TPOT",
        "E2E",
        "TTFT",
        "queue wait",
        "tokens per step",
    ):
        rule = actual_results[name]
        assert (rule.n, rule.interval.n, rule.limit is None, rule.value) == (
            32,
            4,
            False,
            rule.interval.value,
        )
    assert actual_results["outputs"].n == 32


def test_an_undecided_measurement_says_once_how_much_more_would_decide():
    noisy = Analysis.of(timed(rounds_of(4, faster=(1.1,) * 8, jitter=0.15)), ALIKE, planned=30)
    verdict = assess(noisy)
    assert verdict.outcome is Outcome.UNDECIDED
    more, cell = more_to_decide(noisy, verdict), noisy.cells[0]
    assert more.requests > 32
    assert more.requests == 8 * (more.repeats - 4)
    assert more.seconds == pytest.approx(more.requests / 8 * cell.round_seconds)
    assert more_to_decide(GOOD, assess(GOOD)) is None


def test_as_many_more_requests_as_let_the_failures_pass_would_decide():
    for worse, n, requests in ((0, 20, 52), (1, 60, 299), (30, 96, None)):
        cell = replace(GOOD.cells[0], newly_failed=worse, burst=Burst())
        cell = replace(
            cell, candidate=replace(cell.candidate, requests=n), newly_answered=worse // 2
        )
        analysis = replace(GOOD, cells=(cell,))
        more = more_to_decide(analysis, assess(analysis))
        assert (more and more.requests) == requests


def test_what_more_requests_would_not_tell_is_not_promised_by_them():
    """Something that was not measured stays missing, and a limit that the figure lies on stays undecided."""
    noisy = Analysis.of(timed(rounds_of(4, faster=(1.1,) * 8, jitter=0.15)), ALIKE, planned=30)
    cell = noisy.cells[0]
    used = replace(cell, baseline=replace(cell.baseline, window=replace(window(640.0), **TIMED)))
    analysis = replace(noisy, cells=(used,))
    verdict = assess(analysis)
    assert (verdict.outcome, more_to_decide(analysis, verdict)) == (Outcome.UNDECIDED, None)
    assert verdict.reasons[0].startswith(
        "users sent 320 tokens to the baseline meanwhile, 50% of all"
    )
    figures = {**cell.figures, "tpot": replace(cell.figures["tpot"], values=(math.log(1.05),) * 4)}
    on_limit = {**cell.intervals, "tpot": Interval(1.05, 0.9, 1.2, 4, "t", 0.975)}
    level = replace(noisy, cells=(replace(cell, intervals=on_limit, figures=figures),))
    assert more_to_decide(level, assess(level)) is None


def test_rounds_that_agree_by_chance_decide_nothing_yet():
    """Two rounds without an accepted draft: no spread, and no certainty."""
    idle = replace(window(320.0, 10.0, 50.0, 0.0), **TIMED)
    blocks = [replace(b, window=idle) if b.arm == CANDIDATE else b for b in timed(rounds_of(2))]
    for looks in (2, 12):
        rule = results(Analysis.of(blocks, ALIKE, planned=looks))["tokens per step"]
        assert (rule.value, rule.outcome) == (1.0, UNDECIDED)
    more = [replace(b, window=idle) if b.arm == CANDIDATE else b for b in timed(rounds_of(8))]
    assert results(Analysis.of(more, ALIKE, planned=12))["tokens per step"].outcome is FAIL


def test_in_an_open_loop_the_wait_in_the_client_is_part_of_the_first_token():
    """The engine's clock begins when a request is sent; the trap's shape once the limit in flight is reached."""
    cell = Cell("edits", 256, rate=4.0)
    waiting = [
        replace(
            b,
            held_ms=5000.0,
            samples=tuple(replace(s, ttft_ms=s.ttft_ms + 5000) for s in b.samples),
        )
        if b.arm == CANDIDATE
        else b
        for b in timed(rounds_of(4, jitter=0.02, cell=cell))
    ]
    analysis = Analysis.of(waiting, ALIKE)
    rule = results(analysis)["TTFT"]
    assert (rule.outcome, rule.unit, rule.value) == (FAIL, "ms", pytest.approx(5000.0))
    assert analysis.cells[0].candidate.ttft_ms == pytest.approx(5010.0)
    assert analysis.cells[0].candidate.client_lag == pytest.approx(0.0, abs=1e-9)


def test_one_round_decides_nothing():
    verdict = assess(Analysis.of(timed(rounds_of(1)), ALIKE, planned=4))
    assert verdict.outcome is Outcome.UNDECIDED
    assert "one round does not show how much rounds differ" in "; ".join(verdict.reasons)


def test_newly_failed_requests_are_named():
    failing = with_arm("candidate", failed=12)
    failing = replace(
        failing, cells=(replace(failing.cells[0], newly_failed=12, new_error="boom"),)
    )
    assert results(failing)["errors"].message == (
        "12 of 92 requests failed, 0 of 92 on the baseline, 60 of them before the rounds; 13.0% more, "
        "90% CI 3.1% to 28.9% (at most 5%); "
        "the candidate failed 12 that the baseline answered, "
        "first: boom (p = 0.02%, significance level 0.43% at each interim analysis)"
    )


def test_the_trap_cell_is_rejected_with_a_sentence_that_says_why():
    """Published measurement: Qwen3-32B with a 4B draft, K=3, 256 at once (tomasruizt/vllm-scripts@d94714). The draft
    ate the KV cache, so few requests run, and those look fast."""
    trap = {
        "tpot": 41.0 / 65.4,
        "throughput_ratio": 1926.0 / 3225.0,
        "time_per_token_ratio": 1 / 0.6,
        "ttft": 17.4 / 2.3,
    }
    intervals = {**GOOD.cells[0].intervals}
    for name, value in trap.items():
        intervals[name] = Interval(value, value * 0.97, value * 1.03, 4, "t", 0.96)
    base, cand = GOOD.cells[0].baseline, GOOD.cells[0].candidate
    base = replace(
        base,
        seconds=base.output_tokens / 3225.0,
        window=replace(base.window, ttft_seconds=92.0, tpot_seconds=2.616),
    )
    cand = replace(
        cand,
        seconds=cand.output_tokens / 1926.0,
        window=replace(cand.window, ttft_seconds=696.0, tpot_seconds=1.64),
    )
    made = good(intervals=intervals, baseline=base, candidate=cand)
    verdict = assess(of_run(made, arms=arms("draft_model", base=69_232, cand=18_560)))
    assert verdict.outcome is Outcome.REJECT
    assert verdict.reasons[0] == (
        "TPOT is 0.63x the baseline's, but throughput is only 0.60x: requests wait 17.4 s for their first token "
        "instead of 2.3 s, because the draft left 18560 of 69232 tokens of the KV cache"
    )
    outcomes_by_rule = {r.rule: r.outcome for r in verdict.rules}
    assert outcomes_by_rule["TPOT"] is PASS
    assert {rule for rule, outcome in outcomes_by_rule.items() if outcome is FAIL} == {
        "time per token",
        "TTFT",
        "KV pool",
    }
    assert assess(made).reasons[0].endswith("as when the draft takes memory from the KV cache")
    noisy = {**intervals, "ttft": Interval(17.4 / 2.3, 0.9, 60.0, 4, "t", 0.96)}
    assert (
        "requests wait"
        not in assess(replace(made, cells=(replace(made.cells[0], intervals=noisy),))).reasons[0]
    )


@pytest.mark.parametrize("counters", [window(80.0, **TIMED), replace(speculating(80.0), **TIMED)])
def test_of_a_server_at_an_address_nobody_says_how_it_drafts(counters):
    arm = ArmConditions("http://10.0.0.7:8000", "0.32.0", (), "m", "", "", None)
    changed_counted = of_run(counted(counters), arms={CANDIDATE: arm})
    assert results(changed_counted)["first position"].outcome is SKIP


def test_taking_speculation_away_is_not_asked_for_drafts():
    """``mpctl rollout --spec none`` sets this limit to 0; an engine without the counters then passes."""
    plain = counted(replace(window(320.0), **TIMED))
    assert assess(plain).outcome is Outcome.REJECT
    assert (
        assess(replace(plain, policy=replace(ALIKE, min_tokens_per_step=0.0))).outcome
        is Outcome.PROMOTE
    )


def test_a_large_wait_is_judged_by_factor_a_small_one_by_milliseconds():
    slow = timed(rounds_of(3))
    slow = [
        replace(b, window=replace(b.window, ttft_seconds=10.0 if b.arm == BASELINE else 12.4))
        for b in slow
    ]
    rule = results(Analysis.of(slow, ALIKE))["TTFT"]
    assert (rule.unit, rule.limit, rule.outcome, rule.value) == (
        "x",
        1.25,
        PASS,
        pytest.approx(1.24),
    )
    quick = [
        replace(b, window=replace(b.window, ttft_seconds=0.1 if b.arm == BASELINE else 0.5))
        for b in slow
    ]
    rule = results(Analysis.of(quick, ALIKE))["TTFT"]
    assert (rule.unit, rule.limit, rule.outcome, rule.value) == (
        "ms",
        50.0,
        PASS,
        pytest.approx(40.0),
    )


def test_repeated_prompts_of_the_source_are_reported():
    sources = {"edits": PromptSet("edits.jsonl", "ab", 94, 12)}
    assert (
        "0 of 32 prompts of edits were sent to the same engine before in this measurement (at most 10%), "
        "12 duplicates in edits.jsonl were left out"
    ) in results(of_run(GOOD, prompts=sources))["comparable"].message


def test_four_prompts_sent_again_and_again_are_no_evidence():
    """Published: four prompts repeated 25 times, an apparent 8x from an engine that replays answers."""

    def same(made):
        return replace(
            made, samples=tuple(replace(s, prompt=f"p{i % 4}") for i, s in enumerate(made.samples))
        )

    verdict = assess(Analysis.of([same(b) for b in timed(rounds_of(4, faster=(8.0,) * 25))], ALIKE))
    assert verdict.outcome is Outcome.UNDECIDED
    assert verdict.reasons == (
        "96 of 100 prompts of edits were sent to the same engine before in this measurement (at most 10%)",
    )


def test_verdicts_round_trip():
    for analysis, _, _ in CASES:
        verdict = assess(analysis)
        record = json.loads(json.dumps(encode(verdict), allow_nan=False))
        assert decode(Verdict, record) == verdict


def test_an_interval_that_is_no_number_is_missing():
    assert results(with_interval("e2e", math.nan, None, None))["E2E"].outcome is MISSING


def test_pairs_of_one_block_each_are_one_round():
    assert Analysis.of(pair(), ALIKE).rounds == 1
    assert speculating(100.0).tokens_per_step == 2.5


def test_a_limit_below_one_asks_for_a_gain_that_no_slack_replaces():
    """D8: a TTFT ratio of 0.97 was promoted under a limit of 0.8, because 50 ms of slack took its place."""
    policy = replace(ALIKE, max_ttft_ratio=0.8, max_queue_wait_ratio=0.8)
    for rule in ("TTFT", "queue wait"):
        result = results(Analysis.of(timed(rounds_of(4)), policy))[rule]
        assert (result.outcome, result.unit, result.limit) == (FAIL, "x", 0.8)


@pytest.mark.parametrize("bounds", [(1.3, 1.45), (1.55, 1.6)])
def test_a_counted_figure_lies_in_its_own_interval(bounds):
    """A value that counts every step once may lie outside the interval of the rounds' mean."""
    rules = assess(with_interval("tokens_per_step", 1.4, *bounds)).rules
    actual_rule = next(rule for rule in rules if rule.rule == "tokens per step")
    assert actual_rule.interval.low <= actual_rule.value <= actual_rule.interval.high


def test_a_gain_between_unlike_arms_is_neither_promoted_nor_rejected():
    """A candidate of another model passed every rule at temperature 0.7, where no text is compared."""
    warm = [
        replace(b, cell=replace(b.cell, temperature=0.7)) for b in timed(rounds_of(12, jitter=0.02))
    ]
    alike = of_run(Analysis.of(warm, ALIKE), arms=arms())
    assert assess(alike).outcome is Outcome.PROMOTE
    assert assess(of_run(alike, arms=other_arms(model="another"))).outcome is UNDECIDED
    accepted = of_run(alike, arms=other_arms(model="another"), accepted=("model",))
    assert assess(accepted).outcome is Outcome.PROMOTE


def test_equal_texts_with_other_counts_contradict_each_other():
    """Usage records that count 20 % more tokens for the same answers made the candidate look 17 % faster."""
    blocks = [
        replace(b, samples=tuple(replace(s, tokens=s.tokens + 2) for s in b.samples))
        if b.arm == CANDIDATE
        else b
        for b in timed(rounds_of(12, jitter=0.02))
    ]
    rule = results(Analysis.of(blocks, replace(ALIKE, max_token_gap=0.19)))["comparable"]
    assert rule.outcome is UNDECIDED
    assert "with the same text or as many token ids have 20% more or fewer tokens" in rule.message


@pytest.mark.parametrize(
    ("ids", "outcome"),
    [
        ((80, 80), PASS),
        ((80, 67), UNDECIDED),  # usage and counters of 20 % more tokens than ids
        ((67, 67), PASS),  # a parser hides ids of both arms
        ((None, 67), PASS),
    ],
)
def test_other_texts_with_other_counts_than_token_ids_contradict_each_other(ids, outcome):
    counts = dict(zip((BASELINE, CANDIDATE), ids, strict=True))
    blocks = [
        replace(
            b,
            samples=tuple(replace(s, text_digest=b.arm) for s in b.samples),
            id_count=counts[b.arm],
        )
        for b in timed(rounds_of(4, jitter=0.02))
    ]
    assert results(Analysis.of(blocks, ALIKE))["comparable"].outcome is outcome


def test_usage_of_sampled_answers_that_nothing_checks_promotes_nothing_and_excuses_no_loss():
    def measured(speed, *, ids=None, **policy):
        blocks = [
            replace(
                b,
                cell=replace(b.cell, temperature=0.7),
                samples=tuple(replace(s, text_digest=b.arm) for s in b.samples),
                id_count=ids,
            )
            for b in timed(rounds_of(12, faster=(speed,) * 8, jitter=0.02))
        ]
        return assess(Analysis.of(blocks, replace(ALIKE, **policy)))

    verdict = measured(2.0)
    assert verdict.outcome is Outcome.UNDECIDED
    assert verdict.reasons == (
        "no token ids are recorded, by which the usage of sampled answers could be checked",
    )
    assert measured(2.0, ids=80).outcome is Outcome.PROMOTE
    assert measured(2.0, min_scored_answers=0).outcome is Outcome.PROMOTE
    assert measured(0.5).outcome is Outcome.REJECT


def test_first_tokens_that_reach_the_client_late_contradict_the_engines_clock():
    """A proxy before the candidate held first tokens back for 600 ms, which no counter of the engine knows."""
    blocks = [
        replace(
            b,
            samples=tuple(
                replace(s, ttft_ms=s.ttft_ms + 600.0, e2e_ms=s.e2e_ms + 600.0) for s in b.samples
            ),
        )
        for b in timed(rounds_of(12, jitter=0.02))
    ]
    late = [
        b if b.arm == CANDIDATE else on_time
        for b, on_time in zip(blocks, timed(rounds_of(12)), strict=True)
    ]
    rule = results(Analysis.of(late, ALIKE))["TTFT"]
    assert rule.outcome is MISSING
    assert "reach the client 600 ms later than by its engine's clock" in rule.message
    assert results(Analysis.of(blocks, ALIKE))["TTFT"].outcome is PASS  # a proxy before both arms


@pytest.mark.parametrize(
    ("method", "alike", "outcome"),
    [("suffix", 0.5, UNDECIDED), ("suffix", 0.05, PASS), ("ngram", 0.5, PASS)],
)
def test_prompts_that_are_nearly_equal_flatter_an_engine_that_keeps_its_answers(
    method, alike, outcome
):
    prompts = {"edits": PromptSet("edits", "0" * 64, 100, 0, alike)}
    rule = results(of_run(GOOD, arms=arms(method), prompts=prompts))["comparable"]
    assert rule.outcome is outcome
    assert ("50% share most of their word sequences" in rule.message) is (outcome is UNDECIDED)


def test_a_warm_baseline_is_not_measured_to_the_end():
    """Unequal prefix caches forbid promotion and rejection alike: 24 of 24 rounds were measured for nothing."""
    warm = cached(0.94, 0.0)
    for rounds, futile in ((4, False), (5, True)):
        at_round = replace(warm, rounds=rounds, planned=24)
        assert is_futile(at_round, assess(at_round)) is futile
