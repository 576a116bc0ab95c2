"""Fences off the command that held a service's Lease before: none of its writes is accepted any more.

A write names the resourceVersion that it read. A command that was stopped between its last check and its write (a
laptop that sleeps, a request that hangs in a proxy) sends that write whenever it continues, and the API server accepts
it as long as the object is as that command read it. So whoever takes the Lease over changes the resourceVersion of
every object that carries the service, before anything else.

The order decides. The old command reads an object, then finds its own name in the Lease, then writes with the
resourceVersion of that read. The new one writes its name into the Lease, then fences.

- The old command reads the Lease after that: it finds another name and writes nothing.
- It read the Lease before that: its resourceVersion is older than the fence. Its write arrives after the fence and is
  refused, or before it, and then the new command reads what it wrote, because it reads after the fence.

What changes is an entry of ``managedFields``, added and removed again, for an annotation that no object has. Fields,
annotations, labels and generation stay as they are: no controller passes anything on, and no pod restarts. An
annotation would: KServe copies those of an InferenceService into its pods.

Creating and deleting are outside of it: the API server knows no version of what does not exist. A stopped command may
still create its candidate or load Job. Neither gets users' traffic, and the next operation removes them. It deletes an
InferenceService only with the resourceVersion that it read.
"""

from __future__ import annotations

from mpctl.errors import MpctlError
from mpctl.json_fields import list_at, name_of
from mpctl.json_types import Json
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.kinds import HTTP_ROUTE, ObjectKind
from mpctl.platform.kubernetes.api.names import candidate_name, copy_name
from mpctl.platform.kubernetes.api.replies import OutcomeUnknown, Stale
from mpctl.platform.kubernetes.autoscaler import AUTOSCALERS, find_scalers, made_by_kserve
from mpctl.platform.kubernetes.httproute.specs import backend_of, is_controlled, refs_of
from mpctl.platform.kubernetes.service.shapes import shape_of

_MARK = "mpctl-fence"
_FIELDS: Json = {"f:metadata": {"f:annotations": {f"f:mpctl.dev/{_MARK}": {}}}}
_TRIES = 12  # controllers write the status of these objects all the time


def fence(client: Client, kind: ObjectKind, namespace: str, service: str) -> None:
    """Change the resourceVersion of a service, its candidate, its autoscalers and the HTTPRoutes that lead to it.

    Raises:
        NotPermitted: an object may not be written, so its earlier writer cannot be fenced off.
    """
    client.forget_reads()
    names = service, candidate_name(service), copy_name(service)
    record = client.get(kind, service, namespace)
    for name in names:
        _fence(client, kind, namespace, name)
    backends = [backend_of(name) for name in names]
    for route in client.list(HTTP_ROUTE, namespace) or []:
        if not is_controlled(route) and any(refs_of(route, backend) for backend in backends):
            _fence(client, HTTP_ROUTE, namespace, name_of(route))
    if record is None or (scaled := shape_of(record).autoscaled) is None:
        return
    for scaler in find_scalers(client, namespace, shape_of(record).workload_name(record), scaled):
        if not made_by_kserve(scaler, record):
            _fence(client, AUTOSCALERS[scaler["kind"]], namespace, name_of(scaler))


def _fence(client: Client, kind: ObjectKind, namespace: str, name: str) -> None:
    """Add the mark to an object and remove it, or remove the one that a killed command left."""
    for _ in range(_TRIES):
        record = client.get(kind, name, namespace)
        if record is None:
            return
        metadata = record["metadata"]
        entries = list_at(metadata, "managedFields")
        others = [entry for entry in entries if entry.get("manager") != _MARK]
        is_marked = len(others) < len(entries)
        mark = {
            "manager": _MARK,
            "operation": "Apply",  # those of updates are limited to ten, and the oldest are merged
            "apiVersion": kind.api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": _FIELDS,
        }
        # The API server takes an empty list as no change, and one empty entry as none.
        entries = (others or [{}]) if is_marked else [*others, mark]
        try:
            client.replace(kind, {**record, "metadata": {**metadata, "managedFields": entries}})
        except (Stale, OutcomeUnknown):
            continue
        if is_marked:
            return
    raise MpctlError(
        f"{kind.name} {namespace}/{name} could not be fenced off from its earlier writer in {_TRIES} tries",
        hint="run the same command again",
    )
