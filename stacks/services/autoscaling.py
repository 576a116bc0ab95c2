"""Limits and targets of a service's autoscaler. The queue wait at which to order a replica is derived from the wait
that users may see.

A replica ordered now serves only after a cold start, and the queue grows meanwhile. The target therefore lies below
the objective, by as much as the wait grows in one cold start.

Model: the load passes the capacity and keeps growing by a share ``g`` of that capacity per second. Then ``t`` seconds
later ``g t^2 / 2`` seconds' worth of work is queued, and that is what a new arrival waits. Ordering when the wait is
``T`` means ordering at ``t0 = sqrt(2 T / g)``; a cold start of ``C`` later the wait is ``g (t0 + C)^2 / 2``. Setting
this peak equal to the objective ``S`` gives ::

    D = g C^2 / 2                     the cold-start debt: the wait gathered in one cold start
    T = (sqrt(S) - sqrt(D))^2         0 < T < S - D, while D < S

(The square root is why "S - D" is not enough: when the order goes out the load already exceeds the capacity.)
With ``D >= S`` no threshold keeps the objective: capacity has to stand by (more minimum replicas), or start faster.
The wait is a mean over pods and a minute, so ``S`` is an objective for the mean (docs/how-to/autoscaling.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mpctl.errors import InputError
from mpctl.yaml_lines import Node

# Seconds from "the wait passes the target" to "a pod is created": scrape 10, rule 10, adapter and HPA sync 15, less the
# overlap of unaligned periods. manifests/autoscaling/hpa.yaml has no stabilisation upwards.
REACTION_S = 30.0

# Seconds from "a pod is created" to "a pod is ready" with image and weights on the node, for a model of 17 GiB.
WARM_START_S = 150.0

# What each GiB adds that is downloaded at every start: about 200 MB/s, by which 17 GiB make a start of 235 s. Assumed;
# a service's own start is measured by `mpctl rollout`.
DOWNLOAD_S_PER_GIB = 5.0

# The mean wait that users may see where nobody says another, and the target that it gives for a warm start.
OBJECTIVE_S, TARGET_MS = 8.0, 1400

# Below this the metric is noise: one request that waits one scrape among a hundred that do not.
FLOOR_MS = 250

STEP_MS = 50


@dataclass(frozen=True)
class QueueWaitTarget:
    """``target_ms`` for the HPA; ``holds`` says whether the objective can be kept by ordering at that wait."""

    target_ms: int
    debt_ms: float
    holds: bool
    reason: str


def queue_wait_target(
    *,
    slo_ms: float,
    start_s: float,
    growth_per_minute: float = 0.01,
) -> QueueWaitTarget:
    """The HPA's target for ``queue_wait_ms``.

    ``slo_ms``: the mean queue wait that users may see. ``start_s``: pod created to pod ready (image and weights on
    the node; add about 600 s where a node has to come first). ``growth_per_minute``: how fast the load grows past the
    capacity, as a share of it. The target is rounded down to a multiple of 50 ms and never below 250 ms.
    """
    numbers = {"slo_ms": slo_ms, "growth_per_minute": growth_per_minute, "start_s": start_s}
    for name, number in numbers.items():
        if not 0 <= number < math.inf or (number == 0 and name != "start_s"):
            raise InputError("must be a positive number", field=name)
    cold_s = start_s + REACTION_S
    debt_ms = 1000 * (growth_per_minute / 60) * cold_s**2 / 2
    wait = (
        f"a cold start of {cold_s:.0f} s at {growth_per_minute:.1%} growth a minute "
        f"adds {debt_ms / 1000:.1f} s of wait"
    )
    exact = (math.sqrt(slo_ms) - math.sqrt(debt_ms)) ** 2 if debt_ms < slo_ms else 0.0
    target = max(FLOOR_MS, STEP_MS * math.floor(exact / STEP_MS))
    if exact >= FLOOR_MS:
        return QueueWaitTarget(
            target, debt_ms, True, f"{wait}, of the {slo_ms / 1000:.1f} s allowed"
        )
    # The start time at which the target would just be the floor.
    spare = math.sqrt(slo_ms / 1000) - math.sqrt(FLOOR_MS / 1000)
    fastest = math.floor(spare * math.sqrt(2 * 60 / growth_per_minute) - REACTION_S)
    hint = (
        f"start in under {fastest} s or keep spare replicas"
        if fastest > 0
        else "keep spare replicas"
    )
    return QueueWaitTarget(
        target, debt_ms, False, f"{wait}, more than the {slo_ms / 1000:.1f} s allow: {hint}"
    )


def reachable_objective_s(start_s: float) -> float:
    """The usual objective, or the least whole seconds that a target of 1400 ms keeps after a slower start."""
    debt_ms = queue_wait_target(slo_ms=1000 * OBJECTIVE_S, start_s=start_s).debt_ms
    least_ms = (math.sqrt(TARGET_MS) + math.sqrt(debt_ms)) ** 2
    return max(OBJECTIVE_S, math.ceil(least_ms / 1000))


@dataclass(frozen=True)
class Autoscaling:
    """``maximum`` pods; None: as many as the cluster's pools have GPUs for. ``wait_ms``, ``busy`` and ``hold``: targets
    of ``queue_wait_ms``, ``engine_busy_ratio`` and ``engine_hold_ratio``. ``reason``: which mean wait the first keeps.
    """

    minimum: int
    maximum: int | None
    wait_ms: int
    reason: str
    busy: float
    hold: float


def read_autoscaling(node: Node, download_gib: int) -> Autoscaling:
    """``autoscaling`` of a service. The target of the wait follows from the objective unless it is given, and the
    objective from how long a pod takes to start. ``download_gib``: what each pod downloads before its engine starts.

    Raises:
        InputError: names file, line and field; the objective cannot be kept by ordering at any wait.
    """
    minimum = node.number("min", 1, low=1, high=1000)
    maximum = node.number("max", low=1, high=1000) if node.has("max") else None
    if maximum is not None and maximum < minimum:
        raise node.error("max", f"{maximum} is below min {minimum}")
    busy, hold = node.value("busy", float, 0.85), node.value("hold", float, 0.6)
    for name, share in (("busy", busy), ("hold", hold)):
        if not 0.1 <= share <= 1:
            raise node.error(name, f"{share} is not between 0.1 and 1")
    if hold >= busy:
        raise node.error("hold", f"{hold} is not below busy {busy}: no pod would ever be given up")
    start_s = node.value("start_s", float, WARM_START_S + DOWNLOAD_S_PER_GIB * download_gib)
    objective_s = node.value("objective_s", float, reachable_objective_s(start_s))
    derived = queue_wait_target(slo_ms=1000 * objective_s, start_s=start_s)
    if not derived.holds and not node.has("wait_ms"):
        raise node.error("objective_s", derived.reason, "raise it, or set wait_ms and a higher min")
    wait_ms = node.number("wait_ms", derived.target_ms, low=50, high=600_000)
    reason = f"for a mean wait of {objective_s:g} s: {derived.reason}"
    if node.has("wait_ms"):
        reason = "as the environment sets it"
    result = Autoscaling(minimum, maximum, wait_ms, reason, busy, hold)
    node.done()
    return result
