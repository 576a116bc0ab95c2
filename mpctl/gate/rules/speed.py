"""Rules about speed: each compares a confidence interval of a mean over rounds with its limit."""

from __future__ import annotations

from dataclasses import replace

from mpctl import formatting
from mpctl.gate.case import Case, Rule
from mpctl.gate.outcome import Outcome, RuleResult
from mpctl.gate.thresholds import Threshold, assess_threshold


def assess_time_per_token(case: Case) -> RuleResult:
    """A gain must be shown: time per output token of whole requests, prompt by prompt. With several cells it may be
    shown over all of them together, in a cell whose own estimate is a gain."""
    limit = case.policy.max_time_per_token_ratio
    threshold = Threshold("time-per-token ratio", "time_per_token_ratio", limit, least=False, strictly=True)
    own, overall = assess_threshold(case, threshold), case.analysis.overall
    if own.outcome is not Outcome.UNDECIDED or overall is None or own.value is None or own.value >= limit:
        return own
    if not overall.below(limit, strictly=True):
        return own
    text = (
        f"time-per-token ratio {formatting.ratio(own.value)} ({threshold.text}); the gain is shown over all cells "
        f"together, {formatting.ratio(overall.value)}, {formatting.confidence(overall)}"
    )
    return replace(own, outcome=Outcome.PASS, message=text, needed=None)


def assess_throughput(case: Case) -> RuleResult:
    """Tokens per second over the same prompts must not fall: they determine the cost."""
    limit = case.policy.min_throughput_ratio
    return assess_threshold(case, Threshold("throughput ratio", "throughput_ratio", limit, least=True))


def assess_tpot(case: Case) -> RuleResult:
    """TPOT, the time per output token after the first, must not rise."""
    c = case.comparison
    detail = _both(c.candidate.tpot_ms, c.baseline.tpot_ms)
    return assess_threshold(case, Threshold("TPOT", "tpot", case.policy.max_tpot_ratio, least=False, detail=detail))


def assess_ttft(case: Case) -> RuleResult:
    """TTFT, the time to first token, must not rise: a queue that forms because the draft took memory shows here."""
    c, p = case.comparison, case.policy
    return _assess_with_slack(
        case, "TTFT", "ttft", (c.candidate.ttft_ms, c.baseline.ttft_ms), p.max_ttft_ratio, p.ttft_slack_ms
    )


def assess_queue_wait(case: Case) -> RuleResult:
    """The queue wait, the time between arrival and first scheduling, must not rise."""
    c, p = case.comparison, case.policy
    cand, base = (a.window.queue_wait_ms if a.window else None for a in (c.candidate, c.baseline))
    return _assess_with_slack(
        case, "queue wait", "queue_wait", (cand, base), p.max_queue_wait_ratio, p.queue_wait_slack_ms
    )


def _assess_with_slack(
    case: Case, label: str, figure: str, both: tuple[float | None, float | None], most: float, slack_ms: float
) -> RuleResult:
    """Judge the ratio, or the difference in ms where the slack allows more than the ratio. A limit below 1 asks for a
    gain, which no slack replaces."""
    cand, base = both
    if cand is None or base is None:
        return RuleResult(Outcome.MISSING, f"{label} was not measured on both arms", None, most, unit="x")
    detail = _both(cand, base)
    if most < 1.0 or base * (most - 1.0) > slack_ms:
        return assess_threshold(case, Threshold(label, figure, most, least=False, detail=detail))
    return assess_threshold(case, Threshold(label, f"{figure}_ms", slack_ms, least=False, unit="ms", detail=detail))


def _both(cand: float | None, base: float | None) -> str:
    if cand is None or base is None:
        return ""
    return f" ({formatting.milliseconds(cand)}, baseline {formatting.milliseconds(base)})"


RULES = (
    Rule("time per token", assess_time_per_token),
    Rule("throughput", assess_throughput),
    Rule("TPOT", assess_tpot),
    Rule("TTFT", assess_ttft),
    Rule("queue wait", assess_queue_wait),
)
