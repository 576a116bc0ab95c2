"""Make an arm the service."""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation, StepResult
from mpctl.rollout.plan import Kind
from mpctl.rollout.steps.traffic.redirect import redirected


@dataclass(frozen=True)
class Promoted(StepResult):
    """The digest of the manifest that is live now."""

    digest: str


def promote(context: Context, operation: Operation) -> Promoted:
    """Make the arm the service: its manifest is the live one, and it gets the traffic."""
    plan = operation.plan
    context.progress.step(operation.begun, f"routing the service to {plan.spec_text}")
    serves = redirected(operation) or plan.kind is Kind.RESTART  # a retained baseline outlives a restart
    context.platform.promote(plan.arm, expect=plan.arms, downtime=plan.downtime, candidate_serves=serves)
    return Promoted(plan.goal.digest)
