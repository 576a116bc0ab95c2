"""The kubernetes platform: implements ``mpctl.rollout.ports.Platform`` for an InferenceService of a cluster.

The live InferenceService is the service (``service.live``), replaced as a whole. The candidate is a second
InferenceService, ``<service>-candidate`` (``Candidate``). KServe's own canary is not used: it does not pass on
storageUris and cannot be promoted with them (KServe 0.20). Production traffic reaches a candidate only through a user's
HTTPRoute (``httproute``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from mpctl.errors import Conflict
from mpctl.json_fields import mapping_at, name_of, value_at
from mpctl.json_types import Json, JsonView
from mpctl.manifest import RESTARTED_AT, foreign_changes
from mpctl.manifest.text.yaml_tree import dump
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.connection import SERVICE_ACCOUNT
from mpctl.platform.kubernetes.api.kinds import INFERENCE_SERVICE, ObjectKind
from mpctl.platform.kubernetes.autoscaler import (
    Autoscalers,
    KServePin,
    autoscaler_record,
    find_scalers,
)
from mpctl.platform.kubernetes.httproute.router import Routes
from mpctl.platform.kubernetes.httproute.specs import require_equal_load, require_possible
from mpctl.platform.kubernetes.service.conditions import is_ready
from mpctl.platform.kubernetes.service.engines import ClusterEngines
from mpctl.platform.kubernetes.service.live import LiveService, arm_of, retained_route
from mpctl.platform.kubernetes.service.manifest_text import (
    object_of,
    text_of,
    without_transition_strategy,
)
from mpctl.platform.kubernetes.service.preconditions import Preconditions
from mpctl.platform.kubernetes.service.reader import ServiceReader
from mpctl.platform.kubernetes.service.shapes import SHAPES, shape_of
from mpctl.platform.kubernetes.service.traffic import Traffic
from mpctl.platform.kubernetes.service.workload import ServiceWorkload
from mpctl.rollout.ports import Arm, Demand, Endpoint, Fit, Live, RetainedBaseline


class KubernetesPlatform:
    """An InferenceService, LLMInferenceService, plain Deployment or LeaderWorkerSet."""

    name = "kubernetes"
    replaces_pods_itself = True

    def __init__(
        self,
        client: Client,
        namespace: str,
        service: str,
        *,
        resource: ObjectKind = INFERENCE_SERVICE,
        sleep: Callable[[float], None] = time.sleep,
        recorded_scaling: Callable[[], JsonView | None] = lambda: None,
    ) -> None:
        """``resource``: the kind of the service. ``recorded_scaling``: the autoscaler as an unfinished operation
        recorded it, None without one."""
        self.client = client
        self.reader = ServiceReader(client, namespace, resource)
        self._namespace = namespace
        self._service = service
        self._pin = KServePin(recorded_scaling)
        self.live = LiveService(client, self.reader, service, self._pin)
        self._routes = Routes(client, namespace, service, sleep=sleep)
        self.engines = ClusterEngines(client, self.reader, self.live, self._routes, sleep=sleep)
        self.router = Traffic(self.reader, self.live, self._routes, self.engines)
        self.scaler = Autoscalers(client, namespace, self._pin)

    # Reading

    def read(self) -> Live:
        """Return the live manifest; its arm serves the traffic."""
        isvc = self.live.require()
        text = text_of(isvc)
        return Live(
            self._service, self._namespace, text, isvc["metadata"]["resourceVersion"], Arm(text).id
        )

    def foreign_changes(self, before: str, after: str) -> tuple[str, ...]:
        """Paths of the fields in which two manifests differ beyond speculation and staging."""
        return foreign_changes(before, after)

    def describe_foreign_change(
        self, known: tuple[Arm, ...], scaling: Json | None = None
    ) -> str | None:
        """Name the manager, time and fields of a change to the service or to its pinned autoscaler, or a deletion."""
        live = self.client.get(self.reader.resource, self._service, self._namespace)
        if live is None:
            return f"{self.live.title} was deleted"
        if deleted := live["metadata"].get("deletionTimestamp"):
            return f"{self.live.title} is being deleted since {deleted}"
        try:
            self.live.require_expected(self._pin.without_pin(live), known)
        except Conflict as error:
            return error.message
        changes = () if scaling is None else self.scaler.foreign_changes(scaling)
        return "; ".join(changes) or None

    def settled_text(self, text: str, known: tuple[str, ...]) -> str:
        """A live manifest without the deploymentStrategy of a change."""
        return without_transition_strategy(text, known)

    def restarted_text(self, at: str) -> str:
        """The live manifest with the annotation that ``kubectl rollout restart`` gives pods, from a dry run. On the
        Deployment itself KServe would revert it."""
        isvc = self.live.require()
        record = object_of(text_of(isvc))
        shape_of(record).annotate_pods(record, RESTARTED_AT, at)
        return self.live.dry_run_text(dump(record), isvc)

    def workload(self) -> ServiceWorkload:
        """Read the pods that serve, and their Deployment.

        Raises:
            InputError: the service is not found.
        """
        return self.reader.workload(self.live.require())

    def configs(self) -> tuple[str, ...]:
        """The configs that KServe merges into the service; nothing is read for kinds that have none."""
        return (
            self.reader.configs(self.live.require())
            if SHAPES[self.reader.resource.name].layered
            else ()
        )

    def live_text(self) -> str | None:
        """Return the live manifest; None when the service was deleted."""
        isvc = self.live.read()
        return None if isvc is None else text_of(isvc)

    def added_fields(self, arm: Arm, live: Live) -> tuple[str, ...] | None:
        """Return the fields that admission adds to the arm's text, from a dry run."""
        return self.live.added_fields(arm, live.text)

    def fits(self, *demands: Demand) -> tuple[Fit, ...]:
        """Return whether there is capacity for each of the demands, and whether the service serves: otherwise it could
        be neither measured nor restored."""
        preconditions = Preconditions(
            self.client, self.reader, self.live, self.engines.candidate, self.engines.copy
        )
        with self.client.one_reading():
            return tuple(Fit.of(preconditions.check, demand) for demand in demands)

    def address(self, turn: int) -> Endpoint | None:
        """The service's address inside the cluster; from outside a port-forward to one pod after the other."""
        workload = self.workload()
        pods = sorted(name_of(pod) for pod in workload.ready)
        if not pods:
            return None
        endpoint, _ = self.reader.engines.endpoint(workload, pods[turn % len(pods)])
        status = mapping_at(workload.isvc, "status")
        url = str(value_at(status, "address", "url") or status.get("url") or "").rstrip("/")
        inside = url and (SERVICE_ACCOUNT / "token").exists()
        return replace(endpoint, base_url=url, socket=None) if inside else endpoint

    def scaling(self) -> Json | None:
        """Return the autoscaler's limits for the plan; None without one, and in Knative mode, where the limits are part
        of a revision and pinning would restart the pods."""
        isvc = self.live.require()
        shape = shape_of(isvc)
        if shape.autoscaled is None:
            return None
        scalers = find_scalers(
            self.client, self._namespace, shape.workload_name(isvc), shape.autoscaled
        )
        return autoscaler_record(scalers, self.live.schedulable_replicas(isvc), isvc)

    def route(
        self, name: str | None, steps: tuple[int, ...], *, mirror: int = 0, force: bool = False
    ) -> Json:
        """Return the user's HTTPRoute to the service.

        Raises:
            InputError: several routes, or none of that name.
            Refused: no route can carry weights, one candidate pod cannot carry a step or the mirrored requests, or the
                gateway cannot mirror.
        """
        isvc = self.live.require()
        shape_of(isvc).require_route(self.live.title)
        pods = self.live.desired_replicas(isvc)
        require_possible(steps, pods, self.live.title)
        record = self._routes.record(name, force=force)
        if mirror:
            require_equal_load(mirror, pods, self.live.title)
            self._routes.require_mirroring(record, mirror)
        return record

    def retained_baseline(self) -> RetainedBaseline | None:
        """The retained baseline and its readiness."""
        isvc = self.engines.candidate.read_owned()
        route = None if isvc is None else retained_route(isvc)
        if isvc is None or route is None:
            return None
        self.reader.look_again()  # whoever asks returns the users' traffic as soon as it has no pod
        with self.reader.rate_limited():
            workload = self.reader.workload(isvc)
        ready = sum(
            is_ready(pod) and not pod["metadata"].get("deletionTimestamp") for pod in workload.pods
        )
        since = str(isvc["metadata"].get("creationTimestamp") or "")
        return RetainedBaseline(
            str(arm_of(isvc)), since, route, ready, self.live.desired_replicas(self.live.require())
        )

    # Acting

    def replace(self, arm: Arm, *, expect: tuple[Arm, ...], downtime: bool) -> None:
        """Replace the serving arm in place."""
        self.engines.forget_candidate()
        self.live.write(arm, expect, downtime=downtime)

    def promote(
        self,
        arm: Arm,
        *,
        expect: tuple[Arm, ...],
        downtime: bool = False,
        candidate_serves: bool = False,
    ) -> None:
        """Make ``arm`` the live spec; KServe then rolls the pods.

        A candidate without traffic is removed first, and a copy of the baseline: the first new pod starts on its GPU.
        New pods may start although ``arm`` is live already, because of another writer's change.
        """
        self.engines.forget_candidate()
        live = self.live.require()
        if not candidate_serves:
            self.live.require_expected(live, (*expect, arm))
            self.engines.copy.remove_owned()
            self.engines.candidate.remove_owned()
        self.live.write(arm, expect, downtime=downtime)

    def restore_strategy(self, arm: Arm) -> None:
        """Restore the deploymentStrategy that a change replaced for its duration."""
        self.live.restore_strategy(arm)

    def close(self) -> None:
        """Close forwards and connections."""
        self.reader.close()
        self.client.close()
