"""Confirm a promotion by the engine that really serves: another start of the manifest that was measured.

It gets the prompts of the measured rounds again until the comparison is clear. Nothing is rolled back by it, and
nothing of it is part of what the gate judged. A command that died in it repeats it.
"""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.errors import MpctlError
from mpctl.experiment.answer_sets import OFF
from mpctl.experiment.block import BASELINE, CANDIDATE, Block
from mpctl.gate.second_start import FEWEST_ROUNDS, StartGap, judge_start
from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation, StepResult
from mpctl.rollout.ports import Phase
from mpctl.rollout.steps.measure import engines_of

_LONGEST = 3.0  # times as long as the measured blocks, after the fewest rounds that show a spread


@dataclass(frozen=True)
class Confirmation(StepResult):
    """How the engine that serves compares with the measured one, in one sentence. ``gap``: None where it was not
    compared."""

    text: str
    gap: StartGap | None = None


def confirm(context: Context, operation: Operation) -> Confirmation:
    """Compare the engine that serves now with the candidate that was measured. No failure of it fails a rollout."""
    context.progress.step("confirm", "is the engine that serves as fast as the measured one")
    try:
        result = _compare(context, operation)
    except (MpctlError, ValueError, OSError) as error:
        result = Confirmation(f"the engine that serves is not confirmed: {error}".splitlines()[0])
    context.progress.note(result.text)
    return result


def _compare(context: Context, operation: Operation) -> Confirmation:
    plan = operation.plan
    users = plan.users.load
    if users and users.seen:
        raise MpctlError("users load the engine")
    engines = engines_of(context, operation, baseline=plan.baseline_arm)
    records = engines.records
    cell = records.workload.cells[0]
    counted = records.rounds() - 1  # the first does not count, neither here nor for the gate
    if counted < FEWEST_ROUNDS:
        raise MpctlError(f"fewer than {FEWEST_ROUNDS} measured rounds count")
    retained = context.engines.state(plan.baseline_arm).phase is Phase.READY
    arms = (BASELINE, CANDIDATE) if retained else (CANDIDATE,)
    measured = [block for block in records.blocks() if block.cell == cell and block.repeat]
    served: list[Block] = []
    for repeat in range(counted + 1):
        prompts = records.workload.slice(cell, repeat)
        for arm in arms:
            key = f"{records.id}/confirm-{engines.salt(arm)}-{repeat}"
            sent = engines.send(arm, prompts, cell, key=key, ids=plan.fidelity != OFF)
            block = sent.block(cell, arm=arm, repeat=repeat, prompts=prompts)
            tokens = block.window.generation_tokens
            if tokens - block.output_tokens > plan.policy.max_token_gap * tokens:
                raise MpctlError("users sent requests meanwhile")
            served.append(block)
        if repeat < FEWEST_ROUNDS:
            continue
        over = sum(block.duration_s for block in served) > _LONGEST * records.seconds(arms)
        gap = judge_start(measured, served, repeat if over else counted, plan.policy)
        if over or gap.slow or gap.close:
            break
    records.write()
    cut = f"; cut after {_LONGEST:g} times the measured time" if over else ""
    again = f"; {context.command('restart')} starts it once more" if gap.slow else ""
    return Confirmation(gap.describe() + cut + again, gap)
