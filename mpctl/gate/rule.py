"""A rule of the gate: its input, its row, its result, and the comparison of an interval with a limit.

A rule passes when the whole interval is on the good side of its limit, fails when the whole of it is on the bad side,
and is undecided while the limit lies inside.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, StrEnum

from mpctl import formatting
from mpctl.experiment.block import BASELINE, CANDIDATE
from mpctl.experiment.run import ArmConditions, Calibration, PromptSet
from mpctl.gate.analysis import SETTLED_FROM, Analysis, ArmOrder, Comparison, Stages
from mpctl.gate.policy import Policy
from mpctl.stats.confidence import Interval, excess_interval
from mpctl.stats.sequential import rounds_to_show


class Outcome(StrEnum):
    """The outcome of a rule, or promote, reject or undecided of a cell or a verdict."""

    PASS = "pass"
    FAIL = "fail"
    UNDECIDED = "undecided"  # more data would decide
    MISSING = "missing"  # data is absent, and more requests would not bring it
    SKIP = "skip"  # the rule does not apply
    PROMOTE = "promote"
    REJECT = "reject"


@dataclass(frozen=True)
class RuleResult:
    """The result of a rule in one cell."""

    outcome: Outcome
    message: str  # a sentence with value, limit, interval and n, which the fields hold as figures
    value: float | None = None
    limit: float | None = None  # the policy's, None where the rule has none
    interval: Interval | None = None
    n: int = 0  # requests per arm
    unit: str = ""  # of value and limit, see mpctl.formatting.in_unit
    needed: int | None = None  # requests per arm that would probably decide, None where they are unknown or no help
    rule: str = ""


@dataclass(frozen=True)
class Case:
    """The input of a rule: one cell of an analysis."""

    comparison: Comparison
    analysis: Analysis

    @property
    def policy(self) -> Policy:
        """The limits."""
        return self.analysis.policy

    @property
    def stages(self) -> Stages:
        """Return the significance levels of this interim analysis."""
        return self.analysis.stages

    @property
    def exact(self) -> float:
        """The significance level of a counting test that can reject at every interim analysis."""
        return self.stages.exact

    @property
    def baseline(self) -> ArmConditions | None:
        """The baseline's conditions, where they are known."""
        return self.analysis.arms.get(BASELINE)

    @property
    def candidate(self) -> ArmConditions | None:
        """The candidate's conditions, where they are known."""
        return self.analysis.arms.get(CANDIDATE)

    @property
    def has_draft_model(self) -> bool | None:
        """True when the candidate drafts with a model or a head; None where its method is unknown."""
        spec = self.candidate.speculation if self.candidate else None
        return None if spec is None else spec.known is None or spec.known.loads_weights

    @property
    def prompts(self) -> PromptSet | None:
        """The source of the prompts, where it is known."""
        return self.analysis.prompts.get(self.comparison.cell.traffic)

    @property
    def calibration(self) -> Calibration | None:
        """The load client's own error, where it was calibrated."""
        return self.analysis.calibration


class Direction(Enum):
    """The side of its limit on which a figure passes."""

    MINIMUM = "at least"
    MAXIMUM = "at most"
    EITHER_WAY = "at most, either way"  # a ratio may be neither above the limit nor below its reciprocal


@dataclass(frozen=True)
class Rule:
    """A rule of the gate, with everything that is known of it."""

    name: str
    judge: Callable[[Case, Rule], RuleResult]
    limit: str  # the name of its limit in the policy
    asks: str  # its sentence in `mpctl gate explain`, beside which stands one number: its limit, or ``fixed``
    unit: str = "x"  # of value and limit, see mpctl.formatting.in_unit
    direction: Direction = Direction.MAXIMUM
    label: str = ""  # its figure's name in messages
    figure: str = ""  # the figure of a Comparison that is compared with the limit
    slack: str = ""  # the policy's limit of the difference in ms, which holds where it allows more than the ratio
    strictly: bool = False  # the limit itself does not pass
    forecast: bool = False  # a mean over rounds: the stop for futility forecasts whether it will decide
    over_all_cells: bool = False  # it may be shown over all cells together
    about_answers: bool = False  # about the answers themselves: no share of the traffic excuses a failure
    guards_speed: bool = False  # while its data is missing, neither arm's speed is its own, and no speed rejects
    fixed: str = ""  # the number that no policy changes, with its unit, of a rule without a limit of its own
    needs_idle_engines: bool = False  # prompts do not answer it while users are on the engines

    def __call__(self, case: Case) -> RuleResult:
        return replace(self.judge(case, self), rule=self.name)

    def threshold(self, case: Case, *, detail: str = "") -> Threshold:
        """Return its limit; ``detail``: printed after the value."""
        return Threshold(self, getattr(case.policy, self.limit), self.figure, self.unit, detail)

    def is_bad(self, value: float, limit: float) -> bool:
        """Return whether a value is beyond a limit."""
        match self.direction:
            case Direction.MINIMUM:
                return value < limit
            case Direction.EITHER_WAY:
                return not 1.0 / limit <= value <= limit
        return value > limit


@dataclass(frozen=True)
class Threshold:
    """A rule's limit in one cell."""

    rule: Rule
    limit: float
    figure: str
    unit: str
    detail: str

    @property
    def minimum(self) -> bool:
        """True when a figure passes above the limit."""
        return self.rule.direction is Direction.MINIMUM

    @property
    def text(self) -> str:
        """The limit in words: ``at least 0.95x``."""
        strict, loose = ("above", "at least") if self.minimum else ("below", "at most")
        return f"{strict if self.rule.strictly else loose} {formatting.limit(self.limit, self.unit)}"

    def outcome(self, interval: Interval) -> Outcome:
        """Return on which side of the limit the interval lies: pass, fail or undecided."""
        good, bad = (interval.above, interval.below) if self.minimum else (interval.below, interval.above)
        if good(self.limit, strictly=self.rule.strictly):
            return Outcome.PASS
        return Outcome.FAIL if bad(self.limit, strictly=True) else Outcome.UNDECIDED


def judge_interval(case: Case, rule: Rule) -> RuleResult:
    """Judge the interval of a rule's figure."""
    return judge_threshold(case, rule.threshold(case))


def judge_threshold(case: Case, threshold: Threshold) -> RuleResult:
    """Judge the interval of a threshold's figure."""
    c, label = case.comparison, threshold.rule.label
    interval = c.intervals.get(threshold.figure)
    n = min(c.baseline.requests, c.candidate.requests)
    limit, unit = threshold.limit, threshold.unit
    if interval is None or not math.isfinite(interval.value):
        return RuleResult(Outcome.MISSING, f"{label} was not measured on both arms", None, limit, None, n, unit)
    outcome = threshold.outcome(interval)
    needed, advice = (None, "") if outcome is not Outcome.UNDECIDED else more_needed(case, threshold, interval)
    if outcome is Outcome.PASS and (stalls := contradicting_stalls(case, threshold)):
        outcome, advice = Outcome.UNDECIDED, stalls
    text = (
        f"{label} {formatting.in_unit(interval.value, unit)}{threshold.detail}, "
        f"{formatting.confidence(interval, unit)} over {interval.n} rounds of {c.round_requests:.3g} prompts "
        f"({threshold.text}){_not_in_turns(case)}{advice}"
    )
    return RuleResult(outcome, text, interval.value, limit, interval, n, unit, needed)


def _not_in_turns(case: Case) -> str:
    if case.comparison.order is not ArmOrder.SEPARATE:
        return ""
    most = formatting.limit(case.policy.max_drift, "share")
    return f"; widened by {most}, for what the machine may have changed between the arms"


def contradicting_stalls(case: Case, threshold: Threshold) -> str:
    """Say what the figure may be with every stall and round, where that is beyond the limit: stalls of one arm alone
    are no noise, and a few that were seen may be a sample of more. Empty where it is not."""
    figure = case.comparison.figures.get(threshold.figure)
    pooled = figure.pooled if figure is not None else None
    if pooled is None or not threshold.rule.is_bad(pooled, threshold.limit):
        return ""
    return f"; with its stalls and extreme rounds it may be {formatting.in_unit(pooled, threshold.unit)}"


def judge_estimate(value: float | None, interval: Interval | None, limit: float) -> Outcome:
    """Judge a figure that passes by its estimate: at or above the limit it passes, and it fails only when its whole
    interval lies below."""
    if value is None:
        return Outcome.MISSING
    if value >= limit:
        return Outcome.PASS
    below = interval is not None and interval.below(limit, strictly=True)
    return Outcome.FAIL if below else Outcome.UNDECIDED


def more_needed(case: Case, threshold: Threshold, interval: Interval) -> tuple[int | None, str]:
    """Return the requests per arm that would probably decide, and the advice in words."""
    c, policy = case.comparison, case.policy
    figure = c.figures.get(threshold.figure)
    if figure is None or not math.isfinite(figure.trimmed.spread):
        return None, "; one round does not show how much rounds differ"
    limit = threshold.limit
    gap = math.log(interval.value / limit) if figure.ratio and limit > 0 else interval.value - limit
    alpha = figure.stage.below if gap > 0 else figure.stage.above
    rounds = rounds_to_show(
        figure.gap(abs(gap)), figure.trimmed.spread, alpha, policy.power, trim=figure.trim, settled=SETTLED_FROM
    )
    if rounds is None and abs(gap) <= figure.allowance:
        most = formatting.limit(c.order.margin(policy), "share")
        return None, f"; equal engines may differ by {most} for as long as both live, so more rounds decide nothing"
    if rounds is None:
        return None, "; too close to the limit to tell on which side it is"
    measured = max(c.rounds, interval.n)
    needed = math.ceil(max(rounds - measured, 1) * c.round_requests)
    repeats = max(rounds, measured + 1)
    if case.analysis.rounds >= case.analysis.planned:  # no alpha is left to spend on further rounds
        return needed, f"; a new measurement with --repeats {repeats} would probably decide"
    return needed, f"; about {needed} more prompts would decide (--repeats {repeats})"


def more_to_pass(worse: int, better: int, n: int, limit: float, *, failing: bool = True) -> int | None:
    """Return how many more prompts the rule *errors* would pass with; None where no number would. ``failing``: requests
    go on failing as they did, else no more of them fail."""

    def enough(total: int) -> bool:
        failed, answered = (round(hits * total / n) if failing and n else hits for hits in (worse, better))
        return excess_interval(failed, answered, total).below(limit)

    most = 20 * n + 400
    return bisect.bisect_left(range(most), True, lo=n + 1, key=enough) - n if enough(most) else None
