"""What the HorizontalPodAutoscaler would order, as a pure function of what it saw.

The rules are those of Kubernetes' documentation of the algorithm (autoscaling/v2): the ratio of the pods' mean to the
target, a tolerance of 10 %, pods without a metric counted as 0 when scaling up and as the target when scaling down,
stabilisation windows over past recommendations, and policies that limit the change within a period.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

TOLERANCE = 0.10


@dataclass(frozen=True)
class Policy:
    """At most ``pods`` or ``percent`` of the replicas at the period's start may be added or removed in it."""

    period_s: float
    pods: int | None = None
    percent: float | None = None

    def room(self, at_start: int) -> int:
        return (
            self.pods if self.pods is not None else math.ceil(at_start * (self.percent or 0) / 100)
        )


@dataclass(frozen=True)
class Behavior:
    """Windows and policies; the defaults are those of manifests/autoscaling/hpa.yaml."""

    up_stabilization_s: float = 0
    up: tuple[Policy, ...] = (Policy(60, percent=100), Policy(60, pods=4))
    down_stabilization_s: float = 900
    down: tuple[Policy, ...] = (Policy(300, pods=1),)


@dataclass(frozen=True)
class Limits:
    target: float
    minimum: int
    maximum: int
    behavior: Behavior = field(default_factory=Behavior)


@dataclass(frozen=True)
class History:
    """Past recommendations and changes as (time, value); the value of a change is the difference in replicas."""

    recommended: tuple[tuple[float, int], ...] = ()
    changed: tuple[tuple[float, int], ...] = ()


def raw_replicas(values: Sequence[float | None], target: float) -> int:
    """The number of replicas before stabilisation; None stands for a pod without a metric."""
    actual_values = [value for value in values if value is not None]
    if not actual_values:
        return len(values)
    ratio = sum(actual_values) / len(actual_values) / target
    if len(actual_values) < len(values):
        assumed = 0.0 if ratio > 1 else target
        rebalanced = (
            (sum(actual_values) + assumed * (len(values) - len(actual_values)))
            / len(values)
            / target
        )
        if (rebalanced > 1) != (ratio > 1):
            return len(values)
        ratio = rebalanced
    if abs(ratio - 1) <= TOLERANCE:
        return len(values)
    return math.ceil(ratio * len(values) - 1e-9)


def desired_replicas(
    now: float,
    values: Sequence[float | None],
    limits: Limits,
    history: History,
    others: Sequence[tuple[Sequence[float | None], float]] = (),
) -> tuple[int, History]:
    """The replicas to set now, and the history for the next call.

    ``others``: values and target of every further metric; the controller follows the one that asks for most.
    """
    current, behavior = len(values), limits.behavior
    largest = max(raw_replicas(*metric) for metric in ((values, limits.target), *others))
    wanted = min(max(largest, limits.minimum), limits.maximum)
    # The controller takes the replicas it finds as its first recommendation.
    past = history.recommended or ((now, current),)
    lowest = min([wanted, *(n for at, n in past if now - at < behavior.up_stabilization_s)])
    highest = max([wanted, *(n for at, n in past if now - at < behavior.down_stabilization_s)])
    settled = lowest if lowest > current else highest if highest < current else current
    changes = history.changed
    if settled > current:
        settled = min(
            settled, max(_bound(now, current, policy, changes, +1) for policy in behavior.up)
        )
        settled = max(settled, current)
    elif settled < current:
        settled = max(
            settled, *(_bound(now, current, policy, changes, -1) for policy in behavior.down)
        )
        settled = min(settled, current)
    longest = max(behavior.up_stabilization_s, behavior.down_stabilization_s)
    rows = tuple((at, n) for at, n in (*past, (now, wanted)) if now - at < longest)
    if settled != current:
        changes = (*changes, (now, settled - current))
    return settled, History(rows, changes)


def _bound(
    now: float, current: int, policy: Policy, changes: Sequence[tuple[float, int]], sign: int
) -> int:
    done = sum(n for at, n in changes if now - at < policy.period_s and n * sign > 0)
    at_start = current - done
    return at_start + sign * policy.room(at_start)
