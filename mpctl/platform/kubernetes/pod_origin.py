"""Tells a pod that a Job's controller created from one that it adopted. Pure.

A Job's controller adopts any pod with the labels of the Job's template, and its owner reference is then genuine.
Whoever may create pods writes everything else of such a pod, but not its ``creationTimestamp`` and ``generation``
(Kubernetes 1.33 and later). So the pod's spec has to be the template's, from its creation on. The names in
``managedFields`` are chosen by the writers: they name the creator of an adopted pod, and prove nothing.

A pod that passes runs the Job's commands, images and volumes. Whoever may exec into pods can still change what it does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mpctl.json_fields import list_at, owners_of
from mpctl.json_types import Json
from mpctl.platform.kubernetes.api.objects import owns_field

# Fields that the API server, admission plugins, the Job controller and the scheduler add if the template has none. None
# of them runs code. A webhook that injects containers, volumes or variables makes a pod foreign.
_ADDED = frozenset(
    (
        *("nodeName", "hostname", "overhead", "imagePullSecrets", "enableServiceLinks"),
        *(
            "priority",
            "priorityClassName",
            "preemptionPolicy",
            "serviceAccount",
            "serviceAccountName",
            "resizePolicy",
        ),
    )
)
_EXTENDED = frozenset(
    ("nodeSelector", "securityContext", "tolerations")
)  # the template's values, and more
_GATES = "schedulingGates"  # a queue's, which removes them with one change of the pod
_CONTAINERS = ("initContainers", "containers")


def foreign_reason(pod: Json, job: Json) -> str:
    """Return why a pod is not one that the Job's controller created from its template; empty if it is."""
    metadata, owner = pod["metadata"], job["metadata"]
    if not is_pod_of(pod, owner["uid"]):
        return "another object controls it"
    if metadata.get("creationTimestamp", "") < owner.get("creationTimestamp", ""):
        return "it is older than the Job"
    template = job["spec"]["template"]["spec"]
    changed = sorted(_differences(pod["spec"], template))
    if changed:
        return f"it differs from the Job's template: {', '.join(changed)}"
    if metadata.get("generation", 1) > (2 if template.get(_GATES) else 1):
        return "its spec was changed after its creation"
    creators = _managers(pod, "spec", "containers") - _managers(pod, "metadata", "ownerReferences")
    return (
        f"it was created by {', '.join(sorted(creators))}, not by the Job's controller"
        if creators
        else ""
    )


def is_pod_of(pod: Json, uid: str) -> bool:
    """Return whether the Job of this uid controls a pod. The label alone may be on a pod of another Job."""
    owners = owners_of(pod)
    return any(owner.get("controller") and owner.get("uid") == uid for owner in owners)


def _managers(pod: Json, *path: str) -> set[str]:
    """Return who wrote a field of the pod itself; kubelets write its status."""
    entries = list_at(pod, "metadata", "managedFields")
    return {
        str(entry.get("manager")) for entry in entries if owns_field(entry.get("fieldsV1"), path)
    }


def _differences(spec: Json, template: Json) -> Iterator[str]:
    """Yield the fields of a pod's spec that differ from the template by more than what may be added."""
    for key in _CONTAINERS:
        actual, wanted = list_at(spec, key), list_at(template, key)
        if [container["name"] for container in actual] != [
            container["name"] for container in wanted
        ]:
            yield key
            continue
        for container, base in zip(actual, wanted, strict=True):
            changed = (
                field
                for field in container.keys() | base.keys()
                if not _is_from(container, base, field)
            )
            yield from (f"{field} of container {base['name']}" for field in changed)
    yield from (
        key
        for key in spec.keys() | template.keys()
        if key not in _CONTAINERS
        if not _is_from(spec, template, key)
    )


def _is_from(actual: Json, template: Json, key: str) -> bool:
    """Return whether a field has the template's value, or more in a way that runs nothing."""
    value, base = actual.get(key), template.get(key)
    if value == base or key == _GATES or (base is None and key in _ADDED):
        return True
    if key == "resources":
        return all(
            _extends((value or {}).get(kind), amounts) for kind, amounts in (base or {}).items()
        )
    if key == "imagePullPolicy":
        return bool(value == "Always")  # the admission plugin AlwaysPullImages
    return key in _EXTENDED and _extends(value, base)


def _extends(value: Any, base: Any) -> bool:
    """Return whether a list or an object has everything of ``base``."""
    if isinstance(value or base, list):
        return all(item in (value or ()) for item in base or ())
    return bool((value or {}).items() >= (base or {}).items())
