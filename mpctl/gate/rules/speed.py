"""Rules about speed: the confidence intervals of means over rounds, compared with their limits.

No rule is about a 99th percentile: its bound takes 299 requests, three times a measurement's. Reports show it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mpctl import formatting
from mpctl.gate.analysis import error_left
from mpctl.gate.rule import (
    Case,
    Direction,
    Outcome,
    Rule,
    RuleResult,
    contradicting_stalls,
    judge_interval,
    judge_threshold,
)


def _judge_time_per_token(case: Case, rule: Rule) -> RuleResult:
    """Judge the time per token. With several cells the gain may be shown over all of them together, in a cell whose own
    estimate is a gain."""
    threshold = rule.threshold(case)
    alone, overall, limit = judge_threshold(case, threshold), case.analysis.overall, threshold.limit
    if case.analysis.earlier:
        alone = replace(alone, message=f"{alone.message}; {_repetition(case.analysis.earlier)}")
    if alone.outcome is not Outcome.UNDECIDED or overall is None or alone.value is None or alone.value >= limit:
        return alone
    if not overall.below(limit, strictly=True) or contradicting_stalls(case, threshold):
        return alone
    text = (
        f"{rule.label} {formatting.ratio(alone.value)} ({threshold.text}); the gain is shown over all cells "
        f"together, {formatting.ratio(overall.value)}, {formatting.confidence(overall)}"
    )
    return replace(alone, outcome=Outcome.PASS, message=text, needed=None)


def _repetition(earlier: int) -> str:
    before = "an earlier measurement" if earlier == 1 else f"{earlier} earlier measurements"
    return f"{before} of the same pair did not promote, so this one spends {error_left(earlier):.1%} of the error"


def _judge_tpot(case: Case, rule: Rule) -> RuleResult:
    c = case.comparison
    return judge_threshold(case, rule.threshold(case, detail=_both(c.candidate.tpot_ms, c.baseline.tpot_ms)))


def _judge_ttft(case: Case, rule: Rule) -> RuleResult:
    """Judge by the engines' clocks, unless the client contradicts them by more than TTFT may rise."""
    c, policy = case.comparison, case.policy
    base, late = c.baseline.ttft_ms, c.late_ms
    if late is not None and base is not None and late > max(policy.ttft_slack_ms, base * (policy.max_ttft_ratio - 1.0)):
        text = (
            f"first tokens of the candidate reach the client {formatting.milliseconds(late)} later than by its "
            f"engine's clock, compared with the baseline's ({formatting.milliseconds(c.candidate.ttft_ms)} by the "
            "engine); what lies between them, such as a proxy that buffers, must be the same for both arms"
        )
        return RuleResult(Outcome.MISSING, text, None, policy.max_ttft_ratio, unit="x")
    return _judge_with_slack(case, rule, c.candidate.ttft_ms, base)


def _judge_queue_wait(case: Case, rule: Rule) -> RuleResult:
    c = case.comparison
    cand, base = (a.window.queue_wait_ms if a.window else None for a in (c.candidate, c.baseline))
    return _judge_with_slack(case, rule, cand, base)


def _judge_with_slack(case: Case, rule: Rule, cand: float | None, base: float | None) -> RuleResult:
    """Judge the ratio, or the difference in ms where the slack allows more than the ratio. A limit below 1 asks for a
    gain, which no slack replaces."""
    threshold, slack_ms = rule.threshold(case, detail=_both(cand, base)), getattr(case.policy, rule.slack)
    most = threshold.limit
    if cand is None or base is None:
        return RuleResult(Outcome.MISSING, f"{rule.label} was not measured on both arms", None, most, unit="x")
    if most >= 1.0 and base * (most - 1.0) <= slack_ms:
        threshold = replace(threshold, figure=f"{rule.figure}_ms", limit=slack_ms, unit="ms")
    return judge_threshold(case, threshold)


def _both(cand: float | None, base: float | None) -> str:
    if cand is None or base is None:
        return ""
    return f" ({formatting.milliseconds(cand)}, baseline {formatting.milliseconds(base)})"


def _mean(name: str, judge: Callable[[Case, Rule], RuleResult], limit: str, asks: str, **row: Any) -> Rule:
    """A rule about a mean over rounds."""
    return Rule(name, judge, limit, asks, forecast=True, needs_idle_engines=True, **row)


RULES = (
    _mean(
        "time per token",
        _judge_time_per_token,
        "max_time_per_token_ratio",
        "A gain must be shown in the time per output token of whole requests, prompt by prompt; with several cells it "
        "may be shown over all of them together, in a cell whose own estimate is a gain.",
        label="time-per-token ratio",
        figure="time_per_token_ratio",
        strictly=True,
        over_all_cells=True,
    ),
    _mean(
        "throughput",
        judge_interval,
        "min_throughput_ratio",
        "Tokens per second over the same prompts must not fall: they determine the cost.",
        direction=Direction.MINIMUM,
        label="throughput ratio",
        figure="throughput_ratio",
    ),
    _mean(
        "TPOT",
        _judge_tpot,
        "max_tpot_ratio",
        "TPOT, the time per output token after the first, must not rise.",
        label="TPOT",
        figure="tpot",
    ),
    _mean(
        "E2E",
        judge_interval,
        "max_e2e_ratio",
        "E2E, the time of a whole request, must not rise: longer answers take longer though each token does not.",
        label="E2E",
        figure="e2e",
    ),
    _mean(
        "TTFT",
        _judge_ttft,
        "max_ttft_ratio",
        "TTFT, the time to first token, must not rise: a queue that forms because the draft took memory shows here.",
        label="TTFT",
        figure="ttft",
        slack="ttft_slack_ms",
    ),
    _mean(
        "queue wait",
        _judge_queue_wait,
        "max_queue_wait_ratio",
        "The queue wait, the time between arrival and first scheduling, must not rise.",
        label="queue wait",
        figure="queue_wait",
        slack="queue_wait_slack_ms",
    ),
)
