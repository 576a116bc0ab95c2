"""SpeculationStatus: what the watch reports of a service, for ``kubectl wait``, Flux and Argo CD, and its Events.

A type of its own, because conditions of a ConfigMap cannot be waited for, and those of an InferenceService are KServe's
to write (docs/decisions/speculation-status.md).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from mpctl.json_types import Json, JsonView
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.kinds import EVENT, SPECULATION_STATUS

_LABELS = {"app.kubernetes.io/managed-by": "mpctl"}
_LONGEST = 1000  # of an Event's message; the API server takes 1024 bytes


class StatusWriter:
    """Writes the objects of many services; the first write of each creates its object."""

    def __init__(self, client: Client, instance: str) -> None:
        self._client, self._instance = client, instance
        self._known: dict[tuple[str, str], Json] = {}

    def write(self, namespace: str, service: str, status: JsonView) -> None:
        """Set the status; ``observedGeneration`` is added.

        Raises:
            MpctlError: the API server refused it or did not answer.
        """
        speculation_status = self._object(namespace, service)
        metadata = {"name": service, "namespace": namespace}
        observed = {"observedGeneration": speculation_status["metadata"]["generation"]}
        conditions = [{**condition, **observed} for condition in status["conditions"]]
        body = {"metadata": metadata, "status": {**status, **observed, "conditions": conditions}}
        self._client.apply(SPECULATION_STATUS, body, force=True, subresource="status")

    def tell(
        self, namespace: str, service: str, reason: str, message: str, at: str, *, warning: bool
    ) -> None:
        """Create an Event on the service's SpeculationStatus.

        Raises:
            MpctlError: the API server refused it or did not answer.
        """
        owner = self._object(namespace, service)["metadata"]
        involved = {"apiVersion": SPECULATION_STATUS.api_version, "kind": SPECULATION_STATUS.name}
        body = {
            "metadata": {
                "name": f"{service}.{secrets.token_hex(8)}",
                "namespace": namespace,
                "labels": _LABELS,
            },
            "involvedObject": {
                **involved,
                "namespace": namespace,
                "name": service,
                "uid": owner["uid"],
            },
            "reason": reason,
            "message": message[:_LONGEST],
            "type": "Warning" if warning else "Normal",
            "source": {"component": "mpctl-watch", "host": self._instance},
            "reportingComponent": "mpctl.dev/watch",
            "reportingInstance": self._instance,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }
        self._client.create(EVENT, body)

    def forget(self, namespace: str, service: str) -> None:
        """Create the object anew with the next write, in case somebody deleted it."""
        self._known.pop((namespace, service), None)

    def _object(self, namespace: str, service: str) -> Json:
        key = (namespace, service)
        if key not in self._known:
            metadata = {"name": service, "namespace": namespace, "labels": _LABELS}
            body = {"metadata": metadata, "spec": {"service": service}}
            self._known[key] = self._client.apply(SPECULATION_STATUS, body, force=True)
        return self._known[key]


def since(
    conditions: Sequence[Mapping[str, str]], before: Sequence[Mapping[str, str]], now: str
) -> list[Json]:
    """Conditions with ``lastTransitionTime``: that of before where the status is the same."""
    old = {c["type"]: c for c in before}
    return [
        {**c, "lastTransitionTime": old[c["type"]]["lastTransitionTime"]}
        if c["type"] in old and old[c["type"]]["status"] == c["status"]
        else {**c, "lastTransitionTime": now}
        for c in conditions
    ]
