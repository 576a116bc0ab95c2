"""Rules about speed: means over rounds, and the slowest hundredth of requests.

The mean rules compare a confidence interval over rounds with its limit. Those of the 99th percentiles go by the load
client's clock, and are off unless the policy sets a limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from mpctl import formatting
from mpctl.experiment.arm import MERGED
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
from mpctl.stats.confidence import Interval, values_needed
from mpctl.stats.sequential import FIRST_LOOK

_ALIKE = 1.5  # a client may have so many times the requests of its calibration in flight


def _judge_time_per_token(case: Case, rule: Rule) -> RuleResult:
    """Judge the time per token. With several cells the gain may be shown over all of them together, in a cell whose own
    estimate is a gain."""
    threshold = rule.threshold(case)
    alone, overall, limit = judge_threshold(case, threshold), case.analysis.overall, threshold.limit
    if alone.outcome is not Outcome.UNDECIDED or overall is None or alone.value is None or alone.value >= limit:
        return alone
    if not overall.below(limit, strictly=True) or contradicting_stalls(case, threshold):
        return alone
    text = (
        f"{rule.label} {formatting.ratio(alone.value)} ({threshold.text}); the gain is shown over all cells "
        f"together, {formatting.ratio(overall.value)}, {formatting.confidence(overall)}"
    )
    return replace(alone, outcome=Outcome.PASS, message=text, needed=None)


def _judge_tpot(case: Case, rule: Rule) -> RuleResult:
    c = case.comparison
    return judge_threshold(case, rule.threshold(case, detail=_both(c.candidate.tpot_ms, c.baseline.tpot_ms)))


def _judge_ttft(case: Case, rule: Rule) -> RuleResult:
    c = case.comparison
    return _judge_with_slack(case, rule, c.candidate.ttft_ms, c.baseline.ttft_ms)


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


def _judge_tail(case: Case, rule: Rule) -> RuleResult:
    return _Tail(case, rule, getattr(case.policy, rule.limit)).assess()


@dataclass(frozen=True)
class _Tail:
    """The judgement of the ratio of two 99th percentiles."""

    case: Case
    rule: Rule
    limit: float | None  # off unless the policy sets one

    @property
    def name(self) -> str:
        """The time, as the load client names it."""
        return self.rule.figure.removesuffix("_p99")

    @property
    def n(self) -> int:
        """Prompts answered by both arms."""
        c = self.case.comparison
        return min(len(c.time_per_token_ratios), c.compared + c.textless)

    def assess(self) -> RuleResult:
        if self.limit is None:
            return RuleResult(Outcome.SKIP, f"{self.rule.limit} sets no limit", unit="x")
        if unfit := self._client_unfit(self.limit):
            return self._result(Outcome.MISSING, f"{self.rule.label}: {unfit}")
        case = self.case
        wanted = values_needed(0.99, (case.stages.tail or case.stages.exact) / 2)
        if self.n < wanted:
            message = (
                f"{self.rule.label}: {self.n} prompts were answered by both arms and {wanted} are needed at this "
                f"interim analysis, {wanted - self.n} more ({values_needed(0.99, 0.05)} for a single analysis at 95%)"
            )
            return self._result(Outcome.UNDECIDED, message, wanted - self.n)
        if not case.stages.tail:
            stage = case.stages.lower
            first = min(FIRST_LOOK, stage.looks)
            needed = math.ceil((first - stage.look) * case.comparison.round_requests)
            message = f"{self.rule.label} is judged from round {first} on, this is round {stage.look}"
            return self._result(Outcome.UNDECIDED, message, needed)
        interval = case.comparison.intervals.get(self.rule.figure)
        if interval is None:
            return self._result(Outcome.MISSING, f"{self.rule.label} was not measured on both arms")
        return self._judge(interval, self.limit)

    def _judge(self, interval: Interval, limit: float) -> RuleResult:
        threshold = self.rule.threshold(self.case)
        outcome = threshold.outcome(interval)
        text = (
            f"{self.rule.label} {formatting.ratio(interval.value)} the baseline's, {formatting.confidence(interval)} "
            f"over {interval.n} requests ({threshold.text})"
        )
        needed = self._needed(interval, limit) if outcome is Outcome.UNDECIDED else None
        if needed is None:
            return self._result(outcome, text)
        return self._result(outcome, f"{text}; about {needed} more prompts would decide", needed)

    def _needed(self, interval: Interval, limit: float) -> int | None:
        """Return how many more prompts would narrow the interval to its distance from the limit."""
        gap = math.log(interval.value / limit) if limit > 0 else 0.0
        if not gap or not interval.low or interval.high is None:
            return None
        width = math.log(interval.high / interval.low)
        needed = math.ceil(self.n * min((width / gap) ** 2, 100.0)) - self.n
        return needed if needed > 0 else None

    def _result(self, outcome: Outcome, message: str, needed: int | None = None) -> RuleResult:
        interval = self.case.comparison.intervals.get(self.rule.figure)
        value = interval.value if interval else None
        return RuleResult(outcome, message, value, self.limit, interval, self.n, "x", needed)

    def _client_unfit(self, limit: float) -> str:
        """Return why the load client's own times cannot carry this rule, or ""."""
        c, calibration = self.case.comparison, self.case.calibration
        if calibration is None:
            return "the load client was not calibrated, so its own error on the slowest requests is unknown"
        busy = _in_flight(self.case)
        if busy > _ALIKE * calibration.concurrency:
            return (
                f"refused, about {busy:.0f} requests were in flight and the load client was calibrated with "
                f"{calibration.concurrency}; --concurrency {math.ceil(busy)} calibrates it with so many"
            )
        spread = getattr(c.baseline, self.name)
        if spread is None:
            return f"{self.rule.label.removesuffix(' p99')} was not measured on the baseline"
        # A tenth of the regression to detect is what the client may add (measured error of load clients: peers' p99
        # TTFT is 250 to 630 ms where the truth is 100).
        answered = max(c.baseline.requests - c.baseline.failed, 1)
        tokens = c.baseline.output_tokens / answered if self.name == "tpot" else 1.0
        effect, error = abs(limit - 1.0) * spread.p99, calibration.p99_ms / max(tokens, 1.0)
        if error > effect / 10:
            return (
                f"refused, the load client itself adds {formatting.milliseconds(error)} at p99, more than a tenth of "
                f"the {formatting.milliseconds(effect)} that the limit allows"
            )
        return "" if self.name == "e2e" else self._chunks_merged()

    def _chunks_merged(self) -> str:
        c = self.case.comparison
        for arm in (c.baseline, c.candidate):
            lag = arm.client_lag
            if lag is None:
                return (
                    f"the {arm.arm}'s engine does not report its own time to first token, so whether the load client "
                    "received chunks merged is unknown"
                )
            if lag > MERGED:
                return (
                    f"refused, the load client received chunks of the {arm.arm} merged: {formatting.share(lag, 0)} of "
                    "a request's time went to the wrong token"
                )
        return ""


def _in_flight(case: Case) -> float:
    """Return the requests in flight: the concurrency, or under a rate what Little's law gives."""
    c = case.comparison
    if c.cell.rate is None:
        return float(c.cell.concurrency)
    arms = [a for a in (c.baseline, c.candidate) if a.e2e is not None and a.seconds]
    return max((a.requests / a.seconds * a.e2e.mean / 1000.0 for a in arms if a.e2e is not None), default=0.0)


def _mean(name: str, judge: Callable[[Case, Rule], RuleResult], limit: str, asks: str, **row: Any) -> Rule:
    """A rule about a mean over rounds."""
    return Rule(name, judge, limit, asks, forecast=True, needs_idle_engines=True, **row)


def _tail(label: str, figure: str, asks: str) -> Rule:
    """A rule about a 99th percentile."""
    return Rule(label, _judge_tail, f"max_{figure}_ratio", asks, label=label, figure=figure, needs_idle_engines=True)


RULES = (
    _mean(
        "time per token",
        _judge_time_per_token,
        "max_time_per_token_ratio",
        "A gain must be shown: time per output token of whole requests, prompt by prompt. With several cells it may be "
        "shown over all of them together, in a cell whose own estimate is a gain.",
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
    _tail("TTFT p99", "ttft_p99", "The 99th percentile of TTFT must not rise."),
    _tail("TPOT p99", "tpot_p99", "The 99th percentile of TPOT must not rise."),
    _tail("E2E p99", "e2e_p99", "The 99th percentile of whole requests must not rise."),
)
