"""Reads a service and its arms: InferenceService, Deployment, pods and the answers of the running engine.

While mpctl waits, it sends at most two requests per second to the API server, however often the caller polls; the
first reads of a command are not delayed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from mpctl import commands
from mpctl.errors import InputError, MpctlError, NotPermitted
from mpctl.experiment.counters import CounterError, Counters, samples
from mpctl.manifest import masked
from mpctl.manifest.engine.engine_port import port_of
from mpctl.platform import http
from mpctl.platform.kubernetes.api.api_client import CannotWatch, Client
from mpctl.platform.kubernetes.api.kinds import DEPLOYMENT, EVENT, INFERENCE_SERVICE, POD, SECRET, ObjectKind
from mpctl.platform.kubernetes.api.port_forward import Forwards, ForwardTarget
from mpctl.platform.kubernetes.api.replies import Json
from mpctl.platform.kubernetes.service.conditions import (
    UNSCHEDULABLE_S,
    Health,
    assess_health,
    cold_start_s,
    is_ready,
    is_troubled,
)
from mpctl.platform.kubernetes.service.container import answers_tls, engine_container, key_of
from mpctl.platform.kubernetes.service.kind_shape import KindShape
from mpctl.platform.kubernetes.service.shapes import shape_of
from mpctl.rollout.ports import Endpoint, Phase
from mpctl.safe_text import telling_lines, without_requests

READS_PER_S = 2.0
BURST = 20  # reads that are not delayed, as with client-go's limiter: a command without long waits needs about ten
WATCH_S = 10.0  # a pod that crashes changes no Deployment, so it is looked at so often all the same
_NOTHING_AWAITED: tuple[str, Json | None, ObjectKind] = ("", None, DEPLOYMENT)
_OPEN_REQUESTS = ("vllm:num_requests_running", "vllm:num_requests_waiting")


class ReadBudget:
    """Limits requests to ``READS_PER_S`` after a burst of ``BURST``, which the same rate restores."""

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._monotonic, self._sleep = monotonic, sleep
        self._free_at = 0.0

    def wait(self) -> None:
        """Wait until the next read is allowed."""
        delay = self._free_at - BURST / READS_PER_S - self._monotonic()
        if delay > 0:
            self._sleep(delay)

    def spent(self, reads: int) -> None:
        """Count ``reads`` requests."""
        self._free_at = max(self._free_at, self._monotonic()) + reads / READS_PER_S


@dataclass
class _Stuck:
    reason: str
    since: float


@dataclass(frozen=True)
class ServiceWorkload:
    """An arm's service object with its Deployment (or the StatefulSet of its leaders), pods and ServingRuntime or
    configs (None without one)."""

    isvc: Json
    deployment: Json | None
    pods: list[Json] = field(default_factory=list)
    runtime: Json | None = None

    @property
    def name(self) -> str:
        """Name of the InferenceService."""
        return str(self.isvc["metadata"]["name"])

    @property
    def ready(self) -> list[Json]:
        """Pods that Kubernetes sends requests to."""
        return [pod for pod in self.pods if is_ready(pod)]

    @property
    def nodes(self) -> set[str]:
        """Names of the nodes that run the pods."""
        return {str(name) for pod in self.pods if (name := pod["spec"].get("nodeName"))}

    @property
    def engine_image(self) -> str | None:
        """Image of the engine in a pod; None without one."""
        containers = [engine_container(pod["spec"]["containers"]) for pod in self.pods if pod["spec"].get("containers")]
        return next((str(container["image"]) for container in containers if container.get("image")), None)

    @property
    def cold_start_s(self) -> float | None:
        """Longest time a ready pod took to become ready."""
        times = [t for p in self.pods if (t := cold_start_s(p)) is not None]
        return max(times) if times else None


class ServiceReader:
    """Reads the services of one namespace as one user."""

    def __init__(self, client: Client, namespace: str, resource: ObjectKind = INFERENCE_SERVICE) -> None:
        """``resource``: the kind of the service and of its candidate."""
        self.client = client
        self.resource = resource
        self.namespace = namespace
        self.forwards = Forwards(client, namespace)
        self._budget = ReadBudget()
        self._stuck: dict[str, _Stuck] = {}
        self._runtimes: dict[str, Json] = {}
        self._models: dict[str, str] = {}  # by the uid of a pod
        self._reached: dict[str, tuple[str, str]] = {}  # by service: name and uid of the pod that was measured last
        self._awaited: tuple[str, Json | None, ObjectKind] = _NOTHING_AWAITED
        self._may_watch = True

    def isvc(self, name: str) -> Json | None:
        """Return a service's object; None when not found."""
        return self.client.get(self.resource, name, self.namespace)

    def is_defined(self) -> bool:
        """Return whether the cluster knows the service's kind: the definition of KServe's kinds can be removed. True
        where that may not be read."""
        try:
            return self.client.list(self.resource, self.namespace) is not None
        except NotPermitted:
            return True

    def workload(self, isvc: Json) -> ServiceWorkload:
        """Read the Deployment and pods of an InferenceService."""
        shape = shape_of(isvc)
        deployment = self.client.get(shape.workload, shape.workload_name(isvc), self.namespace)
        pods = self.client.list(POD, self.namespace, labels=shape.pod_selector(isvc)) or []
        return ServiceWorkload(isvc, deployment, shape.serving(pods), self._runtime(isvc))

    def _runtime(self, isvc: Json) -> Json | None:
        """The ServingRuntime, read once; None without one, and where it may not be read."""
        name = isvc["metadata"]["name"]
        if name not in self._runtimes:
            try:
                runtime = shape_of(isvc).read_layers(self.client, isvc, self.namespace)
            except NotPermitted:
                return None
            if runtime is None:
                return None
            self._runtimes[name] = runtime
        return self._runtimes[name]

    def configs(self, isvc: Json) -> tuple[str, ...]:
        """The configs that KServe merged into the service, as texts."""
        return shape_of(isvc).config_texts(isvc, self._runtime(isvc))

    def health(
        self, read: Callable[[], ServiceWorkload | None], *, waits_for: str = ""
    ) -> tuple[ServiceWorkload | None, Health]:
        """Read a workload once and assess it, within the read budget. ``read`` returns None when it does not exist.

        ``waits_for``: the arm that a caller polls. Where its last reading was that its pods start, this one waits until
        its Deployment changes, for ``WATCH_S`` at most.
        """
        self._await_change(waits_for)
        workload, health = self._read_health(read)
        if waits_for and health.phase is Phase.STARTING and workload is not None and _is_rolling(workload, health):
            self._awaited = waits_for, workload.deployment, shape_of(workload.isvc).workload
        return workload, health

    def look_again(self) -> None:
        """Do not wait before the next reading."""
        self._awaited = _NOTHING_AWAITED

    def _await_change(self, arm: str) -> None:
        """Wait for a change of the Deployment that this arm's last reading saw; without the right to watch, not at
        all: the read budget limits how often it is read."""
        (awaited, deployment, kind), self._awaited = self._awaited, _NOTHING_AWAITED
        if not arm or arm != awaited or deployment is None or not self._may_watch:
            return
        metadata = deployment["metadata"]
        try:
            with self.rate_limited():
                self.client.changed(kind, metadata["name"], self.namespace, metadata["resourceVersion"], WATCH_S)
        except CannotWatch:
            self._may_watch = False

    def _read_health(self, read: Callable[[], ServiceWorkload | None]) -> tuple[ServiceWorkload | None, Health]:
        with self.rate_limited():
            workload = read()
            if workload is None:
                return None, Health(Phase.ABSENT)
            health = self._assess(workload)
            if health.phase is Phase.READY:
                health = self._with_prefill(workload, health)
            return workload, self._fail_when_stuck(workload, health)

    def _assess(self, workload: ServiceWorkload, shape: KindShape | None = None) -> Health:
        """The health of a workload, with the events of its pods where these may explain why one is not ready."""
        isvc, deployment, pods, runtime = workload.isvc, workload.deployment, workload.pods, workload.runtime
        health = assess_health(isvc, deployment, pods, runtime=runtime, shape=shape)
        if health.phase is Phase.READY or not any(map(is_troubled, pods)):
            return health
        events = self.client.list(EVENT, self.namespace, fields="involvedObject.kind=Pod") or []
        return assess_health(isvc, deployment, pods, events, runtime, shape)

    def _with_prefill(self, workload: ServiceWorkload, health: Health) -> Health:
        """The health of a service whose own pods are ready, and of those that fill its prompts."""
        isvc = workload.isvc
        shape = shape_of(isvc).prefill_of(isvc)
        if shape is None:
            return health
        deployment = self.client.get(shape.workload, shape.workload_name(isvc), self.namespace)
        if deployment is not None and deployment["spec"].get("replicas") == 0:
            return health
        pods = self.client.list(POD, self.namespace, labels=shape.pod_selector(isvc)) or []
        prefill = self._assess(replace(workload, deployment=deployment, pods=pods), shape)
        if prefill.phase is Phase.READY:
            return health
        return replace(health, phase=prefill.phase, message=f"prefill: {prefill.message}", stuck=prefill.stuck)

    @contextmanager
    def rate_limited(self) -> Iterator[None]:
        """Wait until a read is allowed, and count the requests sent meanwhile."""
        self._budget.wait()
        before = self.client.reads
        try:
            yield
        finally:
            self._budget.spent(self.client.reads - before)

    def _fail_when_stuck(self, workload: ServiceWorkload, health: Health) -> Health:
        """Fail an arm that is stuck for the same reason for ``UNSCHEDULABLE_S``; KServe reports it only after 600 s."""
        if not health.stuck:
            self._stuck.pop(workload.name, None)
            return health
        now = time.monotonic()
        stuck = self._stuck.get(workload.name)
        if stuck is None or stuck.reason != health.stuck:
            self._stuck[workload.name] = stuck = _Stuck(health.stuck, now)
        return health if now - stuck.since < UNSCHEDULABLE_S else replace(health, phase=Phase.FAILED)

    # The engine itself

    def endpoint(self, workload: ServiceWorkload, pod_name: str) -> tuple[Endpoint, Counters]:
        """Return the local endpoint of a ready pod's engine, and its counters.

        Raises:
            MpctlError: it does not answer yet.
            NotPermitted: its port or its API key may not be read.
        """
        pod = next(p for p in workload.pods if p["metadata"]["name"] == pod_name)
        container = engine_container(pod["spec"]["containers"])
        port = port_of(container)
        target = self._target(pod)
        token = self._token(container)
        uid = str(pod["metadata"].get("uid"))
        paths = ("/v1/models", "/metrics") if uid not in self._models else ("/metrics",)
        headers = {"/v1/models": {"Authorization": f"Bearer {token}"} if token else {}}
        try:
            answers = {
                path: http.get(
                    f"{target.url}{path}", headers=headers.get(path), socket=target.socket, limit=http.METRICS_BYTES
                )
                for path in paths
            }
        except http.NoAnswer as error:
            refused = self.forwards.refusal(pod_name, port)
            if refused is not None:
                raise refused from error
            raise MpctlError(f"pod {pod_name} is ready, its engine does not answer: {error.message}") from error
        if any(answer.status != 200 for answer in answers.values()):
            statuses = " and ".join(f"{answer.status} on {path}" for path, answer in answers.items())
            raise MpctlError(f"pod {pod_name} is ready, its engine answers {statuses}")
        try:
            if "/v1/models" in answers:
                self._models[uid] = str(answers["/v1/models"].json()["data"][0]["id"])
            model, counters = self._models[uid], Counters.parse(answers["/metrics"].text)
        except (ValueError, KeyError, IndexError, TypeError, CounterError) as error:
            raise MpctlError(f"pod {pod_name}: its engine's answer cannot be read: {error}") from error
        self._reached[workload.name] = pod_name, uid
        inside = _address(pod, port, "https" if answers_tls(container) else "http")
        return Endpoint(target.url, model, token, inside=inside, socket=target.socket), counters

    def _target(self, pod: Json) -> ForwardTarget:
        """Where this machine reaches a pod's engine."""
        container = engine_container(pod["spec"]["containers"])
        return self.forwards.target(pod["metadata"]["name"], port_of(container), tls=answers_tls(container))

    def _metrics(self, pod: Json) -> str:
        target = self._target(pod)
        return http.metrics(target.url, socket=target.socket)

    def lost_pods(self) -> tuple[str, ...]:
        """Return what became of the pods that were measured last and are deleted, evicted or preempted."""
        losses = []
        for name, uid in self._reached.values():
            pods = self.client.list(POD, self.namespace, fields=f"metadata.name={name}") or []
            pod = next((pod for pod in pods if pod["metadata"].get("uid") == uid), None)
            if pod is None:
                losses.append(f"pod {name} was deleted")
            elif why := _disruption(pod):
                losses.append(f"pod {name} {why}")
        return tuple(losses)

    def requests(self, workload: ServiceWorkload) -> tuple[float, tuple[str, ...]]:
        """Return the number of running and queued requests, and the ready pods whose engine did not answer."""
        total, unanswered = 0.0, []
        for pod in workload.ready:
            name = pod["metadata"]["name"]
            try:
                counts = [sample.value for sample in samples(self._metrics(pod), _OPEN_REQUESTS)]
            except (MpctlError, CounterError):
                counts = []
            total += sum(counts)
            if not counts:
                unanswered.append(name)
        return total, tuple(unanswered)

    def counters(self, workload: ServiceWorkload) -> tuple[dict[str, Counters], dict[str, str]]:
        """Return the counters of every ready pod, and why a pod's could not be read."""
        read, failed = {}, {}
        for pod in workload.ready:
            name = pod["metadata"]["name"]
            try:
                read[name] = Counters.parse(self._metrics(pod))
            except (MpctlError, CounterError) as error:
                failed[name] = str(error)
        return read, failed

    def _token(self, container: Mapping[str, Any]) -> str | None:
        """Return the engine's API key from its arguments, its environment or the Secret that its environment names.

        Raises:
            InputError: a header cannot carry it; the key itself is in no message.
        """
        name, token = key_of(container)
        if name is not None:
            token = self._variable(container, name)
        if token and not all("!" <= character <= "~" for character in token):
            raise InputError(
                f"the engine's API key ({name or '--api-key'}) holds a space, a line end or another character that a "
                "header cannot carry",
                hint="a Secret made with echo instead of printf ends with a line end",
            )
        return token or None

    def _variable(self, container: Mapping[str, Any], name: str) -> str:
        entry: Json = next((e for e in container.get("env") or [] if e.get("name") == name), {})
        reference = (entry.get("valueFrom") or {}).get("secretKeyRef")
        if not reference:
            return str(entry.get("value") or "")
        import base64

        secret = self.client.require(SECRET, reference["name"], self.namespace)
        try:
            return base64.b64decode((secret.get("data") or {}).get(reference["key"], "")).decode()
        except ValueError as error:
            raise InputError(f"Secret {reference['name']}: {reference['key']} is no text") from error

    def log_excerpt(self, workload: ServiceWorkload) -> str:
        """Return the last error lines of the newest pod that is not ready, and the command for the whole log."""
        waiting = [p for p in workload.pods if not is_ready(p)] or workload.pods
        if not waiting:
            return "no pod exists"
        pod = max(waiting, key=lambda p: str(p["metadata"].get("creationTimestamp")))
        name = pod["metadata"]["name"]
        container = engine_container(pod["spec"]["containers"]).get("name", "")
        log = self.client.log(name, self.namespace, container=container) or self.client.log(
            name, self.namespace, container=container, previous=True
        )
        lines = masked(without_requests(log)).splitlines()
        command = commands.kubectl("logs", name, "-c", container, namespace=self.namespace)
        return "\n".join([*telling_lines(lines)[-3:], f"the whole log: {command}"])

    def close(self) -> None:
        """Close forwards."""
        self.forwards.close()


def _address(pod: Json, port: int, scheme: str) -> str | None:
    """URL of a pod's port inside the cluster; None without an IP."""
    ip = str((pod.get("status") or {}).get("podIP") or "")
    return f"{scheme}://{f'[{ip}]' if ':' in ip else ip}:{port}" if ip else None


def _disruption(pod: Json) -> str:
    """Why a pod ends, by the control plane's own words; empty for one that stays."""
    status = pod.get("status") or {}
    reasons = [c.get("message") for c in status.get("conditions") or [] if c.get("type") == "DisruptionTarget"]
    reasons += [status.get("message")] if status.get("phase") == "Failed" else []
    ending = bool(pod["metadata"].get("deletionTimestamp")) or status.get("phase") == "Failed"
    return f"is being deleted{''.join(f' ({reason})' for reason in reasons[:1] if reason)}" if ending else ""


def _is_rolling(workload: ServiceWorkload, health: Health) -> bool:
    """Return whether the arm's readiness can be watched on its Deployment: its pods run, and one is not ready yet."""
    waiting = [pod for pod in workload.pods if not is_ready(pod)]
    return bool(
        workload.deployment and waiting and health.matches and not health.stuck and shape_of(workload.isvc).is_watchable
    )
