"""Rules about the drafts, and about what an engine remembers of earlier requests.

Speculation is on, drafts are accepted, fit their target, and leave enough KV cache. An engine that answered the same
prompts before is faster without being so, by its prefix cache or by the answers that suffix decoding keeps: two equal
engines were measured as 7.6x and as 0.29x, depending on which of them had served the prompts in an earlier measurement.
"""

from __future__ import annotations

from dataclasses import replace

from mpctl import formatting
from mpctl.experiment.arm import ArmSummary
from mpctl.experiment.run import ArmConditions
from mpctl.gate.rule import Case, Direction, Outcome, Rule, RuleResult, judge_estimate, more_needed
from mpctl.stats.sequential import FEWEST

_BLOCK = 16  # tokens of a block of the prefix cache; a head computes the last one that matches again
_ANSWERS_KEPT = "suffix_decoding_max_cached_requests"


def _judge_caches(case: Case, _: Rule) -> RuleResult:
    c, limit = case.comparison, case.policy.max_cache_gap
    shares = [arm.window.prefix_hit_share if arm.window else None for arm in (c.baseline, c.candidate)]
    earlier_shares = [
        _earlier_share(arm, conditions)
        for arm, conditions in ((c.baseline, case.baseline), (c.candidate, case.candidate))
    ]
    texts, gaps = [], []
    base, cand = shares
    most = formatting.limit(limit, "share")
    if base is not None and cand is not None:
        gaps.append(abs(base - cand) - (_recomputed(c.candidate) if base > cand and case.has_draft_model else 0.0))
        texts.append(
            f"the prefix cache held {formatting.share(cand, 0)} of the candidate's prompt tokens, "
            f"{formatting.share(base, 0)} of the baseline's (at most {most} apart)"
        )
    elif (base is None) != (cand is None):
        missing = c.baseline if base is None else c.candidate
        return RuleResult(
            Outcome.MISSING, f"the {missing.arm}'s engine does not count its prefix cache", None, limit, unit="share"
        )
    for arm, share in zip((c.baseline, c.candidate), earlier_shares, strict=True):
        if share is not None:
            gaps.append(share)
            texts.append(
                f"{formatting.share(share, 0)} of the answers that the {arm.arm}'s suffix decoding can draw on are of "
                f"before this measurement (at most {most})"
            )
    if not gaps:
        return RuleResult(Outcome.SKIP, "neither engine counts its prefix cache", None, limit, unit="share")
    if max(gaps) <= limit:
        return RuleResult(Outcome.PASS, "; ".join(texts), max(gaps), limit, None, c.candidate.requests, "share")
    advice = "restart both engines and measure again, or allow it with max_cache_gap"
    return RuleResult(
        Outcome.MISSING, f"{'; '.join(texts)}; {advice}", max(gaps), limit, None, c.candidate.requests, "share"
    )


def _recomputed(arm: ArmSummary) -> float:
    """The share of prompt tokens in one block of the cache per request."""
    window = arm.window
    return _BLOCK * arm.requests / window.prefix_queries if window and window.prefix_queries else 0.0


def _earlier_share(arm: ArmSummary, conditions: ArmConditions | None) -> float | None:
    """Share of the arm's tokens that its process generated before the measurement; None where nothing keeps them."""
    spec = conditions.speculation if conditions else None
    method = spec.known if spec else None
    if conditions is None or method is None or not method.remembers_answers or conditions.served_tokens is None:
        return None
    if spec is not None and spec.settings.get(_ANSWERS_KEPT) == 0:
        return None
    total = conditions.served_tokens + arm.output_tokens
    return conditions.served_tokens / total if total else None


def _judge_tokens_per_step(case: Case, rule: Rule) -> RuleResult:
    c, limit = case.comparison, case.policy.min_tokens_per_step
    window = c.candidate.window
    if limit > 0 and window is not None and not window.speculating:
        message = "the candidate has no spec_decode counters: speculation is off in the running engine"
        return RuleResult(Outcome.FAIL, message, None, limit, None, c.candidate.requests, "tokens")
    value = window.tokens_per_step if window else None
    return _judge_counted(case, rule, value)


def _judge_first_position(case: Case, rule: Rule) -> RuleResult:
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
    result = _judge_counted(case, rule, rates[0] if rates else None)
    if result.outcome is not Outcome.FAIL:
        return result
    return replace(result, message=f"{result.message}; is the draft made for this model and chat template?")


def _judge_coverage(case: Case, rule: Rule) -> RuleResult:
    limit = case.policy.min_coverage
    window = case.comparison.candidate.window
    if window is not None and not window.speculating:
        return RuleResult(Outcome.SKIP, "the candidate does not speculate", None, limit, unit="share")
    return _judge_counted(case, rule, window.coverage if window else None)


def _judge_pool(case: Case, _: Rule) -> RuleResult:
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


def _judge_counted(case: Case, rule: Rule, value: float | None) -> RuleResult:
    """Judge a figure of the candidate's counters: its value over all rounds passes at the limit, and fails only when
    the whole interval lies below."""
    c, threshold, unit = case.comparison, rule.threshold(case), rule.unit
    limit, n = threshold.limit, c.candidate.requests
    if value is None:
        return RuleResult(Outcome.MISSING, f"{rule.label} was not measured", None, limit, None, n, unit)
    interval = c.intervals.get(rule.figure)
    if interval is not None and unit == "share" and interval.low is not None and interval.high is not None:
        interval = replace(interval, low=max(interval.low, 0.0), high=min(interval.high, 1.0))
    if interval is not None and interval.low is not None and interval.high is not None:
        # The value counts every step once, the interval every round once: with few rounds it may miss the value.
        interval = replace(interval, low=min(interval.low, value), high=max(interval.high, value))
    outcome = judge_estimate(value, interval, limit)
    by_chance = interval is not None and interval.low == interval.high and interval.n < FEWEST
    if outcome is Outcome.FAIL and by_chance:  # as when a few rounds had no draft accepted
        outcome = Outcome.UNDECIDED
    rounds = f", {formatting.confidence(interval, unit)} over {interval.n} rounds" if interval else ""
    text = f"{rule.label} {formatting.in_unit(value, unit)}{rounds} and {n} requests ({threshold.text})"
    needed, advice = None, ""
    if outcome is Outcome.UNDECIDED and interval is not None:
        needed, advice = more_needed(case, threshold, interval)
    return RuleResult(outcome, text + advice, value, limit, interval, n, unit, needed)


RULES = (
    Rule(
        "caches",
        _judge_caches,
        "max_cache_gap",
        "Neither arm may know the prompts from before: their prefix caches must help both alike, and suffix decoding "
        "must hold no answers of an earlier measurement.",
        guards_speed=True,
        needs_idle_engines=True,
    ),
    Rule(
        "tokens per step",
        _judge_tokens_per_step,
        "min_tokens_per_step",
        "Drafts must be accepted: tokens per step, steps without a draft included.",
        unit="tokens",
        direction=Direction.MINIMUM,
        label="tokens per step",
        figure="tokens_per_step",
    ),
    Rule(
        "first position",
        _judge_first_position,
        "min_first_acceptance",
        "A draft model or head must fit its target: one made for another model or chat template misses from the first "
        "token on.",
        unit="share",
        direction=Direction.MINIMUM,
        label="first-position acceptance",
        figure="first_acceptance",
    ),
    Rule(
        "coverage",
        _judge_coverage,
        "min_coverage",
        "Enough steps must carry a draft; tokens per step is understood with it.",
        unit="share",
        direction=Direction.MINIMUM,
        label="coverage",
        figure="coverage",
    ),
    Rule(
        "KV pool",
        _judge_pool,
        "max_pool_loss",
        "The draft's weights and its cache must leave enough KV cache; requests that do not fit wait.",
        unit="share",
    ),
)
