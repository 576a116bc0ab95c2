"""A service in a cluster and all that works on it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from mpctl import commands
from mpctl.app.console import Console
from mpctl.app.session.base import (
    READY_S,
    Edit,
    EngineCounters,
    Place,
    ServiceNotFound,
    Session,
    choose,
    choose_load_place,
    who,
)
from mpctl.app.session.service_status import Leftover, Status
from mpctl.errors import InputError, MpctlError, NotPermitted
from mpctl.estimate.shape import find_gpu
from mpctl.json_fields import container_of, mapping_at, value_at
from mpctl.json_types import Json
from mpctl.manifest import Service
from mpctl.manifest.merge.differences import holds_draft, storage_of
from mpctl.manifest.merge.three_way import with_recorded_storage
from mpctl.manifest.text.yaml_tree import dump
from mpctl.methods import Finding, from_config, parse_version
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.connection import connect
from mpctl.platform.kubernetes.api.kinds import (
    CONTROLLER_REVISION,
    DEPLOYMENT,
    INFERENCE_SERVICE,
    ObjectKind,
)
from mpctl.platform.kubernetes.api.listing import ListingClient
from mpctl.platform.kubernetes.api.names import (
    CANDIDATE_SUFFIX,
    COPY_SUFFIX,
    LEDGER,
    PART_LABEL,
    service_of_ledger,
)
from mpctl.platform.kubernetes.api.objects import require_unowned
from mpctl.platform.kubernetes.cluster_platform import KubernetesPlatform
from mpctl.platform.kubernetes.gpu_capacity import gpu_product
from mpctl.platform.kubernetes.load_job.job_client import JobClient
from mpctl.platform.kubernetes.load_job.job_pods import LoadPod
from mpctl.platform.kubernetes.object_store import KubernetesStore
from mpctl.platform.kubernetes.service.conditions import unmet_conditions
from mpctl.platform.kubernetes.service.fence import fence
from mpctl.platform.kubernetes.service.manifest_text import ARM_ANNOTATION, object_of
from mpctl.platform.kubernetes.service.preconditions import request_path_findings
from mpctl.platform.kubernetes.service.running_engine import edited, read_service, speculation_of
from mpctl.platform.kubernetes.service.shapes import SHAPES, shape_of
from mpctl.platform.load import LoadClient
from mpctl.platform.meter import HttpMeter, release_of
from mpctl.rollout.operation import unfinished_operation

_START_FACTOR = 3.0
_SUFFIXES = (CANDIDATE_SUFFIX, COPY_SUFFIX)


class ClusterSession(Session):
    """A service of a cluster, of any kind in ``SHAPES``."""

    store: KubernetesStore
    platform: KubernetesPlatform

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        console: Console,
        resource: ObjectKind = INFERENCE_SERVICE,
    ) -> None:
        self.name, self.namespace, self.console = name, namespace, console
        self.client = client
        self.store = KubernetesStore(client, namespace, name, who())
        self.store.held.fence = lambda: fence(client, resource, namespace, name)
        self.platform = KubernetesPlatform(
            client, namespace, name, resource=resource, recorded_scaling=self._held_scaling
        )

    @property
    def place(self) -> str:
        """The context."""
        return f"context {self.client.context}"

    def _held_scaling(self) -> Json | None:
        """The autoscaler as an unfinished operation recorded it."""
        operation = unfinished_operation(self.store.entries())
        return None if operation is None else operation.scaling

    def service(self) -> Service:
        """The live service, with the arguments of its runtime."""
        return read_service(*self._layers())

    def _layers(self) -> tuple[Json, Json | None]:
        """The live service, and what KServe merges below it."""
        isvc = self.platform.live.require()
        return isvc, shape_of(isvc).read_layers(self.client, isvc, self.namespace)

    def with_speculation(self, config: Json | None, edit: Edit | None = None) -> str:
        """The manifest with another setting, from a dry run: it includes the webhooks' additions, and admission refuses
        before anything is changed. Recorded manifests are read when a staged draft leaves."""
        isvc, layers = self._layers()
        text = edited(isvc, layers, config, edit)
        if holds_draft(storage_of(isvc)) and not holds_draft(storage_of(record := object_of(text))):
            revisions = self.store.revisions()
            text = dump(
                with_recorded_storage(record, (object_of(revision.text) for revision in revisions))
            )
        return self.platform.live.dry_run_text(text, isvc)

    def engine_version(self, service: Service) -> str | None:
        """The image, whose tag is read as a version: of the manifest, else of the runtime that its pods got it from."""
        return service.image or self.platform.workload().engine_image

    def running_release(self) -> str | None:
        """The release that a ready engine answers."""
        with suppress(MpctlError):
            endpoint = self.platform.address(0)
            return None if endpoint is None else release_of(endpoint)
        return None

    def target_of(self, service: Service) -> str | None:
        """The model that the engine loads, by its argument."""
        return service.model

    @property
    def paths(self) -> str:
        """The paths of checkpoints that can be read from here; those inside of the pod cannot."""
        return f"a path from / is the pod's, any other starts from {Path.cwd()} and needs a config.json"

    def folder(self, name: str | None) -> Path | None:
        """A path from / is inside the container, and nothing of it can be read from here."""
        return (
            Path(name).absolute()
            if name and not name.startswith("/") and Path(name).is_dir()
            else None
        )

    def absence(self) -> InputError | None:
        """Why the service is not found: it was deleted, or the definition of its kind was removed."""
        try:
            self.platform.live.require()
        except InputError as error:
            return error
        return None

    def kserve_version(self) -> str | None:
        """Return the tag of the KServe controller's image; None if it may not be read."""
        return self._kserve

    @cached_property
    def _kserve(self) -> str | None:
        """Return the tag of the KServe controller's image; None if it runs in another namespace or may not be read."""
        try:
            controllers = self.client.list(
                DEPLOYMENT, "kserve", labels="control-plane=kserve-controller-manager"
            )
        except NotPermitted:
            return None
        pods = [mapping_at(item, "spec", "template", "spec") for item in controllers or ()]
        images = [str(container_of(pod, "manager").get("image")) for pod in pods]
        return next((image for image in images if parse_version(image) is not None), None)

    def gpu(self) -> str | None:
        """The product of the nodes that run the service's pods, else of all GPU nodes; None where they differ or may
        not be read.
        """
        return self._gpu

    @cached_property
    def _gpu(self) -> str | None:
        gpu = find_gpu(gpu_product(self.client, self.platform.workload().nodes))
        return None if gpu is None else gpu.name

    def path_findings(self) -> tuple[Finding, ...]:
        """Warnings of the routes to the live service and of its pods."""
        return request_path_findings(
            self.client, self.platform.live.require(), self.platform.reader.resource
        )

    def start_s(self) -> float | None:
        """Start time of an engine, measured on the pods that serve now."""
        return self.platform.workload().cold_start_s

    def ready_timeout_s(self, asked: float | None) -> float:
        """``asked``, else three times the start of the pods that serve now, at least ten minutes: the next
        node may have to fetch image and weights that theirs had, and a draft is loaded beside the model.
        """
        measured = None if asked is not None else self.start_s()
        return (
            super().ready_timeout_s(asked)
            if measured is None
            else max(READY_S, _START_FACTOR * measured)
        )

    def warn_of_owner(self, *, force: bool) -> None:
        """Argo CD, Flux, Helm and the like leave traces on what they write."""
        if warning := require_unowned(self.platform.live.require(), force=force):
            self.console.warn(warning)

    def close(self) -> None:
        """End port-forwards."""
        self.platform.close()

    def counters(self) -> EngineCounters:
        """Read the counters of every ready pod."""
        workload = self.platform.workload()
        engines, failed = self.platform.reader.engines.counters(workload)
        return EngineCounters(engines, failed, len(workload.ready))

    def status(self) -> Status:
        """The service as it is."""
        live, arms = self.platform.read(), self.platform.engines.states()
        isvc = self.platform.live.require()
        problems = unmet_conditions(isvc)
        try:
            spec = from_config(speculation_of(*self._layers())).describe()
        except InputError as error:  # a model that vLLM does not serve
            spec, problems = "-", (*problems, error.message)
        url = str(value_at(isvc, "status", "url") or "-")
        status = self.describe(
            live.text, spec, url=url, routed=live.routed, arms=arms, problems=problems
        )
        # Found while the ledger was read for the description.
        return replace(status, problems=(*status.problems, *self.store.look_alikes()))

    def _open(self) -> tuple[KubernetesPlatform, HttpMeter]:
        """The load client runs in the cluster, or on this machine and reaches the pods through port-forwards."""
        return self.platform, HttpMeter(self._load_client(), str(Path.cwd()), forwarded=True)

    def _load_client(self) -> LoadClient:
        """The client asked for, else that of the unfinished operation. A rollback measures nothing and gets the Job's
        client, which removes the Job that a killed command left."""
        load = self.load_place or choose_load_place(
            "auto", "kubernetes", unfinished=unfinished_operation(self.store.entries())
        )
        if load == "local":
            from mpctl.platform.client import StreamClient

            return StreamClient()
        return JobClient(LoadPod(self.client, self.platform.reader, self.name, scope=self.scope))


def open_client(place: Place, make: type[Client] = Client) -> Client:
    """The API server of the place. Nothing is sent."""
    connection = connect(place.kubeconfig, place.context)
    if place.timeout_s is None:
        return make(connection, as_user=place.as_user)
    return make(connection, as_user=place.as_user, timeout_s=place.timeout_s)


def open_cluster(
    place: Place, console: Console, name: str | None, *, gone: bool = False
) -> ClusterSession:
    """Open the service of this name; without a name, the only service of the namespace.

    ``gone``: accept a deleted service that has a history.

    Raises:
        InputError: no service or several match; the message lists them.
    """
    client = open_client(place)
    client.tell = console.note
    namespace = place.namespace or client.namespace
    if name is not None and client.get(INFERENCE_SERVICE, name, namespace) is not None:
        return ClusterSession(client, namespace, name, console)
    listed = _listed_services(client, namespace)
    kinds = {(space, service): kind for space, service, kind in reversed(listed or ())}
    services = [*reversed(kinds)]
    exists = bool(services) if name is None else name in {service for _, service in services}
    recorded = [] if exists and not (gone and name is None) else _with_history(client, namespace)
    if gone:
        services += [pair for pair in recorded if pair not in kinds]
    elif (namespace, name) in recorded:
        raise _gone(
            ClusterSession(
                client, namespace, str(name), console, _recorded_kind(client, namespace, str(name))
            )
        )
    if not services and listed is None:
        raise _without_kserve(client, recorded)
    where = f" in namespace {namespace} of context {client.context}"
    _, chosen = choose(
        services,
        name,
        where=where,
        none="choose another namespace with -n or another cluster with --context",
        elsewhere=lambda name: _namespaces(client, name),
    )
    resource = kinds.get((namespace, chosen)) or _recorded_kind(client, namespace, chosen)
    return ClusterSession(client, namespace, chosen, console, resource)


def _namespaces(client: Client, name: str) -> list[str]:
    """Namespaces with a service of that name; none where they may not be listed."""
    try:
        services = _listed_services(client, None, fields=f"metadata.name={name}")
    except MpctlError:
        return []
    return sorted({namespace for namespace, _, _ in services or ()})


def _gone(session: ClusterSession) -> ServiceNotFound:
    """The error for a service that has a history and is not found."""
    absence = session.absence()
    if absence is None:
        return ServiceNotFound(
            f"{session.title} was created just now", hint="run the same command again"
        )
    return ServiceNotFound(absence.message, hint=absence.hint)


def _recorded_kind(client: Client, namespace: str, name: str) -> ObjectKind:
    """The kind of a service that is not found, by its newest recorded manifest; an InferenceService without one."""
    try:
        revisions = KubernetesStore(client, namespace, name, who()).revisions()
        return shape_of(object_of(revisions[-1].text)).resource if revisions else INFERENCE_SERVICE
    except MpctlError:  # the command that needs the history says what is wrong with it
        return INFERENCE_SERVICE


def cluster_services(
    client: Client, namespace: str | None, *, labels: str = ""
) -> list[tuple[str, str, ObjectKind]]:
    """Namespace, name and kind of every service but candidates of ours, in one namespace or in all: InferenceServices,
    LLMInferenceServices, VLLMRuntimes, and Deployments and LeaderWorkerSets that start vLLM and that no controller
    made. Kinds that may not be listed, but for InferenceServices, are left out. ``labels``: a selector.

    Raises:
        InputError: the cluster has neither KServe nor a plain service.
    """
    services = _listed_services(client, namespace, labels=labels)
    if services is None:
        raise _without_kserve(client, _with_history(client, namespace))
    return services


def _listed_services(
    client: Client, namespace: str | None, *, labels: str = "", fields: str = ""
) -> list[tuple[str, str, ObjectKind]] | None:
    """Return the :func:`cluster_services`; None when the cluster has neither KServe nor a plain service."""
    kserve = client.list(INFERENCE_SERVICE, namespace, labels=labels, fields=fields)
    listed = [(INFERENCE_SERVICE, kserve or [])]
    for kind in (
        shape.resource for shape in SHAPES.values() if shape.resource is not INFERENCE_SERVICE
    ):
        try:
            objects = client.list(kind, namespace, labels=labels, fields=fields) or []
        except NotPermitted:
            continue
        listed.append((kind, objects))
    services = [
        (record["metadata"]["namespace"], record["metadata"]["name"], kind)
        for kind, records in listed
        for record in records
        if _is_service(kind, record)
    ]
    return None if kserve is None and not services else services


def _is_service(kind: ObjectKind, record: Json) -> bool:
    """Return whether an object is a service and no candidate of ours. One that cannot be read is none, and hides no
    other."""
    try:
        metadata = record["metadata"]
        named = isinstance(metadata["namespace"], str) and isinstance(metadata["name"], str)
        candidate = ARM_ANNOTATION in mapping_at(metadata, "annotations")
        return named and not candidate and SHAPES[kind.name].is_service(record)
    except (LookupError, TypeError, AttributeError):
        return False


def _without_kserve(client: Client, recorded: list[tuple[str, str]]) -> InputError:
    """The error for a cluster without KServe; ``recorded``: services that have a history there."""
    message = f"context {client.context}: InferenceService not found, KServe is not installed"
    if not recorded:
        return InputError(message, hint=f"run '{commands.line('doctor')}' to list what is missing")
    listing = ", ".join(f"{namespace}/{name}" for namespace, name in recorded)
    history = commands.line("history", recorded[0][1], namespace=recorded[0][0])
    return InputError(
        f"{message}; a history is kept of {listing}",
        hint=f"run '{history}' to see what was recorded, and '{commands.line('doctor')}' to list what is missing",
    )


def find_leftovers(
    place: Place, sessions: Sequence[Session], *, everywhere: bool
) -> tuple[Leftover, ...]:
    """Unfinished operations and second arms in the namespace, or in all, whose service is not found. ``sessions``: the
    services that are."""
    client = next(
        (s.client for s in sessions if isinstance(s, ClusterSession)), None
    ) or open_client(place)
    namespace = None if everywhere else place.namespace or client.namespace
    present = {(space, name) for space, name, _ in _listed_services(client, namespace) or ()}
    arms: dict[tuple[str, str], list[str]] = {}
    for kind in (shape.resource for shape in SHAPES.values()):
        with suppress(NotPermitted):
            for record in client.list(kind, namespace) or []:
                metadata = record["metadata"]
                service = next(
                    (
                        s
                        for s in map(metadata["name"].removesuffix, _SUFFIXES)
                        if s != metadata["name"]
                    ),
                    "",
                )
                if ARM_ANNOTATION in mapping_at(metadata, "annotations") and service:
                    arms.setdefault((metadata["namespace"], service), []).append(
                        f"{kind.name}/{metadata['name']}"
                    )
    gone = sorted({*_with_history(client, namespace), *arms} - present)
    leftovers = (
        Leftover(*pair, _unfinished(client, *pair), tuple(arms.get(pair, ()))) for pair in gone
    )
    return tuple(
        leftover for leftover in leftovers if leftover.operation is not None or leftover.candidates
    )


def _unfinished(client: Client, namespace: str, name: str) -> str | None:
    try:
        operation = unfinished_operation(KubernetesStore(client, namespace, name, who()).entries())
    except MpctlError:
        return None  # a damaged ledger is named by the commands that need it
    return None if operation is None else operation.id


def _with_history(client: Client, namespace: str | None) -> list[tuple[str, str]]:
    entries = client.list(CONTROLLER_REVISION, namespace, labels=f"{PART_LABEL}={LEDGER}") or []
    objects = [entry["metadata"] for entry in entries]
    return sorted(
        {(metadata["namespace"], service_of_ledger(metadata["name"])) for metadata in objects}
    )


def cluster_sessions(
    place: Place, console: Console, *, everywhere: bool, labels: str = "", listed: bool = False
) -> list[ClusterSession]:
    """A session for every service of the namespace, or of all; ``labels``: only those that the selector names.

    ``listed``: for one look at several services, which asks no engine. A single service is opened as ever.
    """
    client = open_client(place, ListingClient if listed else Client)
    client.tell = console.note
    namespace = None if everywhere else place.namespace or client.namespace
    if isinstance(client, ListingClient):
        client.scope = namespace
    services = cluster_services(client, namespace, labels=labels)
    if client.listing and len(services) == 1:
        client = open_client(place)
    kinds = {
        (space, name): kind for space, name, kind in reversed(services)
    }  # of one name, KServe's comes first
    return [ClusterSession(client, *pair, console, kind) for pair, kind in reversed(kinds.items())]
