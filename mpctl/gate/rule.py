"""A rule of the gate: its input, its row and its result."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, StrEnum

from mpctl.experiment.block import BASELINE, CANDIDATE
from mpctl.experiment.run import ArmConditions, Calibration, PromptSet
from mpctl.gate.analysis import Analysis, Comparison, Stages
from mpctl.gate.policy import Policy
from mpctl.stats.confidence import Interval, excess_interval


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
    def counting_level(self) -> float:
        """The significance level of a counting test that can reject at every interim analysis."""
        return self.stages.counting_level

    @property
    def baseline(self) -> ArmConditions | None:
        """The baseline's conditions, where they are known."""
        return self.analysis.run.arms.get(BASELINE)

    @property
    def candidate(self) -> ArmConditions | None:
        """The candidate's conditions, where they are known."""
        return self.analysis.run.arms.get(CANDIDATE)

    @property
    def has_draft_model(self) -> bool | None:
        """True when the candidate drafts with a model or a head; None where its method is unknown."""
        spec = self.candidate.speculation if self.candidate else None
        return None if spec is None else spec.known is None or spec.known.loads_weights

    @property
    def prompts(self) -> PromptSet | None:
        """The source of the prompts, where it is known."""
        return self.analysis.run.prompts.get(self.comparison.cell.traffic)

    @property
    def calibration(self) -> Calibration | None:
        """The load client's own error, where it was calibrated."""
        return self.analysis.run.calibration


class Direction(Enum):
    """The side of its limit on which a figure passes."""

    MINIMUM = "at least"
    MAXIMUM = "at most"
    EITHER_WAY = (
        "at most, either way"  # a ratio may be neither above the limit nor below its reciprocal
    )


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
    forecast: bool = (
        False  # a mean over rounds: the stop for futility forecasts whether it will decide
    )
    over_all_cells: bool = False  # it may be shown over all cells together
    about_answers: bool = (
        False  # about the answers themselves: no share of the traffic excuses a failure
    )
    guards_speed: bool = (
        False  # while its data is missing, neither arm's speed is its own, and no speed rejects
    )
    fixed: str = (
        ""  # the number that no policy changes, with its unit, of a rule without a limit of its own
    )
    needs_idle_engines: bool = False  # prompts do not answer it while users are on the engines

    def __call__(self, case: Case) -> RuleResult:
        return replace(self.judge(case, self), rule=self.name)


def judge_estimate(value: float | None, interval: Interval | None, limit: float) -> Outcome:
    """Judge a figure that passes by its estimate: at or above the limit it passes, and it fails only when its whole
    interval lies below."""
    if value is None:
        return Outcome.MISSING
    if value >= limit:
        return Outcome.PASS
    below = interval is not None and interval.below(limit, strictly=True)
    return Outcome.FAIL if below else Outcome.UNDECIDED


def more_to_pass(
    worse: int, better: int, n: int, limit: float, *, failing: bool = True
) -> int | None:
    """Return how many more prompts the rule *errors* would pass with; None where no number would. ``failing``: requests
    go on failing as they did, else no more of them fail."""

    def enough(total: int) -> bool:
        failed, answered = (
            round(hits * total / n) if failing and n else hits for hits in (worse, better)
        )
        return excess_interval(failed, answered, total).below(limit)

    most = 20 * n + 400
    return bisect.bisect_left(range(most), True, lo=n + 1, key=enough) - n if enough(most) else None
