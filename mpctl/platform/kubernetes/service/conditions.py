"""Health of an arm from its Deployment and pods. Pure: objects in, phase and reason out.

KServe's Ready condition is not used: it stays True while a surge pod is unschedulable or a new pod crashes, until the
Deployment's fixed 600 s are over. An arm is ready when the Deployment carries its arguments, its controller has
observed the latest generation, and every desired pod has these arguments and is ready.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from mpctl.json_fields import annotations_of, condition, list_at, mapping_at, name_of, value_at
from mpctl.json_types import JsonView
from mpctl.platform.kubernetes.service.container import (
    argv_of,
    engine_container,
    matches_expected,
    matches_template,
)
from mpctl.platform.kubernetes.service.kind_shape import KindShape
from mpctl.platform.kubernetes.service.shapes import shape_of
from mpctl.rollout.ports import Phase

# Waiting reasons of the kubelet that do not resolve without a change.
_BROKEN_REASONS = frozenset(
    (
        "CrashLoopBackOff",
        "ImagePullBackOff",
        "ErrImagePull",
        "InvalidImageName",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    )
)
_CRASHES = 2  # restarts of a pod that never got ready; one may be an unlucky start
# How long a pod may stay unschedulable before the arm fails. The scheduler tries again within seconds; a node
# autoscaler answers with an event within 30 s, in large clusters within 60 s (cluster-autoscaler FAQ).
UNSCHEDULABLE_S = 60.0
# Events of cluster-autoscaler and Karpenter: a node is being added, or none will be.
_SCALE_UP_EVENTS = frozenset(("TriggeredScaleUp", "Nominated"))
_NO_SCALE_UP_EVENTS = frozenset(("NotTriggerScaleUp",))
_STOP = "serving.kserve.io/stop"


@dataclass(frozen=True)
class Health:
    """Phase of an arm with its reason."""

    phase: Phase
    message: str = ""
    pods: tuple[str, ...] = ()  # names of its ready pods
    argv: tuple[str, ...] | None = None  # of the newest pod
    matches: bool = False
    restarts: int = 0
    stuck: str = ""  # pod and reason that become a failure when they last
    image: str = ""  # of the newest pod, as its node reports it


def assess_health(
    isvc: JsonView,
    deployment: JsonView | None,
    pods: Sequence[JsonView],
    events: Sequence[JsonView] = (),
    runtime: JsonView | None = None,
    shape: KindShape | None = None,
) -> Health:
    """Assess the health of the arm that ``isvc`` specifies.

    ``events``: of the pods, needed only for pods that wait. ``runtime``: the service's ServingRuntime. ``shape``: of
    its prefill pods, to assess those.
    """
    if deployment is None:
        return _assess_without_deployment(isvc)
    template = engine_container(deployment["spec"]["template"]["spec"]["containers"])
    shape = shape or shape_of(isvc)
    if not matches_expected(template, shape.expected(isvc, runtime)):
        return Health(
            Phase.STARTING, "KServe has not updated the Deployment yet" + _unmet_conditions(isvc)
        )
    status = mapping_at(deployment, "status")
    if int(status.get("observedGeneration") or 0) < int(
        deployment["metadata"].get("generation") or 0
    ):
        return Health(Phase.STARTING, "the Deployment controller has not observed the update yet")
    replicas = int(deployment["spec"].get("replicas", 1))
    alive = [p for p in pods if not p["metadata"].get("deletionTimestamp")]
    new = [
        p
        for p in shape.newest(isvc, alive)
        if matches_template(engine_container(p["spec"]["containers"]), template)
    ]
    ready = tuple(sorted(name_of(p) for p in new if is_ready(p)))
    restarts = sum(_restarts(p) for p in new)
    updated, available = (
        int(status.get("updatedReplicas") or 0),
        int(status.get("availableReplicas") or 0),
    )
    settled = int(status.get("replicas") or 0) == replicas
    argv = argv_of(engine_container(new[-1]["spec"]["containers"])) if new else None
    if replicas == 0:
        return Health(Phase.STARTING, "scaled to zero pods", restarts=restarts, stuck="no pod")
    if updated >= replicas and available >= replicas and settled and len(ready) >= replicas:
        waits = shape.obstacle(isvc, [p for p in alive if is_ready(p)])
        phase = Phase.STARTING if waits else Phase.READY
        return Health(
            phase, waits, ready, argv, True, restarts, image=_image_of(new[-1]) if new else ""
        )
    if waiting := _first_waiting(new, events, old_pod_stops=len(alive) < len(pods)):
        return replace(waiting, pods=ready, argv=argv, matches=bool(argv), restarts=restarts)
    failure = condition(deployment, "ReplicaFailure")
    if failure.get("status") == "True":
        why = f"pods cannot be created: {failure.get('message')}"
        return Health(Phase.FAILED, why, ready, argv, bool(argv), restarts)
    message = f"{len(ready)} of {replicas} new pods ready"
    old = len(alive) - len(new)
    if old:
        message += f", {old} old"
    return Health(Phase.STARTING, message, ready, argv, bool(argv), restarts)


def _first_waiting(
    pods: Sequence[JsonView], events: Sequence[JsonView], *, old_pod_stops: bool
) -> Health | None:
    """The health of the first pod that waits for something. Until an old pod has finished its requests, a new one that
    waits for its GPU is not stuck."""
    waiting = (assess_waiting_pod(pod, events) for pod in pods if not is_ready(pod))
    health = next((health for health in waiting if health is not None), None)
    if health is not None and health.stuck and old_pod_stops:
        return replace(
            health, stuck="", message=f"{health.message}; an old pod finishes its requests"
        )
    return health


def _image_of(pod: JsonView) -> str:
    """Return the image that a node runs the engine from, with its digest."""
    name = engine_container(pod["spec"]["containers"]).get("name")
    statuses = list_at(pod, "status", "containerStatuses")
    return next(
        (str(status.get("imageID") or "") for status in statuses if status.get("name") == name), ""
    )


def _assess_without_deployment(isvc: JsonView) -> Health:
    status = mapping_at(isvc, "status")
    if str(annotations_of(isvc).get(_STOP, "")).lower() == "true":
        return Health(Phase.STARTING, f"stopped by annotation {_STOP}", stuck="stopped")
    if value_at(status, "modelStatus", "transitionStatus") == "InvalidSpec":
        failure = mapping_at(status, "modelStatus", "lastFailureInfo").get("message", "")
        return Health(
            Phase.FAILED, f"KServe cannot use the spec: {failure}{_unmet_conditions(isvc)}"
        )
    return Health(
        Phase.STARTING, "KServe has not made the Deployment yet" + _unmet_conditions(isvc)
    )


def _unmet_conditions(isvc: JsonView) -> str:
    """Return the unmet conditions of the InferenceService with their messages."""
    messages = [
        f"{c.get('type')}: {c.get('message')}"
        for c in list_at(isvc, "status", "conditions")
        if c.get("status") == "False" and c.get("message") and c.get("severity") != "Info"
    ]
    return f" ({'; '.join(messages)})" if messages else ""


def is_ready(pod: JsonView) -> bool:
    """Return whether the pod's Ready condition is True."""
    return condition(pod, "Ready").get("status") == "True"


def is_draining(pod: JsonView) -> bool:
    """Return whether the pod stops and its grace period, which ends at its deletionTimestamp, is not over yet."""
    ends = pod["metadata"].get("deletionTimestamp")
    return ends is not None and datetime.fromisoformat(str(ends)) > datetime.now(UTC)


def is_troubled(pod: JsonView) -> bool:
    """Return whether events may explain why a pod is not ready: it has no node, or a container of it restarted."""
    return not is_ready(pod) and (_scheduled(pod).get("status") != "True" or _restarts(pod) > 0)


def schedulable_replicas(desired: int, pods: Sequence[JsonView]) -> int:
    """Number of desired replicas that can become ready: excludes unschedulable pods, minimum 1."""
    unschedulable = [_scheduled(pod).get("status") == "False" for pod in pods]
    return min(desired, max(1, unschedulable.count(False))) if any(unschedulable) else desired


def _scheduled(pod: JsonView) -> JsonView:
    return condition(pod, "PodScheduled")


def assess_waiting_pod(pod: JsonView, events: Sequence[JsonView]) -> Health | None:
    """Return the reason why a pod is not ready; None when there is none to report yet."""
    name = name_of(pod)
    status = mapping_at(pod, "status")
    for container in list_at(status, "containerStatuses"):
        state = mapping_at(container, "state")
        last = value_at(container, "lastState", "terminated") or state.get("terminated") or {}
        exit_text = f": exit code {last['exitCode']}" if "exitCode" in last else ""
        reason = value_at(state, "waiting", "reason")
        if reason in _BROKEN_REASONS or int(container.get("restartCount") or 0) >= _CRASHES:
            cause = reason or "restarts repeatedly"
            text = value_at(state, "waiting", "message") or ""
            return Health(
                Phase.FAILED, f"pod {name}: {cause}{exit_text}{': ' + text if text else ''}"
            )
    if status.get("phase") == "Failed":
        return Health(
            Phase.FAILED,
            f"pod {name} failed: {status.get('reason', '')} {status.get('message', '')}".rstrip(),
        )
    mine = [e for e in events if value_at(e, "involvedObject", "uid") == pod["metadata"].get("uid")]
    scheduled = _scheduled(pod)
    if scheduled.get("status") == "True":
        return None
    claims = _pending_claims(pod)
    announced = [e for e in mine if e.get("reason") in _SCALE_UP_EVENTS | _NO_SCALE_UP_EVENTS]
    # The latest event of a node autoscaler counts where it announces a node.
    latest = max(
        announced,
        key=lambda e: str(e.get("lastTimestamp") or e.get("eventTime") or ""),
        default=None,
    )
    scale_up = latest if latest and latest.get("reason") in _SCALE_UP_EVENTS else None
    failed = next((e for e in reversed(mine) if e.get("type") == "Warning"), None)
    if scheduled.get("status") == "False":
        message = f"pod {name} cannot be scheduled: {scheduled.get('message')}{claims}"
    elif failed is not None:
        message = f"pod {name} waits: {failed.get('message')}"
    else:
        return None
    if scale_up is not None:
        return Health(Phase.STARTING, f"{message}; {scale_up.get('message')}")
    return Health(Phase.STARTING, message, stuck=f"{name}/{scheduled.get('reason') or 'events'}")


def _pending_claims(pod: JsonView) -> str:
    """Return the ResourceClaims a pod waits for, by their names in the cluster."""
    claims_by_name = {c["name"]: c for c in list_at(pod, "spec", "resourceClaims")}
    created_names = {
        c["name"]: c.get("resourceClaimName")
        for c in list_at(pod, "status", "resourceClaimStatuses")
    }
    claims = []
    for name, claim in claims_by_name.items():
        source = claim.get("resourceClaimTemplateName") or claim.get("resourceClaimName")
        claims.append(f"{created_names.get(name) or name} (of {source})")
    return f"; it needs claim {', '.join(claims)}" if claims else ""


def _restarts(pod: JsonView) -> int:
    return sum(int(c.get("restartCount") or 0) for c in list_at(pod, "status", "containerStatuses"))


def cold_start_s(pod: JsonView) -> float | None:
    """Seconds from a pod's creation to its readiness, None when it was never ready."""
    ready = condition(pod, "Ready")
    if ready.get("status") != "True" or _restarts(pod):
        return None
    times = [pod["metadata"].get("creationTimestamp"), ready.get("lastTransitionTime")]
    if not all(times):
        return None
    begun, done = (datetime.fromisoformat(str(t)) for t in times)
    return max(0.0, (done - begun).total_seconds())


def unmet_conditions(isvc: JsonView) -> tuple[str, ...]:
    """Return the unmet conditions of a service with KServe's reasons."""
    return tuple(
        f"{c.get('type')}: {c.get('message') or c.get('reason')}"
        for c in list_at(isvc, "status", "conditions")
        if c.get("status") == "False" and c.get("severity") != "Info" and not is_at_rest(c)
    )


def is_at_rest(condition: JsonView) -> bool:
    """Return whether a condition that is False says only that no update is under way, as of a LeaderWorkerSet."""
    stuck = condition.get("reason") == "ProgressDeadlineExceeded"
    return condition.get("type") in ("Progressing", "UpdateInProgress") and not stuck
