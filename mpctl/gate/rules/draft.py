"""Rules about the drafts themselves: on at all, accepted, made for this model, and at what price in memory."""

from __future__ import annotations

from dataclasses import replace

from mpctl.gate.case import Case
from mpctl.gate.outcome import Outcome, RuleResult
from mpctl.gate.thresholds import Bar, more_needed, range_of, show
from mpctl.stats.alpha_spending import FIRST_LOOK


def assess_tokens_per_step(case: Case) -> RuleResult:
    """Tokens per step tell whether drafts are accepted at all, steps without a draft included."""
    c, limit = case.comparison, case.policy.min_tokens_per_step
    window, rule = c.candidate.window, "tokens per step"
    n = c.candidate.requests
    if limit > 0 and window is not None and not window.speculating:
        message = "the candidate has no spec_decode counters: speculation is not on in the running engine"
        return RuleResult(rule, Outcome.FAIL, message, None, limit, None, n)
    return _floor(case, rule, "tokens_per_step", window.tokens_per_step if window else None, limit, "")


def assess_first_position(case: Case) -> RuleResult:
    """A head or draft model made for another model, or another chat template, misses from the first token on."""
    rule, limit = "first position", case.policy.min_first_acceptance
    with_a_model = case.drafts_with_a_model
    window = case.comparison.candidate.window
    rates = window.position_rates if window else ()
    if with_a_model is False:
        seen = f", {rates[0]:.0%} of first tokens were accepted" if rates else ""
        return RuleResult(rule, Outcome.SKIP, f"the method drafts without a model{seen}", None, limit, None, 0, "share")
    if with_a_model is None and not rates:
        message = "neither the method nor an acceptance by position is known"
        return RuleResult(rule, Outcome.SKIP, message, None, limit, None, 0, "share")
    if with_a_model is None:
        message = f"{rates[0]:.0%} of first tokens were accepted; whether the method has a model is not known"
        return RuleResult(rule, Outcome.SKIP, message, rates[0], limit, None, 0, "share")
    found = _floor(case, rule, "first_acceptance", rates[0] if rates else None, limit, "share")
    if found.outcome is not Outcome.FAIL:
        return found
    hint = "; is the draft made for this model and chat template"
    return RuleResult(**{**found.__dict__, "message": found.message + hint})


def assess_coverage(case: Case) -> RuleResult:
    """Steps that carried a draft; without it tokens per step cannot be understood."""
    rule, limit = "coverage", case.policy.min_coverage
    window = case.comparison.candidate.window
    if window is not None and not window.speculating:
        return RuleResult(rule, Outcome.SKIP, "the candidate does not speculate", None, limit, None, 0, "share")
    return _floor(case, rule, "coverage", window.coverage if window else None, limit, "share")


def assess_pool(case: Case) -> RuleResult:
    """The draft's weights and its own cache leave less room for requests; what does not fit waits."""
    rule, limit = "KV pool", case.policy.max_pool_loss
    base = case.baseline.kv_pool_tokens if case.baseline else None
    cand = case.candidate.kv_pool_tokens if case.candidate else None
    if not base or cand is None:
        return RuleResult(rule, Outcome.SKIP, "the size of the KV cache is not known of both arms", None, limit)
    loss = max(0.0, 1.0 - cand / base)
    text = f"the KV cache holds {cand} tokens, {base} on the baseline: {loss:.0%} less (at most {limit:.0%})"
    return RuleResult(rule, Outcome.FAIL if loss > limit else Outcome.PASS, text, loss, limit, None, 1, "share")


def _floor(case: Case, rule: str, name: str, value: float | None, limit: float, unit: str) -> RuleResult:
    """A figure of the counters: at least the limit over all rounds; fails when its interval lies below."""
    c = case.comparison
    n = c.candidate.requests
    if value is None:
        return RuleResult(rule, Outcome.MISSING, f"{rule} was not measured", None, limit, None, n, unit)
    found = c.intervals.get(name)
    if found is not None and unit == "share":
        found = replace(found, low=max(found.low, 0.0), high=min(found.high, 1.0))
    span = f", {range_of(found, unit)} over {found.n} rounds" if found else ""
    text = f"{rule} {show(value, unit)}{span} and {n} requests (at least {show(limit, unit)})"
    if value >= limit:
        return RuleResult(rule, Outcome.PASS, text, value, limit, found, n, unit)
    if found is None:
        return RuleResult(rule, Outcome.UNDECIDED, text, value, limit, None, n, unit)
    by_chance = found.low == found.high and found.n < FIRST_LOOK  # as when a few rounds had no draft accepted
    if found.high < limit and not by_chance:
        return RuleResult(rule, Outcome.FAIL, text, value, limit, found, n, unit)
    needed, more = more_needed(case, Bar(rule, name, limit, least=True, unit=unit), found)
    return RuleResult(rule, Outcome.UNDECIDED, text + more, value, limit, found, n, unit, needed)
