"""Preconditions of a change: the service serves, capacity exists, its autoscaler survives, and the path of users'
requests to its pods loses none. Only reads.
"""

from __future__ import annotations

from contextlib import suppress

from mpctl import commands
from mpctl.doctor.state import is_budgeted
from mpctl.errors import NotPermitted, Refused
from mpctl.json_fields import labels_of, name_of, owners_of
from mpctl.json_types import Json
from mpctl.manifest.engine.engine_port import port_of
from mpctl.methods import Finding
from mpctl.methods.preflight.drain import RouteLimit, budget_command, path_findings, route_limits
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.kinds import (
    DISRUPTION_BUDGET,
    HPA,
    HTTP_ROUTE,
    POD,
    SERVICE,
    ObjectKind,
)
from mpctl.platform.kubernetes.gpu_capacity import LOAD_POD, require_capacity, require_quota
from mpctl.platform.kubernetes.service.conditions import assess_health, is_ready
from mpctl.platform.kubernetes.service.container import answers_tls, engine_container
from mpctl.platform.kubernetes.service.live import Candidate, LiveService, arm_of
from mpctl.platform.kubernetes.service.manifest_text import (
    candidate_of,
    require_own_claims,
    text_of,
)
from mpctl.platform.kubernetes.service.reader import ServiceReader
from mpctl.platform.kubernetes.service.shapes import shape_of
from mpctl.platform.kubernetes.service.workload import ServiceWorkload
from mpctl.rollout.ports import Demand, Phase

_MADE = ("deployments.apps", "replicasets.apps")  # of a new service, beside the service itself


class Preconditions:
    """The preconditions of one service."""

    def __init__(
        self,
        client: Client,
        reader: ServiceReader,
        live: LiveService,
        candidate: Candidate,
        copy: Candidate,
    ) -> None:
        self._client, self._reader, self._live, self._candidate, self._copy = (
            client,
            reader,
            live,
            candidate,
            copy,
        )

    def check(self, demand: Demand) -> tuple[str, ...]:
        """Return notes on running the engines of a demand.

        Raises:
            Refused: the service does not serve, or there is no capacity.
            Conflict: an HTTPRoute gives the second InferenceService traffic, so it cannot be removed.
        """
        arm, side_by_side, downtime = demand.arm, demand.side_by_side, demand.downtime
        isvc = self._live.require()
        workload = self._reader.workload(isvc)
        shape_of(isvc).require_changeable(
            isvc,
            self._live.title,
            side_by_side=side_by_side,
            downtime=downtime,
            pods=self._live.desired_replicas(isvc),
        )
        if demand.load_job:
            require_http(workload.deployment, self._live.title)
        health = assess_health(isvc, workload.deployment, workload.pods, runtime=workload.runtime)
        if health.phase is not Phase.READY:
            raise Refused(
                f"{self._live.title} is not ready: {health.message}",
                hint=f"run '{self._live.command('status')}' and "
                f"'{commands.kubectl('describe', 'pods', namespace=self._reader.namespace)}' for details; retry when "
                "it is ready",
            )
        notes = self._doomed_scaler(isvc)
        other = self._candidate.read()
        copy = self._copy.read() if demand.pair else None
        if side_by_side:
            candidate_of(arm.manifest, arm.id, namespace=self._reader.namespace)
            require_own_claims(
                workload.pods[0]["spec"] if workload.pods else {}, self._live.service
            )
            self._require_own(self._candidate, other)
            self._require_own(self._copy, copy)
        owned = other is not None and arm_of(other) is not None
        if side_by_side or owned:
            self._candidate.require_removable()
        # mpctl removes its previous arm first, which frees its GPUs.
        ours = [isvc for isvc in (other if owned else None, copy) if isvc is not None]
        freed = sum(len(self._reader.workload(second).pods) for second in ours)
        pods, purpose, instead = self._needed(isvc, demand)
        pods = max(pods - freed, 0)
        if text_of(isvc) == arm.manifest or (downtime and not side_by_side):
            pods = 0
        services = (2 if demand.pair else 1) - len(ours) if side_by_side and pods else 0
        return (*notes, *self._require_room(workload, demand, pods, services, purpose, instead))

    def _require_room(
        self,
        workload: ServiceWorkload,
        demand: Demand,
        pods: int,
        services: int,
        purpose: str,
        instead: str,
    ) -> tuple[str, ...]:
        """Require quota for this many engine pods and new services beside the load Job, and GPUs for the pods. The
        last two are as :meth:`_needed` returns them."""
        template: Json = (
            {} if workload.deployment is None else workload.deployment["spec"]["template"]["spec"]
        )
        running = workload.pods[0] if workload.pods else {"spec": template}
        kinds = (
            self._reader.resource.resource,
            *(kind for kind in _MADE if kind != self._reader.resource.resource),
        )
        notes = require_quota(
            self._client,
            self._reader.namespace,
            (*(running["spec"],) * pods, *(LOAD_POD,) * demand.load_job),
            {**dict.fromkeys(kinds, services), "jobs.batch": int(demand.load_job)},
            title=self._live.title,
            hint=f"ask for a larger quota, or free what it counts; nothing was changed{instead}",
        )
        if not pods:
            return notes
        capacity = require_capacity(
            self._client,
            template,
            running,
            title=self._live.title,
            pods=pods,
            purpose=purpose,
            hint=f"add a GPU node ('{commands.kubectl('get', 'nodes')}' lists them){instead}",
        )
        return (*notes, *capacity)

    def _require_own(self, second: Candidate, isvc: Json | None) -> None:
        if isvc is not None and arm_of(isvc) is None:
            raise Refused(
                f"{self._reader.resource.name} {second.name} exists and was not created by mpctl",
                hint="rename or delete it, or use --strategy in-place",
            )

    def _needed(self, isvc: Json, demand: Demand) -> tuple[int, str, str]:
        """Number of additional pods at most, their purpose, and the hint's end when there is no capacity."""
        if demand.retain:
            pods = self._live.desired_replicas(isvc)
            return (
                pods + 1,
                f"the retained baseline's {pods} pods and one surge pod of a rollback",
                "; without --keep-baseline one pod is needed",
            )
        if demand.pair:
            return 2, "a candidate and a copy of the baseline side by side", ""
        return shape_of(isvc).additional_pods(isvc, side_by_side=demand.side_by_side)

    def _doomed_scaler(self, isvc: Json) -> tuple[str, ...]:
        """Warn of an HPA that KServe will delete: it has the predictor's name and another owner (KServe 0.20)."""
        name = shape_of(isvc).deleted_hpa(isvc)
        if name is None:
            return ()
        for item in self._client.list(HPA, self._reader.namespace) or []:
            owners = owners_of(item)
            if name_of(item) == name and not any(
                o.get("uid") == isvc["metadata"]["uid"] for o in owners
            ):
                return (f"HPA {name} has the name that KServe uses and will be deleted: rename it",)
        return ()


def require_http(deployment: Json | None, title: str) -> None:
    """Refuse to measure an engine that answers over HTTPS alone, as KServe's enableLLMInferenceServiceTLS makes them,
    from a pod: the load client there knows no issuer of its certificate.

    Raises:
        Refused: with the other way.
    """
    if deployment is None:
        return
    if answers_tls(engine_container(deployment["spec"]["template"]["spec"]["containers"])):
        raise Refused(
            f"{title}: the engine answers over HTTPS, which the load client of a Job does not trust",
            hint="set MPCTL_LOAD=local, which goes through the API server's port-forward",
        )


def request_path_findings(client: Client, record: Json, kind: ObjectKind) -> tuple[Finding, ...]:
    """Return warnings of a service's path. Nothing is said of objects that may not be read, nor of pods while none is
    ready."""
    namespace, name = record["metadata"]["namespace"], name_of(record)
    selector = shape_of(record).pod_selector(record)
    pods = client.list(POD, namespace, labels=selector) or []
    ready = [pod for pod in pods if is_ready(pod)]
    if not ready:
        limits = _limits(client, record, {})
        return path_findings(kind.name, limits, None, None, image=None, port=0)  # no pod, no hook
    labels: dict[str, str] = labels_of(ready[-1])
    limits = _limits(client, record, labels)
    budget = None
    with suppress(NotPermitted):
        if len(ready) > 1 and not is_budgeted(
            client.list(DISRUPTION_BUDGET, namespace) or (), labels
        ):
            budget = budget_command(namespace, name, selector)
    pod = ready[-1]["spec"]
    container = engine_container(pod["containers"])
    image, port = container.get("image"), port_of(container)
    return path_findings(kind.name, limits, pod, container, image=image, port=port, budget=budget)


def _limits(client: Client, record: Json, labels: dict[str, str]) -> tuple[RouteLimit, ...]:
    namespace, name = record["metadata"]["namespace"], name_of(record)
    with suppress(NotPermitted):
        backends = shape_of(record).backends(
            name, lambda: client.list(SERVICE, namespace) or (), labels
        )
        return route_limits(client.list(HTTP_ROUTE, namespace) or (), backends, name)
    return ()
