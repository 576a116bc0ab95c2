"""Calls of mpctl that the current user may make, according to the API server's authorizers.

One SelfSubjectRulesReview covers most calls. It may be incomplete (EKS and GKE also authorize with webhooks) and does
not
cover other namespaces, so each call that it does not grant gets a SelfSubjectAccessReview.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mpctl.doctor import Denied
from mpctl.platform.kubernetes.access.calls import ACCESS_REVIEW, RULES_REVIEW, TABLE, Row
from mpctl.platform.kubernetes.api.client import Client

_AT_ONCE = 6


def denied_calls(client: Client, namespace: str | None) -> tuple[Denied, ...]:
    """Return the calls of the table that are refused in ``namespace`` (None: all), without those of the doctor alone,
    which reports them itself."""
    wanted = [row for row in TABLE if row.commands != ("doctor",)]
    granted = _granted(client, namespace) if namespace else ()
    ungranted = [row for row in wanted if row.scope != "service" or not any(covers(rule, row) for rule in granted)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(lambda row: _may(client, row, namespace), ungranted))
    return tuple(
        Denied(row.call, tuple(c for c in row.commands if c != "doctor"), row.role == "reader")
        for row, allowed in zip(ungranted, answers, strict=True)
        if not allowed
    )


def _granted(client: Client, namespace: str) -> Iterable[dict[str, Any]]:
    answer = client.create(RULES_REVIEW, {"metadata": {}, "spec": {"namespace": namespace}})
    return (answer.get("status") or {}).get("resourceRules") or ()


def covers(rule: dict[str, Any], row: Row) -> bool:
    """Return whether an RBAC rule grants a row for every object; one with resourceNames does not."""
    verbs, groups, resources = rule.get("verbs") or (), rule.get("apiGroups") or (), rule.get("resources") or ()
    star = f"*/{row.subresource}" if row.subresource else "*"
    return (
        not rule.get("resourceNames")
        and bool({row.verb, "*"} & set(verbs))
        and bool({row.kind.group, "*"} & set(groups))
        and bool({row.resource, star, "*"} & set(resources))
    )


def _may(client: Client, row: Row, namespace: str | None) -> bool:
    asked: dict[str, Any] = {
        "verb": row.verb,
        "group": row.kind.group,
        "resource": row.kind.plural,
        "version": row.kind.version,
    }
    if row.subresource:
        asked["subresource"] = row.subresource
    if namespace and row.scope == "service":
        asked["namespace"] = namespace
    answer = client.create(ACCESS_REVIEW, {"metadata": {}, "spec": {"resourceAttributes": asked}})
    return bool((answer.get("status") or {}).get("allowed"))
