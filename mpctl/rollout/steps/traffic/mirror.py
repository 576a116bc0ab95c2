"""Give the candidate copies of the users' requests, and compare both engines over the same time.

The gate has promoted it on recorded prompts by then. Users get the baseline's answers only, so a candidate that does
badly on their traffic harms nobody and goes no further.
"""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.errors import MpctlError
from mpctl.experiment.counters import CounterError, Counters, Window
from mpctl.gate.first_position import judge_served_drafts
from mpctl.gate.mirrored import Pair, compare_mirrored, is_slice, judge_mirrored
from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation, StepResult
from mpctl.rollout.ports import ArmState
from mpctl.rollout.steps.ready import POLL_S
from mpctl.rollout.steps.traffic.live_checks import await_counters
from mpctl.rollout.steps.traffic.redirect import route_of

_SLICES = 20  # of the step's time; one gives one ratio
_SHORTEST_SLICE_S = 1.0


@dataclass(frozen=True)
class Mirrored(StepResult):
    """The share of the requests, and what the engines' counters said. Ratios are candidate over baseline."""

    percent: int
    slices: int = 0
    baseline_requests: int = 0
    candidate_requests: int = 0
    time_per_output_token_ratio: float | None = None
    ttft_ratio: float | None = None
    length_ratio: float | None = None


@dataclass(frozen=True)
class _Reading:
    """Both engines at one moment."""

    baseline: tuple[ArmState, Counters]
    candidate: tuple[ArmState, Counters]

    def since(self, start: _Reading) -> Pair:
        """The windows of both engines since ``start``.

        Raises:
            CounterError: one cannot be subtracted.
        """
        baseline, candidate = (start.baseline[1], self.baseline[1]), (start.candidate[1], self.candidate[1])
        return Window.between(*baseline), Window.between(*candidate)


def mirror(context: Context, operation: Operation) -> Mirrored:
    """Mirror the plan's share of the requests for as long as a traffic step lasts.

    Raises:
        MpctlError: the candidate does not do well on them, or the route is not as it was written; the rollout is
            undone.
    """
    plan = operation.plan
    route, percent, seconds = route_of(operation), plan.mirror_percent, plan.step_duration_s
    context.progress.step("mirror", f"copies of {percent} % of the requests to {plan.spec_text} for {seconds:.0f} s")
    start = _read(context, operation, None)
    context.router.mirror(route, percent)
    pairs: list[Pair] = []
    began = cut = context.clock.now()
    while (passed := (context.clock.now() - began).total_seconds()) < seconds:
        context.clock.sleep(min(POLL_S, seconds - passed))
        context.router.require_mirrored(route, percent)
        now = _read(context, operation, start)
        try:
            pair = now.since(start)
        except CounterError as error:
            raise MpctlError(f"{plan.arm.id} on copies of {percent} % of the requests: {error}") from error
        slices = [candidate for _, candidate in (*pairs, pair)]
        if why := judge_served_drafts(slices, plan.policy, draft_model=bool(plan.draft)):
            raise MpctlError(f"{plan.arm.id} on copies of {percent} % of the requests: {why}")
        lasted = (context.clock.now() - cut).total_seconds()
        if lasted >= max(seconds / _SLICES, _SHORTEST_SLICE_S) and is_slice(pair):
            pairs, start, cut = [*pairs, pair], now, context.clock.now()
        context.progress.update(f"{compare_mirrored(pairs, plan.policy).describe()} ({passed:.0f} s)")
    figures = compare_mirrored(pairs, plan.policy)
    context.progress.note(f"mirrored {percent} %: {figures.describe()}")
    if why := judge_mirrored(figures, plan.policy):
        raise MpctlError(f"{plan.arm.id} on copies of {percent} % of the requests: {why}")
    ratios = (figures.tpot_ratio, figures.ttft_ratio, figures.length_ratio)
    return Mirrored(
        percent,
        figures.slices,
        figures.baseline_requests,
        figures.candidate_requests,
        *(None if ratio is None else ratio.value for ratio in ratios),
    )


def _read(context: Context, operation: Operation, before: _Reading | None) -> _Reading:
    plan = operation.plan
    old, new = (None, None) if before is None else (before.baseline[0], before.candidate[0])
    baseline = await_counters(context, plan.baseline_arm, old, "baseline")
    return _Reading(baseline, await_counters(context, plan.arm, new, "candidate"))
