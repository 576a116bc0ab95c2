"""What a Deployment and its pods say of an arm. Pure: objects in, phase and reason out.

KServe's own Ready is not used: it stays True while a surge pod can never be scheduled and while a new pod crashes,
until the Deployment's fixed 600 s are over. What counts is that the Deployment carries the arm's arguments, that it has
seen its own latest version, and that every pod that should be there has these arguments and is ready.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mpctl.platform.kubernetes.service.knative import is_knative, not_alone, of_newest, same_image
from mpctl.rollout.ports import Phase

Json = Mapping[str, Any]

CONTAINER = "kserve-container"
# The kubelet's words for a container that will not start by itself.
_BROKEN = frozenset(
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
# How long a pod may wait for a node before that is a failure. The scheduler tries again within seconds; a node
# autoscaler answers with an event within 30 s, in large clusters within 60 s (cluster-autoscaler FAQ).
UNSCHEDULABLE_S = 60.0
# Events that say a node is on its way (cluster-autoscaler, Karpenter), and that none is.
_GROWS = frozenset(("TriggeredScaleUp", "Nominated"))
_GROWS_NOT = frozenset(("NotTriggerScaleUp",))
_STOP = "serving.kserve.io/stop"
_SPECULATION = ("--speculative", "-sc")


@dataclass(frozen=True)
class Wanted:
    """What the engine's container must be started with. ``whole``: ``args`` are all arguments; else they follow those
    of a ServingRuntime. ``env``: literal values only. ``inherited``: the runtime's own words about speculation, None
    where the runtime cannot be read. ``resolved``: its image may be spelled with the digest of its tag."""

    command: tuple[str, ...] | None
    args: tuple[str, ...]
    whole: bool
    image: str | None
    env: Mapping[str, str] = field(default_factory=dict)
    inherited: tuple[str, ...] | None = None
    resolved: bool = False


@dataclass(frozen=True)
class Seen:
    """``pods``: ready pods of this arm, by name. ``stuck``: names a pod and a reason that must last to count as a
    failure. ``argv`` of the newest pod."""

    phase: Phase
    message: str = ""
    pods: tuple[str, ...] = ()
    argv: tuple[str, ...] | None = None
    matches: bool = False
    restarts: int = 0
    stuck: str = ""


def wanted(isvc: Json, runtime: Json | None = None) -> Wanted:
    """The container's start as the InferenceService asks for it. ``runtime``: the ServingRuntime it uses."""
    predictor = isvc["spec"]["predictor"]
    model = predictor.get("model")
    container: Json = model if model is not None else engine_container(predictor.get("containers") or [])
    command = container.get("command")
    return Wanted(
        command=None if command is None else tuple(command),
        args=tuple(container.get("args") or ()),
        whole=model is None,
        image=container.get("image"),
        env={e["name"]: e.get("value", "") for e in container.get("env") or [] if "valueFrom" not in e},
        inherited=None if runtime is None else _speculating(_runtime_args(runtime)),
        resolved=is_knative(isvc),
    )


def _runtime_args(runtime: Json) -> tuple[str, ...]:
    return tuple(engine_container((runtime.get("spec") or {}).get("containers") or []).get("args") or ())


def _speculating(args: Sequence[str]) -> tuple[str, ...]:
    return tuple(word for word in args if str(word).startswith(_SPECULATION))


def engine_container(containers: Sequence[Json]) -> Json:
    """The engine among a pod's containers: KServe's name, else the first."""
    found = [c for c in containers if c.get("name") == CONTAINER]
    return (found or list(containers) or [{}])[0]


def carries(container: Json, want: Wanted) -> bool:
    """Whether a container is started as wanted. KServe fills in ``{{.Name}}`` and the like, which match anything."""
    args = tuple(container.get("args") or ())
    if len(args) < len(want.args) or (want.whole and len(args) != len(want.args)):
        return False
    tail = args[len(args) - len(want.args) :]
    if not all(_same(asked, found) for asked, found in zip(want.args, tail, strict=True)):
        return False
    # A service without arguments of its own would fit any Deployment, also that of the arm before it.
    head = args[: len(args) - len(want.args)]
    if want.inherited is not None and _speculating(head) != want.inherited:
        return False
    if want.command is not None and tuple(container.get("command") or ()) != want.command:
        return False
    if want.whole and want.image is not None:
        image = str(container.get("image"))
        if not (same_image(want.image, image) if want.resolved else want.image == image):
            return False
    have = {e["name"]: e.get("value", "") for e in container.get("env") or []}
    return all(_same(value, have.get(name, "")) for name, value in want.env.items())


def _same(asked: str, found: str) -> bool:
    return asked == found or "{{" in asked


def started_as(pod: Json, template: Json) -> bool:
    """Whether a pod's container is started as the Deployment's template says.

    What admission adds to every pod is no difference: variables (EKS puts a service account's role into each container)
    and another spelling of the image (a mirror, a digest). Pods of an older template with the same start are told apart
    by the Deployment's own count of updated pods.
    """
    have, asked = ({e["name"]: e for e in one.get("env") or []} for one in (pod, template))  # the last of a name counts
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
    """Command and arguments."""
    return (*(container.get("command") or ()), *(container.get("args") or ()))


def judge(
    isvc: Json,
    deployment: Json | None,
    pods: Sequence[Json],
    events: Sequence[Json] = (),
    runtime: Json | None = None,
) -> Seen:
    """The phase of the arm that ``isvc`` asks for.

    ``events``: of the pods; only needed once something waits. ``runtime``: the ServingRuntime that the service uses.
    """
    if deployment is None:
        return _not_made(isvc)
    template = engine_container(deployment["spec"]["template"]["spec"]["containers"])
    if not carries(template, wanted(isvc, runtime)):
        return Seen(Phase.STARTING, "KServe has not updated the Deployment yet" + _blocked(isvc))
    status = deployment.get("status") or {}
    if int(status.get("observedGeneration") or 0) < int(deployment["metadata"].get("generation") or 0):
        return Seen(Phase.STARTING, "the Deployment's update has not begun")
    replicas = int(deployment["spec"].get("replicas", 1))
    knative = is_knative(isvc)
    alive = [p for p in pods if not p["metadata"].get("deletionTimestamp")]
    # Another revision's pods may have the same start, as after a way back, and are still on their way out.
    mine = of_newest(isvc, alive) if knative else alive
    new = [p for p in mine if started_as(engine_container(p["spec"]["containers"]), template)]
    ready = tuple(sorted(p["metadata"]["name"] for p in new if is_ready(p)))
    restarts = sum(_restarts(p) for p in new)
    updated, available = int(status.get("updatedReplicas") or 0), int(status.get("availableReplicas") or 0)
    settled = int(status.get("replicas") or 0) == replicas
    argv = argv_of(engine_container(new[-1]["spec"]["containers"])) if new else None
    if replicas == 0:
        return Seen(Phase.STARTING, "it is scaled to no pod", restarts=restarts, stuck="no pod")
    if updated >= replicas and available >= replicas and settled and len(ready) >= replicas:
        waits = not_alone(isvc, [p for p in alive if is_ready(p)]) if knative else ""
        return Seen(Phase.STARTING if waits else Phase.READY, waits, ready, argv, True, restarts)
    for pod in new:
        if not is_ready(pod):
            seen = why_waiting(pod, events)
            if seen is not None:
                return Seen(seen.phase, seen.message, ready, argv, bool(argv), restarts, seen.stuck)
    failure = next((c for c in status.get("conditions") or [] if c.get("type") == "ReplicaFailure"), None)
    if failure is not None and failure.get("status") == "True":
        return Seen(Phase.FAILED, f"pods cannot be created: {failure.get('message')}", restarts=restarts)
    message = f"{len(ready)} of {replicas} new pods ready"
    old = len(alive) - len(new)
    if old:
        message += f", {old} old"
    return Seen(Phase.STARTING, message, ready, argv, bool(argv), restarts)


def _not_made(isvc: Json) -> Seen:
    status = isvc.get("status") or {}
    if str((isvc["metadata"].get("annotations") or {}).get(_STOP, "")).lower() == "true":
        return Seen(Phase.STARTING, f"it is stopped by its annotation {_STOP}", stuck="stopped")
    if (status.get("modelStatus") or {}).get("transitionStatus") == "InvalidSpec":
        failure = (status["modelStatus"].get("lastFailureInfo") or {}).get("message", "")
        return Seen(Phase.FAILED, f"KServe cannot use the spec: {failure}{_blocked(isvc)}")
    return Seen(Phase.STARTING, "KServe has not made the Deployment yet" + _blocked(isvc))


def _blocked(isvc: Json) -> str:
    """Conditions of the InferenceService that are not True, with their messages."""
    told = [
        f"{c.get('type')}: {c.get('message')}"
        for c in (isvc.get("status") or {}).get("conditions") or []
        if c.get("status") == "False" and c.get("message") and c.get("severity") != "Info"
    ]
    return f" ({'; '.join(told)})" if told else ""


def is_ready(pod: Json) -> bool:
    """Whether the pod's Ready condition is True."""
    found = (pod.get("status") or {}).get("conditions") or []
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in found)


def with_a_node(wanted: int, pods: Sequence[Json]) -> int:
    """How many of the ``wanted`` pods can be waited for: without those that no node takes, at least one."""
    homeless = [_scheduled(pod).get("status") == "False" for pod in pods]
    return min(wanted, max(1, homeless.count(False))) if any(homeless) else wanted


def _scheduled(pod: Json) -> Json:
    found = (pod.get("status") or {}).get("conditions") or []
    return next((c for c in found if c.get("type") == "PodScheduled"), {})


def why_waiting(pod: Json, events: Sequence[Json]) -> Seen | None:
    """Why a pod is not ready, when there is something to say."""
    name = pod["metadata"]["name"]
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or []:
        state = container.get("state") or {}
        last = (container.get("lastState") or {}).get("terminated") or state.get("terminated") or {}
        ended = f": it ended with code {last['exitCode']}" if "exitCode" in last else ""
        reason = (state.get("waiting") or {}).get("reason")
        if reason in _BROKEN or int(container.get("restartCount") or 0) >= _CRASHES:
            what = reason or "restarts again and again"
            text = (state.get("waiting") or {}).get("message") or ""
            return Seen(Phase.FAILED, f"pod {name}: {what}{ended}{': ' + text if text else ''}")
    if status.get("phase") == "Failed":
        return Seen(Phase.FAILED, f"pod {name} failed: {status.get('reason', '')} {status.get('message', '')}".rstrip())
    mine = [e for e in events if (e.get("involvedObject") or {}).get("uid") == pod["metadata"].get("uid")]
    scheduled = _scheduled(pod)
    if scheduled.get("status") == "True":
        return None
    wanted_claims = _claims(pod)
    grows = _growing(mine)
    failed = next((e for e in reversed(mine) if e.get("type") == "Warning"), None)
    if scheduled.get("status") == "False":
        message = f"pod {name} cannot be scheduled: {scheduled.get('message')}{wanted_claims}"
    elif failed is not None:
        message = f"pod {name} waits: {failed.get('message')}"
    else:
        return None
    if grows is not None:
        return Seen(Phase.STARTING, f"{message}; {grows.get('message')}")
    return Seen(Phase.STARTING, message, stuck=f"{name}/{scheduled.get('reason') or 'events'}")


def _growing(events: Sequence[Json]) -> Json | None:
    """The event that says a node is on its way; None when there is none, or a later one takes it back."""
    told = [e for e in events if e.get("reason") in _GROWS | _GROWS_NOT]
    last = max(told, key=lambda e: str(e.get("lastTimestamp") or e.get("eventTime") or ""), default=None)
    return last if last is not None and last.get("reason") in _GROWS else None


def _claims(pod: Json) -> str:
    """The claims a pod waits for, by the names they have in the cluster."""
    asked = {c["name"]: c for c in (pod.get("spec") or {}).get("resourceClaims") or []}
    made = {c["name"]: c.get("resourceClaimName") for c in (pod.get("status") or {}).get("resourceClaimStatuses") or []}
    told = []
    for name, claim in asked.items():
        source = claim.get("resourceClaimTemplateName") or claim.get("resourceClaimName")
        told.append(f"{made.get(name) or name} (of {source})")
    return f"; it needs claim {', '.join(told)}" if told else ""


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
    """Where the engine listens: its first declared port, else its --port, else KServe's 8080."""
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
    return 8080
