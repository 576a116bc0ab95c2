"""Names and labels of the objects that hold mpctl's state, apart from the service itself."""

from __future__ import annotations

import hashlib
import re

SERVICE_LABEL = "mpctl.dev/service"
PART_LABEL = "mpctl.dev/part"
OPERATION_LABEL = "mpctl.dev/operation"  # of a seal
SCOPE_LABEL = "mpctl.dev/scope"  # of a load Job: which work it is for

LEDGER = "ledger"
REVISION = "revision"
RECORD = "record"
BLOB = "blob"
SEAL = "seal"
LOAD = "load"

SEALED = (
    "mpctl-sentinels"  # the Secret of a namespace with the beginnings of users' prompts, by service
)

CANDIDATE_SUFFIX = "-candidate"
COPY_SUFFIX = "-copy"


def labels(service: str, part: str) -> dict[str, str]:
    """Labels of an object that belongs to a service; a name longer than a label may be is shortened by its digest."""
    return {
        SERVICE_LABEL: label_of(service),
        PART_LABEL: part,
        "app.kubernetes.io/managed-by": "mpctl",
        "app.kubernetes.io/part-of": "mpctl",
    }


def label_of(name: str) -> str:
    """The name of a service or an operation as a label value (at most 63 characters)."""
    return name if len(name) <= 63 else f"{name[:52]}-{_short(name)}"


def candidate_name(service: str) -> str:
    """The second InferenceService's name; monitors, rules and network policies of the stacks expect it."""
    return service + CANDIDATE_SUFFIX


def copy_name(service: str) -> str:
    """The object that runs a copy of the baseline while it is measured."""
    return service + COPY_SUFFIX


def lease_name(service: str) -> str:
    """The Lease that one operator holds."""
    return f"mpctl-{service}"


def ledger_name(service: str, number: int) -> str:
    """The ControllerRevision of an entry of the ledger, counted from 1. What follows the last dot tells its part, so
    that no service's objects have names of another's."""
    return f"mpctl-{service}.{LEDGER}-{number}"


def folded_name(service: str, first: int, last: int) -> str:
    """The ControllerRevision that holds many entries of the ledger, from ``first`` to ``last``."""
    return f"{ledger_name(service, first)}-{last}"


def revision_name(service: str, number: int) -> str:
    """The ControllerRevision of a revision."""
    return f"mpctl-{service}.{REVISION}-{number}"


_NUMBER = "[1-9][0-9]{0,8}"
_SUFFIXES = {
    LEDGER: re.compile(rf"\.{LEDGER}-{_NUMBER}(-{_NUMBER})?"),
    SEAL: re.compile(rf"\.{SEAL}-[0-9a-f]{{10}}-{_NUMBER}"),
    REVISION: re.compile(rf"\.{REVISION}-{_NUMBER}|-{_NUMBER}"),  # the second until 0.9
}


def part_in(name: str, service: str) -> str:
    """The part that a ControllerRevision of a service is by its name; empty for a name that mpctl gives to none."""
    start = f"mpctl-{service}"
    suffix = name.removeprefix(start) if name.startswith(start) else ""
    return next((part for part, pattern in _SUFFIXES.items() if pattern.fullmatch(suffix)), "")


def service_of_ledger(name: str) -> str:
    """The service that a ledger entry's object belongs to."""
    return name.removeprefix("mpctl-").rpartition(f".{LEDGER}-")[0]


def record_name(service: str, operation: str, bundle: str, number: int) -> str:
    """The ConfigMap of a bundle's state: two of them take turns."""
    return f"mpctl-{service}-record-{_short(f'{operation}/{bundle}')}-{number % 2}"


def blob_name(service: str, digest: str) -> str:
    """The ConfigMap of a piece of a large record, named by its content."""
    return f"mpctl-{service}-blob-{digest[:20]}"


def seal_name(service: str, operation: str, bundle: str, number: int) -> str:
    """The ControllerRevision that vouches for a state of a bundle, counted from 1."""
    return f"mpctl-{service}.seal-{_short(f'{operation}/{bundle}')}-{number}"


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:10]
