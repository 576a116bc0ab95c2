"""Reads the facts for ``mpctl doctor``: one list per kind, several at once.

A forbidden list, or an aggregated API that does not answer, becomes an entry of ``unread``; an unknown kind reads as
empty. About 20 requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from mpctl.doctor import ClusterFacts, Denied
from mpctl.doctor.access import FORBIDDEN
from mpctl.doctor.kserve_setup import CONFIG
from mpctl.doctor.state import full_name
from mpctl.doctor.updates import ALL_PODS
from mpctl.errors import MpctlError, NotPermitted
from mpctl.json_fields import list_at, mapping_at, name_of, value_at
from mpctl.json_types import Json
from mpctl.platform.kubernetes.access import calls
from mpctl.platform.kubernetes.access.calls import denied_calls
from mpctl.platform.kubernetes.api import kinds, names
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.kinds import ObjectKind
from mpctl.platform.kubernetes.api.objects import owner_of
from mpctl.platform.kubernetes.api.replies import json_object
from mpctl.platform.kubernetes.ledger_objects import entries_of, ledger_of, look_alike, owned_by
from mpctl.rollout.operation import unfinished_operation

KSERVE_NAMESPACE = "kserve"
_AT_ONCE = 6  # requests; client-go's default is 5 per second with bursts of 10
_CONTROLLER = "control-plane=kserve-controller-manager"
_SERVICES = (  # of the same name the last counts
    kinds.DEPLOYMENT,
    kinds.LEADER_WORKER_SET,
    kinds.VLLM_RUNTIME,
    kinds.LLM_INFERENCE_SERVICE,
    kinds.INFERENCE_SERVICE,
)
_DRIVER = "app.kubernetes.io/name=nvidia-dra-driver-gpu"


def read_cluster(client: Client, namespace: str | None, now: datetime) -> ClusterFacts:
    """Read the facts of ``namespace`` (None: all) and of the cluster. Changes nothing.

    Raises:
        Unreachable, NotPermitted: the API server does not answer, or does not authenticate the user.
    """
    client.version()  # raises where the server does not answer
    reader = _Reader(client, namespace)
    wide = (kinds.NODE, kinds.RESOURCE_SLICE, kinds.RESOURCE_CLAIM, calls.DEVICE_CLASS)
    hooks = reader.read_all(
        [_list(kind.plural, kind) for kind in (*wide, calls.MUTATING, calls.VALIDATING)]
    )
    kserve = _namespace_of(hooks.get(calls.MUTATING.plural) or ()) or KSERVE_NAMESPACE
    reader.read_all(_service_queries(kserve, namespace))
    # Devices of a device plugin show as taken by the pods on a node alone.
    extended = any(
        "/" in name
        for node in reader.objects.get(kinds.NODE.plural, ())
        for name in mapping_at(node, "status", "allocatable")
    )
    if namespace is not None and extended:
        reader.read_all([(ALL_PODS, "", _every_pod)])
    services = [item for kind in _SERVICES for item in reader.objects.get(kind.plural, ())]
    history = reader.objects.get("ledgers", ())
    return ClusterFacts(
        now=now,
        namespace=namespace,
        groups=reader.groups,
        objects=reader.objects,
        unread=reader.unread,
        kserve_namespace=kserve,
        denied=_denied(client, namespace, reader.unread),
        owners={full_name(s): owner.title for s in services if (owner := owner_of(s))},
        unfinished=_unfinished([item for item in history if _is_own(item)], reader.unread),
        look_alikes=tuple(look_alike(item) for item in history if not _is_own(item)),
    )


def _every_pod(client: Client) -> Sequence[Json] | None:
    try:
        return client.list(kinds.POD)
    except NotPermitted:
        raise MpctlError(
            f"the current user may not list {ALL_PODS}, so GPUs in use are unknown"
        ) from None


_Query = tuple[str, str, Callable[[Client], "Sequence[Json] | None"]]  # name, API group, question


class _Reader:
    """Collects answers and refusals."""

    def __init__(self, client: Client, namespace: str | None) -> None:
        self._client = client
        self._namespace = namespace
        self.objects: dict[str, Sequence[Json]] = {}
        self.unread: dict[str, str] = {}
        self.groups: Mapping[str, tuple[str, ...]] = {}
        try:
            self.groups = {
                group["name"]: tuple(v["version"] for v in list_at(group, "versions"))
                for group in list_at(json_object(client.raw("/apis") or "{}"), "groups")
            }
        except MpctlError as error:
            self.unread["discovery"] = error.message

    def read_all(self, jobs: Sequence[_Query]) -> dict[str, Sequence[Json]]:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for (name, _, _), answer in zip(jobs, pool.map(self._read, jobs), strict=True):
                if isinstance(answer, str):
                    self.unread[name] = answer
                else:
                    self.objects[name] = answer
        return self.objects

    def _read(self, job: _Query) -> Sequence[Json] | str:
        _, group, ask = job
        if "." in group and group not in self.groups and "discovery" not in self.unread:
            return ()  # a kind without a definition has no objects, whatever the user may read
        try:
            return ask(self._client) or ()
        except NotPermitted:
            return FORBIDDEN
        except MpctlError as error:
            return error.message


def _list(name: str, kind: ObjectKind, namespace: str | None = None, labels: str = "") -> _Query:
    return name, kind.group, lambda client: client.list(kind, namespace, labels=labels)


def _service_queries(kserve: str, namespace: str | None) -> list[_Query]:
    """KServe's and the driver's own objects, then those of the services."""

    def config(client: Client) -> Sequence[Json] | None:
        config_map = client.get(kinds.CONFIG_MAP, CONFIG, kserve)
        return [config_map] if config_map else None

    mine = (kinds.RESOURCE_CLAIM_TEMPLATE, kinds.HPA, kinds.RESOURCE_QUOTA, kinds.LIMIT_RANGE)
    return [
        ("kserve-configmaps", "", config),
        _list("kserve-deployments", kinds.DEPLOYMENT, kserve, _CONTROLLER),
        _list("kserve-endpointslices", calls.ENDPOINT_SLICE, kserve),
        _list("dra-daemonsets", calls.DAEMON_SET, None, _DRIVER),
        *(_list(kind.plural, kind, namespace) for kind in (*mine, kinds.SCALED_OBJECT)),
        *(_list(kind.plural, kind, namespace) for kind in (*_SERVICES, kinds.HTTP_ROUTE)),
        *(
            _list(kind.plural, kind, namespace)
            for kind in (kinds.SERVICE, kinds.DISRUPTION_BUDGET, kinds.POD)
        ),
        _list("leases", kinds.LEASE, namespace, "app.kubernetes.io/managed-by=mpctl"),
        _list(
            "ledgers", kinds.CONTROLLER_REVISION, namespace, f"{names.PART_LABEL}={names.LEDGER}"
        ),
    ]


def _namespace_of(hooks: Sequence[Json]) -> str | None:
    """Return the namespace of KServe, from the address of its webhooks."""
    for configuration in hooks:
        if "serving.kserve.io" in str(value_at(configuration, "metadata", "name")):
            for hook in list_at(configuration, "webhooks"):
                if namespace := value_at(hook, "clientConfig", "service", "namespace"):
                    return str(namespace)
    return None


def _is_own(item: Json) -> bool:
    return owned_by(item, names.service_of_ledger(name_of(item)))


def _unfinished(ledgers: Sequence[Json], unread: dict[str, str]) -> dict[tuple[str, str], str]:
    """Return the unfinished operations of the ledgers; an unreadable ledger is reported, not taken as finished."""
    entries: dict[tuple[str, str], list[Json]] = {}
    for item in ledgers:
        namespace, name = full_name(item)
        entries.setdefault((namespace, names.service_of_ledger(name)), []).append(item)
    unfinished = {}
    for (namespace, service), items in entries.items():
        try:
            operation = unfinished_operation(entries_of(ledger_of(items), service))
        except MpctlError as error:
            unread[f"ledger of {namespace}/{service}"] = error.message
            continue
        if operation is not None:
            unfinished[namespace, service] = f"{operation.id} ({operation.plan.spec_text})"
    return unfinished


def _denied(
    client: Client, namespace: str | None, unread: dict[str, str]
) -> tuple[Denied, ...] | None:
    try:
        return denied_calls(client, namespace)
    except MpctlError as error:
        unread["rights"] = error.message
        return None
