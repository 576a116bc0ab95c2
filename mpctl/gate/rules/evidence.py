"""Rules about the evidence itself: was everything answered, by both, by these engines alone, with the same text."""

from __future__ import annotations

import math

from mpctl.gate.case import Case
from mpctl.gate.outcome import Outcome, RuleResult
from mpctl.gate.thresholds import range_of
from mpctl.stats.confidence import share_interval


def assess_errors(case: Case) -> RuleResult:
    """No more requests may fail on the candidate than on the baseline.

    Of the prompts that one arm alone answered, half would be the candidate's if nothing differed (McNemar's exact
    test), so a service that fails now and then by itself rejects nobody.
    """
    c = case.comparison
    arm, n = c.candidate, c.candidate.requests
    if not n:
        return RuleResult("errors", Outcome.MISSING, "no request was sent to the candidate")
    text = f"{arm.failed} of {n} requests failed, {c.baseline.failed} of {c.baseline.requests} on the baseline"
    worse, better = c.newly_failed, c.newly_answered
    value = worse / n
    if c.unpaired_failed:
        text += f"; {c.unpaired_failed} of them in rounds that the baseline has not, which nothing is held against"
    if worse <= better and c.unpaired_failed:
        return RuleResult("errors", Outcome.MISSING, text, value, 0.0, None, n, "share")
    if worse <= better:
        return RuleResult("errors", Outcome.PASS, text, value, 0.0, None, n, "share")
    chance = _at_least_by_chance(worse, worse + better)
    text += (
        f"; the candidate failed {worse} that the baseline answered, first: {c.new_error}"
        f" (by chance alone in {_percent(chance)}, limit {_percent(case.exact)} at one look)"
    )
    if chance <= case.exact:
        return RuleResult("errors", Outcome.FAIL, text, value, 0.0, None, n, "share")
    more = next((k for k in range(1, 200) if _at_least_by_chance(worse + k, worse + better + k) <= case.exact), 200)
    needed = max(1, round(more * n / max(worse - better, 1)))
    return RuleResult("errors", Outcome.UNDECIDED, text, value, 0.0, None, n, "share", needed)


def assess_samples(case: Case) -> RuleResult:
    """Fewer paired prompts than the policy asks decide nothing."""
    c, limit = case.comparison, case.policy.min_compared
    text = f"{c.compared} prompts answered by both arms in {c.rounds} rounds, at least {limit:g} needed"
    if c.textless:
        text += f"; {c.textless} more were answered without text and cannot be compared (a reasoning parser?)"
        return RuleResult("samples", Outcome.PASS if c.compared >= limit else Outcome.MISSING, text, c.compared, limit)
    if c.compared >= limit:
        return RuleResult("samples", Outcome.PASS, text, c.compared, limit, None, c.compared, "prompts")
    short = max(1, round(limit - c.compared))
    outcome = Outcome.UNDECIDED if c.compared else Outcome.MISSING
    return RuleResult("samples", outcome, text, c.compared, limit, None, c.compared, "prompts", short)


def assess_repeats(case: Case) -> RuleResult:
    """Prompts that an engine saw before flatter whatever replays: prefix caches, suffix decoding."""
    c, limit = case.comparison, case.policy.max_repeated
    known = case.prompts
    source = (
        f"; {known.repeated} more stood repeated in {known.name} and were left out" if known and known.repeated else ""
    )
    if not c.sent:
        return RuleResult("repeats", Outcome.MISSING, f"which prompts were sent is not known{source}", None, limit)
    share = c.repeated / c.sent
    text = (
        f"{c.repeated} of {c.sent} prompts of {c.cell.traffic} were sent to the same engine before (limit {limit:.0%})"
    )
    outcome = Outcome.MISSING if share > limit else Outcome.PASS
    return RuleResult("repeats", outcome, text + source, share, limit, None, c.sent, "share")


def assess_tokens(case: Case) -> RuleResult:
    """The engine's own count must be that of the usage records, or something else used that arm meanwhile: on the
    candidate it hides in tokens per step, on the baseline it slows what the candidate is held against."""
    c, limit = case.comparison, case.policy.max_token_gap
    agree: list[str] = []
    apart: list[str] = []
    widest: float | None = None
    for arm in (c.baseline, c.candidate):
        counted = arm.window.generation_tokens if arm.window else 0.0
        if not counted:
            apart.append(f"the {arm.arm}'s engine counted no token")
            continue
        gap = abs(counted - arm.output_tokens) / counted
        widest = gap if widest is None else max(widest, gap)
        text = f"{arm.arm}: {arm.output_tokens} tokens by usage, {counted:.0f} by the engine (limit {limit:.0%} apart)"
        (apart if gap > limit else agree).append(text)
    outcome = Outcome.MISSING if apart else Outcome.PASS
    n = c.candidate.requests
    return RuleResult("tokens", outcome, "; ".join(apart or agree), widest, limit, None, n, "share")


def assess_outputs(case: Case) -> RuleResult:
    """Greedy outputs must not change, but where two tokens nearly tie: speculation is to be exact."""
    c, limit = case.comparison, case.policy.max_different
    if not c.cell.greedy:
        return RuleResult(
            "outputs", Outcome.SKIP, f"sampled at temperature {c.cell.temperature:g}: texts differ anyway"
        )
    if not c.compared:
        return RuleResult("outputs", Outcome.MISSING, "no prompt was answered by both arms with text", None, limit)
    stage = case.stages.lower
    found = share_interval(c.different, c.compared, case.exact, level=stage.level)
    text = (
        f"{c.different} of {c.compared} greedy outputs differ, {range_of(found, 'share')} "
        f"(limit {limit:.0%}, for near ties)"
    )
    if found.value <= limit:
        return RuleResult("outputs", Outcome.PASS, text, found.value, limit, found, c.compared, "share")
    if found.low > limit:
        return RuleResult("outputs", Outcome.FAIL, text, found.value, limit, found, c.compared, "share")
    needed = _more_to_tell(found.value, limit, c.compared, case.exact)
    text += f"; about {needed} more prompts would decide"
    return RuleResult("outputs", Outcome.UNDECIDED, text, found.value, limit, found, c.compared, "share", needed)


def _more_to_tell(share: float, limit: float, count: int, alpha: float) -> int:
    """How many more answers tell ``share`` from the ``limit`` below it, if it stays: by the normal approximation."""
    from scipy.special import ndtri

    wide = -float(ndtri(alpha)) * math.sqrt(limit * (1 - limit)) / (share - limit)
    return max(math.ceil(wide**2) - count, 1)


def _at_least_by_chance(count: int, of: int) -> float:
    """The probability of ``count`` or more of ``of`` when each is as likely as not."""
    if count <= 0:
        return 1.0
    from scipy.special import bdtrc

    return float(bdtrc(count - 1, of, 0.5))


def _percent(share: float) -> str:
    return f"{share:.2%}" if share >= 0.0001 else "under 0.01%"
