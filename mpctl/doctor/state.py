"""Facts in, findings out: the objects read from a cluster as plain dicts, and what the doctor reports of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from mpctl.json_fields import list_at, mapping_at, value_at
from mpctl.json_types import JsonView

KubeObject = JsonView

SERVICE_LABEL = "serving.kserve.io/inferenceservice"


Severity = Literal["fail", "warn", "note", "ok"]

# The order in which a person should read them.
SEVERITIES: tuple[Severity, ...] = ("fail", "warn", "note", "ok")


@dataclass(frozen=True)
class Symptom:
    """``id`` is stable, for scripts. ``subject``: the object, as ``kind namespace/name``. ``cause``: the state and
    why it matters. ``fix``: the next step, empty for ``ok``. ``source``: the issue, document or measurement behind it.

    ``fail``: a rollout, or the service itself, does not work like this. ``warn``: it works until something happens.
    ``note``: worth knowing, or something could not be read.
    """

    id: str
    severity: Severity
    subject: str
    cause: str
    fix: str = ""
    source: str = ""


@dataclass(frozen=True)
class Denied:
    """A call that the current user may not make, and the commands that need it."""

    call: str
    commands: tuple[str, ...]
    reader: bool


@dataclass(frozen=True)
class ClusterFacts:
    """Everything that was read from a cluster."""

    now: datetime  # with a zone, for ages
    namespace: str | None = None  # the one that was read, None for all
    groups: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # API group -> versions served
    objects: Mapping[str, Sequence[KubeObject]] = field(
        default_factory=dict
    )  # plural resource name -> objects
    unread: Mapping[str, str] = field(
        default_factory=dict
    )  # resource -> why it was not read; it may exist
    kserve_namespace: str = "kserve"
    denied: tuple[Denied, ...] | None = None  # None where nobody asked
    owners: Mapping[tuple[str, str], str] = field(
        default_factory=dict
    )  # (namespace, service) -> another writer
    unfinished: Mapping[tuple[str, str], str] = field(
        default_factory=dict
    )  # -> the operation that its ledger leaves open
    look_alikes: tuple[str, ...] = ()  # objects that only look like entries of a ledger, described

    def read(self, resource: str) -> Sequence[KubeObject] | None:
        """Return the objects of a resource, None when they were not read."""
        return None if resource in self.unread else self.objects.get(resource)

    def listed(self, resource: str) -> Sequence[KubeObject]:
        """Return the objects of a resource, none when they were not read."""
        return self.read(resource) or ()

    def of(self, resource: str, namespace: str, name: str) -> KubeObject | None:
        """An object by name."""
        return next((t for t in self.listed(resource) if full_name(t) == (namespace, name)), None)


def full_name(item: KubeObject) -> tuple[str, str]:
    """Namespace (empty for a cluster's own object) and name."""
    return str(value_at(item, "metadata", "namespace") or ""), str(
        value_at(item, "metadata", "name")
    )


def title(kind: str, item: KubeObject) -> str:
    """``kind namespace/name``."""
    return f"{kind} {'/'.join(filter(None, full_name(item)))}"


def label(item: KubeObject, name: str) -> str | None:
    """A label."""
    label_value = value_at(item, "metadata", "labels", name)
    return None if label_value is None else str(label_value)


def annotation(item: KubeObject, name: str) -> str | None:
    """An annotation."""
    annotation_value = value_at(item, "metadata", "annotations", name)
    return None if annotation_value is None else str(annotation_value)


def age_s(item: KubeObject, now: datetime) -> float | None:
    """Seconds since the object was created."""
    return since_s(value_at(item, "metadata", "creationTimestamp"), now)


def since_s(stamp: Any, now: datetime) -> float | None:
    """Seconds since an RFC 3339 time; None when it is no time."""
    try:
        when = datetime.fromisoformat(str(stamp))
    except ValueError:
        return None
    return None if when.tzinfo is None else (now - when).total_seconds()


def is_budgeted(budgets: Iterable[KubeObject], labels: Mapping[str, str]) -> bool:
    """Return whether a PodDisruptionBudget covers pods with these labels; one without a selector covers none."""
    selectors = (value_at(budget, "spec", "selector") for budget in budgets)
    return any(selector is not None and selects(selector, labels) for selector in selectors)


def selects(selector: Any, labels: Mapping[str, str]) -> bool:
    """Return whether a LabelSelector (matchLabels and matchExpressions) matches; an empty one matches everything."""
    if any(labels.get(key) != value for key, value in mapping_at(selector, "matchLabels").items()):
        return False
    return all(_matches(rule, labels) for rule in list_at(selector, "matchExpressions"))


def _matches(rule: JsonView, labels: Mapping[str, str]) -> bool:
    key, values = str(rule.get("key")), list_at(rule, "values")
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
