"""Least-privilege roles, made from the table of mpctl's calls.

In one namespace: a Role there, a ClusterRole for what has no namespace or is spread over all, and for the doctor a Role
in KServe's namespace. Cluster-wide: one ClusterRole that also holds in every namespace.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mpctl.errors import InputError
from mpctl.platform.kubernetes.access.calls import API_KEY, Load, Role, Row, needs

Json = dict[str, Any]
_RBAC = "rbac.authorization.k8s.io"
_SUBJECTS = ("user", "group", "serviceaccount")
_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
KSERVE = "kserve"


@dataclass(frozen=True)
class Subject:
    """A subject of a role binding; ``namespace`` for a service account."""

    kind: str
    name: str
    namespace: str | None = None

    def to_record(self) -> Json:
        """Return the subject of a binding."""
        if self.kind == "ServiceAccount":
            return {"kind": self.kind, "name": self.name, "namespace": self.namespace}
        return {"apiGroup": _RBAC, "kind": self.kind, "name": self.name}


def subject_of(text: str) -> Subject:
    """``user:ann``, ``group:ml``, ``serviceaccount:NAMESPACE/NAME``.

    Raises:
        InputError: it is none of these.
    """
    kind, _, name = text.partition(":")
    if kind not in _SUBJECTS or not name:
        raise InputError(
            f"{text!r} is not a subject",
            field="--to",
            hint="write user:NAME, group:NAME or serviceaccount:NAMESPACE/NAME",
        )
    if kind != "serviceaccount":
        return Subject(kind.capitalize(), name)
    namespace, slash, account = name.partition("/")
    if not slash or not namespace or not account:
        raise InputError(f"{text!r} has no namespace", field="--to", hint="write serviceaccount:NAMESPACE/NAME")
    require_name(namespace, "--to", dots=False)
    require_name(account, "--to")
    return Subject("ServiceAccount", account, namespace)


def require_name(name: str, field: str, *, dots: bool = True) -> None:
    """Refuse an invalid object name (RFC 1123 subdomain; without ``dots`` a label, as for namespaces).

    Raises:
        InputError: ``field`` names the option.
    """
    form = rf"{_LABEL}(\.{_LABEL})*" if dots else _LABEL
    if not re.fullmatch(form, name) or len(name) > 253:
        such = "lower-case letters, digits, dashes and dots" if dots else "lower-case letters, digits and dashes"
        raise InputError(f"{name!r} is not a valid object name", field=field, hint=f"use {such}")


def rules_of(rows: Iterable[Row], *, secrets: Sequence[str] = ()) -> list[Json]:
    """RBAC rules: one per group and set of verbs, sorted, so that the same calls give the same text.

    ``secrets``: the only Secrets that may be read, by name.
    """
    verbs: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        verbs.setdefault((row.kind.group, row.resource), set()).add(row.verb)
    merged: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (group, resource), granted in sorted(verbs.items()):
        merged.setdefault((group, tuple(sorted(granted))), []).append(resource)
    rules: list[Json] = [
        {"apiGroups": [group], "resources": resources, "verbs": list(allowed)}
        for (group, allowed), resources in sorted(merged.items())
    ]
    if secrets:
        rules.append(
            {"apiGroups": [""], "resources": [API_KEY.resource], "resourceNames": [*secrets], "verbs": [API_KEY.verb]}
        )
    return rules


def roles(
    role: Role,
    namespace: str | None,
    *,
    to: Sequence[Subject] = (),
    secrets: Sequence[str] = (),
    load: Load = "job",
    all_pods: bool = True,
    purge: bool = False,
    deployments: bool = False,
) -> tuple[Json, ...]:
    """The objects to apply, each role followed by its binding; ``namespace`` None: for all namespaces.

    ``to``: whom all of them are bound to; nobody: no bindings.
    """
    name = f"mpctl-{role}"
    rows = needs(role, load=load, all_pods=all_pods, purge=purge, deployments=deployments)
    where = {scope: [row for row in rows if row.scope == scope] for scope in ("service", "cluster", "kserve")}
    if namespace is None:
        return tuple(_granted("ClusterRole", name, None, rules_of(rows, secrets=secrets), to))
    # What lies outside is named by the namespace, so that the roles of several namespaces stand beside each other.
    outside = f"{name}-{namespace}"
    return (
        *_granted("Role", name, namespace, rules_of(where["service"], secrets=secrets), to),
        *_granted("ClusterRole", outside, None, rules_of(where["cluster"]), to),
        *_granted("Role", outside, KSERVE, rules_of(where["kserve"]), to),
    )


def granted(name: str, namespace: str | None, rows: Iterable[Row], *, to: Sequence[Subject]) -> tuple[Json, ...]:
    """A role with these rows alone and its binding; ``namespace`` None: for all namespaces."""
    kind = "ClusterRole" if namespace is None else "Role"
    return tuple(_granted(kind, name, namespace, rules_of(rows), to))


def _granted(kind: str, name: str, namespace: str | None, rules: list[Json], to: Sequence[Subject]) -> list[Json]:
    metadata: Json = {"name": name, **({"namespace": namespace} if namespace else {})}
    metadata["labels"] = {"app.kubernetes.io/managed-by": "mpctl"}
    made: list[Json] = [{"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata, "rules": rules}]
    if to:
        made.append(
            {
                "apiVersion": f"{_RBAC}/v1",
                "kind": f"{kind}Binding",
                "metadata": metadata,
                "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": name},
                "subjects": [subject.to_record() for subject in to],
            }
        )
    return made


def to_yaml(documents: Sequence[Json]) -> str:
    """One YAML text for ``kubectl apply -f -``."""
    import yaml

    class Plain(yaml.SafeDumper):
        """The same list twice is written twice: kubectl reads anchors, people do not."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    return str(yaml.dump_all(documents, Dumper=Plain, sort_keys=False)).rstrip()
