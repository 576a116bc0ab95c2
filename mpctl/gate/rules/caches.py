"""Rules about what an engine remembers of earlier requests: its prefix cache, and answers that suffix decoding keeps.

An engine that answered the same prompts before is faster without being so: two equal engines were measured as 7.6x and
as 0.29x, depending on which of them had served the prompts in an earlier measurement.
"""

from __future__ import annotations

import re

from mpctl import formatting
from mpctl.experiment.arm import ArmSummary
from mpctl.experiment.run import ArmConditions
from mpctl.gate.case import Case, Rule
from mpctl.gate.outcome import Outcome, RuleResult
from mpctl.methods import METHODS

_BLOCK = 16  # tokens of a block of the prefix cache; a head computes the last one that matches again
_FORGETS = re.compile(r"suffix_decoding_max_cached_requests\W+0\b")


def assess_caches(case: Case) -> RuleResult:
    """Neither arm may know the prompts from before: their prefix caches must help both alike, and suffix decoding must
    hold no answers of an earlier measurement."""
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
    spec = conditions.spec.split() if conditions else []
    method = METHODS.get(spec[0]) if spec else None
    if conditions is None or method is None or not method.remembers_answers or conditions.served_tokens is None:
        return None
    if _FORGETS.search(" ".join(conditions.argv)):
        return None
    total = conditions.served_tokens + arm.output_tokens
    return conditions.served_tokens / total if total else None


RULES = (Rule("caches", assess_caches),)
