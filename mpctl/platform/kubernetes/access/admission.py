"""ValidatingAdmissionPolicies that limit operators to what mpctl does, which RBAC cannot.

Without them an operator may write every ConfigMap of the namespace, mount every Secret in the pod of a Job, and point
every HTTPRoute anywhere. They need Kubernetes 1.30. InferenceServices are not limited: whoever may change them chooses
what runs in their pods. A subject has policies of its own, so that a second command lifts no limit of the first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mpctl.platform.kubernetes.access.rbac import Subject
from mpctl.platform.kubernetes.api.kinds import CONFIG_MAP, CONTROLLER_REVISION, HTTP_ROUTE, JOB, LEASE, Kind
from mpctl.platform.kubernetes.api.names import CANDIDATE_SUFFIX

Json = dict[str, Any]
Rules = Sequence[tuple[str, str]]

_API = "admissionregistration.k8s.io/v1"
_NAME = "(request.operation == 'CREATE' ? object.metadata.name : request.name).startsWith('mpctl-')"
# A candidate's backend counts as its service's.
_BASE = f"{{}}.name.replace('{CANDIDATE_SUFFIX}-predictor', '-predictor')"


def _same(new: str, old: str, but: Sequence[str]) -> str:
    """CEL: whether two objects are equal in all fields but some."""
    names = json.dumps(list(but))
    changed = f"{new}.all(k, k in {names} || (k in {old} && {old}[k] == {new}[k]))"
    return f"{changed} && {old}.all(k, k in {names} || k in {new})"


def _listed(rule: str, field: str) -> str:
    return f"(has({rule}.{field}) ? {rule}.{field} : [])"


_NEW, _OLD = ("dyn(object.spec.rules[i])", "dyn(oldObject.spec.rules[i])")
_BACKEND = f"({_BASE.format('b')} == {_BASE.format('o')} && {_same('b', 'o', ('name', 'weight'))})"
_MIRROR = (
    "f.type == 'RequestMirror' && "
    f"{_listed(_OLD, 'backendRefs')}.exists(o, {_BASE.format('f.requestMirror.backendRef')} == {_BASE.format('o')} && "
    "f.requestMirror.backendRef.all(k, k == 'name' || (k in o && o[k] == f.requestMirror.backendRef[k])))"
)
# HTTPRoutes have at most 16 rules.
_EACH_RULE = f"{json.dumps(list(range(16)))}.all(i, i >= size(object.spec.rules) || {{}})"
_ROUTE_RULES = (
    (
        f"{_same('dyn(object.spec)', 'dyn(oldObject.spec)', ('rules',))} && "
        "size(object.spec.rules) == size(oldObject.spec.rules) && "
        + _EACH_RULE.format(f"({_same(_NEW, _OLD, ('backendRefs', 'filters'))})"),
        "operators of mpctl change backends and mirrors of an HTTPRoute alone",
    ),
    (
        _EACH_RULE.format(
            f"({_listed(_NEW, 'backendRefs')}.all(b, {_listed(_OLD, 'backendRefs')}.exists(o, {_BACKEND})) && "
            f"{_listed(_OLD, 'backendRefs')}.all(o, {_listed(_NEW, 'backendRefs')}.exists(b, {_BACKEND})))"
        ),
        "operators of mpctl split the share of a service with its candidate alone",
    ),
    (
        _EACH_RULE.format(
            f"({_listed(_NEW, 'filters')}.all(f, f in {_listed(_OLD, 'filters')} || ({_MIRROR})) && "
            f"{_listed(_OLD, 'filters')}.all(f, f in {_listed(_NEW, 'filters')} || ({_MIRROR})))"
        ),
        "operators of mpctl mirror requests of a service to its candidate alone",
    ),
    (
        " && ".join(
            f"(has(object.metadata.{key}) ? object.metadata.{key} : {empty}) == "
            f"(has(oldObject.metadata.{key}) ? oldObject.metadata.{key} : {empty})"
            for key, empty in (("labels", "{}"), ("annotations", "{}"), ("ownerReferences", "[]"))
        ),
        "operators of mpctl keep the metadata of an HTTPRoute",
    ),
)


def admission_policies(
    namespace: str | None, to: Sequence[Subject], *, job_rules: Rules, job_variables: Mapping[str, str]
) -> tuple[Json, ...]:
    """Return the policies with their bindings; ``namespace`` None: for all namespaces. ``to``: whom they limit.

    ``job_rules``: of the Jobs that they create, over ``job_variables``.
    """
    documents: list[Json] = []
    written = (CONFIG_MAP, JOB, LEASE, CONTROLLER_REVISION)
    names = ((_NAME, "operators of mpctl write objects whose names begin with mpctl-"),)
    for subject in dict.fromkeys(to):
        suffix = f"{f'-{namespace}' if namespace else ''}.{subject.slug}"
        policies = (
            _policy(f"mpctl-names{suffix}", written, ("CREATE", "UPDATE", "DELETE"), subject, names),
            _policy(f"mpctl-jobs{suffix}", (JOB,), ("CREATE", "UPDATE"), subject, job_rules, job_variables),
            _policy(f"mpctl-routes{suffix}", (HTTP_ROUTE,), ("UPDATE",), subject, _ROUTE_RULES),
        )
        documents += [document for policy in policies for document in (policy, _binding(policy, namespace))]
    return tuple(documents)


def _policy(
    name: str,
    kinds: Sequence[Kind],
    operations: Sequence[str],
    subject: Subject,
    validations: Rules,
    variables: Mapping[str, str] | None = None,
) -> Json:
    rules = [
        {"apiGroups": [k.group], "apiVersions": ["*"], "operations": [*operations], "resources": [k.plural]}
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
            "validations": [{"expression": rule, "message": message} for rule, message in validations],
        },
    }


def _binding(policy: Json, namespace: str | None) -> Json:
    name = policy["metadata"]["name"]
    spec: Json = {"policyName": name, "validationActions": ["Deny"]}
    if namespace:
        labels = {"kubernetes.io/metadata.name": namespace}
        spec["matchResources"] = {"namespaceSelector": {"matchLabels": labels}}
    return {"apiVersion": _API, "kind": "ValidatingAdmissionPolicyBinding", "metadata": _metadata(name), "spec": spec}


def _metadata(name: str) -> Json:
    return {"name": name, "labels": {"app.kubernetes.io/managed-by": "mpctl"}}


def _from_subject(subject: Subject) -> str:
    """CEL: whether a request comes from the subject."""
    if subject.kind == "Group":
        return f"has(request.userInfo.groups) && {json.dumps(subject.name)} in request.userInfo.groups"
    account = f"system:serviceaccount:{subject.namespace}:{subject.name}"
    return f"request.userInfo.username == {json.dumps(subject.name if subject.kind == 'User' else account)}"
