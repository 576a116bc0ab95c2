"""Creates objects that are never changed, so that two writers cannot both have a name."""

from __future__ import annotations

from mpctl.platform.kubernetes.api.client import Client, Json
from mpctl.platform.kubernetes.api.failure import AlreadyExists, OutcomeUnknown, Stale
from mpctl.platform.kubernetes.api.kinds import CONTROLLER_REVISION

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
