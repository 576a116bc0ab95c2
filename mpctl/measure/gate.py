"""The gate: two measurements and a policy in, a verdict with its reasons out.

Rules are joint: TPOT may improve while throughput falls and requests queue (published raw data holds such a cell: TPOT
1.60x better, throughput 0.60x, because the draft ate the KV pool), so no single figure promotes. A rule whose data is
missing makes the verdict undecided, never a pass; one rule that says no outweighs any number of missing ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mpctl.measure.analysis import Comparison, ratio
from mpctl.measure.policy import Policy


class Outcome(StrEnum):
    """What the gate says: of one rule (pass, fail, missing) or of the whole (promote, reject, undecided)."""

    PASS = "pass"
    FAIL = "fail"
    MISSING = "missing"
    PROMOTE = "promote"
    REJECT = "reject"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class RuleResult:
    """One rule: its name, what it says, the sentence with value and limit."""

    rule: str
    outcome: Outcome
    message: str

    def to_record(self) -> dict[str, str]:
        """A JSON object."""
        return {"rule": self.rule, "outcome": self.outcome.value, "message": self.message}


@dataclass(frozen=True)
class Verdict:
    """promote, reject or undecided, with every rule's result in the order they are listed."""

    outcome: Outcome
    rules: tuple[RuleResult, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """The messages that decided: of failed rules, else of missing ones, else of all."""
        for wanted in (Outcome.FAIL, Outcome.MISSING):
            found = tuple(r.message for r in self.rules if r.outcome is wanted)
            if found:
                return found
        return tuple(r.message for r in self.rules)

    def to_record(self) -> dict[str, Any]:
        """A JSON object."""
        return {"outcome": self.outcome.value, "rules": [r.to_record() for r in self.rules]}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Verdict:
        """The value :meth:`to_record` wrote."""
        rules = tuple(RuleResult(r["rule"], Outcome(r["outcome"]), r["message"]) for r in record["rules"])
        return cls(Outcome(record["outcome"]), rules)


def assess(comparison: Comparison, policy: Policy) -> Verdict:
    """Judge a comparison. Any failed rule rejects; otherwise any missing datum leaves it undecided."""
    rules = tuple(rule(comparison, policy) for rule in RULES)
    outcomes = {r.outcome for r in rules}
    if Outcome.FAIL in outcomes:
        return Verdict(Outcome.REJECT, rules)
    return Verdict(Outcome.UNDECIDED if Outcome.MISSING in outcomes else Outcome.PROMOTE, rules)


def assess_errors(c: Comparison, policy: Policy) -> RuleResult:
    """No request may fail on the candidate that the baseline answers."""
    arm = c.candidate
    if not arm.requests:
        return RuleResult("errors", Outcome.MISSING, "no request was sent to the candidate")
    text = f"{arm.failed} of {arm.requests} requests failed, {c.baseline.failed} on the baseline"
    if c.newly_failed:
        return RuleResult(
            "errors",
            Outcome.FAIL,
            f"{text}; the candidate failed {c.newly_failed} that the baseline answered; first: {arm.first_error}",
        )
    return RuleResult("errors", Outcome.PASS, text)


def assess_tokens(c: Comparison, policy: Policy) -> RuleResult:
    """The engine's own count must be that of the usage records, or something else used that arm meanwhile: on the
    candidate it hides in tokens per step, on the baseline it slows what the candidate is held against."""
    agree: list[str] = []
    apart: list[str] = []
    for arm in (c.baseline, c.candidate):
        counted = arm.window.generation_tokens if arm.window else 0.0
        if not counted:
            apart.append(f"the {arm.arm}'s engine counted no token")
            continue
        gap = abs(counted - arm.output_tokens) / counted
        text = (
            f"{arm.arm}: {arm.output_tokens} tokens by usage, {counted:.0f} by the engine "
            f"(limit {policy.max_token_gap:.0%} apart)"
        )
        (apart if gap > policy.max_token_gap else agree).append(text)
    return RuleResult("tokens", Outcome.MISSING if apart else Outcome.PASS, "; ".join(apart or agree))


def assess_samples(c: Comparison, policy: Policy) -> RuleResult:
    """Fewer paired prompts than the policy asks decide nothing."""
    enough = c.compared >= policy.min_compared
    text = f"{c.compared} prompts answered by both arms, at least {policy.min_compared} needed"
    if c.textless:
        text += f"; {c.textless} more were answered without text and cannot be compared (a reasoning parser?)"
    return RuleResult("samples", Outcome.PASS if enough else Outcome.MISSING, text)


def assess_outputs(c: Comparison, policy: Policy) -> RuleResult:
    """Greedy outputs must not change: speculation is to be exact."""
    if not c.compared:
        return RuleResult("outputs", Outcome.MISSING, "no prompt was answered by both arms with text")
    share = c.different / c.compared
    text = f"{c.different} of {c.compared} greedy outputs differ (limit {policy.max_different:.0%})"
    return RuleResult("outputs", Outcome.FAIL if share > policy.max_different else Outcome.PASS, text)


def assess_tokens_per_step(c: Comparison, policy: Policy) -> RuleResult:
    """Tokens per step tell whether drafts are accepted at all, steps without a draft included."""
    window = c.candidate.window
    if policy.min_tokens_per_step > 0 and window is not None and not window.speculating:
        return RuleResult(
            "tokens per step",
            Outcome.FAIL,
            "the candidate has no spec_decode counters: speculation is not on in the running engine",
        )
    value = window.tokens_per_step if window else None
    return _at_least("tokens per step", value, policy.min_tokens_per_step, "")


def assess_throughput(c: Comparison, policy: Policy) -> RuleResult:
    """Throughput over the same prompts is what the user pays for."""
    return _at_least("throughput", c.speedup, policy.min_speedup, "x the baseline's")


def assess_tpot(c: Comparison, policy: Policy) -> RuleResult:
    """Median time per output token."""
    value = ratio(c.candidate.tpot_ms, c.baseline.tpot_ms)
    if value is None:
        return RuleResult("TPOT", Outcome.MISSING, "TPOT was not measured on both arms")
    text = f"TPOT {value:.2f}x the baseline's (limit {policy.max_tpot_ratio:.2f}x)"
    return RuleResult("TPOT", Outcome.FAIL if value > policy.max_tpot_ratio else Outcome.PASS, text)


def assess_ttft(c: Comparison, policy: Policy) -> RuleResult:
    """Median time to first token: a queue that forms because the draft took memory shows here."""
    base, cand = c.baseline.ttft_ms, c.candidate.ttft_ms
    if base is None or cand is None:
        return RuleResult("TTFT", Outcome.MISSING, "TTFT was not measured on both arms")
    limit = max(base * policy.max_ttft_ratio, base + policy.ttft_slack_ms)
    text = f"TTFT {cand:.1f} ms, baseline {base:.1f} ms (limit {limit:.1f} ms)"
    return RuleResult("TTFT", Outcome.FAIL if cand > limit else Outcome.PASS, text)


def _at_least(rule: str, value: float | None, limit: float, unit: str) -> RuleResult:
    if value is None:
        return RuleResult(rule, Outcome.MISSING, f"{rule} was not measured")
    text = f"{rule} {value:.2f}{unit} (at least {limit:.2f}{unit and 'x'})"
    return RuleResult(rule, Outcome.PASS if value >= limit else Outcome.FAIL, text)


RULES: tuple[Callable[[Comparison, Policy], RuleResult], ...] = (
    assess_errors,
    assess_samples,
    assess_tokens,
    assess_outputs,
    assess_tokens_per_step,
    assess_throughput,
    assess_tpot,
    assess_ttft,
)
