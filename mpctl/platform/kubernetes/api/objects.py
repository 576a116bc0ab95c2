"""Changes of an object and their authors: comparison field by field, managed fields, owners. Pure.

Argo CD, Flux, Helm, Terraform or a controller may own an object. A change past such an owner does not last: Argo CD and
Flux revert it within minutes, Helm and Terraform at their next run, a controller at once. The change belongs into the
owner's source. Evidence, strongest first: labels and annotations that name the owner's object, a controlling
ownerReference, and the field managers of the spec. Labels that any chart may set (``app.kubernetes.io/instance``) are
no evidence.

A manager is a name that the client chooses; the user is in the API server's audit log alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mpctl import commands
from mpctl.errors import Refused
from mpctl.json_fields import list_at, mapping_at, value_at
from mpctl.json_types import Json, JsonView

_LABELS = ("labels", "annotations")


def changed_fields(before: Any, after: Any, path: str = "") -> tuple[str, ...]:
    """Dotted paths of the smallest fields that differ; a list is one field unless its items have names."""
    if isinstance(before, dict) and isinstance(after, dict):
        changed: list[str] = []
        for key in sorted({*before, *after}):
            if before.get(key) != after.get(key):
                changed += changed_fields(
                    before.get(key), after.get(key), f"{path}.{key}" if path else key
                )
        return tuple(changed)
    named = _by_name(before), _by_name(after)
    if named[0] is not None and named[1] is not None and before != after:
        changed = []
        for key in sorted({*named[0], *named[1]}):
            if named[0].get(key) != named[1].get(key):
                changed += changed_fields(named[0].get(key), named[1].get(key), f"{path}[{key}]")
        return tuple(changed)
    return () if before == after else (path,)


def added_fields(recorded: Any, now: Any, path: str = "") -> tuple[str, ...] | None:
    """Return the dotted paths of fields that only ``now`` has; None if a field of ``recorded`` is missing or has
    another value. A list of another length or order is another value."""
    if isinstance(recorded, dict) and isinstance(now, dict):
        added: list[str] = []
        for key, value in now.items():
            below = f"{path}.{key}" if path else str(key)
            nested = added_fields(recorded[key], value, below) if key in recorded else (below,)
            if nested is None:
                return None
            added += nested
        return None if recorded.keys() - now.keys() else tuple(sorted(added))
    if isinstance(recorded, list) and isinstance(now, list) and len(recorded) == len(now):
        added = []
        for index, (before, after) in enumerate(zip(recorded, now, strict=True)):
            name = after.get("name", index) if isinstance(after, dict) else index
            nested = added_fields(before, after, f"{path}[{name}]")
            if nested is None:
                return None
            added += nested
        return tuple(added)
    return () if type(recorded) is type(now) and recorded == now else None


def without_labels(record: JsonView) -> Json:
    """Return an object without its own labels and annotations."""
    metadata = {k: v for k, v in record["metadata"].items() if k not in _LABELS}
    return {**record, "metadata": metadata}


def keep_labels(record: Json, before: JsonView, now: JsonView) -> None:
    """Give an object that is to be written the labels and annotations that were changed from ``before`` to ``now``."""
    for kind in _LABELS:
        old, new, mine = (mapping_at(item, "metadata", kind) for item in (before, now, record))
        changed = {k: v for k, v in new.items() if old.get(k) != v}
        record["metadata"][kind] = {
            k: v for k, v in (mine | changed).items() if k in new or k not in old
        }


def _by_name(value: Any) -> Json | None:
    if not isinstance(value, list) or not all(
        isinstance(item, dict) and "name" in item for item in value
    ):
        return None
    return {str(item["name"]): item for item in value}


def last_writer(item: Json, *path: str) -> str:
    """Return ``, last written by MANAGER at TIME``; empty where the object does not say. ``path``: keys of a field
    whose writer is meant; that of the object where no manager owns the field."""
    written = writer_of(item, *path)
    if written is None:
        return ""
    manager, time = written
    return f", last written by {manager or 'an unnamed client'} at {time or 'an unknown time'}"


def writer_of(item: Json, *path: str) -> tuple[str, str] | None:
    """Return the manager that wrote a field last, and when; None where the object does not say."""
    fields = value_at(item, "metadata", "managedFields")
    written = [f for f in fields or () if isinstance(f, dict)]
    written = [f for f in written if owns_field(f.get("fieldsV1"), path)] or written
    if not written:
        return None
    time, manager = max((str(f.get("time", "")), str(f.get("manager", ""))) for f in written)
    return manager, time


def owns_field(fields: Any, path: tuple[str, ...]) -> bool:
    """Return whether a manager's ``fieldsV1`` has the field at ``path``."""
    for key in path:
        fields = fields.get(f"f:{key}") if isinstance(fields, dict) else None
    return fields is not None


# Argo CD user guide, "Resource Tracking": the annotation is the default since 3.0.
_ARGO_ID = "argocd.argoproj.io/tracking-id"
_ARGO_INSTANCE = "argocd.argoproj.io/instance"
# Flux documentation, kustomize-controller and helm-controller: labels on everything they apply.
_FLUX = (
    ("kustomize.toolkit.fluxcd.io", "Kustomization"),
    ("helm.toolkit.fluxcd.io", "HelmRelease"),
)
# Helm documentation, "Labels and Annotations"; both annotations are required for an object to belong to a release.
_HELM_NAME, _HELM_NAMESPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"

# Field managers under which the tools write.
_MANAGERS = {
    "argocd-controller": "Argo CD",
    "argocd-application-controller": "Argo CD",
    "kustomize-controller": "Flux",
    "helm-controller": "Flux",
    "helm": "Helm",
    "Terraform": "Terraform",
}
_REVERTS = {
    "Argo CD": "reverts the change at the next sync, at once with self-heal",
    "Flux": "reverts the change at its next reconciliation",
    "Helm": "reverts the change at the next upgrade",
    "Terraform": "reverts the change at the next apply",
}


@dataclass(frozen=True)
class Owner:
    """``tool``: Argo CD, Flux, Helm, Terraform, or the kind of a controlling object. ``name``: the owner's own object,
    as ``namespace/name`` where both are known, None when only a field manager tells. ``evidence``: the trace."""

    tool: str
    name: str | None
    evidence: str

    @property
    def title(self) -> str:
        """Return the name that messages use."""
        return f"{self.tool} ({self.name})" if self.name else self.tool

    @property
    def reverts(self) -> str:
        """Describe the moment at which the owner reverts a foreign change."""
        return _REVERTS.get(self.tool, "controls this object and reverts the change")

    @property
    def remedy(self) -> str:
        """Return how to make the change in the owner's source."""
        command = commands.line("render", "-f", "MANIFEST", "--spec", "METHOD")
        if self.tool == "Argo CD":
            app = self.name or "the application"
            return (
                f"{command} prints the changed manifest; commit it to the source of {app} and sync"
            )
        if self.tool == "Flux":
            source = self.name or "the Kustomization"
            return f"{command} prints the changed manifest; commit it to the source of {source} and reconcile"
        if self.tool == "Helm":
            values = command.replace("-f MANIFEST", "--values FILE")
            return f"{values} prints the changed values; upgrade {self.name or 'the release'} with them"
        if self.tool == "Terraform":
            return f"{command} prints the changed manifest; put it into the configuration and apply"
        return f"change {self.name or 'the owner'} instead"


def owner_of(thing: JsonView) -> Owner | None:
    """Return the owner of a Kubernetes object; None when only people write it."""
    metadata = mapping_at(thing, "metadata")
    labels, annotations = mapping_at(metadata, "labels"), mapping_at(metadata, "annotations")
    return (
        _argo(labels, annotations, thing)
        or _flux(labels)
        or _helm(annotations)
        or _controller_or_manager(metadata)
    )


def _argo(
    labels: Mapping[str, str], annotations: Mapping[str, str], thing: JsonView
) -> Owner | None:
    tracking = annotations.get(_ARGO_ID)
    if tracking and _tracks(tracking, thing):
        return Owner("Argo CD", tracking.partition(":")[0], f"annotation {_ARGO_ID}: {tracking}")
    instance = labels.get(_ARGO_INSTANCE)
    return Owner("Argo CD", instance, f"label {_ARGO_INSTANCE}: {instance}") if instance else None


def _tracks(tracking: str, thing: JsonView) -> bool:
    """``app:group/Kind:namespace/name``. Argo CD itself ignores an id that was copied from another object."""
    parts = tracking.split(":")
    if len(parts) != 3:
        return False
    metadata, kind = mapping_at(thing, "metadata"), thing.get("kind")
    is_kind = kind is None or parts[1].rpartition("/")[2] == kind
    return is_kind and parts[2].rpartition("/")[2] == metadata.get("name")


def _flux(labels: Mapping[str, str]) -> Owner | None:
    for prefix, kind in _FLUX:
        name, namespace = labels.get(f"{prefix}/name"), labels.get(f"{prefix}/namespace")
        if name:
            full_name = f"{namespace}/{name}" if namespace else name
            return Owner("Flux", f"{kind} {full_name}", f"label {prefix}/name: {name}")
    return None


def _helm(annotations: Mapping[str, str]) -> Owner | None:
    name, namespace = annotations.get(_HELM_NAME), annotations.get(_HELM_NAMESPACE)
    if not name:
        return None
    return Owner(
        "Helm", f"{namespace}/{name}" if namespace else name, f"annotation {_HELM_NAME}: {name}"
    )


def _controller_or_manager(metadata: JsonView) -> Owner | None:
    for reference in list_at(metadata, "ownerReferences"):
        if reference.get("controller"):
            name = f"{reference.get('kind')} {reference.get('name')}"
            return Owner(str(reference.get("kind")), name, f"ownerReference {name}")
    for entry in list_at(metadata, "managedFields"):
        tool = _MANAGERS.get(str(entry.get("manager")))
        fields = mapping_at(entry, "fieldsV1")
        if tool and not entry.get("subresource") and "f:spec" in fields:
            return Owner(tool, None, f"field manager {entry['manager']} of the spec")
    return None


def require_unowned(thing: JsonView, *, force: bool) -> str | None:
    """Return a warning when ``force`` overrides an owner; None without an owner.

    Raises:
        Refused: the object has another owner; the hint has the remedy.
    """
    owner = owner_of(thing)
    if owner is None:
        return None
    metadata = mapping_at(thing, "metadata")
    name = "/".join(filter(None, (metadata.get("namespace"), metadata.get("name"))))
    summary = (
        f"{thing.get('kind') or 'object'} {name} belongs to {owner.title}, which {owner.reverts}"
    )
    if force:
        return f"{summary}; changed because of --force ({owner.evidence})"
    raise Refused(
        f"{summary} ({owner.evidence})",
        hint=f"{owner.remedy}; or use --force to change it here",
    )


def last_editor(record: JsonView, ours: str) -> str:
    """``MANAGER at TIME`` of the last change by another manager than ``ours``; a word for it where nobody is named."""
    edits = [
        (str(entry["time"]), entry.get("manager", "?"))
        for entry in list_at(record, "metadata", "managedFields")
        if entry.get("time") and not entry.get("subresource") and entry.get("manager") != ours
    ]
    time, manager = max(edits, default=("", ""))
    return f"{manager} at {time}" if edits else "another client"
