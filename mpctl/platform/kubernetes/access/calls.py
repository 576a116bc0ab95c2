"""All calls that mpctl makes to an API server with the commands that make them: the source of ``mpctl rbac``.

Tests record the requests of whole journeys and compare them with the table both ways: an unlisted request fails, and so
does a row that no journey uses.

Which of them the current user may make is asked of the API server's authorizers. One SelfSubjectRulesReview covers most
calls. It may be incomplete (EKS and GKE also authorize with webhooks) and does not cover other namespaces, so each call
that it does not grant gets a SelfSubjectAccessReview.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

from mpctl.doctor import Denied
from mpctl.json_fields import list_at, value_at
from mpctl.json_types import Json
from mpctl.packaged import packaged
from mpctl.platform.kubernetes.api import kinds
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.kinds import ObjectKind

Role = Literal["reader", "operator"]
# Where a right has to hold: in the service's namespace, in the whole cluster, in KServe's own namespace.
Scope = Literal["service", "cluster", "kserve"]

DEVICE_CLASS = ObjectKind("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", namespaced=False)
DAEMON_SET = ObjectKind("apps", "v1", "DaemonSet", "daemonsets")
ENDPOINT_SLICE = ObjectKind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
_ADMISSION = "admissionregistration.k8s.io"
MUTATING = ObjectKind(
    _ADMISSION,
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    namespaced=False,
)
VALIDATING = ObjectKind(
    _ADMISSION,
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    namespaced=False,
)
_REVIEWS = "authorization.k8s.io"
ACCESS_REVIEW = ObjectKind(
    _REVIEWS, "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False
)
RULES_REVIEW = ObjectKind(
    _REVIEWS, "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", namespaced=False
)

CLUSTER_NAMESPACE = (
    "kube-system"  # its uid names the cluster: it is made with the cluster, and cannot be deleted
)


@dataclass(frozen=True)
class CallRow:
    """``verb`` is RBAC's. ``commands`` make the call, ``why`` says for what. ``role``: the least role that has it.
    ``name``: of the only object that is read; empty: of any."""

    verb: str
    kind: ObjectKind
    commands: tuple[str, ...]
    why: str
    role: Role = "reader"
    scope: Scope = "service"
    subresource: str = ""
    name: str = ""

    @property
    def resource(self) -> str:
        """Return the name that a Role uses: ``pods/log``."""
        return f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural

    @property
    def call(self) -> str:
        """Return the name that messages use: ``get pods/log``, ``list leases.coordination.k8s.io``."""
        group = f".{self.kind.group}" if self.kind.group else ""
        return f"{self.verb} {self.resource}{group} {self.name}".rstrip()

    @property
    def key(self) -> tuple[str, str, str]:
        """Verb, group and resource: what RBAC decides on."""
        return self.verb, self.kind.group, self.resource


_FILE: Json = packaged(__package__, "calls.yaml")
_KINDS = {
    kind.resource: kind
    for kind in (*vars(kinds).values(), *globals().values())
    if isinstance(kind, ObjectKind)
}


def _commands(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        if name.startswith("@"):
            yield from _commands(_FILE["groups"][name[1:]])
        else:
            yield name


def _rows(table: str) -> Iterator[CallRow]:
    for row in _FILE[table]:
        attributes = {
            name: row[name] for name in ("role", "scope", "subresource", "name") if name in row
        }
        for verb in row["verbs"].split():
            commands = tuple(_commands(row["commands"]))
            yield CallRow(verb, _KINDS[row["kind"]], commands, row["why"], **attributes)


TABLE, LLM, GROUPS, RUNTIMES, PURGE, DEPLOYMENTS, WATCH, SEALING = (
    tuple(_rows(table))
    for table in (
        [
            "table",
            "llm",
            "pod_groups",
            "runtimes",
            "purge",
            "deployments",
            "watch",
            "sealing",
        ]
    )
)
# Rights that a role has only if they are named: `mpctl rbac --allow`.
OPTIONAL = {"deployments": DEPLOYMENTS, "purge": PURGE}
# Rights that a role may lack: `mpctl rbac --without`. The load client then runs on the machine of the command; the free
# GPUs are unknown, and a rollout waits for one instead of refusing immediately.
DISPENSABLE = {
    "load-jobs": [row for row in TABLE if row.kind is kinds.JOB],
    "all-pods": [row for row in TABLE if row.kind is kinds.POD and row.scope == "cluster"],
}
# Read only where an engine's API key is in a Secret, and then that one: `mpctl rbac --secret NAME`.
(API_KEY,) = _rows("api_key")

# Every authenticated user may make these (ClusterRole system:basic-user), so no role of ours has to grant them.
FREE = (ACCESS_REVIEW, RULES_REVIEW)


def needs(
    role: Role, *, allow: Collection[str] = (), without: Collection[str] = ()
) -> tuple[CallRow, ...]:
    """Return the rows of a role; an operator may do all that a reader may. ``allow``: names of ``OPTIONAL``,
    ``without``: names of ``DISPENSABLE``."""
    rows = [*TABLE, *LLM, *GROUPS, *RUNTIMES, *(row for name in allow for row in OPTIONAL[name])]
    left_out = [row for name in without for row in DISPENSABLE[name]]
    return tuple(row for row in rows if row not in left_out and role in ("operator", row.role))


_AT_ONCE = 6


def denied_calls(client: Client, namespace: str | None) -> tuple[Denied, ...]:
    """Return the calls of the table that are refused in ``namespace`` (None: all), without those of the doctor alone,
    which reports them itself."""
    wanted = [row for row in TABLE if row.commands != ("doctor",)]
    granted = _granted(client, namespace) if namespace else ()
    ungranted = [
        row
        for row in wanted
        if row.scope != "service" or not any(covers(rule, row) for rule in granted)
    ]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(lambda row: _may(client, row, namespace), ungranted))
    return tuple(
        Denied(row.call, tuple(c for c in row.commands if c != "doctor"), row.role == "reader")
        for row, allowed in zip(ungranted, answers, strict=True)
        if not allowed
    )


def _granted(client: Client, namespace: str) -> Iterable[Json]:
    answer = client.create(RULES_REVIEW, {"metadata": {}, "spec": {"namespace": namespace}})
    return list_at(answer, "status", "resourceRules")


def covers(rule: Json, row: CallRow) -> bool:
    """Return whether an RBAC rule grants a row for its one object, or for every object: one with resourceNames does not
    grant the latter."""
    verbs, groups, resources = (
        list_at(rule, "verbs"),
        list_at(rule, "apiGroups"),
        list_at(rule, "resources"),
    )
    star = f"*/{row.subresource}" if row.subresource else "*"
    return (
        row.name in (rule.get("resourceNames") or (row.name,))
        and bool({row.verb, "*"} & set(verbs))
        and bool({row.kind.group, "*"} & set(groups))
        and bool({row.resource, star, "*"} & set(resources))
    )


def _may(client: Client, row: CallRow, namespace: str | None) -> bool:
    attributes: Json = {
        "verb": row.verb,
        "group": row.kind.group,
        "resource": row.kind.plural,
        "version": row.kind.version,
    }
    attributes |= {
        key: value for key, value in (("subresource", row.subresource), ("name", row.name)) if value
    }
    if namespace and row.scope == "service":
        attributes["namespace"] = namespace
    answer = client.create(
        ACCESS_REVIEW, {"metadata": {}, "spec": {"resourceAttributes": attributes}}
    )
    return bool(value_at(answer, "status", "allowed"))
