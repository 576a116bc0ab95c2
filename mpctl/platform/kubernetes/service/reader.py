"""Reads a service and its arms: InferenceService, Deployment and pods, and how healthy they are.

While mpctl waits, it sends at most two requests per second to the API server, however often the caller polls; the
first reads of a command are not delayed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from mpctl.errors import NotPermitted
from mpctl.json_fields import name_of
from mpctl.json_types import Json
from mpctl.platform.kubernetes.api.api_client import CannotWatch, Client
from mpctl.platform.kubernetes.api.kinds import (
    DEPLOYMENT,
    EVENT,
    INFERENCE_SERVICE,
    POD,
    ObjectKind,
)
from mpctl.platform.kubernetes.service.conditions import (
    UNSCHEDULABLE_S,
    Health,
    assess_health,
    is_ready,
    is_troubled,
)
from mpctl.platform.kubernetes.service.engine_reader import EngineReader
from mpctl.platform.kubernetes.service.kind_shape import KindShape
from mpctl.platform.kubernetes.service.shapes import shape_of
from mpctl.platform.kubernetes.service.workload import ServiceWorkload
from mpctl.rollout.ports import Phase

READS_PER_S = 2.0
BURST = 20  # reads that are not delayed, as with client-go's limiter: a command without long waits needs about ten
WATCH_S = 10.0  # a pod that crashes changes no Deployment, so it is looked at so often all the same
_NOTHING_AWAITED: tuple[str, Json | None, ObjectKind] = ("", None, DEPLOYMENT)


class ReadBudget:
    """Limits requests to ``READS_PER_S`` after a burst of ``BURST``, which the same rate restores."""

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
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


class ServiceReader:
    """Reads the services of one namespace as one user."""

    def __init__(
        self, client: Client, namespace: str, resource: ObjectKind = INFERENCE_SERVICE
    ) -> None:
        """``resource``: the kind of the service and of its candidate."""
        self.client = client
        self.resource = resource
        self.namespace = namespace
        self.engines = EngineReader(client, namespace)
        self._budget = ReadBudget()
        self._stuck: dict[str, _Stuck] = {}
        self._runtimes: dict[str, Json] = {}
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
        name = name_of(isvc)
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
        if (
            waits_for
            and health.phase is Phase.STARTING
            and workload is not None
            and _is_rolling(workload, health)
        ):
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
                self.client.changed(
                    kind, metadata["name"], self.namespace, metadata["resourceVersion"], WATCH_S
                )
        except CannotWatch:
            self._may_watch = False

    def _read_health(
        self, read: Callable[[], ServiceWorkload | None]
    ) -> tuple[ServiceWorkload | None, Health]:
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
        isvc, deployment, pods, runtime = (
            workload.isvc,
            workload.deployment,
            workload.pods,
            workload.runtime,
        )
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
        return replace(
            health, phase=prefill.phase, message=f"prefill: {prefill.message}", stuck=prefill.stuck
        )

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
        return (
            health if now - stuck.since < UNSCHEDULABLE_S else replace(health, phase=Phase.FAILED)
        )

    def close(self) -> None:
        """Close forwards."""
        self.engines.forwards.close()


def _is_rolling(workload: ServiceWorkload, health: Health) -> bool:
    """Return whether the arm's readiness can be watched on its Deployment: its pods run, and one is not ready yet."""
    waiting = [pod for pod in workload.pods if not is_ready(pod)]
    return bool(
        workload.deployment
        and waiting
        and health.matches
        and not health.stuck
        and shape_of(workload.isvc).is_watchable
    )
