"""Watch the promoted arm under users' traffic before the rollout ends.

The baseline is retained meanwhile where that is possible. An arm that does not do well fails the step, and the rollout
is undone like any other that failed. It ends early when users' traffic has shown enough. A bake that was interrupted
starts over.
"""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.experiment.counters import Window
from mpctl.gate.first_position import ENOUGH_DRAFTS, served_enough
from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation, StepResult
from mpctl.rollout.steps.traffic.live_checks import PROMOTED_POLL_S, Until, await_counters, hold, in_words

_LEAST_S = 60.0  # an engine that leaks or crashes under load does so after a while
_TICK_S = 60.0


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
    plan, seconds = operation.plan, operation.plan.bake_s
    drafts = plan.spec is not None and plan.spec.config() is not None
    least_s = min(_LEAST_S, seconds) if drafts else seconds
    enough = f"; {ENOUGH_DRAFTS:,} drafts are enough, by which acceptance is known to 3 %" if drafts else ""
    context.progress.step(
        "bake", f"{plan.spec_text} is watched under users' traffic for at most {seconds:.0f} s{enough}"
    )
    context.progress.note(
        f"Ctrl-C leaves {plan.spec_text} serving: '{context.command('resume')}' watches it again, "
        f"'{context.command('rollback')}' restores the baseline"
    )
    ticks = _Ticks(context)
    start = await_counters(context, plan.arm, None, "promoted")
    window = hold(
        context,
        operation,
        start,
        Until(
            least_s,
            seconds,
            lambda polls: served_enough(polls, plan.policy, draft_model=bool(plan.draft)),
            PROMOTED_POLL_S,
        ),
        where="after the promotion",
        describe=ticks.describe,
        promoted=True,
    )
    if not window.generation_tokens:
        judged = f"'{context.command('watch')}' judges those that do"
        context.progress.note(f"bake: no request came, so it showed nothing; {judged}")
    else:
        context.progress.note(f"bake: {in_words(window)}")
    return Baked(ticks.passed, window.generation_tokens, window.drafts, window.tokens_per_step)


class _Ticks:
    """A line a minute with what was counted, and a warning while no request comes."""

    def __init__(self, context: Context) -> None:
        self._context, self._began, self._next, self._warned = context, context.clock.now(), _TICK_S, False

    @property
    def passed(self) -> float:
        """Seconds since the begin."""
        return (self._context.clock.now() - self._began).total_seconds()

    def describe(self, window: Window) -> str:
        """The counted tokens and drafts."""
        if self.passed >= self._next:
            self._next += _TICK_S
            if window.generation_tokens:
                self._context.progress.note(f"bake: {in_words(window)} ({self.passed:.0f} s)")
            elif not self._warned:
                self._warned = True
                self._context.progress.note(
                    f"bake: no request in {self.passed:.0f} s; without users' traffic the bake shows nothing"
                )
        return in_words(window)
