"""What a rule is asked about: one cell, and what is known beside its blocks."""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.experiment.arm import BASELINE, CANDIDATE
from mpctl.experiment.run import ArmConditions, Calibration, PromptSet
from mpctl.gate.analysis import Analysis, Comparison
from mpctl.gate.estimates import Stages
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
        """How sure each side is at this look."""
        a = self.analysis
        return Stages.of(a.policy, look=max(a.look, 1), looks=a.looks, cells=len(a.cells))

    @property
    def exact(self) -> float:
        """The level of a counting test that can reject at any look."""
        return self.stages.exact

    @property
    def baseline(self) -> ArmConditions | None:
        """What the baseline was, where that is known."""
        return self.analysis.arms.get(BASELINE)

    @property
    def candidate(self) -> ArmConditions | None:
        """What the candidate was, where that is known."""
        return self.analysis.arms.get(CANDIDATE)

    @property
    def drafts_with_a_model(self) -> bool | None:
        """Whether the candidate drafts with a model or a head; None where nobody said."""
        spec = self.candidate.spec.split() if self.candidate else []
        if not spec or "://" in spec[0]:  # a server at an address does not say how it drafts
            return None
        method = METHODS.get(spec[0])
        return method is None or method.loads_weights

    @property
    def prompts(self) -> PromptSet | None:
        """Where the prompts came from."""
        return self.analysis.prompts.get(self.comparison.cell.traffic)

    @property
    def calibration(self) -> Calibration | None:
        """What the client adds."""
        return self.analysis.calibration
