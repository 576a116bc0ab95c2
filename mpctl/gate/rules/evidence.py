"""Rules about the evidence: every request answered, by both arms, by these engines alone, with the same text."""

from __future__ import annotations

import math
from dataclasses import replace

from mpctl import formatting
from mpctl.experiment.users import LEAST_OF_USERS_LOAD, USERS_LOAD
from mpctl.gate.arms import is_difference, open_differences
from mpctl.gate.rule import Case, Direction, Outcome, Rule, RuleResult, more_to_pass
from mpctl.gate.rules.figures import more_needed, threshold_of
from mpctl.stats.confidence import excess_interval, is_below
from mpctl.stats.numerics import special

# One-sided, of sampled answers that are shorter, at the last planned round; in proportion more before, where few
# answers show little. It leaves a verdict open and rejects nothing.
SHORTER_ERROR = 0.05
_QUEUE_FACTOR = 10  # requests of a block for each that is in flight


def _judge_errors(case: Case, rule: Rule) -> RuleResult:
    c, limit = case.comparison, case.policy.max_failed_excess
    arm, burst = c.candidate, c.burst
    earlier = burst.requests + burst.elsewhere
    n = arm.requests + earlier
    if not arm.requests:
        return RuleResult(Outcome.MISSING, "no request was sent to the candidate")
    worse, better = c.newly_failed + burst.newly_failed, c.newly_answered + burst.newly_answered
    interval = excess_interval(worse, better, n)
    before = f", {earlier} of them before the rounds" if earlier else ""
    text = (
        f"{arm.failed + burst.candidate_failed} of {n} requests failed, {c.baseline.failed + burst.baseline_failed} of "
        f"{c.baseline.requests + earlier} on the baseline{before}; {formatting.share(interval.value)} more, "
        f"{formatting.confidence(interval, 'share')} (at most {formatting.limit(limit, 'share')})"
    )

    def result(outcome: Outcome, needed: int | None = None) -> RuleResult:
        return RuleResult(outcome, text, interval.value, limit, interval, n, "share", needed)

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
    if interval.below(limit):
        return result(Outcome.PASS)
    needed = more_to_pass(worse, better, n, limit)
    if needed is not None:
        text += f"; about {needed} more prompts would decide"
    return result(Outcome.UNDECIDED, needed)


def _judge_arms(case: Case, _: Rule) -> RuleResult:
    if case.baseline is None or case.candidate is None:
        return RuleResult(Outcome.SKIP, "the conditions of the arms are not recorded")
    different = open_differences(case.analysis.arms, case.analysis.accepted)
    names = ", ".join(name for name in case.analysis.accepted if is_difference(name))
    accepted = f" (accepted: {names})" if names else ""
    if not different:
        return RuleResult(
            Outcome.PASS, f"no condition but speculation is known to differ{accepted}"
        )
    return RuleResult(
        Outcome.MISSING,
        f"the arms differ in more than speculation: {'; '.join(map(str, different))}{accepted}",
    )


def _judge_open_loop(case: Case, _: Rule) -> RuleResult:
    """A queue shows itself after about ten times the requests that are in flight (Little's law)."""
    c, rate = case.comparison, case.comparison.cell.rate
    if rate is None:
        return RuleResult(
            Outcome.SKIP, "a closed loop: the requests in flight are constant", unit="prompts"
        )
    if c.baseline.e2e is None:
        return RuleResult(
            Outcome.MISSING, "no request of the baseline was answered", unit="prompts"
        )
    wanted = math.ceil(_QUEUE_FACTOR * rate * c.baseline.e2e.mean / 1000)
    n = math.floor(c.round_requests)
    text = f"a block sends {n} requests at {rate:g}/s, and one takes {c.baseline.e2e.mean / 1000:.2g} s"
    if n >= wanted:
        return RuleResult(Outcome.PASS, text, n, wanted, None, n, "prompts")
    text += f": no queue can form; --requests {wanted} does, a block then takes about {wanted / rate:.0f} s"
    return RuleResult(Outcome.MISSING, text, n, wanted, None, n, "prompts")


def _judge_samples(case: Case, _: Rule) -> RuleResult:
    c, limit = case.comparison, case.policy.min_compared
    text = f"{c.compared} prompts answered by both arms in {c.rounds} rounds (at least {limit:g})"
    if c.textless:
        text += f"; {c.textless} more were answered without text and cannot be compared (a reasoning parser?)"
    outcome, missing = Outcome.PASS, None
    if c.compared < limit:
        decides = c.compared > 0 and not c.textless
        outcome = Outcome.UNDECIDED if decides else Outcome.MISSING
        missing = max(1, round(limit - c.compared))
    return RuleResult(outcome, text, c.compared, limit, None, c.compared, "prompts", missing)


def _judge_repeats(case: Case, rule: Rule) -> RuleResult:
    c, limit = case.comparison, case.policy.max_repeated
    prompts = case.prompts
    source = (
        f"; {prompts.repeated} duplicates in {prompts.name} were left out"
        if prompts and prompts.repeated
        else ""
    )
    if not c.sent:
        return RuleResult(
            Outcome.MISSING, f"the prompts that were sent are unknown{source}", None, limit
        )
    repeated = c.repeated / c.sent
    text = (
        f"{c.repeated} of {c.sent} prompts of {c.cell.traffic} were sent to the same engine before in this "
        f"measurement (at most {formatting.limit(limit, 'share')}){source}"
    )
    spec, alike = (
        case.candidate.speculation if case.candidate else None,
        prompts.alike if prompts else 0.0,
    )
    if (
        alike > limit
        and spec is not None
        and spec.known is not None
        and spec.known.remembers_answers
    ):
        text += (
            f"; {formatting.share(alike, 0)} share most of their word sequences with an earlier one, whose answer "
            f"{spec.method} decoding replays: give other prompts, or raise max_repeated if your traffic is like this"
        )
        return RuleResult(Outcome.MISSING, text, alike, limit, None, c.sent, "share")
    outcome = Outcome.MISSING if repeated > limit else Outcome.PASS
    return RuleResult(outcome, text, repeated, limit, None, c.sent, "share")


def _judge_tokens(case: Case, rule: Rule) -> RuleResult:
    c, limit = case.comparison, case.policy.max_token_gap
    agree: list[str] = []
    differ: list[str] = []
    widest: float | None = None
    for arm in (c.baseline, c.candidate):
        counted = arm.window.generation_tokens if arm.window else 0.0
        if not counted:
            differ.append(f"the {arm.arm}'s engine counted no token")
            continue
        gap = abs(counted - arm.output_tokens) / counted
        widest = gap if widest is None else max(widest, gap)
        most = formatting.limit(limit, "share")
        if gap <= limit:
            agree.append(
                f"{arm.arm}: {arm.output_tokens} tokens by usage, {counted:.0f} by the engine (at most {most} apart)"
            )
        elif counted > arm.output_tokens:
            differ.append(
                f"users sent {counted - arm.output_tokens:.0f} tokens to the {arm.arm} meanwhile, "
                f"{formatting.share(gap, 0)} of all (at most {most}); measure beside them with --measure-on pair, or "
                "take the service out of traffic"
            )
        else:
            differ.append(
                f"the {arm.arm} counted {counted:.0f} tokens, its answers report {arm.output_tokens} "
                f"(at most {most} apart): another engine answered a part of the requests"
            )
    if c.miscounted is not None and c.miscounted > limit:
        differ.append(
            f"answers with the same text or as many token ids have {formatting.share(c.miscounted, 0)} more or fewer "
            f"tokens on the candidate (at most {formatting.limit(limit, 'share')}): its usage records cannot be right"
        )
    outcome = Outcome.MISSING if differ else Outcome.PASS
    return RuleResult(
        outcome, "; ".join(differ or agree), widest, limit, None, c.candidate.requests, "share"
    )


def _judge_users_load(case: Case, _: Rule) -> RuleResult:
    users, gap = case.analysis.users, case.analysis.users_load_gap
    if users is None or not case.analysis.placement.copies_baseline:
        return RuleResult(Outcome.SKIP, "the service was not measured next to its users")
    passes = not gap or USERS_LOAD in case.analysis.accepted
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
    needed = None
    if outcome is Outcome.PASS and (why := _ends_early(case)):
        outcome, text = Outcome.UNDECIDED, f"{text}; {why}"
    elif outcome is Outcome.UNDECIDED:
        nearest = limit if interval.value >= 1.0 else 1.0 / limit
        needed, advice = more_needed(
            case, replace(threshold_of(case, rule), limit=nearest), interval
        )
        text += advice
    return RuleResult(
        outcome, text, interval.value, limit, interval, c.candidate.requests, "x", needed
    )


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
        "errors",
        _judge_errors,
        "max_failed_excess",
        "The candidate must not fail more requests than the baseline by more than a small share, failures before the "
        "rounds included; it is rejected only for failures that cannot be chance (McNemar's exact test).",
        about_answers=True,
    ),
    Rule(
        "arms",
        _judge_arms,
        "",
        "The arms must differ in speculation alone: the same model, device, engine version, served context and "
        "arguments, as far as they are known.",
        fixed="0 differences, but for those that --accept names",
        guards_speed=True,
    ),
    Rule(
        "open loop",
        _judge_open_loop,
        "",
        "At a rate of requests a block must be long enough for a queue to form.",
        fixed=f"{_QUEUE_FACTOR} requests of a block for each that is in flight",
        unit="prompts",
        direction=Direction.MINIMUM,
        guards_speed=True,
        needs_idle_engines=True,
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
        "samples",
        _judge_samples,
        "min_compared",
        "Enough prompts must be answered by both arms.",
        direction=Direction.MINIMUM,
    ),
    Rule(
        "repeats",
        _judge_repeats,
        "max_repeated",
        "Few prompts may be sent to an engine twice, and to one that keeps its answers few that are nearly equal: a "
        "repeat flatters prefix caches and suffix decoding.",
    ),
    Rule(
        "tokens",
        _judge_tokens,
        "max_token_gap",
        "The engine must count the tokens of its answers' usage records; otherwise something else used that arm.",
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
