"""The preconditions of a comparison, as one rule with its reasons: the arms differ in speculation alone, each answered
these requests and no others, and neither had an advantage that speculation does not bring.

Where a reason is missing data, the speed of neither arm is its own, so it neither promotes nor rejects: two equal
engines were measured as 7.6x and as 0.29x, depending on which of them had served the prompts before. The other reasons
leave a gain open and take nothing from a loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from mpctl import formatting
from mpctl.experiment.arm import ArmSummary
from mpctl.experiment.run import ArmConditions
from mpctl.gate.analysis import Comparison
from mpctl.gate.arms import is_difference, open_differences
from mpctl.gate.rule import Case, Outcome, Rule, RuleResult
from mpctl.stats.sequential import FIRST_LOOK

QUEUE_FACTOR = 10  # requests of a block for each that is in flight
FEWEST_PROMPTS = 8  # answered by both arms
_ANSWERS_KEPT = "suffix_decoding_max_cached_requests"
Reasons = Iterator[tuple[Outcome, str]]


def judge_comparable(case: Case, _: Rule) -> RuleResult:
    """Judge all preconditions. While users are on the engines, prompts answer only some of them."""
    judges = [_arms, _prompts, _repeats]
    if not case.analysis.run.placement.users_set_load:
        judges += [_open_loop, _tokens, _caches]
    reasons = [reason for judge in judges for reason in judge(case)]
    open_ = [reason for reason in reasons if reason[0] in (Outcome.MISSING, Outcome.UNDECIDED)]
    outcomes = [outcome for outcome, _ in open_]
    worst = Outcome.MISSING if Outcome.MISSING in outcomes else Outcome.UNDECIDED
    return RuleResult(
        worst if open_ else Outcome.PASS,
        "; ".join(text for _, text in open_ or reasons),
        n=case.comparison.candidate.requests,
    )


def _passes(passes: bool, otherwise: Outcome = Outcome.MISSING) -> Outcome:
    return Outcome.PASS if passes else otherwise


def _arms(case: Case) -> Reasons:
    if case.baseline is None or case.candidate is None:
        yield Outcome.SKIP, "the conditions of the arms are not recorded"
        return
    different = open_differences(case.analysis.run.arms, case.analysis.run.accepted)
    names = ", ".join(name for name in case.analysis.run.accepted if is_difference(name))
    accepted = f" (accepted: {names})" if names else ""
    text = "no condition but speculation is known to differ"
    if different:
        text = f"the arms differ in more than speculation: {'; '.join(map(str, different))}"
    yield _passes(not different), text + accepted


def _prompts(case: Case) -> Reasons:
    """Fewer prompts are no sample of any traffic. Before the first analysis that decides, nothing needs one."""
    c, analysis = case.comparison, case.analysis
    if c.compared < FEWEST_PROMPTS and analysis.rounds >= min(FIRST_LOOK, analysis.planned):
        text = (
            f"{c.compared} prompts were answered by both arms with text (at least {FEWEST_PROMPTS})"
        )
        if c.textless:
            text += f", {c.textless} more without text (a reasoning parser?)"
        yield Outcome.UNDECIDED, text


def _repeats(case: Case) -> Reasons:
    c, limit, prompts = case.comparison, case.policy.max_repeated, case.prompts
    repeated = c.repeated / c.sent if c.sent else math.inf
    text = "the prompts that were sent are unknown"
    if c.sent:
        text = (
            f"{c.repeated} of {c.sent} prompts of {c.cell.traffic} were sent to the same engine before in this "
            f"measurement (at most {formatting.limit(limit, 'share')})"
        )
    if prompts and prompts.repeated:
        text += f", {prompts.repeated} duplicates in {prompts.name} were left out"
    yield _passes(repeated <= limit, Outcome.UNDECIDED), text
    spec, alike = case.candidate and case.candidate.speculation, prompts.alike if prompts else 0.0
    if alike > limit and spec and spec.known and spec.known.remembers_answers:
        yield (
            Outcome.UNDECIDED,
            f"{formatting.share(alike, 0)} share most of their word sequences with an earlier one, whose answer "
            f"{spec.method} decoding replays: give other prompts, or raise max_repeated if your traffic is like this",
        )


def _open_loop(case: Case) -> Reasons:
    """A queue shows itself after about ten times the requests that are in flight (Little's law)."""
    c, rate = case.comparison, case.comparison.cell.rate
    if rate is None:
        return
    if c.baseline.e2e is None:
        yield Outcome.MISSING, "no request of the baseline was answered"
        return
    wanted = math.ceil(QUEUE_FACTOR * rate * c.baseline.e2e.mean / 1000)
    n = math.floor(c.round_requests)
    text = f"a block sends {n} requests at {rate:g}/s, and one takes {c.baseline.e2e.mean / 1000:.2g} s"
    if n < wanted:
        text += f": no queue can form; --requests {wanted} does, a block then takes about {wanted / rate:.0f} s"
    yield _passes(n >= wanted), text


def _tokens(case: Case) -> Reasons:
    c, limit = case.comparison, case.policy.max_token_gap
    most = formatting.limit(limit, "share")
    for arm in (c.baseline, c.candidate):
        counted = arm.window.generation_tokens if arm.window else 0.0
        gap = abs(counted - arm.output_tokens) / counted if counted else math.inf
        text = f"{arm.arm}: {arm.output_tokens} tokens by usage, {counted:.0f} by the engine (at most {most} apart)"
        if limit < gap and arm.output_tokens < counted:
            text = (
                f"users sent {counted - arm.output_tokens:.0f} tokens to the {arm.arm} meanwhile, "
                f"{formatting.share(gap, 0)} of all (at most {most}); measure beside them with --measure-on pair, or "
                "take the service out of traffic"
            )
        elif limit < gap:
            text += ": it does not count them, or another engine answered a part of the requests"
        yield _passes(gap <= limit, Outcome.UNDECIDED), text
    if c.miscounted is None:
        if not c.cell.greedy and case.policy.min_scored_answers:
            yield (
                Outcome.UNDECIDED,
                "no token ids are recorded, by which the usage of sampled answers could be checked",
            )
    elif c.miscounted > limit:
        yield (
            Outcome.UNDECIDED,
            f"answers with the same text or as many token ids have {formatting.share(c.miscounted, 0)} more or fewer "
            f"tokens on the candidate (at most {most}): its usage records cannot be right",
        )


def _caches(case: Case) -> Reasons:
    c, limit = case.comparison, case.policy.max_cache_gap
    arms = ((c.baseline, case.baseline), (c.candidate, case.candidate))
    shares = [arm.window.prefix_hit_share if arm.window else None for arm, _ in arms]
    surpluses = [surplus for arm, conditions in arms for surplus in _surpluses(arm, conditions)]
    base, cand = shares
    if base is None or cand is None:
        for (arm, _), share in zip(arms, shares, strict=True):
            if share is None and shares != [None, None]:
                yield Outcome.MISSING, f"the {arm.arm}'s engine does not count its prefix cache"
    elif not hits_explained(c):
        text = (
            f"the prefix cache held {formatting.share(cand, 0)} of the candidate's prompt tokens, "
            f"{formatting.share(base, 0)} of the baseline's, and the engines do not tell which of them were of before"
        )
        surpluses.append((abs(base - cand), text))
    for share, text in surpluses:
        advice = "; restart both engines and measure again, or allow it with max_cache_gap"
        yield _passes(share <= limit), text + advice * (share > limit)


def hits_explained(c: Comparison) -> bool:
    """Return whether both arms' hits can be compared with those that the measurement's own prompts explain."""
    windows = (c.baseline.window, c.candidate.window)
    return all(window and window.prefix_expected is not None for window in windows)


def _surpluses(arm: ArmSummary, conditions: ArmConditions | None) -> Iterator[tuple[float, str]]:
    """Yield the share of an arm's prompt tokens whose hits no prompt of the measurement explains, and that of its
    tokens which its process generated before, where its method keeps them; each in words, too."""
    window = arm.window
    if window is not None and window.prefix_queries and window.prefix_expected is not None:
        held, expected = (
            (count or 0.0) / window.prefix_queries
            for count in (window.prefix_hits, window.prefix_expected)
        )
        yield (
            max(held - expected, 0.0),
            f"the prefix cache held {formatting.share(held, 0)} of the {arm.arm}'s prompt tokens, the prompts measured "
            f"here explain {formatting.share(expected, 0)}",
        )
    spec, served = (
        (conditions.speculation, conditions.served_tokens) if conditions else (None, None)
    )
    if spec is None or spec.known is None or not spec.known.remembers_answers or served is None:
        return
    total = served + arm.output_tokens
    if total and spec.settings.get(_ANSWERS_KEPT) != 0:
        yield (
            served / total,
            f"{formatting.share(served / total, 0)} of the answers that the {arm.arm}'s suffix decoding can draw on "
            "are of before this measurement",
        )
