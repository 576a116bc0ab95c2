"""The input of a gate rule, and the rule itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from mpctl.experiment.arm import BASELINE, CANDIDATE
from mpctl.experiment.run import ArmConditions, Calibration, PromptSet
from mpctl.gate.analysis import Analysis, Comparison
from mpctl.gate.estimates import Stages
from mpctl.gate.outcome import RuleResult
from mpctl.gate.policy import Policy
from mpctl.methods import METHODS


@dataclass(frozen=True)
class Case:
    """One cell of an analysis."""

    comparison: Comparison
    analysis: Analysis

    @property
    def policy(self) -> Policy:
        """The limits."""
        return self.analysis.policy

    @property
    def stages(self) -> Stages:
        """Return the significance levels of this interim analysis."""
        a = self.analysis
        return Stages.of(a.policy, rounds=max(a.rounds, 1), planned=a.planned, cells=len(a.cells))

    @property
    def exact(self) -> float:
        """The significance level of a counting test that can reject at every interim analysis."""
        return self.stages.exact

    @property
    def last(self) -> bool:
        """True when all planned rounds are measured, so that no alpha remains to spend on further rounds."""
        return self.analysis.rounds >= self.analysis.planned

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
        spec = self.candidate.spec.split() if self.candidate else []
        if not spec or "://" in spec[0]:  # an engine at an address does not report its method
            return None
        method = METHODS.get(spec[0])
        return method is None or method.loads_weights

    @property
    def prompts(self) -> PromptSet | None:
        """The source of the prompts, where it is known."""
        return self.analysis.prompts.get(self.comparison.cell.traffic)

    @property
    def calibration(self) -> Calibration | None:
        """The load client's own error, where it was calibrated."""
        return self.analysis.calibration


@dataclass(frozen=True)
class Rule:
    """A named rule of the gate; the docstring of ``judge`` says what it asks."""

    name: str
    judge: Callable[[Case], RuleResult]

    def __call__(self, case: Case) -> RuleResult:
        return replace(self.judge(case), rule=self.name)

    @property
    def asks(self) -> str:
        """The docstring of the rule as one line."""
        return " ".join((self.judge.__doc__ or "").split())
