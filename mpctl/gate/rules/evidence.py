"""Rules about the evidence: the arms may be compared, requests are answered, and the answers are as long."""

from __future__ import annotations

from mpctl import formatting
from mpctl.experiment.users import LEAST_OF_USERS_LOAD, USERS_LOAD
from mpctl.gate.rule import Case, Direction, Outcome, Rule, RuleResult
from mpctl.gate.rules.comparable import FEWEST_PROMPTS, QUEUE_FACTOR, judge_comparable
from mpctl.stats.confidence import excess_interval, is_below
from mpctl.stats.numerics import special

# One-sided, of sampled answers that are shorter, at the last planned round; in proportion more before, where few
# answers show little. It leaves a verdict open and rejects nothing.
SHORTER_ERROR = 0.05


def _judge_errors(case: Case, rule: Rule) -> RuleResult:
    c, limit = case.comparison, case.policy.max_failed_excess
    arm, burst = c.candidate, c.burst
    earlier = burst.requests + burst.elsewhere
    n = arm.requests + earlier
    if not arm.requests:
        return RuleResult(Outcome.MISSING, "no request was sent to the candidate")
    worse, better = c.failed_alone
    interval = excess_interval(worse, better, n)
    before = f", {earlier} of them before the rounds" if earlier else ""
    text = (
        f"{arm.failed + burst.candidate_failed} of {n} requests failed, {c.baseline.failed + burst.baseline_failed} of "
        f"{c.baseline.requests + earlier} on the baseline{before}; {formatting.share(interval.value)} more, "
        f"{formatting.confidence(interval, 'share')} (at most {formatting.limit(limit, 'share')})"
    )

    def result(outcome: Outcome) -> RuleResult:
        return RuleResult(outcome, text, interval.value, limit, interval, n, "share")

    if c.unpaired_failed:
        text += f"; {c.unpaired_failed} of them in rounds that were not measured on the baseline"
    if worse > better:
        chance = _at_least_by_chance(worse, worse + better)
        text += (
            f"; the candidate failed {worse} that the baseline answered, first: "
            f"{burst.new_error or c.new_error} "
            f"(p = {_percent(chance)}, significance level {_percent(case.counting_level)} at each interim analysis)"
        )
        if chance <= case.counting_level:
            return result(Outcome.FAIL)
    if c.unpaired_failed:
        return result(Outcome.MISSING)
    return result(Outcome.PASS if interval.below(limit) else Outcome.UNDECIDED)


def _judge_users_load(case: Case, _: Rule) -> RuleResult:
    users, gap = case.analysis.run.users, case.analysis.users_load_gap
    if users is None or not case.analysis.run.placement.copies_baseline:
        return RuleResult(Outcome.SKIP, "the service was not measured next to its users")
    passes = not gap or USERS_LOAD in case.analysis.run.accepted
    text = gap or f"users keep about {users.at_once} requests in flight on each pod"
    return RuleResult(Outcome.PASS if passes else Outcome.MISSING, text)


def _judge_length(case: Case, rule: Rule) -> RuleResult:
    c = case.comparison
    limit = case.policy.max_length_ratio if c.cell.greedy else case.policy.max_sampled_length_ratio
    interval = c.intervals.get("length_ratio")
    if interval is None:
        return RuleResult(
            Outcome.MISSING, "no prompt was answered by both arms", None, limit, unit="x"
        )
    base, cand = (
        a.output_tokens / max(a.requests - a.failed, 1) for a in (c.baseline, c.candidate)
    )
    text = (
        f"answers are {formatting.ratio(interval.value)} as long ({cand:.1f} tokens, baseline {base:.1f}), "
        f"{formatting.confidence(interval)} over {interval.n} rounds "
        f"(at most {formatting.limit(limit, 'x')} either way)"
    )
    inside = interval.below(limit) and interval.above(1.0 / limit)
    outside = interval.above(limit, strictly=True) or interval.below(1.0 / limit, strictly=True)
    outcome = Outcome.PASS if inside else Outcome.FAIL if outside else Outcome.UNDECIDED
    if outcome is Outcome.PASS and (why := _ends_early(case)):
        outcome, text = Outcome.UNDECIDED, f"{text}; {why}"
    return RuleResult(outcome, text, interval.value, limit, interval, c.candidate.requests, "x")


def _ends_early(case: Case) -> str:
    """Say by what the candidate's answers end earlier than the baseline's, or another share of them at a limit of
    tokens; empty where neither shows. Speculation changes neither, so a difference that is no chance holds a promotion
    open, whatever the limit of the length."""
    c = case.comparison
    answered = [arm.requests - arm.failed for arm in (c.baseline, c.candidate)]
    base, cand = c.baseline.cut, c.candidate.cut
    if base is not None and cand is not None and all(answered):
        excess = excess_interval(cand, base, min(answered))
        if excess.above(0.0, strictly=True) or excess.below(0.0, strictly=True):
            return (
                f"{cand} of {answered[1]} answers of the candidate end at a limit of tokens, "
                f"{base} of {answered[0]} of the baseline"
            )
    figure, analysis = c.figures.get("length_ratio"), case.analysis
    level = min(SHORTER_ERROR * analysis.planned / max(analysis.rounds, 1), 0.5)
    if c.cell.greedy or figure is None or not is_below(figure.trimmed, level):
        return ""
    return "sampled answers of the candidate are shorter in these rounds, which may be chance"


def _at_least_by_chance(count: int, of: int) -> float:
    """Return the probability of ``count`` or more of ``of`` fair coin tosses."""
    if count <= 0:
        return 1.0
    return float(special.bdtrc(count - 1, of, 0.5))


def _percent(share: float) -> str:
    return f"{share:.2%}" if share >= 0.0001 else "under 0.01%"


RULES = (
    Rule(
        "comparable",
        judge_comparable,
        "",
        "The arms must be comparable: as far as is known they differ in speculation alone, their engines answered these"
        f" requests and no others and knew none of them from before, {FEWEST_PROMPTS} prompts have texts of both, and "
        f"at a rate a block sends {QUEUE_FACTOR} requests for each that is in flight.",
        guards_speed=True,
    ),
    Rule(
        "errors",
        _judge_errors,
        "max_failed_excess",
        "The candidate must not fail more requests than the baseline by more than a small share, failures before the "
        "rounds included; it is rejected only for failures that cannot be chance (McNemar's exact test).",
        about_answers=True,
    ),
    Rule(
        "users' load",
        _judge_users_load,
        "",
        "A copy of the baseline must be measured at the load that users bring, since speculation pays less the more "
        "requests decode at once.",
        fixed=f"{LEAST_OF_USERS_LOAD:g} of the requests that users keep in flight on each pod",
        unit="share",
        direction=Direction.MINIMUM,
        needs_idle_engines=True,
    ),
    Rule(
        "length",
        _judge_length,
        "max_length_ratio",
        "Answers must be as long as the baseline's: speed is judged per token, and longer answers look faster.",
        direction=Direction.EITHER_WAY,
        figure="length_ratio",
        about_answers=True,
    ),
)
