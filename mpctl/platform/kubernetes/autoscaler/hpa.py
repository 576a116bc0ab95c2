"""The autoscaler of a service, held still while the service is changed, and put back exactly.

A HorizontalPodAutoscaler or a KEDA ScaledObject that targets the predictor's Deployment would answer the load of a
measurement, a surge pod or a crashing one with more pods (kubernetes/kubernetes#90461, #72775, #87199). It is pinned to
the number of pods there are. What it was is in the plan, so in the ledger before anything is touched.

One that KServe makes itself is pinned through the InferenceService it is made from; see ``hold``.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from mpctl.errors import MpctlError
from mpctl.platform.kubernetes.api.client import Client, Json
from mpctl.platform.kubernetes.api.failure import OutcomeUnknown, Stale
from mpctl.platform.kubernetes.api.kinds import HPA, INFERENCE_SERVICE, SCALED_OBJECT, Kind
from mpctl.platform.kubernetes.autoscaler.kserve_hpa import LIMITS, made_by_kserve

_KINDS = {kind.name: kind for kind in (HPA, SCALED_OBJECT, INFERENCE_SERVICE)}
_FIELDS = {
    HPA.name: ("minReplicas", "maxReplicas"),
    SCALED_OBJECT.name: ("minReplicaCount", "maxReplicaCount"),
    INFERENCE_SERVICE.name: LIMITS,
}
_TRIES = 5


def find_scalers(client: Client, namespace: str, deployment: str) -> list[Json]:
    """Autoscalers of a Deployment. An HPA that belongs to a ScaledObject is KEDA's own and follows it."""
    found: list[Json] = []
    for kind in (SCALED_OBJECT, HPA):
        found += [item for item in client.list(kind, namespace) or [] if targets(item, deployment)]
    return [item for item in found if not _owned_by_keda(item)]


def targets(item: Mapping[str, Any], deployment: str) -> bool:
    """Whether an autoscaler scales the Deployment (``kind`` defaults to Deployment for a ScaledObject)."""
    target = (item.get("spec") or {}).get("scaleTargetRef") or {}
    return target.get("name") == deployment and target.get("kind", "Deployment") == "Deployment"


def _owned_by_keda(item: Mapping[str, Any]) -> bool:
    return any(o.get("kind") == SCALED_OBJECT.name for o in item["metadata"].get("ownerReferences") or [])


def record_of(scalers: Sequence[Mapping[str, Any]], replicas: int, isvc: Mapping[str, Any]) -> Json | None:
    """What is needed to pin the autoscalers of ``isvc`` and to put them back; None where nothing needs pinning.

    ``limits`` holds the fields as they are written; one that is absent is not in it.
    """
    items: list[Json] = []
    for scaler in scalers:
        if not made_by_kserve(scaler, isvc):
            items.append(_item(scaler))
        elif limits_of(scaler) != pinned(scaler, replicas):
            items.append(_item({**isvc, "kind": INFERENCE_SERVICE.name}))
    return {"replicas": replicas, "items": items} if items else None


def _item(scaler: Mapping[str, Any]) -> Json:
    metadata = scaler["metadata"]
    return {"kind": scaler["kind"], "name": metadata["name"], "uid": metadata["uid"], "limits": limits_of(scaler)}


def pinned(item: Mapping[str, Any], replicas: int) -> Json:
    """The limits of a pinned autoscaler."""
    return dict.fromkeys(_FIELDS[item["kind"]], replicas)


def limits_of(item: Mapping[str, Any]) -> Json:
    """The limits an autoscaler has now."""
    return {f: v for f, v in _holder(item, item["kind"]).items() if f in _FIELDS[item["kind"]]}


def _holder(body: Mapping[str, Any], kind: str) -> Any:
    """What of an object has its limits."""
    return body["spec"]["predictor"] if kind == INFERENCE_SERVICE.name else body["spec"]


class Scaling:
    """Pins and restores the autoscalers of a record."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    def pin(self, record: Mapping[str, Any]) -> None:
        """Limits = the recorded number of pods; what somebody else changed since it was recorded is left, and said by
        :meth:`unpin`."""
        for item in record["items"]:
            self._set(item, pinned(item, int(record["replicas"])), only_from=item["limits"])

    def unpin(self, record: Mapping[str, Any]) -> tuple[str, ...]:
        """Put back the recorded limits; returns what somebody else changed meanwhile and was therefore left."""
        left = []
        for item in record["items"]:
            told = self._set(item, item["limits"], only_from=pinned(item, int(record["replicas"])))
            if told:
                left.append(told)
        return tuple(left)

    def _set(self, item: Mapping[str, Any], limits: Json, *, only_from: Json) -> str:
        kind: Kind = _KINDS[item["kind"]]
        name = item["name"]
        for _ in range(_TRIES):
            there = self._client.get(kind, name, self._namespace)
            if there is None:
                return f"{kind.name} {name} is gone"
            there = {"kind": kind.name, **there}
            now = limits_of(there)
            if now == limits:
                return ""
            if now != only_from:
                return f"{kind.name} {name} was changed meanwhile and is left as it is: {now}"
            body = copy.deepcopy(there)
            body["metadata"].pop("managedFields", None)
            holder = _holder(body, kind.name)
            for field in _FIELDS[kind.name]:
                holder.pop(field, None)
            holder.update(limits)
            try:
                self._client.replace(kind, body)
                return ""
            except (Stale, OutcomeUnknown):
                continue
        raise MpctlError(
            f"{kind.name} {name} could not be set to {limits} in {_TRIES} tries",
            hint="the same command again goes on",
        )
