"""Quotas and limits of a namespace, decided by admission's own arithmetic (``QuotaEvaluator`` and ``LimitRanger`` of
Kubernetes 1.36) over what the namespace lists. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal

from mpctl.formatting import plural
from mpctl.json_fields import list_at, mapping_at, name_of
from mpctl.json_types import JsonView

Amounts = dict[str, Decimal]
_COMPUTE = ("cpu", "memory", "ephemeral-storage")  # counted with and without the prefix "requests."
_REQUIRED = ("cpu", "memory")  # a quota of these refuses a container that names none
_GIB, _MIB = Decimal(2**30), Decimal(2**20)
_SUFFIXES = {
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)},
    **{"m": Decimal("0.001"), "u": Decimal("0.000001"), "n": Decimal("0.000000001")},
}


def requested(pod: JsonView) -> Amounts:
    """Return the requests of a pod, as the scheduler counts them."""
    return _total(_with_defaults(pod, ()), "requests")


def exceeded_quotas(
    quotas: Iterable[JsonView],
    ranges: Sequence[JsonView],
    pods: Sequence[JsonView],
    objects: Mapping[str, int],
) -> Iterator[str]:
    """Name each quota that has no room, with the amounts of each resource that is short."""
    defaulted = [_with_defaults(pod, ranges) for pod in pods]
    for quota in quotas:
        scopes = list(_scopes(quota))
        counted = [pod for pod in defaulted if all(_in_scope(pod, scope) for scope in scopes)]
        needed = total(map(_pod_amounts, counted))
        if not scopes:
            needed |= {f"count/{name}": Decimal(number) for name, number in objects.items()}
        status = mapping_at(quota, "status")
        hard = {**mapping_at(quota, "spec", "hard"), **mapping_at(status, "hard")}
        used = mapping_at(status, "used")
        short = [
            f"{name} used {_text(name, amount(used.get(name, 0)))}, hard {_text(name, amount(limit))}, "
            f"needed {_text(name, needed[name])}"
            for name, limit in sorted(hard.items())
            if needed.get(name) and amount(used.get(name, 0)) + needed[name] > amount(limit)
        ]
        short += [
            f"container {container} names no {key}"
            for key in sorted(hard)
            for container in dict.fromkeys(c for pod in counted for c in _unnamed(pod, key))
        ]
        if short:
            what = plural(len(pods), "more pod") if pods else "more objects"
            yield f"ResourceQuota {name_of(quota)} has no room for {what}: {', '.join(short)}"


def exceeded_limits(ranges: Sequence[JsonView], pods: Sequence[JsonView]) -> Iterator[str]:
    """Name each limit of a container or a pod that a pod does not keep."""
    violations: dict[str, None] = {}
    for pod in (_with_defaults(pod, ranges) for pod in pods):
        containers = [
            (f"container {c['name']}", mapping_at(c, "resources")) for c in _containers(pod)
        ]
        sums = {field: _total(pod, field) for field in ("requests", "limits")}
        for limit_range in ranges:
            for item in list_at(limit_range, "spec", "limits"):
                checked = {"Container": containers, "Pod": [("the pod", sums)]}.get(
                    str(item.get("type")), []
                )
                for owner, resources in checked:
                    for fault in _beyond(item, resources):
                        violations[f"LimitRange {name_of(limit_range)}: {owner} has {fault}"] = None
    yield from violations


def _beyond(item: JsonView, resources: JsonView) -> Iterator[str]:
    for bound, field, sign in (("max", "limits", 1), ("min", "requests", -1)):
        for name, limit in mapping_at(item, bound).items():
            value, most = mapping_at(resources, field).get(name), _text(name, amount(limit))
            if value is None:
                yield f"no {field}.{name}, {bound} {most}"
            elif sign * (amount(value) - amount(limit)) > 0:
                yield f"{field}.{name} {_text(name, amount(value))}, {bound} {most}"


def _with_defaults(pod: JsonView, ranges: Sequence[JsonView]) -> JsonView:
    """The pod as LimitRanger and the API server's own defaults leave it."""
    items = [
        i for r in ranges for i in list_at(r, "spec", "limits") if i.get("type") == "Container"
    ]

    def filled(container: JsonView) -> JsonView:
        resources = mapping_at(container, "resources")
        limits, requests = (
            dict(mapping_at(resources, "limits")),
            dict(mapping_at(resources, "requests")),
        )
        requests = {**limits, **requests}
        for item in items:
            limits = {**mapping_at(item, "default"), **limits}
            requests = {**(item.get("defaultRequest") or item.get("default") or {}), **requests}
        return {**container, "resources": {"limits": limits, "requests": requests}}

    fields = ("containers", "initContainers")
    return {**pod, **{field: [filled(c) for c in pod.get(field) or []] for field in fields}}


def _pod_amounts(pod: JsonView) -> Amounts:
    """Return what a quota counts of one pod."""
    amounts: Amounts = {"pods": Decimal(1), "count/pods": Decimal(1)}
    for name, value in _total(pod, "requests").items():
        amounts[f"requests.{name}"] = value
        if name in _COMPUTE or name.startswith("hugepages-"):
            amounts[name] = value
    amounts |= {
        f"limits.{name}": value for name, value in _total(pod, "limits").items() if name in _COMPUTE
    }
    return amounts


def _total(pod: JsonView, field: str) -> Amounts:
    """Requests or limits of a pod: of its containers and sidecars together, or of one that runs before them."""
    largest: Amounts = {}
    sidecars: Amounts = {}
    for container in list_at(pod, "initContainers"):
        alone = total((sidecars, _of(container, field)))
        if container.get("restartPolicy") == "Always":
            sidecars = alone
        largest = {
            name: max(largest.get(name, Decimal(0)), value)
            for name, value in {**largest, **alone}.items()
        }
    together = total(
        (sidecars, *(_of(container, field) for container in list_at(pod, "containers")))
    )
    amounts = {
        name: max(value, largest.get(name, Decimal(0)))
        for name, value in {**largest, **together}.items()
    }
    overhead = {name: amount(value) for name, value in mapping_at(pod, "overhead").items()}
    amounts = total((amounts, {name: value for name, value in overhead.items() if name in amounts}))
    return {
        **amounts,
        **_of(pod, field),
    }  # resources of the whole pod count in place of its containers'


def total(parts: Iterable[Amounts]) -> Amounts:
    """Return the sum of amounts, resource by resource."""
    amounts: Amounts = {}
    for part in parts:
        for name, value in part.items():
            amounts[name] = amounts.get(name, Decimal(0)) + value
    return amounts


def _of(owner: JsonView, field: str) -> Amounts:
    return {name: amount(value) for name, value in mapping_at(owner, "resources", field).items()}


def _unnamed(pod: JsonView, key: str) -> Iterator[str]:
    """Containers without a resource that a quota requires every container to name."""
    field, _, name = key.rpartition(".")
    if name not in _REQUIRED or field not in ("", "requests", "limits"):
        return
    field = field or "requests"
    for container in _containers(pod):
        if name not in _of(container, field) and name not in _of(pod, field):
            yield str(container.get("name"))


def _containers(pod: JsonView) -> list[JsonView]:
    """The containers of a pod and those that run before them: admission asks the same of both."""
    return [*list_at(pod, "containers"), *list_at(pod, "initContainers")]


def _scopes(quota: JsonView) -> Iterator[tuple[str, str, Sequence[str]]]:
    spec = quota["spec"]
    for scope in list_at(spec, "scopes"):
        yield scope, "Exists", []
    for item in list_at(spec, "scopeSelector", "matchExpressions"):
        yield item["scopeName"], item["operator"], list_at(item, "values")


def _in_scope(pod: JsonView, scope: tuple[str, str, Sequence[str]]) -> bool:
    """Return whether a quota of the scope counts the pod. A scope that says nothing of pods here counts none."""
    name, operator, values = scope
    if name == "PriorityClass":
        class_name = pod.get("priorityClassName") or ""
        present = {
            "Exists": bool(class_name),
            "DoesNotExist": not class_name,
            "In": class_name in values,
            "NotIn": class_name not in values,
        }
        return present.get(operator, False)
    ends = pod.get("activeDeadlineSeconds") is not None
    best_effort = not any(
        _of(c, field).get(resource)
        for c in (*_containers(pod), pod)
        for field in ("requests", "limits")
        for resource in _REQUIRED
    )
    return {
        "Terminating": ends,
        "NotTerminating": not ends,
        "BestEffort": best_effort,
        "NotBestEffort": not best_effort,
    }.get(name, False)


def amount(value: object) -> Decimal:
    """A Kubernetes quantity as a number. ``kubernetes.utils.quantity`` has it, too, but importing it loads every model
    of the client, for seconds."""
    text = str(value)
    for suffix, factor in _SUFFIXES.items():
        if text.endswith(suffix):
            return Decimal(text.removesuffix(suffix)) * factor
    return Decimal(text)


def _text(name: str, value: Decimal) -> str:
    """An amount as a reader writes it: memory and storage in Gi or Mi."""
    if not name.endswith(("memory", "storage")):
        return f"{value.normalize():f}"
    unit, suffix = (_GIB, "Gi") if value >= _GIB else (_MIB, "Mi")
    return f"{round(value / unit, 2).normalize():f}{suffix}"
