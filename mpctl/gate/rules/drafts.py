"""Rules about the drafts: speculation is on, drafts are accepted, fit their target, and leave enough KV cache."""

from __future__ import annotations

from dataclasses import replace

from mpctl import formatting
from mpctl.gate.case import Case, Rule
from mpctl.gate.outcome import Outcome, RuleResult
from mpctl.gate.thresholds import Threshold, more_needed, place_estimate
from mpctl.stats.alpha_spending import FIRST_LOOK


def assess_tokens_per_step(case: Case) -> RuleResult:
    """Drafts must be accepted: tokens per step, steps without a draft included."""
    c, limit = case.comparison, case.policy.min_tokens_per_step
    window = c.candidate.window
    if limit > 0 and window is not None and not window.speculating:
        message = "the candidate has no spec_decode counters: speculation is off in the running engine"
        return RuleResult(Outcome.FAIL, message, None, limit, None, c.candidate.requests, "tokens")
    value = window.tokens_per_step if window else None
    return _assess_counted(
        case, Threshold("tokens per step", "tokens_per_step", limit, least=True, unit="tokens"), value
    )


def assess_first_position(case: Case) -> RuleResult:
    """A draft model or head must fit its target: one made for another model or chat template misses from the first
    token on."""
    limit = case.policy.min_first_acceptance
    window = case.comparison.candidate.window
    rates = window.position_rates if window else ()
    accepted = f"{formatting.share(rates[0], 0)} of first tokens were accepted" if rates else ""
    if case.has_draft_model is False:
        message = f"the method drafts without a model{', ' if accepted else ''}{accepted}"
        return RuleResult(Outcome.SKIP, message, None, limit, unit="share")
    if case.has_draft_model is None:
        message = f"{accepted}; whether the method has a draft model is unknown"
        if not rates:
            message = "neither the method nor an acceptance by position is known"
        return RuleResult(Outcome.SKIP, message, rates[0] if rates else None, limit, unit="share")
    threshold = Threshold("first-position acceptance", "first_acceptance", limit, least=True, unit="share")
    result = _assess_counted(case, threshold, rates[0] if rates else None)
    if result.outcome is not Outcome.FAIL:
        return result
    return replace(result, message=f"{result.message}; is the draft made for this model and chat template?")


def assess_coverage(case: Case) -> RuleResult:
    """Enough steps must carry a draft; tokens per step is understood with it."""
    limit = case.policy.min_coverage
    window = case.comparison.candidate.window
    if window is not None and not window.speculating:
        return RuleResult(Outcome.SKIP, "the candidate does not speculate", None, limit, unit="share")
    threshold = Threshold("coverage", "coverage", limit, least=True, unit="share")
    return _assess_counted(case, threshold, window.coverage if window else None)


def assess_pool(case: Case) -> RuleResult:
    """The draft's weights and its cache must leave enough KV cache; requests that do not fit wait."""
    limit = case.policy.max_pool_loss
    base = case.baseline.kv_pool_tokens if case.baseline else None
    cand = case.candidate.kv_pool_tokens if case.candidate else None
    if not base or cand is None:
        return RuleResult(Outcome.SKIP, "the size of the KV cache is not known of both arms", None, limit)
    loss = max(0.0, 1.0 - cand / base)
    most = formatting.limit(limit, "share")
    text = (
        f"the KV cache holds {cand} tokens, {base} on the baseline: {formatting.share(loss, 0)} less (at most {most})"
    )
    return RuleResult(Outcome.FAIL if loss > limit else Outcome.PASS, text, loss, limit, None, 1, "share")


def _assess_counted(case: Case, threshold: Threshold, value: float | None) -> RuleResult:
    """Judge a figure of the candidate's counters: its value over all rounds passes at the limit, and fails only when
    the whole interval lies below."""
    c, limit, unit = case.comparison, threshold.limit, threshold.unit
    n = c.candidate.requests
    if value is None:
        return RuleResult(Outcome.MISSING, f"{threshold.label} was not measured", None, limit, None, n, unit)
    interval = c.intervals.get(threshold.figure)
    if interval is not None and unit == "share" and interval.low is not None and interval.high is not None:
        interval = replace(interval, low=max(interval.low, 0.0), high=min(interval.high, 1.0))
    if interval is not None and interval.low is not None and interval.high is not None:
        # The value counts every step once, the interval every round once: with few rounds it may miss the value.
        interval = replace(interval, low=min(interval.low, value), high=max(interval.high, value))
    outcome = place_estimate(value, interval, limit)
    by_chance = interval is not None and interval.low == interval.high and interval.n < FIRST_LOOK
    if outcome is Outcome.FAIL and by_chance:  # as when a few rounds had no draft accepted
        outcome = Outcome.UNDECIDED
    rounds = f", {formatting.confidence(interval, unit)} over {interval.n} rounds" if interval else ""
    text = f"{threshold.label} {formatting.in_unit(value, unit)}{rounds} and {n} requests ({threshold.text})"
    needed, advice = None, ""
    if outcome is Outcome.UNDECIDED and interval is not None:
        needed, advice = more_needed(case, threshold, interval)
    return RuleResult(outcome, text + advice, value, limit, interval, n, unit, needed)


RULES = (
    Rule("tokens per step", assess_tokens_per_step),
    Rule("first position", assess_first_position),
    Rule("coverage", assess_coverage),
    Rule("KV pool", assess_pool),
)
