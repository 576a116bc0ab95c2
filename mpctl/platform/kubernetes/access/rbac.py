"""Least-privilege roles, made from the table of mpctl's calls, and admission policies for what RBAC cannot limit.

In one namespace: a Role there, a ClusterRole for what has no namespace or is spread over all, and for the doctor a Role
in KServe's namespace. Cluster-wide: one ClusterRole that also holds in every namespace. A role is named by its purpose
and its options, a binding by its role and its one subject, so that no object overwrites another's rights when it is
applied.

Without ValidatingAdmissionPolicies an operator may write every ConfigMap of the namespace, mount every Secret in the
pod of a Job, and point every HTTPRoute anywhere. They need Kubernetes 1.30. InferenceServices are not limited: whoever
may change them chooses what runs in their pods. A subject has policies of its own, so that a second command lifts no
limit of the first.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import Template
from typing import Any

import yaml

from mpctl.errors import InputError
from mpctl.json_fields import name_of
from mpctl.json_types import Json
from mpctl.packaged import packaged
from mpctl.platform.kubernetes.access.calls import API_KEY, SEALING, CallRow, Role, needs
from mpctl.platform.kubernetes.api.kinds import (
    CONFIG_MAP,
    CONTROLLER_REVISION,
    HTTP_ROUTE,
    JOB,
    LEASE,
    ObjectKind,
)
from mpctl.platform.kubernetes.api.names import CANDIDATE_SUFFIX, SEALED

_RBAC = "rbac.authorization.k8s.io"
_SUBJECTS = ("user", "group", "serviceaccount")
_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
KSERVE = "kserve"
SUBJECT_LABEL = "mpctl.dev/subject"  # of a binding: whom it is for


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

    @property
    def slug(self) -> str:
        """A part of object names that no other subject has: ``user-ann-1a2b3c4d``."""
        text = f"{self.kind}:{self.namespace or ''}/{self.name}"
        words = re.sub("[^a-z0-9]+", "-", f"{self.kind}-{self.name}".lower())[:40].strip("-")
        return f"{words}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


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
        raise InputError(
            f"{text!r} has no namespace", field="--to", hint="write serviceaccount:NAMESPACE/NAME"
        )
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
        such = (
            "lower-case letters, digits, dashes and dots"
            if dots
            else "lower-case letters, digits and dashes"
        )
        raise InputError(f"{name!r} is not a valid object name", field=field, hint=f"use {such}")


def rules_of(rows: Iterable[CallRow], *, secrets: Sequence[str] = ()) -> list[Json]:
    """RBAC rules: one per group and set of verbs, sorted, so that the same calls give the same text.

    ``secrets``: the only Secrets that may be read, by name; that of sentinels may be written as well.
    """
    verbs: dict[tuple[str, str, str], set[str]] = {}
    for row in rows:
        verbs.setdefault((row.kind.group, row.resource, row.name), set()).add(row.verb)
    merged: dict[tuple[str, tuple[str, ...], str], list[str]] = {}
    for (group, resource, name), granted in sorted(verbs.items()):
        merged.setdefault((group, tuple(sorted(granted)), name), []).append(resource)
    rules: list[Json] = [
        {
            "apiGroups": [group],
            "resources": resources,
            **({"resourceNames": [name]} if name else {}),
            "verbs": list(allowed),
        }
        for (group, allowed, name), resources in sorted(merged.items())
    ]
    keys, sealed = (
        [name for name in secrets if name != SEALED],
        [name for name in secrets if name == SEALED],
    )
    resources = {"apiGroups": [""], "resources": [API_KEY.resource]}
    if keys:
        rules.append({**resources, "resourceNames": keys, "verbs": [API_KEY.verb]})
    if sealed:
        rules.append({**resources, "resourceNames": sealed, "verbs": [row.verb for row in SEALING]})
    return rules


def roles(
    role: Role,
    namespace: str | None,
    *,
    to: Sequence[Subject] = (),
    secrets: Sequence[str] = (),
    allow: Collection[str] = (),
    without: Collection[str] = (),
) -> tuple[Json, ...]:
    """The objects to apply, each role followed by its bindings; ``namespace`` None: for all namespaces.

    ``to``: whom all of them are bound to; nobody: no bindings.
    """
    rows = needs(role, allow=allow, without=without)
    # Roles of other options have other names: a second command takes nothing from the subjects of the first.
    variant = [*(f"no-{name}" for name in sorted({*without})), *sorted({*allow})]
    if secrets:
        digest = hashlib.sha256("\n".join(sorted(set(secrets))).encode()).hexdigest()[:8]
        variant.append(f"secrets-{digest}")
    return roles_of(rows, ".".join((f"mpctl-{role}", *variant)), namespace, to=to, secrets=secrets)


def roles_of(
    rows: Iterable[CallRow],
    name: str,
    namespace: str | None,
    *,
    to: Sequence[Subject],
    secrets: Sequence[str],
) -> tuple[Json, ...]:
    """Roles called ``name`` with these rows, each followed by its bindings; ``namespace`` None: for all namespaces."""
    rows = tuple(rows)
    if namespace is None:
        return tuple(_granted("ClusterRole", name, None, rules_of(rows, secrets=secrets), to))
    where = {
        scope: [row for row in rows if row.scope == scope]
        for scope in ("service", "cluster", "kserve")
    }
    # Roles outside of the namespace end in its name, so that those of several namespaces exist side by side.
    outside = f"{name}-{namespace}"
    return (
        *_granted("Role", name, namespace, rules_of(where["service"], secrets=secrets), to),
        *_granted("ClusterRole", outside, None, rules_of(where["cluster"]), to),
        *_granted("Role", outside, KSERVE, rules_of(where["kserve"]), to),
    )


def _granted(
    kind: str, name: str, namespace: str | None, rules: list[Json], to: Sequence[Subject]
) -> list[Json]:
    def metadata(name: str, **labels: str) -> Json:
        where = {"namespace": namespace} if namespace else {}
        return {
            "name": name,
            **where,
            "labels": {"app.kubernetes.io/managed-by": "mpctl", **labels},
        }

    version = f"{_RBAC}/v1"
    bindings = [
        {
            "apiVersion": version,
            "kind": f"{kind}Binding",
            "metadata": metadata(f"{name}.{subject.slug}", **{SUBJECT_LABEL: subject.slug}),
            "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": name},
            "subjects": [subject.to_record()],
        }
        for subject in dict.fromkeys(to)
    ]
    return [
        {"apiVersion": version, "kind": kind, "metadata": metadata(name), "rules": rules},
        *bindings,
    ]


def to_yaml(documents: Sequence[Json]) -> str:
    """A YAML text for ``kubectl apply -f -``."""

    class Plain(yaml.SafeDumper):
        """The same list twice is written twice: kubectl reads anchors, people do not."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    return str(yaml.dump_all(documents, Dumper=Plain, sort_keys=False)).rstrip()


_API = "admissionregistration.k8s.io/v1"


def _admission(texts: Mapping[str, str]) -> Json:
    """Return the parts of admission.yaml, lists of rules and the variables, with the texts filled in."""
    parts: Json = packaged(__package__, "admission.yaml")
    filled = {"candidate_suffix": CANDIDATE_SUFFIX, **texts}
    for name, text in parts.pop("texts").items():
        filled[name] = Template(text).substitute(filled)
    for part in ("names", "jobs", "routes"):
        parts[part] = [
            {key: Template(row[key]).substitute(filled) for key in ("expression", "message")}
            for row in parts[part]
        ]
    return parts


def admission_policies(
    namespace: str | None,
    to: Sequence[Subject],
    job_texts: Mapping[str, str],
) -> tuple[Json, ...]:
    """Return the policies with their bindings; ``namespace`` None: for all namespaces. ``to``: whom they limit.

    ``job_texts``: bounds of the Jobs that they create, for admission.yaml.
    """
    documents: list[Json] = []
    written = (CONFIG_MAP, JOB, LEASE, CONTROLLER_REVISION)
    parts = _admission(job_texts)
    for subject in dict.fromkeys(to):
        suffix = f"{f'-{namespace}' if namespace else ''}.{subject.slug}"
        policies = (
            _policy(
                f"mpctl-names{suffix}",
                written,
                ("CREATE", "UPDATE", "DELETE"),
                subject,
                parts["names"],
            ),
            _policy(
                f"mpctl-jobs{suffix}",
                (JOB,),
                ("CREATE", "UPDATE"),
                subject,
                parts["jobs"],
                parts["variables"],
            ),
            _policy(f"mpctl-routes{suffix}", (HTTP_ROUTE,), ("UPDATE",), subject, parts["routes"]),
        )
        documents += [
            document for policy in policies for document in (policy, _binding(policy, namespace))
        ]
    return tuple(documents)


def _policy(
    name: str,
    kinds: Sequence[ObjectKind],
    operations: Sequence[str],
    subject: Subject,
    validations: Sequence[Json],
    variables: Mapping[str, str] | None = None,
) -> Json:
    rules = [
        {
            "apiGroups": [k.group],
            "apiVersions": ["*"],
            "operations": [*operations],
            "resources": [k.plural],
        }
        for k in kinds
    ]
    expressions = [{"name": key, "expression": value} for key, value in (variables or {}).items()]
    return {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": _metadata(name),
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": rules},
            "matchConditions": [{"name": "operators", "expression": _from_subject(subject)}],
            **({"variables": expressions} if expressions else {}),
            "validations": validations,
        },
    }


def _binding(policy: Json, namespace: str | None) -> Json:
    name = name_of(policy)
    spec: Json = {"policyName": name, "validationActions": ["Deny"]}
    if namespace:
        labels = {"kubernetes.io/metadata.name": namespace}
        spec["matchResources"] = {"namespaceSelector": {"matchLabels": labels}}
    return {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": _metadata(name),
        "spec": spec,
    }


def _metadata(name: str) -> Json:
    return {"name": name, "labels": {"app.kubernetes.io/managed-by": "mpctl"}}


def _from_subject(subject: Subject) -> str:
    """CEL: whether a request comes from the subject."""
    if subject.kind == "Group":
        return (
            f"has(request.userInfo.groups) && {json.dumps(subject.name)} in request.userInfo.groups"
        )
    account = f"system:serviceaccount:{subject.namespace}:{subject.name}"
    return f"request.userInfo.username == {json.dumps(subject.name if subject.kind == 'User' else account)}"
