"""Rules about figures: what the drafts and the engines' caches do, and how fast the arms are.

A rule passes when the whole interval of its figure is on the good side of its limit, fails when the whole of it is on
the bad side, and is undecided while the limit lies inside.

The speed of an arm is a mean over rounds. Throughput is printed and has no rule: E2E and the time per token judge the
same times. No rule is about a 99th percentile: its bound takes 299 requests, three times a measurement's. Reports show
it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from mpctl import formatting
from mpctl.experiment.pairing import MUCH
from mpctl.gate.analysis import ArmOrder, error_left
from mpctl.gate.pooling import borrow
from mpctl.gate.rule import Case, Direction, Outcome, Rule, RuleResult, judge_estimate
from mpctl.gate.rules.comparable import hits_explained
from mpctl.stats.confidence import Interval, trend_of
from mpctl.stats.sequential import FEWEST

TREND_ERROR = 0.6  # two-sided, of the slope of the time per token, which leaves a verdict open and rejects nothing
_LEAST_LOSS = (
    16  # tokens a request: a block of a dense model on a GPU, less than a millisecond of prefill
)


@dataclass(frozen=True)
class Threshold:
    """A rule's limit in one cell. ``detail``: printed after the value."""

    rule: Rule
    limit: float
    figure: str
    unit: str
    detail: str = ""

    @property
    def minimum(self) -> bool:
        """True when a figure passes above the limit."""
        return self.rule.direction is Direction.MINIMUM

    @property
    def text(self) -> str:
        """The limit in words: ``at least 0.95x``."""
        strict, loose = ("above", "at least") if self.minimum else ("below", "at most")
        return (
            f"{strict if self.rule.strictly else loose} {formatting.limit(self.limit, self.unit)}"
        )

    def outcome(self, interval: Interval) -> Outcome:
        """Return on which side of the limit the interval lies: pass, fail or undecided."""
        good, bad = (
            (interval.above, interval.below) if self.minimum else (interval.below, interval.above)
        )
        if good(self.limit, strictly=self.rule.strictly):
            return Outcome.PASS
        return Outcome.FAIL if bad(self.limit, strictly=True) else Outcome.UNDECIDED


def threshold_of(case: Case, rule: Rule, detail: str = "") -> Threshold:
    """Return a rule's limit in a cell; ``detail``: printed after the value."""
    return Threshold(rule, getattr(case.policy, rule.limit), rule.figure, rule.unit, detail)


def is_beyond(direction: Direction, value: float, limit: float) -> bool:
    """Return whether a value lies on the bad side of a limit."""
    match direction:
        case Direction.MINIMUM:
            return value < limit
        case Direction.EITHER_WAY:
            return not 1.0 / limit <= value <= limit
    return value > limit


def judge_threshold(case: Case, threshold: Threshold) -> RuleResult:
    """Judge the interval of a threshold's figure."""
    c, label = case.comparison, threshold.rule.label
    interval = c.intervals.get(threshold.figure)
    n = min(c.baseline.requests, c.candidate.requests)
    limit, unit = threshold.limit, threshold.unit
    if interval is None or not math.isfinite(interval.value):
        return RuleResult(
            Outcome.MISSING, f"{label} was not measured on both arms", None, limit, None, n, unit
        )
    outcome, advice = threshold.outcome(interval), ""
    if outcome is Outcome.UNDECIDED:
        advice = _no_rounds_decide(case, threshold, interval)
        borrowed = (
            None if threshold.rule.over_all_cells else borrow(case.analysis, c, threshold.figure)
        )
        if borrowed is not None and threshold.outcome(borrowed.interval) is Outcome.PASS:
            outcome = Outcome.PASS
            advice = (
                f"; {formatting.in_unit(borrowed.interval.value, unit)} ({formatting.bounds(borrowed.interval, unit)}) "
                "with what the other classes show"
            )
    if outcome is Outcome.PASS and (why := contradiction(case, threshold)):
        outcome, advice = Outcome.UNDECIDED, why
    text = (
        f"{label} {formatting.in_unit(interval.value, unit)}{threshold.detail}, "
        f"{formatting.confidence(interval, unit)} over {interval.n} rounds of {c.round_requests:.3g} prompts "
        f"({threshold.text}){_widening_text(case)}{advice}"
    )
    return RuleResult(outcome, text, interval.value, limit, interval, n, unit)


def _widening_text(case: Case) -> str:
    """Name the widening for arms that were measured one after the other; empty for others."""
    if case.comparison.order is not ArmOrder.SEPARATE:
        return ""
    most = formatting.limit(case.policy.max_drift, "share")
    return f"; widened by {most}, for what the machine may have changed between the arms"


def contradiction(case: Case, threshold: Threshold) -> str:
    """Say what contradicts a figure that passes: the time per token of a single cell that rises so that the line
    through the rounds is no gain at the end of the plan, or what the figure may be with every stall and round, where
    that is beyond the limit: stalls of one arm alone are no noise, and a few that were seen may be a sample of more.
    Empty where nothing does."""
    figure = case.comparison.figures.get(threshold.figure)
    if figure is None:
        return ""
    if (
        threshold.rule.over_all_cells
        and not case.analysis.overall
        and (line := trend_of(figure.values, TREND_ERROR))
    ):
        end = math.exp(line[1] + line[0] * (case.analysis.planned - 1))
        if end >= threshold.limit:
            return f"; it rises over the rounds, by the last planned one to {formatting.in_unit(end, threshold.unit)}"
    with_stalls = figure.with_stalls
    if with_stalls is None or not is_beyond(threshold.rule.direction, with_stalls, threshold.limit):
        return ""
    return f"; over all requests, stalls included, it may be {formatting.in_unit(with_stalls, threshold.unit)}"


def _no_rounds_decide(case: Case, threshold: Threshold, interval: Interval) -> str:
    """Say why no number of rounds tells on which side of its limit a figure is; empty where one may."""
    figure = case.comparison.figures.get(threshold.figure)
    if figure is None or not math.isfinite(figure.trimmed.spread):
        return "; one round does not show how much rounds differ"
    if abs(figure.distance(interval.value, threshold.limit)) > figure.allowance:
        return ""
    most = formatting.limit(case.comparison.order.margin(case.policy), "share")
    return f"; equal engines may differ by {most} for as long as both live, so more rounds decide nothing"


def _judge_cache_kept(case: Case, rule: Rule) -> RuleResult:
    """Judge how many tokens the candidate computes again that the baseline had kept. Hits are counted, not estimated:
    how much slower turns get decides whether the loss rejects."""
    c, limit = case.comparison, case.policy.max_cache_loss
    base, cand = c.baseline.window, c.candidate.window
    each, other = c.baseline.requests, c.candidate.requests
    if not (base and cand and base.prefix_queries and each and other and hits_explained(c)):
        why = "the engines do not tell which tokens their prefix caches may hold"
        return RuleResult(Outcome.SKIP, why, None, limit, unit="share")
    of_baseline = min(base.prefix_hits or 0.0, base.prefix_expected or 0.0) / each
    if not of_baseline:
        why = (
            "no prompt begins with a whole unit of the cache that was sent before; conversations do"
        )
        return RuleResult(Outcome.SKIP, why, None, limit, unit="share")
    lost = max(of_baseline - (cand.prefix_hits or 0.0) / other, 0.0)
    share = lost / max(base.prefix_queries / each - of_baseline, 1.0)
    text = (
        f"speculation forgets {lost:,.0f} of {of_baseline:,.0f} cached tokens a request, and computes "
        f"{formatting.share(share, 0)} more of the prompts (at most {formatting.limit(limit, 'share')})"
    )
    if share <= limit or lost <= _LEAST_LOSS:
        return RuleResult(Outcome.PASS, text, share, limit, unit="share")
    slower = judge_threshold(case, Threshold(rule, 1.0, rule.figure, "x"))
    harmless = slower.interval and slower.interval.below(case.policy.max_ttft_ratio)
    outcome = Outcome.PASS if harmless else slower.outcome
    return replace(slower, outcome=outcome, message=f"{text}; {slower.message}")


def _judge_tokens_per_step(case: Case, rule: Rule) -> RuleResult:
    c, limit = case.comparison, case.policy.min_tokens_per_step
    window = c.candidate.window
    if limit > 0 and window is not None and not window.speculating:
        return RuleResult(
            Outcome.FAIL,
            "the candidate has no spec_decode counters: speculation is off in the running engine",
            None,
            limit,
            None,
            c.candidate.requests,
            "tokens",
        )
    value = window.tokens_per_step if window else None
    return _judge_counted(case, rule, value)


def _judge_first_position(case: Case, rule: Rule) -> RuleResult:
    limit = case.policy.min_first_acceptance
    window = case.comparison.candidate.window
    rates = window.position_rates if window else ()
    accepted = f"{formatting.share(rates[0], 0)} of first tokens were accepted" if rates else ""
    first = rates[0] if rates else None
    if not case.has_draft_model:
        unknown = "whether the method has a draft model is unknown"
        why = unknown if case.has_draft_model is None else "the method drafts without a model"
        return RuleResult(
            Outcome.SKIP, "; ".join(filter(None, (why, accepted))), first, limit, unit="share"
        )
    result = _judge_counted(case, rule, first)
    if result.outcome is not Outcome.FAIL:
        return result
    return replace(
        result, message=f"{result.message}; is the draft made for this model and chat template?"
    )


def _judge_pool(case: Case, _: Rule) -> RuleResult:
    limit = case.policy.max_pool_loss
    base = case.baseline.kv_pool_tokens if case.baseline else None
    cand = case.candidate.kv_pool_tokens if case.candidate else None
    if not base or cand is None:
        return RuleResult(
            Outcome.SKIP, "the size of the KV cache is not known of both arms", None, limit
        )
    loss = max(0.0, 1.0 - cand / base)
    text = (
        f"the KV cache holds {cand} tokens, {base} on the baseline: "
        f"{formatting.share(loss, 0)} less (at most {formatting.limit(limit, 'share')})"
    )
    return RuleResult(
        Outcome.FAIL if loss > limit else Outcome.PASS, text, loss, limit, None, 1, "share"
    )


def _judge_counted(case: Case, rule: Rule, value: float | None) -> RuleResult:
    """Judge a figure of the candidate's counters: its value over all rounds passes at the limit, and fails only when
    the whole interval lies below."""
    c, threshold, unit = case.comparison, threshold_of(case, rule), rule.unit
    limit, n = threshold.limit, c.candidate.requests
    if value is None:
        return RuleResult(
            Outcome.MISSING, f"{rule.label} was not measured", None, limit, None, n, unit
        )
    interval = c.intervals.get(rule.figure)
    if interval is not None and interval.low is not None and interval.high is not None:
        most = 1.0 if unit == "share" else math.inf
        # The value counts every step once, the interval every round once: with few rounds it may miss the value.
        low, high = min(interval.low, value), max(min(interval.high, most), value)
        interval = replace(interval, low=max(low, 0.0), high=high)
    outcome = judge_estimate(value, interval, limit)
    by_chance = interval is not None and interval.low == interval.high and interval.n < FEWEST
    if outcome is Outcome.FAIL and by_chance:  # as when a few rounds had no draft accepted
        outcome = Outcome.UNDECIDED
    rounds = (
        f", {formatting.confidence(interval, unit)} over {interval.n} rounds" if interval else ""
    )
    text = f"{rule.label} {formatting.in_unit(value, unit)}{rounds} and {n} requests ({threshold.text})"
    return RuleResult(outcome, text, value, limit, interval, n, unit)


def _judge_time_per_token(case: Case, rule: Rule) -> RuleResult:
    """Judge the time per token. With several cells the gain may be shown over all of them together, in a cell whose own
    estimate is a gain."""
    threshold = threshold_of(case, rule)
    alone, overall, limit = judge_threshold(case, threshold), case.analysis.overall, threshold.limit
    borrowed = borrow(case.analysis, case.comparison, threshold.figure)
    estimate = alone.value if borrowed is None else borrowed.interval.value
    if earlier := case.analysis.run.earlier:
        before = "an earlier measurement" if earlier == 1 else f"{earlier} earlier measurements"
        text = f"{before} of the same pair did not promote, so this one spends {error_left(earlier):.1%} of the error"
        alone = replace(alone, message=f"{alone.message}; {text}")
    if (
        alone.outcome is not Outcome.UNDECIDED
        or overall is None
        or alone.value is None
        or estimate is None
        or estimate >= limit
    ):
        return alone
    if not overall.below(limit, strictly=True) or contradiction(case, threshold):
        return alone
    text = (
        f"{rule.label} {formatting.ratio(alone.value)} ({threshold.text}); the gain is shown over all cells "
        f"together, {formatting.ratio(overall.value)}, {formatting.confidence(overall)}"
    )
    return replace(alone, outcome=Outcome.PASS, message=text)


def _judge_tpot(case: Case, rule: Rule) -> RuleResult:
    c = case.comparison
    return judge_threshold(
        case, threshold_of(case, rule, _both(c.candidate.tpot_ms, c.baseline.tpot_ms))
    )


def _judge_e2e(case: Case, rule: Rule) -> RuleResult:
    """Judge the mean, and say for how many prompts it does not hold. Requests differ by chance in both directions, so
    those that are much faster are counted as well."""
    slower, faster, count = case.comparison.much_slower
    shares = [formatting.share(part / max(count, 1), 0) for part in (slower, faster)]
    detail = f" ({shares[0]} of prompts take more than {MUCH:g}x as long, {shares[1]} less than 1/{MUCH:g})"
    return judge_threshold(case, threshold_of(case, rule, detail if count else ""))


def _judge_ttft(case: Case, rule: Rule) -> RuleResult:
    """Judge by the engines' clocks, unless the client contradicts them by more than TTFT may rise."""
    c, policy = case.comparison, case.policy
    base, late = c.baseline.ttft_ms, c.late_ms
    if (
        late is not None
        and base is not None
        and late > max(policy.ttft_slack_ms, base * (policy.max_ttft_ratio - 1.0))
    ):
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
    threshold, slack_ms = (
        threshold_of(case, rule, _both(cand, base)),
        getattr(case.policy, rule.slack),
    )
    most = threshold.limit
    if cand is None or base is None:
        return RuleResult(
            Outcome.MISSING, f"{rule.label} was not measured on both arms", None, most, unit="x"
        )
    if most >= 1.0 and base * (most - 1.0) <= slack_ms:
        threshold = replace(threshold, figure=f"{rule.figure}_ms", limit=slack_ms, unit="ms")
    return judge_threshold(case, threshold)


def _both(cand: float | None, base: float | None) -> str:
    if cand is None or base is None:
        return ""
    return f" ({formatting.milliseconds(cand)}, baseline {formatting.milliseconds(base)})"


def _mean(
    name: str, judge: Callable[[Case, Rule], RuleResult], limit: str, asks: str, **row: Any
) -> Rule:
    """A rule about a mean over rounds."""
    return Rule(name, judge, limit, asks, forecast=True, needs_idle_engines=True, **row)


RULES = (
    Rule(
        "cache kept",
        _judge_cache_kept,
        "max_cache_loss",
        "What the baseline keeps of a conversation the candidate must keep too: a turn whose beginning was forgotten "
        "waits longer for its first token.",
        unit="share",
        label="TTFT",
        figure="ttft",
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
        "KV pool",
        _judge_pool,
        "max_pool_loss",
        "The draft's weights and its cache must leave enough KV cache; requests that do not fit wait.",
        unit="share",
    ),
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
        "TPOT",
        _judge_tpot,
        "max_tpot_ratio",
        "TPOT, the time per output token after the first, must not rise.",
        label="TPOT",
        figure="tpot",
    ),
    _mean(
        "E2E",
        _judge_e2e,
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
