"""Watch the promoted arm under users' traffic before the rollout ends.

The baseline is retained meanwhile where that is possible. An arm that does not do well fails the step, and the rollout
is undone like any other that failed. A bake that was interrupted starts over.
"""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation, StepResult
from mpctl.rollout.steps.traffic.live_checks import await_counters, hold, in_words


@dataclass(frozen=True)
class Baked(StepResult):
    """The promoted arm's counters over the bake."""

    seconds: float
    tokens: float | None = None
    drafts: float | None = None
    tokens_per_step: float | None = None


def bake(context: Context, operation: Operation) -> Baked:
    """Check the promoted arm for the plan's time.

    Raises:
        MpctlError: it does not do well; the rollout is undone.
    """
    plan = operation.plan
    seconds = plan.bake_s
    context.progress.step("bake", f"{plan.spec_text} is watched under users' traffic for {seconds:.0f} s")
    start = await_counters(context, plan.arm, None, "promoted")
    window = hold(context, operation, start, seconds, where="after the promotion", promoted=True)
    context.progress.note(f"bake: {in_words(window)}")
    return Baked(seconds, window.generation_tokens, window.drafts, window.tokens_per_step)
