"""Health of an arm from its Deployment and pods. Pure: objects in, phase and reason out.

KServe's Ready condition is not used: it stays True while a surge pod is unschedulable or a new pod crashes, until the
Deployment's fixed 600 s are over. An arm is ready when the Deployment carries its arguments, its controller has
observed
the latest generation, and every desired pod has these arguments and is ready.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mpctl.platform.kubernetes.service.groups import unready_groups
from mpctl.platform.kubernetes.service.knative import is_knative, not_alone, of_newest, same_image
from mpctl.platform.kubernetes.service.llm import evaluated_argv, merged_container, own_args
from mpctl.platform.kubernetes.service.shape import CONTAINER, engine_container, is_grouped, is_llm, is_plain, shape_of
from mpctl.rollout.ports import Phase

Json = Mapping[str, Any]

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
_SPECULATION = ("--speculative", "-sc")


@dataclass(frozen=True)
class ExpectedContainer:
    """Expected start of the engine's container.

    ``whole``: ``args`` are complete; otherwise they follow those of a ServingRuntime. ``env``: literal values only.
    ``inherited``: the runtime's own speculation arguments; None when the runtime cannot be read. ``resolved``: the
    image may name the digest of its tag. ``merged``: KServe may append arguments of its own.
    """

    command: tuple[str, ...] | None
    args: tuple[str, ...]
    whole: bool
    image: str | None
    env: Mapping[str, str] = field(default_factory=dict)
    inherited: tuple[str, ...] | None = None
    resolved: bool = False
    merged: bool = False

    @property
    def speculates(self) -> bool:
        """Return whether any of it sets speculation."""
        words = (*self.args, *(self.inherited or ()), *self.env.values())
        return any(option in str(word) for word in words for option in _SPECULATION[:1])


@dataclass(frozen=True)
class Health:
    """Phase of an arm with its reason.

    ``pods``: names of its ready pods. ``argv``: of the newest pod. ``stuck``: pod and reason that become a failure when
    they last.
    """

    phase: Phase
    message: str = ""
    pods: tuple[str, ...] = ()
    argv: tuple[str, ...] | None = None
    matches: bool = False
    restarts: int = 0
    stuck: str = ""


def expected_container(isvc: Json, runtime: Json | None = None) -> ExpectedContainer:
    """Return the container start that the service specifies. ``runtime``: its ServingRuntime, or its configs."""
    if is_llm(isvc):
        return _expected(merged_container(isvc, runtime), whole=False, inherited=(), merged=True)
    predictor = shape_of(isvc).pod_of(isvc)
    model = None if is_plain(isvc) else predictor.get("model")
    container: Json = model if model is not None else engine_container(predictor.get("containers") or [])
    inherited = None if runtime is None else _speculation_args(_runtime_args(runtime))
    return _expected(container, whole=model is None, inherited=inherited, resolved=is_knative(isvc))


def _expected(container: Json, **properties: Any) -> ExpectedContainer:
    command = container.get("command")
    return ExpectedContainer(
        command=None if command is None else tuple(command),
        args=tuple(container.get("args") or ()),
        image=container.get("image"),
        env={e["name"]: e.get("value", "") for e in container.get("env") or [] if "valueFrom" not in e},
        **properties,
    )


def _runtime_args(runtime: Json) -> tuple[str, ...]:
    return tuple(engine_container((runtime.get("spec") or {}).get("containers") or []).get("args") or ())


def _speculation_args(args: Sequence[str]) -> tuple[str, ...]:
    return tuple(word for word in args if str(word).startswith(_SPECULATION))


def matches_expected(container: Json, expected: ExpectedContainer) -> bool:
    """Return whether a container starts as expected. Placeholders of KServe such as ``{{.Name}}`` match any value."""
    args = tuple(container.get("args") or ())
    if expected.merged:
        args = own_args(args, expected.args)
    if len(args) < len(expected.args) or (expected.whole and len(args) != len(expected.args)):
        return False
    tail = args[len(args) - len(expected.args) :]
    if not all(_same_value(asked, actual) for asked, actual in zip(expected.args, tail, strict=True)):
        return False
    # A service without own arguments would match any Deployment, including that of the previous arm.
    head = args[: len(args) - len(expected.args)]
    if expected.inherited is not None and _speculation_args(head) != expected.inherited:
        return False
    command = tuple(container.get("command") or ())
    if expected.command is not None and not _same_command(expected.command, command):
        return False
    if expected.whole and expected.image is not None:
        image = str(container.get("image"))
        if not (same_image(expected.image, image) if expected.resolved else expected.image == image):
            return False
    have = {e["name"]: e.get("value", "") for e in container.get("env") or []}
    return all(_same_value(value, have.get(name, "")) for name, value in expected.env.items())


def _same_command(asked: Sequence[str], actual: Sequence[str]) -> bool:
    return len(asked) == len(actual) and all(map(_same_value, asked, actual))


def _same_value(asked: str, actual: str) -> bool:
    return asked == actual or "{{" in asked


def matches_template(pod: Json, template: Json) -> bool:
    """Return whether a pod's container starts as the Deployment's template specifies.

    Additions of admission are ignored: variables (EKS adds the service account's role) and another spelling of the
    image (a mirror, a digest). Pods of an older template with the same start are counted by the Deployment's
    ``updatedReplicas``.
    """
    have, asked = (
        {e["name"]: e for e in container.get("env") or []} for container in (pod, template)
    )  # the last of a name counts
    return (
        tuple(pod.get("command") or ()) == tuple(template.get("command") or ())
        and tuple(pod.get("args") or ()) == tuple(template.get("args") or ())
        and all(
            (have.get(name) or {}).get("value", "") == e.get("value", "")
            for name, e in asked.items()
            if "valueFrom" not in e
        )
    )


def argv_of(container: Json) -> tuple[str, ...]:
    """Command and arguments of a container; vLLM's own where a preset of KServe's evaluates them in a shell."""
    if (evaluated := evaluated_argv(container)) is not None:
        return evaluated
    return (*(container.get("command") or ()), *(container.get("args") or ()))


def assess_health(
    isvc: Json,
    deployment: Json | None,
    pods: Sequence[Json],
    events: Sequence[Json] = (),
    runtime: Json | None = None,
) -> Health:
    """Assess the health of the arm that ``isvc`` specifies.

    ``events``: of the pods, needed only for pods that wait. ``runtime``: the service's ServingRuntime.
    """
    if deployment is None:
        return _assess_without_deployment(isvc)
    template = engine_container(deployment["spec"]["template"]["spec"]["containers"])
    if not matches_expected(template, expected_container(isvc, runtime)):
        return Health(Phase.STARTING, "KServe has not updated the Deployment yet" + _unmet_conditions(isvc))
    status = deployment.get("status") or {}
    if int(status.get("observedGeneration") or 0) < int(deployment["metadata"].get("generation") or 0):
        return Health(Phase.STARTING, "the Deployment controller has not observed the update yet")
    replicas = int(deployment["spec"].get("replicas", 1))
    knative = is_knative(isvc)
    alive = [p for p in pods if not p["metadata"].get("deletionTimestamp")]
    # Pods of another revision may have the same start, for example after a rollback, while they terminate.
    mine = of_newest(isvc, alive) if knative else alive
    new = [p for p in mine if matches_template(engine_container(p["spec"]["containers"]), template)]
    ready = tuple(sorted(p["metadata"]["name"] for p in new if is_ready(p)))
    restarts = sum(_restarts(p) for p in new)
    updated, available = int(status.get("updatedReplicas") or 0), int(status.get("availableReplicas") or 0)
    settled = int(status.get("replicas") or 0) == replicas
    argv = argv_of(engine_container(new[-1]["spec"]["containers"])) if new else None
    if replicas == 0:
        return Health(Phase.STARTING, "scaled to zero pods", restarts=restarts, stuck="no pod")
    if updated >= replicas and available >= replicas and settled and len(ready) >= replicas:
        waits = not_alone(isvc, [p for p in alive if is_ready(p)]) if knative else ""
        waits = unready_groups(isvc) if is_grouped(isvc) else waits
        return Health(Phase.STARTING if waits else Phase.READY, waits, ready, argv, True, restarts)
    for pod in new:
        if not is_ready(pod):
            waiting = assess_waiting_pod(pod, events)
            if waiting is not None and waiting.stuck and len(alive) < len(pods):
                waiting = replace(waiting, stuck="", message=f"{waiting.message}; an old pod finishes its requests")
            if waiting is not None:
                return replace(waiting, pods=ready, argv=argv, matches=bool(argv), restarts=restarts)
    failure = next((c for c in status.get("conditions") or [] if c.get("type") == "ReplicaFailure"), None)
    if failure is not None and failure.get("status") == "True":
        return Health(Phase.FAILED, f"pods cannot be created: {failure.get('message')}", restarts=restarts)
    message = f"{len(ready)} of {replicas} new pods ready"
    old = len(alive) - len(new)
    if old:
        message += f", {old} old"
    return Health(Phase.STARTING, message, ready, argv, bool(argv), restarts)


def _assess_without_deployment(isvc: Json) -> Health:
    status = isvc.get("status") or {}
    if str((isvc["metadata"].get("annotations") or {}).get(_STOP, "")).lower() == "true":
        return Health(Phase.STARTING, f"stopped by annotation {_STOP}", stuck="stopped")
    if (status.get("modelStatus") or {}).get("transitionStatus") == "InvalidSpec":
        failure = (status["modelStatus"].get("lastFailureInfo") or {}).get("message", "")
        return Health(Phase.FAILED, f"KServe cannot use the spec: {failure}{_unmet_conditions(isvc)}")
    return Health(Phase.STARTING, "KServe has not made the Deployment yet" + _unmet_conditions(isvc))


def _unmet_conditions(isvc: Json) -> str:
    """Return the unmet conditions of the InferenceService with their messages."""
    messages = [
        f"{c.get('type')}: {c.get('message')}"
        for c in (isvc.get("status") or {}).get("conditions") or []
        if c.get("status") == "False" and c.get("message") and c.get("severity") != "Info"
    ]
    return f" ({'; '.join(messages)})" if messages else ""


def is_ready(pod: Json) -> bool:
    """Return whether the pod's Ready condition is True."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def is_draining(pod: Json) -> bool:
    """Return whether the pod stops and its grace period, which ends at its deletionTimestamp, is not over yet."""
    from datetime import UTC, datetime

    ends = pod["metadata"].get("deletionTimestamp")
    return ends is not None and datetime.fromisoformat(str(ends).replace("Z", "+00:00")) > datetime.now(UTC)


def is_troubled(pod: Json) -> bool:
    """Return whether events may explain why a pod is not ready: it has no node, or a container of it restarted. One
    that simply starts has none to tell."""
    return not is_ready(pod) and (_scheduled(pod).get("status") != "True" or _restarts(pod) > 0)


def schedulable_replicas(desired: int, pods: Sequence[Json]) -> int:
    """Number of desired replicas that can become ready: excludes unschedulable pods, minimum 1."""
    unschedulable = [_scheduled(pod).get("status") == "False" for pod in pods]
    return min(desired, max(1, unschedulable.count(False))) if any(unschedulable) else desired


def _scheduled(pod: Json) -> Json:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return next((c for c in conditions if c.get("type") == "PodScheduled"), {})


def assess_waiting_pod(pod: Json, events: Sequence[Json]) -> Health | None:
    """Return the reason why a pod is not ready; None when there is none to report yet."""
    name = pod["metadata"]["name"]
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or []:
        state = container.get("state") or {}
        last = (container.get("lastState") or {}).get("terminated") or state.get("terminated") or {}
        exit_text = f": exit code {last['exitCode']}" if "exitCode" in last else ""
        reason = (state.get("waiting") or {}).get("reason")
        if reason in _BROKEN_REASONS or int(container.get("restartCount") or 0) >= _CRASHES:
            cause = reason or "restarts repeatedly"
            text = (state.get("waiting") or {}).get("message") or ""
            return Health(Phase.FAILED, f"pod {name}: {cause}{exit_text}{': ' + text if text else ''}")
    if status.get("phase") == "Failed":
        return Health(
            Phase.FAILED, f"pod {name} failed: {status.get('reason', '')} {status.get('message', '')}".rstrip()
        )
    mine = [e for e in events if (e.get("involvedObject") or {}).get("uid") == pod["metadata"].get("uid")]
    scheduled = _scheduled(pod)
    if scheduled.get("status") == "True":
        return None
    claims = _pending_claims(pod)
    scale_up = _scale_up_event(mine)
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


def _scale_up_event(events: Sequence[Json]) -> Json | None:
    """Return the latest event of a node autoscaler when it announces a node; None otherwise."""
    announced = [e for e in events if e.get("reason") in _SCALE_UP_EVENTS | _NO_SCALE_UP_EVENTS]
    last = max(announced, key=lambda e: str(e.get("lastTimestamp") or e.get("eventTime") or ""), default=None)
    return last if last is not None and last.get("reason") in _SCALE_UP_EVENTS else None


def _pending_claims(pod: Json) -> str:
    """Return the ResourceClaims a pod waits for, by their names in the cluster."""
    asked = {c["name"]: c for c in (pod.get("spec") or {}).get("resourceClaims") or []}
    made = {c["name"]: c.get("resourceClaimName") for c in (pod.get("status") or {}).get("resourceClaimStatuses") or []}
    claims = []
    for name, claim in asked.items():
        source = claim.get("resourceClaimTemplateName") or claim.get("resourceClaimName")
        claims.append(f"{made.get(name) or name} (of {source})")
    return f"; it needs claim {', '.join(claims)}" if claims else ""


def _restarts(pod: Json) -> int:
    return sum(int(c.get("restartCount") or 0) for c in (pod.get("status") or {}).get("containerStatuses") or [])


def cold_start_s(pod: Json) -> float | None:
    """Seconds from a pod's creation to its readiness, None when it was never ready."""
    from datetime import datetime

    ready: Json = next((c for c in (pod.get("status") or {}).get("conditions") or [] if c.get("type") == "Ready"), {})
    if ready.get("status") != "True" or _restarts(pod):
        return None
    times = [pod["metadata"].get("creationTimestamp"), ready.get("lastTransitionTime")]
    if not all(times):
        return None
    begun, done = (datetime.fromisoformat(str(t).replace("Z", "+00:00")) for t in times)
    return max(0.0, (done - begun).total_seconds())


def port_of(container: Json) -> int:
    """Port of the engine: its first declared port, else its --port, else KServe's 8080 or vLLM's 8000."""
    ports = container.get("ports") or []
    if ports:
        return int(ports[0]["containerPort"])
    args = [str(a) for a in container.get("args") or []]
    for index, word in enumerate(args):
        value = word.partition("=")[2] if word.startswith("--port=") else ""
        if word == "--port" and index + 1 < len(args):
            value = args[index + 1]
        if value.isdigit():
            return int(value)
    return 8080 if container.get("name") in (CONTAINER, None) else 8000  # vLLM's own default outside KServe
