"""The warm-up of a candidate that drafts with weights of its own: does the draft fit its target, before anything is
measured. Only the prompts that warm the arm up anyway are sent, since a measured one must not have been seen before;
they are sent greedily, so that the draft alone decides what is accepted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mpctl.errors import MpctlError
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import CounterError, Window
from mpctl.experiment.workload import Workload
from mpctl.gate.first_acceptance import MISMATCH_HINT, Fit, Match, mismatch_message
from mpctl.rollout import steps
from mpctl.rollout.operation import Operation
from mpctl.rollout.ports import Endpoint

if TYPE_CHECKING:
    from mpctl.rollout.machine import World


def check_match(world: World, operation: Operation) -> dict[str, Any]:
    """Warm the candidate up and hold its position-0 acceptance against the limit.

    Raises:
        MpctlError: the draft does not match its target, so the way back is taken; or the counters cannot be read.
    """
    plan = operation.plan
    world.progress.step("match", f"does {plan.draft} fit {plan.target_model}: position-0 acceptance on a warm-up")
    workload = steps.workload_of(world, operation)
    endpoint = steps.target_of(world, plan.arm, plan.spec).endpoint
    match, sent = Match(0, 0), 0
    for cell, prompts in _warmups(workload):
        match += _drafted(world, endpoint, cell, prompts, workload.max_tokens)
        sent += len(prompts)
        world.progress.update(match.describe())
    if match.fit is Fit.MISMATCHED:
        raise MpctlError(
            mismatch_message(match, draft=plan.draft, target=plan.target_model or endpoint.model), hint=MISMATCH_HINT
        )
    if match.fit is not Fit.FITS:
        world.progress.note(f"{plan.draft}: {match.describe()}; the measurement decides")
    return {**match.to_record(), "prompts": sent}


def _warmups(workload: Workload) -> list[tuple[Cell, tuple[str, ...]]]:
    """The warm-up prompts of every class of traffic, one after the other and greedy."""
    found = []
    for kind in workload.traffic:
        cell = next(c for c in workload.cells if c.traffic == kind.name)
        if prompts := workload.warmup_prompts(cell):
            found.append((replace(cell, temperature=0.0, rate=None, concurrency=1), prompts))
    return found


def _drafted(world: World, endpoint: Endpoint, cell: Cell, prompts: tuple[str, ...], max_tokens: int) -> Match:
    try:
        sent = world.meter.send(endpoint, prompts, cell, max_tokens)
        return Match.of(Window.between(sent.before, sent.after))
    except CounterError as error:
        raise MpctlError(f"the warm-up cannot be read: {error}", hint="run the same command again") from error
