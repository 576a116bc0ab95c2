"""Give a promoted candidate copies of the users' requests before users meet it, and compare the arms on them.

The gate has promoted it on recorded prompts by then. Users get the baseline's answers only, so a candidate that does
badly on their traffic harms nobody and goes no further.
"""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.errors import MpctlError
from mpctl.experiment.traffic import UsersTraffic
from mpctl.gate.rule import Outcome
from mpctl.gate.rules.users import judge_traffic
from mpctl.gate.users_traffic import compare_traffic
from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation, StepResult
from mpctl.rollout.steps.traffic.users import collect
from mpctl.stats.sequential import FIRST_LOOK


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


def mirror(context: Context, operation: Operation) -> Mirrored:
    """Mirror the plan's share of the requests until they decide, for as long as a traffic step lasts, and at least
    until the first interim analysis.

    Raises:
        MpctlError: the candidate does not do well on them, or the route is not as it was written; the rollout is
            undone.
    """
    plan = operation.plan
    percent, policy, seconds = plan.mirror_percent, plan.policy, plan.step_duration_s
    planned = max(FIRST_LOOK, int(seconds / policy.traffic_window_s) - 1)
    traffic = collect(context, operation, percent, UsersTraffic(planned=planned, copies=True))
    figures = compare_traffic(traffic, policy)
    context.progress.note(f"mirrored {percent} %: {figures.describe()}")
    failed = [rule.message for rule in judge_traffic(traffic, policy) if rule.outcome is Outcome.FAIL]
    if failed:
        raise MpctlError(f"the candidate on copies of {percent} % of the requests: {'; '.join(failed)}")
    ratios = (figures.tpot_ratio, figures.ttft_ratio, figures.length_ratio)
    return Mirrored(
        percent,
        figures.windows,
        figures.baseline_requests,
        figures.candidate_requests,
        *(None if ratio is None else ratio.value for ratio in ratios),
    )
