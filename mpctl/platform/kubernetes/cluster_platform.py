"""The kubernetes platform: implements ``mpctl.rollout.ports.Platform`` for an InferenceService of a cluster.

The live InferenceService is the service (``service.live``), replaced as a whole. The candidate is a second
InferenceService, ``<service>-candidate`` (``Candidate``). KServe's own canary is not used: it does not pass on
storageUris and cannot be promoted with them (KServe 0.20). Production traffic reaches a candidate only through a user's
HTTPRoute (``httproute``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from mpctl.errors import Conflict, InputError, MpctlError, NotPermitted
from mpctl.experiment.counters import Counters
from mpctl.manifest import RESTARTED_AT, Service, foreign_changes
from mpctl.manifest.merge.differences import holds_draft, storage_of
from mpctl.manifest.merge.three_way import with_recorded_storage
from mpctl.manifest.text.yaml_tree import dump
from mpctl.methods import Finding
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.connection import SERVICE_ACCOUNT
from mpctl.platform.kubernetes.api.kinds import INFERENCE_SERVICE, ObjectKind
from mpctl.platform.kubernetes.api.replies import Json, conditions
from mpctl.platform.kubernetes.autoscaler import Autoscalers, KServePin, autoscaler_record, find_scalers
from mpctl.platform.kubernetes.gpu_capacity import gpu_product, gpus_of
from mpctl.platform.kubernetes.httproute.router import Routes
from mpctl.platform.kubernetes.httproute.specs import require_equal_load, require_possible
from mpctl.platform.kubernetes.service.conditions import is_draining, is_ready
from mpctl.platform.kubernetes.service.container import engine_container
from mpctl.platform.kubernetes.service.live import Candidate, LiveService, arm_of, retained_route
from mpctl.platform.kubernetes.service.manifest_text import object_of, text_of, without_transition_strategy
from mpctl.platform.kubernetes.service.preconditions import Preconditions, request_path_findings
from mpctl.platform.kubernetes.service.reader import ServiceReader, ServiceWorkload
from mpctl.platform.kubernetes.service.running_engine import edited, read_service, speculation_of
from mpctl.platform.kubernetes.service.shapes import SHAPES, shape_of
from mpctl.rollout.ports import Arm, ArmState, Demand, Endpoint, Live, Phase, RetainedBaseline, Router, Scaler


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
        recorded_scaling: Callable[[], Mapping[str, Any] | None] = lambda: None,
    ) -> None:
        """``resource``: the kind of the service. ``recorded_scaling``: the autoscaler as an unfinished operation
        recorded it, None without one."""
        self.client = client
        self.reader = ServiceReader(client, namespace, resource)
        self._namespace = namespace
        self._service = service
        self._pin = KServePin(recorded_scaling)
        self._live = LiveService(client, self.reader, service, self._pin)
        self._routes = Routes(client, namespace, service, sleep=sleep)
        self._candidate = Candidate(client, self.reader, self._routes, service, sleep=sleep)
        self._copy = Candidate(client, self.reader, self._routes, service, copy=True, sleep=sleep)
        self._candidate_arm = ""  # the arm last read as the candidate; empty once this command changed the service

    @property
    def scaler(self) -> Scaler:
        """The platform itself."""
        return self

    @property
    def router(self) -> Router:
        """The platform itself."""
        return self

    @property
    def title(self) -> str:
        """The service's name in messages."""
        return self._live.title

    # Reading

    def isvc(self) -> Json:
        """Return the live object.

        Raises:
            InputError: not found.
        """
        return self._live.require()

    def read(self) -> Live:
        """Return the live manifest; its arm serves the traffic."""
        isvc = self.isvc()
        text = text_of(isvc)
        return Live(self._service, self._namespace, text, isvc["metadata"]["resourceVersion"], Arm(text).id)

    def foreign_changes(self, before: str, after: str) -> tuple[str, ...]:
        """Paths of the fields in which two manifests differ beyond speculation and staging."""
        return foreign_changes(before, after)

    def describe_foreign_change(self, known: tuple[Arm, ...], scaling: Json | None = None) -> str | None:
        """Name the manager, time and fields of a change to the service or to its pinned autoscaler, or a deletion."""
        live = self.client.get(self.reader.resource, self._service, self._namespace)
        if live is None:
            return f"{self.title} was deleted"
        if deleted := live["metadata"].get("deletionTimestamp"):
            return f"{self.title} is being deleted since {deleted}"
        try:
            self._live.require_expected(self._pin.without_pin(live), known)
        except Conflict as error:
            return error.message
        changes = () if scaling is None else Autoscalers(self.client, self._namespace).foreign_changes(scaling)
        return "; ".join(changes) or None

    def lost_pods(self) -> tuple[str, ...]:
        """Return what became of the pods that were measured last and end."""
        return self.reader.lost_pods()

    def settled_text(self, text: str, known: tuple[str, ...]) -> str:
        """A live manifest without the deploymentStrategy of a change."""
        return without_transition_strategy(text, known)

    def restarted_text(self, at: str) -> str:
        """The live manifest with the annotation that ``kubectl rollout restart`` gives pods, from a dry run. On the
        Deployment itself KServe would revert it."""
        isvc = self.isvc()
        record = object_of(text_of(isvc))
        shape_of(record).annotate_pods(record, RESTARTED_AT, at)
        return self._live.dry_run_text(dump(record), isvc)

    def configs(self) -> tuple[str, ...]:
        """The configs that KServe merges into the service; nothing is read for kinds that have none."""
        return self.reader.configs(self.isvc()) if SHAPES[self.reader.resource.name].layered else ()

    def live_text(self) -> str | None:
        """Return the live manifest; None when the service was deleted."""
        isvc = self._live.read()
        return None if isvc is None else text_of(isvc)

    def absence(self) -> InputError | None:
        """Return the error that names why the service is not found; None when it is."""
        try:
            self.isvc()
        except InputError as error:
            return error
        return None

    def added_fields(self, arm: Arm, live: Live) -> tuple[str, ...] | None:
        """Return the fields that admission adds to the arm's text, from a dry run."""
        return self._live.added_fields(arm, live.text)

    def service(self) -> Service:
        """Return the live service with the arguments of its runtime."""
        isvc = self.isvc()
        return read_service(isvc, self._layers(isvc))

    def _layers(self, isvc: Json) -> Json | None:
        """Read what KServe merges below the service."""
        return shape_of(isvc).read_layers(self.client, isvc, self._namespace)

    def speculation(self) -> dict[str, Any] | None:
        """The speculative setting of the live service.

        Raises:
            InputError: not a single vLLM engine.
        """
        isvc = self.isvc()
        return speculation_of(isvc, self._layers(isvc))

    def with_speculation(
        self,
        config: dict[str, Any] | None,
        edit: Callable[[Service], Service] | None = None,
        recorded: Callable[[], Iterable[str]] = tuple,
    ) -> str:
        """Return the service's text with another setting, from a dry run: it includes the webhooks' additions, and
        admission refuses before anything is changed. ``recorded``: earlier texts, which are read where a staged draft
        goes."""
        isvc = self.isvc()
        text = edited(isvc, self._layers(isvc), config, edit)
        if holds_draft(storage_of(isvc)) and not holds_draft(storage_of(edited_object := object_of(text))):
            text = dump(with_recorded_storage(edited_object, map(object_of, recorded())))
        return self._live.dry_run_text(text, isvc)

    def check(self, demand: Demand) -> tuple[str, ...]:
        """Return notes; refuse an arm without capacity, and a service that does not serve: it could be neither measured
        nor restored."""
        return Preconditions(self.client, self.reader, self._live, self._candidate, self._copy).check(demand)

    def url(self) -> str:
        """Return the service's URL from KServe's status."""
        return str((self.isvc().get("status") or {}).get("url") or "-")

    def address(self, turn: int) -> Endpoint | None:
        """The service's address inside the cluster; from outside a port-forward to one pod after the other."""
        isvc = self.isvc()
        workload = self.reader.workload(isvc)
        pods = sorted(pod["metadata"]["name"] for pod in workload.ready)
        if not pods:
            return None
        endpoint, _ = self.reader.endpoint(workload, pods[turn % len(pods)])
        status = isvc.get("status") or {}
        url = str((status.get("address") or {}).get("url") or status.get("url") or "").rstrip("/")
        inside = url and (SERVICE_ACCOUNT / "token").exists()
        return replace(endpoint, base_url=url, socket=None) if inside else endpoint

    def problems(self) -> tuple[str, ...]:
        """Return the unmet conditions of the service with KServe's reasons."""
        return tuple(
            f"{c.get('type')}: {c.get('message') or c.get('reason')}"
            for c in conditions(self.isvc())
            if c.get("status") == "False" and c.get("severity") != "Info" and not _is_at_rest(c)
        )

    def cold_start_s(self) -> float | None:
        """Time that the serving pods took to become ready."""
        return self.reader.cold_start_s(self.reader.workload(self.isvc()))

    def gpu_product(self) -> str | None:
        """Product of the GPUs of the nodes that run the service's pods, else of all GPU nodes; None where they differ
        or the nodes may not be read."""
        pods = self.reader.workload(self.isvc()).pods
        return gpu_product(self.client, {str(name) for pod in pods if (name := pod["spec"].get("nodeName"))})

    def device(self, arm: Arm) -> str:
        """Return the product of the GPUs of the node that runs an arm; empty where the engine asks for none."""
        workload = self._workload(arm)
        specs = [pod["spec"] for pod in workload.pods if gpus_of(pod["spec"])] if workload else []
        return (gpu_product(self.client, {str(spec.get("nodeName")) for spec in specs}) or "") if specs else ""

    def engine_image(self) -> str | None:
        """Return the image of the engine in a pod of the service; None without one."""
        pods = self.reader.workload(self.isvc()).pods
        containers = [engine_container(pod["spec"]["containers"]) for pod in pods if pod["spec"].get("containers")]
        return next((str(container["image"]) for container in containers if container.get("image")), None)

    def path_findings(self) -> tuple[Finding, ...]:
        """Return warnings of the path to the engine: routes that cut answers, pods that lose requests when they stop,
        pods that may be evicted together. Nothing is said of what may not be read, nor of pods without one."""
        return request_path_findings(self.client, self.isvc(), self.reader.resource)

    def scaling(self) -> Json | None:
        """Return the autoscaler's limits for the plan; None without one, and in Knative mode, where the limits are part
        of a revision and pinning would restart the pods."""
        isvc = self.isvc()
        shape = shape_of(isvc)
        if shape.autoscaled is None:
            return None
        scalers = find_scalers(self.client, self._namespace, shape.workload_name(isvc), shape.autoscaled)
        return autoscaler_record(scalers, self._live.schedulable_replicas(isvc), isvc)

    def pin(self, scaling: Json) -> None:
        """Pin the autoscaler."""
        Autoscalers(self.client, self._namespace).pin(scaling)
        self._pin.set(scaling)

    def unpin(self, scaling: Json) -> tuple[str, ...]:
        """Restore the autoscaler; return notes on foreign changes that were kept."""
        notes = Autoscalers(self.client, self._namespace).unpin(scaling)
        self._pin.set(None)
        return notes

    def route(self, name: str | None, steps: tuple[int, ...], *, mirror: int = 0, force: bool = False) -> Json:
        """Return the user's HTTPRoute to the service.

        Raises:
            InputError: several routes, or none of that name.
            Refused: no route can carry weights, one candidate pod cannot carry a step or the mirrored requests, or the
                gateway cannot mirror.
        """
        isvc = self.isvc()
        shape_of(isvc).require_route(self.title)
        pods = self._live.desired_replicas(isvc)
        require_possible(steps, pods, self.title)
        record = self._routes.record(name, force=force)
        if mirror:
            require_equal_load(mirror, pods, self.title)
            self._routes.require_mirroring(record, mirror)
        return record

    def counters(self, arm: Arm) -> Mapping[str, Counters]:
        """Counters of every ready pod of an arm."""
        with self.reader.rate_limited():
            workload = self._workload(arm)
        return {} if workload is None else self.reader.counters(workload)[0]

    def mirror(self, route: Json, percent: int) -> None:
        """Copy ``percent`` of the HTTPRoute's requests to the candidate."""
        self._routes.mirror(route, percent)

    def require_mirrored(self, route: Json, percent: int) -> None:
        """Raise unless the HTTPRoute is as mpctl wrote it."""
        with self.reader.rate_limited():
            self._routes.require_mirrored(route, percent)

    def shift(self, route: Json, percent: int) -> None:
        """Give the candidate ``percent`` of the HTTPRoute's traffic."""
        self._routes.shift(route, percent)

    def require_shifted(self, route: Json, percent: int) -> None:
        """Raise unless the HTTPRoute is as mpctl wrote it."""
        with self.reader.rate_limited():
            self._routes.require_shifted(route, percent)

    def unshift(self, route: Json) -> tuple[str, ...]:
        """Restore the HTTPRoute and wait until the candidate has answered its requests."""
        return (*self._routes.restore(route), *self._candidate.drain())

    def retained_baseline(self) -> RetainedBaseline | None:
        """The retained baseline and its readiness."""
        isvc = self._candidate.read_owned()
        route = None if isvc is None else retained_route(isvc)
        if isvc is None or route is None:
            return None
        self.reader.look_again()  # whoever asks returns the users' traffic as soon as it has no pod
        with self.reader.rate_limited():
            workload = self.reader.workload(isvc)
        ready = sum(is_ready(pod) and not pod["metadata"].get("deletionTimestamp") for pod in workload.pods)
        since = str(isvc["metadata"].get("creationTimestamp") or "")
        return RetainedBaseline(str(arm_of(isvc)), since, route, ready, self._live.desired_replicas(self.isvc()))

    # Arms

    def _workload(self, arm: Arm) -> ServiceWorkload | None:
        if arm.copy:
            copy = self._copy.read_owned()
            return self.reader.workload(copy) if copy is not None and arm_of(copy) == arm.id else None
        live = None if arm.id == self._candidate_arm else self._live.read()
        if live is not None and self._live.is_arm(live, arm):
            return self.reader.workload(live)
        candidate = self._candidate.read_owned()
        if candidate is not None and arm_of(candidate) == arm.id:
            self._candidate_arm = arm.id
            return self.reader.workload(candidate)
        if arm.id != self._candidate_arm:
            return None
        self._candidate_arm = ""  # another writer removed the candidate: the live service may be the arm
        return self._workload(arm)

    def state(self, arm: Arm) -> ArmState:
        """Return the state of an arm."""
        return self._state(arm.id, lambda: self._workload(arm))

    def arms(self) -> tuple[ArmState, ...]:
        """Return the state of the live arm, and of the candidate when there is one."""
        live = self.isvc()
        serving = self._state(Arm(text_of(live)).id, lambda: self.reader.workload(live), read_only=True)
        candidate, copy = self._candidate.read_owned(), self._copy.read_owned()
        copies: tuple[ArmState, ...] = ()
        if copy is not None:
            copies = (self._state(str(arm_of(copy)), lambda: self.reader.workload(copy), read_only=True),)
        if candidate is None:
            return (serving, *copies)
        second = self._state(str(arm_of(candidate)), lambda: self.reader.workload(candidate), read_only=True)
        if retained_route(candidate) is not None:
            second = replace(second, retained_since=str(candidate["metadata"].get("creationTimestamp") or ""))
        try:
            candidate_share, others = self._routes.share_texts()
        except NotPermitted as error:
            candidate_share = others = f"? ({error.message})"
        return (replace(serving, traffic=others), replace(second, traffic=candidate_share), *copies)

    def _state(self, arm_id: str, read: Callable[[], ServiceWorkload | None], *, read_only: bool = False) -> ArmState:
        """``read_only``: an engine that the user may not reach is a note instead of an error."""
        workload, health = self.reader.health(read, waits_for="" if read_only else arm_id)
        if workload is None:
            return ArmState(arm_id, Phase.ABSENT)
        phase, message, endpoint, matches = health.phase, health.message, None, health.matches
        if phase is Phase.READY and not self.client.listing:
            try:
                endpoint, counters = self.reader.endpoint(workload, health.pods[0])
            except NotPermitted as error:
                if not read_only:
                    raise  # waiting does not change a right
                message = f"engine not asked: {error.message}"
            except MpctlError as error:
                phase, message = Phase.STARTING, error.message
            else:
                configured = read_service(workload.isvc, workload.runtime).speculation() is not None
                speculates = configured or shape_of(workload.isvc).expected(workload.isvc, workload.runtime).speculates
                if speculates is not (counters.drafts is not None):
                    matches = False
                    has = "has no" if speculates else "has"
                    message = f"pod {health.pods[0]}: the running engine {has} speculation counters"
        return ArmState(
            id=arm_id,
            phase=phase,
            endpoint=endpoint,
            argv=health.argv,
            matches=matches,
            message=message,
            restarts=health.restarts,
            pods_ready=len(health.pods),
            draining=any(map(is_draining, workload.pods)),
            image=health.image,
        )

    def describe_failure(self, arm: Arm) -> str:
        """Return the last lines of the engine's log."""
        workload = self._workload(arm)
        return "the arm does not exist any more" if workload is None else self.reader.log_excerpt(workload)

    # Acting

    def start(self, arm: Arm) -> None:
        """Run ``arm`` as the candidate unless it is the service. A failed candidate is created again."""
        live = self.isvc()
        if arm.copy:
            self._copy.start(arm, service=live)
        elif not self._live.is_arm(live, arm):
            self._candidate.start(arm, service=live)

    def start_retained(self, arm: Arm, route: Json) -> None:
        """Run the retained baseline with as many pods as the service has."""
        live = self.isvc()
        self._candidate.start(arm, service=live, pods=self._live.desired_replicas(live), retained_for=route["name"])

    def replace(self, arm: Arm, *, expect: tuple[Arm, ...], downtime: bool) -> None:
        """Replace the serving arm in place."""
        self._candidate_arm = ""
        self._live.write(arm, expect, downtime=downtime)

    def promote(
        self, arm: Arm, *, expect: tuple[Arm, ...], downtime: bool = False, candidate_serves: bool = False
    ) -> None:
        """Make ``arm`` the live spec; KServe then rolls the pods.

        A candidate without traffic is removed first, and a copy of the baseline: the first new pod starts on its GPU.
        New pods may start although ``arm`` is live already, because of another writer's change.
        """
        self._candidate_arm = ""
        live = self.isvc()
        if not candidate_serves:
            self._live.require_expected(live, (*expect, arm))
            self._copy.remove_owned()
            self._candidate.remove_owned()
        self._live.write(arm, expect, downtime=downtime)

    def restore_strategy(self, arm: Arm) -> None:
        """Restore the deploymentStrategy that a change replaced for its duration."""
        self._live.restore_strategy(arm)

    def stop_all_except(self, arm: Arm) -> None:
        """Remove the candidate, unless it is ``arm``, and the copy of the baseline."""
        self._copy.remove_owned()
        candidate = self._candidate.read_owned()
        if candidate is not None:
            live = self._live.read()
            if arm_of(candidate) != arm.id or (live is not None and self._live.is_arm(live, arm)):
                self._candidate.remove(candidate)

    def stop(self, arm: Arm) -> None:
        """Remove the candidate, or the copy of the baseline, when it runs ``arm``."""
        second = self._copy if arm.copy else self._candidate
        isvc = second.read_owned()
        if isvc is not None and arm_of(isvc) == arm.id:
            second.remove(isvc)

    def close(self) -> None:
        """Close forwards and connections."""
        self.reader.close()
        self.client.close()


def _is_at_rest(condition: Mapping[str, Any]) -> bool:
    """Return whether a condition that is False says only that no update is under way, as of a LeaderWorkerSet."""
    stuck = condition.get("reason") == "ProgressDeadlineExceeded"
    return condition.get("type") in ("Progressing", "UpdateInProgress") and not stuck
