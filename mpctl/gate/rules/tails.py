"""Rules about the slowest hundredth of requests, by the load client's clock. Off unless the policy sets a limit."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mpctl import formatting
from mpctl.experiment.tail import MERGED
from mpctl.gate.case import Case, Rule
from mpctl.gate.outcome import Outcome, RuleResult
from mpctl.gate.thresholds import Threshold, place
from mpctl.stats.alpha_spending import FIRST_LOOK
from mpctl.stats.interval import Interval
from mpctl.stats.quantiles import values_needed

_ALIKE = 1.5  # a client may have so many times the requests of its calibration in flight


def assess_ttft_p99(case: Case) -> RuleResult:
    """The 99th percentile of TTFT must not rise."""
    return _Tail(case, "TTFT", "ttft", case.policy.max_ttft_p99_ratio).assess()


def assess_tpot_p99(case: Case) -> RuleResult:
    """The 99th percentile of TPOT must not rise."""
    return _Tail(case, "TPOT", "tpot", case.policy.max_tpot_p99_ratio).assess()


def assess_e2e_p99(case: Case) -> RuleResult:
    """The 99th percentile of whole requests must not rise."""
    return _Tail(case, "E2E", "e2e", case.policy.max_e2e_p99_ratio).assess()


@dataclass(frozen=True)
class _Tail:
    """A time by ``name``, called ``label``, of which ``limit`` bounds the ratio of 99th percentiles."""

    case: Case
    label: str
    name: str
    limit: float | None

    @property
    def n(self) -> int:
        """Prompts answered by both arms."""
        c = self.case.comparison
        return min(len(c.time_per_token_ratios), c.compared + c.textless)

    def assess(self) -> RuleResult:
        if self.limit is None:
            return RuleResult(Outcome.SKIP, f"max_{self.name}_p99_ratio sets no limit", unit="x")
        if unfit := self._client_unfit(self.limit):
            return self._result(Outcome.MISSING, f"{self.label} p99: {unfit}")
        case = self.case
        wanted = values_needed(0.99, (case.stages.tail or case.stages.exact) / 2)
        if self.n < wanted:
            message = (
                f"{self.label} p99: {self.n} prompts were answered by both arms and {wanted} are needed at this "
                f"interim analysis, {wanted - self.n} more ({values_needed(0.99, 0.05)} for a single analysis at 95%)"
            )
            return self._result(Outcome.UNDECIDED, message, wanted - self.n)
        if not case.stages.tail:
            stage = case.stages.lower
            first = min(FIRST_LOOK, stage.looks)
            needed = math.ceil((first - stage.look) * case.comparison.round_requests)
            message = f"{self.label} p99 is judged from round {first} on, this is round {stage.look}"
            return self._result(Outcome.UNDECIDED, message, needed)
        interval = case.comparison.intervals.get(f"{self.name}_p99")
        if interval is None:
            return self._result(Outcome.MISSING, f"{self.label} p99 was not measured on both arms")
        return self._place(interval, self.limit)

    def _place(self, interval: Interval, limit: float) -> RuleResult:
        threshold = Threshold(f"{self.label} p99", f"{self.name}_p99", limit, least=False)
        outcome = place(interval, threshold)
        text = (
            f"{self.label} p99 {formatting.ratio(interval.value)} the baseline's, {formatting.confidence(interval)} "
            f"over {interval.n} requests ({threshold.text})"
        )
        needed = self._needed(interval, limit) if outcome is Outcome.UNDECIDED else None
        if needed is None:
            return self._result(outcome, text)
        return self._result(outcome, f"{text}; about {needed} more prompts would decide", needed)

    def _needed(self, interval: Interval, limit: float) -> int | None:
        """Return how many more prompts would narrow the interval to its distance from the limit."""
        gap = math.log(interval.value / limit) if limit > 0 else 0.0
        if not gap or not interval.low or interval.high is None:
            return None
        width = math.log(interval.high / interval.low)
        needed = math.ceil(self.n * min((width / gap) ** 2, 100.0)) - self.n
        return needed if needed > 0 else None

    def _result(self, outcome: Outcome, message: str, needed: int | None = None) -> RuleResult:
        interval = self.case.comparison.intervals.get(f"{self.name}_p99")
        value = interval.value if interval else None
        return RuleResult(outcome, message, value, self.limit, interval, self.n, "x", needed)

    def _client_unfit(self, limit: float) -> str:
        """Return why the load client's own times cannot carry this rule, or ""."""
        c, calibration = self.case.comparison, self.case.calibration
        if calibration is None:
            return "the load client was not calibrated, so its own error on the slowest requests is unknown"
        busy = _in_flight(self.case)
        if busy > _ALIKE * calibration.concurrency:
            return (
                f"refused, about {busy:.0f} requests were in flight and the load client was calibrated with "
                f"{calibration.concurrency}; --concurrency {math.ceil(busy)} calibrates it with so many"
            )
        spread = getattr(c.baseline, self.name)
        if spread is None:
            return f"{self.label} was not measured on the baseline"
        # A tenth of the regression to detect is what the client may add (measured error of load clients: peers' p99
        # TTFT is 250 to 630 ms where the truth is 100).
        answered = max(c.baseline.requests - c.baseline.failed, 1)
        tokens = c.baseline.output_tokens / answered if self.name == "tpot" else 1.0
        effect, error = abs(limit - 1.0) * spread.p99, calibration.p99_ms / max(tokens, 1.0)
        if error > effect / 10:
            return (
                f"refused, the load client itself adds {formatting.milliseconds(error)} at p99, more than a tenth of "
                f"the {formatting.milliseconds(effect)} that the limit allows"
            )
        return "" if self.name == "e2e" else self._chunks_merged()

    def _chunks_merged(self) -> str:
        c = self.case.comparison
        for arm in (c.baseline, c.candidate):
            lag = arm.client_lag
            if lag is None:
                return (
                    f"the {arm.arm}'s engine does not report its own time to first token, so whether the load client "
                    "received chunks merged is unknown"
                )
            if lag > MERGED:
                return (
                    f"refused, the load client received chunks of the {arm.arm} merged: {formatting.share(lag, 0)} of "
                    "a request's time went to the wrong token"
                )
        return ""


def _in_flight(case: Case) -> float:
    """Return the requests in flight: the concurrency, or under a rate what Little's law gives."""
    c = case.comparison
    if c.cell.rate is None:
        return float(c.cell.concurrency)
    arms = [a for a in (c.baseline, c.candidate) if a.e2e is not None and a.seconds]
    return max((a.requests / a.seconds * a.e2e.mean / 1000.0 for a in arms if a.e2e is not None), default=0.0)


RULES = (
    Rule("TTFT p99", assess_ttft_p99),
    Rule("TPOT p99", assess_tpot_p99),
    Rule("E2E p99", assess_e2e_p99),
)
