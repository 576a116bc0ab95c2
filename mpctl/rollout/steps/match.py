"""Warm the candidate up and check that its draft fits its target.

Only the warm-up prompts are sent: a measured prompt must be new to both arms. They are sent greedily, so that the
draft alone decides what is accepted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mpctl.errors import MpctlError
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import CounterError, Window
from mpctl.experiment.workload import Workload
from mpctl.gate.first_position import MISMATCH_HINT, FirstPosition
from mpctl.gate.rule import Outcome
from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation, StepResult
from mpctl.rollout.ports import Endpoint
from mpctl.rollout.steps.measure import target_of, workload_of


@dataclass(frozen=True)
class Matched(StepResult):
    """Drafts of the warm-up, the acceptance rate at the first position, and the gate's outcome on them."""

    prompts: int
    drafts: int
    accepted: int
    rate: float | None
    limit: float
    outcome: Outcome


def check_match(context: Context, operation: Operation) -> Matched:
    """Warm the candidate up and ask the gate about the first-position acceptance of its draft.

    Raises:
        MpctlError: the draft does not match its target, so the rollout is undone; or the counters cannot be read.
    """
    plan = operation.plan
    context.progress.step("match", f"does {plan.draft} fit {plan.target_model}: first-position acceptance on a warm-up")
    workload = workload_of(context, operation)
    endpoint = target_of(context, plan.arm, plan.spec_text, name="the candidate").endpoint
    match, sent = FirstPosition.of(plan.policy), 0
    for cell, prompts in _warmups(workload):
        match += FirstPosition.of(plan.policy, _drafted(context, endpoint, cell, prompts, workload.max_tokens))
        sent += len(prompts)
        context.progress.update(match.describe())
    if match.outcome is Outcome.FAIL:
        target = plan.target_model or endpoint.model
        raise MpctlError(match.describe_mismatch(draft=plan.draft, target=target), hint=MISMATCH_HINT)
    if match.outcome is not Outcome.PASS:
        context.progress.note(f"{plan.draft}: {match.describe()}; the measurement decides")
    return Matched(sent, match.drafts, match.accepted, match.rate, match.limit, match.outcome)


def _warmups(workload: Workload) -> list[tuple[Cell, tuple[str, ...]]]:
    """The warm-up prompts of every class of traffic, one after the other and greedy."""
    warmups = []
    for kind in workload.traffic:
        cell = next(c for c in workload.cells if c.traffic == kind.name)
        if prompts := workload.warmup_prompts(cell):
            warmups.append((replace(cell, temperature=0.0, rate=None, concurrency=1), prompts))
    return warmups


def _drafted(context: Context, endpoint: Endpoint, cell: Cell, prompts: tuple[str, ...], max_tokens: int) -> Window:
    try:
        sent = context.meter.send(endpoint, prompts, cell, max_tokens)
        return Window.between(sent.before, sent.after)
    except CounterError as error:
        raise MpctlError(f"the warm-up cannot be read: {error}", hint="run the same command again") from error
