"""Names and labels of the objects that hold mpctl's state, apart from the service itself."""

from __future__ import annotations

import hashlib

SERVICE_LABEL = "mpctl.dev/service"
PART_LABEL = "mpctl.dev/part"
SCOPE_LABEL = "mpctl.dev/scope"  # of a load Job: which work it is for

LEDGER = "ledger"
REVISION = "revision"
RECORD = "record"
BLOB = "blob"
LOAD = "load"

CANDIDATE_SUFFIX = "-candidate"


def labels(service: str, part: str) -> dict[str, str]:
    """Labels of an object that belongs to a service; a name longer than a label may be is shortened by its digest."""
    return {SERVICE_LABEL: label_of(service), PART_LABEL: part, "app.kubernetes.io/managed-by": "mpctl"}


def label_of(service: str) -> str:
    """A service's name as a label value (at most 63 characters)."""
    return service if len(service) <= 63 else f"{service[:52]}-{_short(service)}"


def candidate_name(service: str) -> str:
    """The second InferenceService's name; monitors, rules and network policies of the stacks expect it."""
    return service + CANDIDATE_SUFFIX


def lease_name(service: str) -> str:
    """The Lease that one operator holds."""
    return f"mpctl-{service}"


def ledger_name(service: str, part: int) -> str:
    """The ConfigMap of one part of the ledger, counted from 0."""
    return f"mpctl-{service}-ledger-{part}"


def revision_name(service: str, number: int) -> str:
    """The ControllerRevision of a revision."""
    return f"mpctl-{service}-{number}"


def record_name(service: str, operation: str, name: str) -> str:
    """The ConfigMap of an operation's record."""
    return f"mpctl-{service}-record-{_short(f'{operation}/{name}')}"


def blob_name(service: str, digest: str) -> str:
    """The ConfigMap of a piece of a large record, named by its content."""
    return f"mpctl-{service}-blob-{digest[:20]}"


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:10]
