"""Rules about users' requests: time per token at equal load, and why a measurement of them ends."""

from __future__ import annotations

import math
from dataclasses import replace

from mpctl import formatting
from mpctl.experiment.users import UsersTraffic
from mpctl.gate.policy import Policy
from mpctl.gate.rule import Outcome, RuleResult
from mpctl.gate.users_traffic import TrafficFigures, compare_traffic, in_words
from mpctl.stats.confidence import chance_to_decide

# Of a decision by the remaining windows; below it, from half of them on, the measurement ends.
LEAST_CHANCE_OF_WINDOWS = 0.05
LOOK_LIMIT_SD = 3.0  # by which the share of requests may differ from the weights before the router looks at load
_CHANCE_SD = 2.0  # of the requests per pod, which differ by chance


def judge_traffic(traffic: UsersTraffic, policy: Policy) -> tuple[RuleResult, ...]:
    """Pass a gain that the whole interval shows, fail a loss that it shows. Under unequal load nothing is promoted, and
    only a candidate that is slower under less load is rejected."""
    figures = compare_traffic(traffic, policy)
    load = _judge_load(figures, policy, copies=traffic.copies)
    rules = [_judge_tpot(figures, policy), load, _judge_length(figures, policy)]
    if load.outcome is not Outcome.PASS and (load.value or 1.0) >= 1.0:
        rules = [
            replace(r, outcome=Outcome.UNDECIDED) if r.outcome is Outcome.FAIL else r for r in rules
        ]
    if not traffic.equal_share:
        what = "the candidate got a smaller share than a baseline pod, so it may be rejected and not promoted"
        rules.append(RuleResult(Outcome.MISSING, what, rule="share"))
    if traffic.stopped:
        rules.append(
            RuleResult(
                Outcome.FAIL, f"users were spared the candidate: {traffic.stopped}", rule="harm"
            )
        )
    unidentified = (
        "throughput is not identified, because users set the load; saturation is unknown: at most "
        f"{formatting.count(figures.batch)} requests were on one pod at once, {formatting.number(figures.rate)} "
        "requests/s per pod"
    )
    return (*rules, RuleResult(Outcome.SKIP, unidentified, rule="saturation"))


def _judge_tpot(figures: TrafficFigures, policy: Policy) -> RuleResult:
    ratio, gain, loss = figures.tpot_ratio, policy.max_time_per_token_ratio, policy.max_tpot_ratio
    limits = f"promoted below {formatting.limit(gain, 'x')}, rejected above {formatting.limit(loss, 'x')}"
    if ratio is None:
        message = f"time per output token: {figures.describe()}"
        return RuleResult(Outcome.MISSING, message, limit=gain, unit="x", rule="time per token")
    outcome = Outcome.UNDECIDED
    if ratio.below(gain, strictly=True):
        outcome = Outcome.PASS
    elif ratio.above(loss, strictly=True):
        outcome = Outcome.FAIL
    gap = formatting.limit(policy.max_pod_gap, "share")
    message = (
        f"time per output token {in_words(ratio)} of the baseline's over {figures.windows} windows of users' requests, "
        f"{formatting.count(figures.candidate_requests)} on the candidate ({limits}); widened by {gap}, for what two "
        "equal pods may differ"
    )
    n = min(figures.candidate_requests, figures.baseline_requests)
    return RuleResult(outcome, message, ratio.value, gain, ratio, n, "x", rule="time per token")


def _judge_load(figures: TrafficFigures, policy: Policy, *, copies: bool) -> RuleResult:
    ratio, most = figures.load_ratio, policy.max_load_gap
    if not ratio:
        return RuleResult(
            Outcome.MISSING, "requests per pod were not counted", limit=most, rule="equal load"
        )
    gap = abs(math.log(ratio))
    unequal = gap - _CHANCE_SD * figures.load_sd > math.log1p(most)
    message = (
        f"the candidate answered {formatting.ratio(ratio)} the requests of a baseline pod "
        f"(at most {formatting.limit(most, 'share')} apart)"
    )
    if gap > LOOK_LIMIT_SD * figures.load_sd and not copies:
        message += "; the router looks at load: judged at equal queue, not at equal load"
    return RuleResult(
        Outcome.UNDECIDED if unequal else Outcome.PASS,
        message,
        ratio,
        1 + most,
        None,
        0,
        "x",
        rule="equal load",
    )


def _judge_length(figures: TrafficFigures, policy: Policy) -> RuleResult:
    """Answers of other requests differ in length by chance, so the rule fails by its whole interval only."""
    ratio, most = figures.length_ratio, policy.max_length_ratio
    if ratio is None:
        return RuleResult(
            Outcome.SKIP, "tokens per answer were not counted", limit=most, rule="answers of users"
        )
    far = ratio.above(most, strictly=True) or ratio.below(1 / most, strictly=True)
    message = (
        f"tokens per answer {in_words(ratio)} (at most {formatting.limit(most, 'x')} either way)"
    )
    return RuleResult(
        Outcome.FAIL if far else Outcome.PASS,
        message,
        ratio.value,
        most,
        ratio,
        0,
        "x",
        rule="answers of users",
    )


def is_decided(traffic: UsersTraffic, policy: Policy) -> bool:
    """Return whether further windows are not needed: the gate has decided, all are measured, or the rest would not
    decide."""
    if len(traffic.windows) >= traffic.planned:
        return True
    outcomes = {rule.outcome for rule in judge_traffic(traffic, policy)}
    return (
        Outcome.FAIL in outcomes
        or outcomes <= {Outcome.PASS, Outcome.SKIP}
        or is_hopeless(traffic, policy)
    )


def is_hopeless(traffic: UsersTraffic, policy: Policy) -> bool:
    """Return whether the remaining windows would hardly decide (LEAST_CHANCE_OF_WINDOWS); False before half."""
    figures = compare_traffic(traffic, policy)
    tpot = figures.tpot
    if tpot is None or 2 * figures.windows < figures.planned:
        return False
    margin = math.log1p(policy.max_pod_gap)
    gain = math.log(policy.max_time_per_token_ratio) - tpot.mean - margin
    loss = tpot.mean - math.log(policy.max_tpot_ratio) - margin
    return all(
        chance_to_decide(gap, tpot, figures.planned, policy.side) < LEAST_CHANCE_OF_WINDOWS
        for gap in (gain, loss)
    )
