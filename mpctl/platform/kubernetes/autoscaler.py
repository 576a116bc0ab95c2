"""Pins the autoscaler of a service during a change and restores it exactly.

A HorizontalPodAutoscaler or KEDA ScaledObject of the predictor's Deployment would answer the load of a measurement, a
surge pod or a crashing one with more pods (kubernetes/kubernetes#90461, #72775, #87199). It is pinned to the current
number of pods. The plan records its limits in the ledger before anything is written.

With autoscalerClass ``hpa`` (the default) or ``keda`` KServe owns the HPA or ScaledObject ``<service>-predictor`` and
restores its limits from the predictor's ``minReplicas`` and ``maxReplicas`` whenever the service or its Deployment
changes, so during every rollout (KServe 0.20). These two fields are pinned instead; of an LLMInferenceService those
of ``spec.scaling``. They are not part of the pod template: no pod restarts. While they are pinned, the live object
reads with its recorded limits, so that plans, revisions and comparisons never see the pin; every write carries it.
Limits other than the pinned ones are foreign changes and read as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from mpctl.errors import MpctlError
from mpctl.json_fields import mapping_at, owners_of
from mpctl.json_types import Json, JsonView
from mpctl.platform.kubernetes.api.api_client import MANAGER, Client
from mpctl.platform.kubernetes.api.kinds import (
    HPA,
    INFERENCE_SERVICE,
    LLM_INFERENCE_SERVICE,
    SCALED_OBJECT,
    SERVING,
    ObjectKind,
)
from mpctl.platform.kubernetes.api.objects import last_editor
from mpctl.platform.kubernetes.api.replies import OutcomeUnknown, Stale

LIMITS = ("minReplicas", "maxReplicas")
# Where the objects that KServe makes an autoscaler for have their limits, below ``spec``.
HOMES = {INFERENCE_SERVICE.name: "predictor", LLM_INFERENCE_SERVICE.name: "scaling"}


def made_by_kserve(scaler: JsonView, isvc: JsonView) -> bool:
    """Return whether KServe made an autoscaler for a service."""
    owners = owners_of(scaler)
    return any(
        str(o.get("apiVersion", "")).startswith(f"{SERVING}/")
        and o.get("uid") == isvc["metadata"]["uid"]
        for o in owners
    )


class KServePin:
    """The pin of one service.

    ``recorded`` returns the record of an unfinished operation, None without one. It is called once, and only when the
    live limits could be pinned ones.
    """

    def __init__(self, recorded: Callable[[], JsonView | None]) -> None:
        self._recorded: Callable[[], JsonView | None] | None = recorded
        self._item: JsonView | None = None
        self._replicas = 0

    def set(self, scaling: JsonView | None) -> None:
        """Use this record from now on; None: nothing is pinned."""
        self._recorded = None
        items = scaling["items"] if scaling is not None else ()
        self._item = next((i for i in items if i["kind"] in HOMES), None)
        self._replicas = int(scaling["replicas"]) if scaling is not None else 0

    def without_pin(self, isvc: Json) -> Json:
        """Return the live object without the pin."""
        key = _home(isvc)
        home = mapping_at(
            isvc, "spec", key
        )  # a plain Deployment has none, and its HPA is pinned itself
        minimum, maximum = (home.get(name) for name in LIMITS)
        if minimum is None or minimum != maximum:
            return isvc
        item = self._pinned_item()
        if item is None or minimum != self._replicas:
            return isvc
        unpinned = {k: v for k, v in home.items() if k not in LIMITS}
        return {**isvc, "spec": {**isvc["spec"], key: {**unpinned, **item["limits"]}}}

    def with_pin(self, isvc: Json) -> Json:
        """Return the object to write, with the pin."""
        key = _home(isvc)
        if self._pinned_item() is None or key not in isvc["spec"]:
            return isvc
        pin = dict.fromkeys(LIMITS, self._replicas)
        return {**isvc, "spec": {**isvc["spec"], key: {**isvc["spec"][key], **pin}}}

    def _pinned_item(self) -> JsonView | None:
        if self._recorded is not None:
            self.set(self._recorded())
        return self._item


def _home(isvc: JsonView) -> str:
    return HOMES.get(str(isvc.get("kind")), HOMES[INFERENCE_SERVICE.name])


AUTOSCALERS = {
    kind.name: kind for kind in (HPA, SCALED_OBJECT, INFERENCE_SERVICE, LLM_INFERENCE_SERVICE)
}
_FIELDS = {
    HPA.name: ("minReplicas", "maxReplicas"),
    SCALED_OBJECT.name: ("minReplicaCount", "maxReplicaCount"),
    **dict.fromkeys(HOMES, LIMITS),
}
_TRIES = 5


def find_scalers(client: Client, namespace: str, deployment: str, kind: str) -> list[Json]:
    """Return the autoscalers of a Deployment or another ``kind``, without HPAs that belong to a ScaledObject."""
    scalers: list[Json] = []
    for resource in (SCALED_OBJECT, HPA):
        scalers += [
            item
            for item in client.list(resource, namespace) or []
            if targets(item, deployment, kind)
        ]
    return [
        item
        for item in scalers
        if all(o.get("kind") != SCALED_OBJECT.name for o in owners_of(item))
    ]


def targets(item: JsonView, deployment: str, kind: str = "Deployment") -> bool:
    """Return whether an autoscaler scales the workload (``kind`` defaults to Deployment for a ScaledObject)."""
    target = mapping_at(item, "spec", "scaleTargetRef")
    return target.get("name") == deployment and target.get("kind", "Deployment") == kind


def autoscaler_record(scalers: Sequence[JsonView], replicas: int, isvc: JsonView) -> Json | None:
    """Return the record to pin and restore the autoscalers of ``isvc``; None when nothing needs pinning.

    ``limits`` holds the fields as written, without absent ones.
    """
    items: list[Json] = []
    for scaler in scalers:
        if not made_by_kserve(scaler, isvc):
            items.append(_item(scaler))
        elif limits_of(scaler) != pinned(scaler, replicas):
            items.append(_item({**isvc, "kind": isvc.get("kind", INFERENCE_SERVICE.name)}))
    return {"replicas": replicas, "items": items} if items else None


def _item(scaler: JsonView) -> Json:
    metadata = scaler["metadata"]
    return {
        "kind": scaler["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "limits": limits_of(scaler),
    }


def pinned(item: JsonView, replicas: int) -> Json:
    """Return the limits of a pinned autoscaler."""
    return dict.fromkeys(_FIELDS[item["kind"]], replicas)


def limits_of(item: JsonView) -> Json:
    """Return the current limits of an autoscaler."""
    return {
        f: v for f, v in _limits_owner(item, item["kind"]).items() if f in _FIELDS[item["kind"]]
    }


def _limits_owner(body: JsonView, kind: str) -> Any:
    """Return the part of an object that holds its limits."""
    return mapping_at(body, "spec", *([HOMES[kind]] if kind in HOMES else ()))


class Autoscalers:
    """Pins and restores the autoscalers of a record. ``pin``: that of the service, which follows."""

    def __init__(self, client: Client, namespace: str, pin: KServePin) -> None:
        self._client = client
        self._namespace = namespace
        self._pin = pin

    def pin(self, record: JsonView) -> None:
        """Set the limits to the recorded number of pods; a foreign change is kept and reported by :meth:`unpin`."""
        for item in record["items"]:
            self._set(item, pinned(item, int(record["replicas"])), only_from=item["limits"])
        self._pin.set(record)

    def unpin(self, record: JsonView) -> tuple[str, ...]:
        """Restore the recorded limits; return notes on foreign changes that were kept."""
        pods, items = int(record["replicas"]), record["items"]
        notes = tuple(
            filter(None, (self._set(i, i["limits"], only_from=pinned(i, pods)) for i in items))
        )
        self._pin.set(None)
        return notes

    def foreign_changes(self, record: JsonView) -> tuple[str, ...]:
        """Describe what another writer changed of the pinned autoscalers, with its name and time."""
        changes = []
        for item in record["items"]:
            if item["kind"] in HOMES:
                continue  # a part of the service, whose manifest is compared
            kind = AUTOSCALERS[item["kind"]]
            scaler = self._client.get(kind, item["name"], self._namespace)
            if scaler is None:
                changes.append(f"{kind.name} {item['name']} was deleted")
                continue
            now = limits_of({"kind": kind.name, **scaler})
            if now not in (item["limits"], pinned(item, int(record["replicas"]))):
                by = last_editor(scaler, MANAGER)
                limits = ", ".join(f"{field} {value}" for field, value in now.items())
                changes.append(
                    f"{kind.name} {item['name']} was changed by {by} meanwhile: {limits}"
                )
        return tuple(changes)

    def _set(self, item: JsonView, limits: Json, *, only_from: Json) -> str:
        """Write the limits, also where they read as set: the write is refused if that reading was a stale one."""
        kind: ObjectKind = AUTOSCALERS[item["kind"]]
        name = item["name"]
        for _ in range(_TRIES):
            scaler = self._client.get(kind, name, self._namespace)
            if scaler is None:
                return f"{kind.name} {name} was deleted"
            scaler = {"kind": kind.name, **scaler}
            now = limits_of(scaler)
            if now not in (limits, only_from):
                return f"{kind.name} {name} was changed meanwhile and keeps the change: {now}"
            body = copy.deepcopy(scaler)
            body["metadata"].pop("managedFields", None)
            owner = _limits_owner(body, kind.name)
            for field in _FIELDS[kind.name]:
                owner.pop(field, None)
            owner.update(limits)
            try:
                self._client.replace(kind, body)
                return ""
            except (Stale, OutcomeUnknown):
                continue
        raise MpctlError(
            f"{kind.name} {name} could not be set to {limits} in {_TRIES} tries",
            hint="run the same command again to resume",
        )
