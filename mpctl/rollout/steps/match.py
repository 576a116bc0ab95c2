"""Warm the candidate up and check that its draft fits its target.

Only the warm-up prompts are sent: a measured prompt must be new to both arms. They are sent greedily, so that the
draft alone decides what is accepted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mpctl.errors import MpctlError
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import CounterError, Window
from mpctl.experiment.workload import Workload
from mpctl.gate.first_acceptance import MISMATCH_HINT, Fit, Match, mismatch_message
from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation
from mpctl.rollout.ports import Endpoint
from mpctl.rollout.steps.measure import target_of, workload_of


def check_match(context: Context, operation: Operation) -> dict[str, Any]:
    """Warm the candidate up and hold its position-0 acceptance against the limit.

    Raises:
        MpctlError: the draft does not match its target, so the way back is taken; or the counters cannot be read.
    """
    plan = operation.plan
    context.progress.step("match", f"does {plan.draft} fit {plan.target_model}: position-0 acceptance on a warm-up")
    workload = workload_of(context, operation)
    endpoint = target_of(context, plan.arm, plan.spec).endpoint
    match, sent = Match(0, 0), 0
    for cell, prompts in _warmups(workload):
        match += _drafted(context, endpoint, cell, prompts, workload.max_tokens)
        sent += len(prompts)
        context.progress.update(match.describe())
    if match.fit is Fit.MISMATCHED:
        raise MpctlError(
            mismatch_message(match, draft=plan.draft, target=plan.target_model or endpoint.model), hint=MISMATCH_HINT
        )
    if match.fit is not Fit.FITS:
        context.progress.note(f"{plan.draft}: {match.describe()}; the measurement decides")
    return {**match.to_record(), "prompts": sent}


def _warmups(workload: Workload) -> list[tuple[Cell, tuple[str, ...]]]:
    """The warm-up prompts of every class of traffic, one after the other and greedy."""
    found = []
    for kind in workload.traffic:
        cell = next(c for c in workload.cells if c.traffic == kind.name)
        if prompts := workload.warmup_prompts(cell):
            found.append((replace(cell, temperature=0.0, rate=None, concurrency=1), prompts))
    return found


def _drafted(context: Context, endpoint: Endpoint, cell: Cell, prompts: tuple[str, ...], max_tokens: int) -> Match:
    try:
        sent = context.meter.send(endpoint, prompts, cell, max_tokens)
        return Match.of(Window.between(sent.before, sent.after))
    except CounterError as error:
        raise MpctlError(f"the warm-up cannot be read: {error}", hint="run the same command again") from error
