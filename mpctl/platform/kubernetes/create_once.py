"""The ControllerRevisions of a history: created once and never changed, so that two writers cannot both have a name.

Objects are a service's own by their exact name, and by a controller that no server knows: a StatefulSet or DaemonSet
whose selector matches adopts, and then deletes, ControllerRevisions without a controller. The garbage collector leaves
an object alone whose owner's kind it cannot look up, also in another namespace or cluster to which it was restored.
"""

from __future__ import annotations

import uuid

from mpctl.platform.kubernetes.api import names
from mpctl.platform.kubernetes.api.client import Client, Json
from mpctl.platform.kubernetes.api.failure import AlreadyExists, OutcomeUnknown, Stale
from mpctl.platform.kubernetes.api.kinds import CONTROLLER_REVISION
from mpctl.platform.kubernetes.api.last_writer import last_writer

# A controller that is none: no StatefulSet or DaemonSet adopts what has one.
_OWNER = {"apiVersion": "mpctl.dev/v1", "kind": "Ledger"}
_TRIES = 4


def create_once(client: Client, metadata: Json, number: int, data: Json) -> Json | None:
    """Create a ControllerRevision, or return the existing one of the same name, which an unanswered try may have
    created.


    Raises:
        OutcomeUnknown: no try was answered.
        Stale: quota is counted optimistically, and was contended in every try.
    """
    name, namespace = metadata["name"], metadata["namespace"]
    body = {"metadata": metadata, "revision": number, "data": data}
    for remaining_tries in reversed(range(_TRIES)):
        try:
            client.create(CONTROLLER_REVISION, body)
            return None
        except AlreadyExists:
            return client.require(CONTROLLER_REVISION, name, namespace)
        except OutcomeUnknown:
            existing = client.get(CONTROLLER_REVISION, name, namespace)
            if existing is not None or not remaining_tries:
                if existing is None:
                    raise
                return existing
        except Stale:
            if not remaining_tries:
                raise
    return None


def metadata_of(namespace: str, service: str, name: str, part: str) -> Json:
    """Metadata of a ControllerRevision of a service's history."""
    uid = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{_OWNER['apiVersion']}/{namespace}/{service}"))
    owner = {**_OWNER, "name": service, "uid": uid, "controller": True}
    labels = names.labels(service, part)
    return {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": [owner]}


def owned_by(item: Json, service: str) -> bool:
    """Whether a ControllerRevision is of a service's history. Until 0.9 they had no controller, as has one that its
    StatefulSet or DaemonSet left behind, whose ``data`` is a template."""
    metadata = item["metadata"]
    labels = metadata.get("labels") or {}
    if labels.get(names.SERVICE_LABEL) != names.label_of(service):
        return False
    if names.part_in(metadata["name"], service) != labels.get(names.PART_LABEL):
        return False
    controller = _controller(item)
    if controller is None:
        return (item.get("data") or {}).keys() != {"spec"}
    return all(controller.get(key) == value for key, value in _OWNER.items())


def look_alike(item: Json) -> str:
    """Describe a ControllerRevision that has mpctl's labels and is none of its own."""
    controller, metadata = _controller(item), item["metadata"]
    owner = f"{controller.get('kind')} {controller.get('name')}" if controller else "an unknown owner"
    return (
        f"ControllerRevision {metadata.get('namespace', '')}/{metadata['name']} of {owner} has mpctl's labels and is "
        f"none of its own; it is ignored{last_writer(item)}"
    )


def _controller(item: Json) -> Json | None:
    owners = item["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)
