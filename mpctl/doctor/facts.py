"""The Kubernetes objects read from a cluster, as plain dicts, and the reason for each kind that could not be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Thing = Mapping[str, Any]

SERVICE_LABEL = "serving.kserve.io/inferenceservice"


@dataclass(frozen=True)
class Denied:
    """A call that the current user may not make, and the commands that need it."""

    call: str
    commands: tuple[str, ...]
    reader: bool


@dataclass(frozen=True)
class MetricAnswer:
    """The answer of ``custom.metrics.k8s.io`` for queue_wait_ms of a namespace's pods.

    ``values``: pod -> quantity as text; None when the call failed, with the ``error``.
    """

    namespace: str
    values: Mapping[str, str] | None
    error: str = ""


@dataclass(frozen=True)
class ClusterFacts:
    """``now``: with a zone, for ages. ``namespace``: the one that was read, None for all. ``version``: as the
    API server reports it, None without an answer. ``groups``: API group -> versions served.

    ``objects``: plural resource name -> objects; a resource in ``unread`` (name -> reason) may exist.
    ``kserve_fields``: dotted paths below an InferenceService's spec that the schema has, where it was asked.
    ``denied``: None when not asked. ``owners``: (namespace, service) -> another writer. ``unfinished``:
    (namespace, service) -> the operation that its ledger leaves open. ``look_alikes``: objects that only look like
    entries of a ledger, described.
    """

    now: datetime
    namespace: str | None = None
    version: str | None = None
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    objects: Mapping[str, Sequence[Thing]] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    kserve_fields: frozenset[str] | None = None
    kserve_namespace: str = "kserve"
    metrics: tuple[MetricAnswer, ...] = ()
    denied: tuple[Denied, ...] | None = None
    owners: Mapping[tuple[str, str], str] = field(default_factory=dict)
    unfinished: Mapping[tuple[str, str], str] = field(default_factory=dict)
    look_alikes: tuple[str, ...] = ()

    def read(self, resource: str) -> Sequence[Thing] | None:
        """Return the objects of a resource, None when they were not read."""
        return None if resource in self.unread else self.objects.get(resource)

    def known(self, resource: str) -> Sequence[Thing]:
        """Return the objects of a resource, none when they were not read."""
        return self.read(resource) or ()

    def of(self, resource: str, namespace: str, name: str) -> Thing | None:
        """One object by name."""
        return next((t for t in self.known(resource) if place(t) == (namespace, name)), None)

    def pods(self, service: Thing) -> Iterator[Thing]:
        """The pods of an InferenceService."""
        namespace, name = place(service)
        for pod in self.known("pods"):
            labels = at(pod, "metadata", "labels") or {}
            if place(pod)[0] == namespace and labels.get(SERVICE_LABEL) == name:
                yield pod


def at(thing: Any, *keys: str) -> Any:
    """The value under a path of keys, None when any step is missing."""
    for key in keys:
        thing = thing.get(key) if isinstance(thing, Mapping) else None
    return thing


def each(thing: Any, *keys: str) -> Sequence[Any]:
    """The list under a path of keys, empty when there is none."""
    entries = at(thing, *keys)
    return entries if isinstance(entries, Sequence) and not isinstance(entries, str) else ()


def place(thing: Thing) -> tuple[str, str]:
    """Namespace (empty for a cluster's own object) and name."""
    return str(at(thing, "metadata", "namespace") or ""), str(at(thing, "metadata", "name"))


def title(kind: str, thing: Thing) -> str:
    """``kind namespace/name``."""
    return f"{kind} {'/'.join(filter(None, place(thing)))}"


def label(thing: Thing, name: str) -> str | None:
    """One label."""
    label_value = at(thing, "metadata", "labels", name)
    return None if label_value is None else str(label_value)


def annotation(thing: Thing, name: str) -> str | None:
    """One annotation."""
    annotation_value = at(thing, "metadata", "annotations", name)
    return None if annotation_value is None else str(annotation_value)


def condition(thing: Thing, kind: str) -> Thing | None:
    """A condition of the status by type."""
    return next((c for c in each(thing, "status", "conditions") if c.get("type") == kind), None)


def is_true(thing: Thing, kind: str) -> bool:
    """Return whether a condition exists and is "True"."""
    return bool(at(condition(thing, kind), "status") == "True")


def age_s(thing: Thing, now: datetime) -> float | None:
    """Seconds since the object was created."""
    return since_s(at(thing, "metadata", "creationTimestamp"), now)


def since_s(stamp: Any, now: datetime) -> float | None:
    """Seconds since an RFC 3339 time; None when it is no time."""
    try:
        when = datetime.fromisoformat(str(stamp))
    except ValueError:
        return None
    return None if when.tzinfo is None else (now - when).total_seconds()


def is_budgeted(budgets: Iterable[Thing], labels: Mapping[str, str]) -> bool:
    """Return whether a PodDisruptionBudget covers pods with these labels; one without a selector covers none."""
    selectors = (at(budget, "spec", "selector") for budget in budgets)
    return any(selector is not None and selects(selector, labels) for selector in selectors)


def selects(selector: Any, labels: Mapping[str, str]) -> bool:
    """Return whether a LabelSelector (matchLabels and matchExpressions) matches; an empty one matches everything."""
    if any(labels.get(key) != value for key, value in (at(selector, "matchLabels") or {}).items()):
        return False
    return all(_matches(rule, labels) for rule in each(selector, "matchExpressions"))


def _matches(rule: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = str(rule.get("key")), rule.get("values") or []
    match rule.get("operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    return False
