"""ValidatingAdmissionPolicies that limit operators to objects of mpctl, which RBAC cannot: its names have no prefixes.

Without them an operator may write every ConfigMap of the namespace, and mount every Secret in the pod of a Job. They
need Kubernetes 1.30. InferenceServices are not limited: whoever may change them chooses what runs in their pods.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mpctl.platform.kubernetes.access.rbac import Subject
from mpctl.platform.kubernetes.api.kinds import CONFIG_MAP, CONTROLLER_REVISION, JOB, LEASE, Kind

Json = dict[str, Any]

_API = "admissionregistration.k8s.io/v1"
_NAME = "(request.operation == 'CREATE' ? object.metadata.name : request.name).startsWith('mpctl-')"
_CONTAINERS = "variables.pod.containers.all(c, {})"
# Each rule with the message of its refusal. A load Job of mpctl meets all of them.
_JOB_RULES = (
    ("size(variables.pod.containers) == 1", "a load Job has one container"),
    ("!has(variables.pod.initContainers)", "a load Job has no init containers"),
    (
        "has(variables.pod.automountServiceAccountToken) && !variables.pod.automountServiceAccountToken",
        "a load Job mounts no service account token",
    ),
    (
        "!has(variables.pod.serviceAccountName) || variables.pod.serviceAccountName in ['', 'default']",
        "a load Job has the default service account",
    ),
    (
        "!has(variables.pod.volumes) || variables.pod.volumes.all(v, has(v.emptyDir))",
        "a load Job has emptyDir volumes only",
    ),
    (
        _CONTAINERS.format("!has(c.envFrom) && (!has(c.env) || c.env.all(e, !has(e.valueFrom)))"),
        "a load Job takes no variable from another object",
    ),
    (
        "!(has(variables.pod.hostNetwork) && variables.pod.hostNetwork) && "
        "!(has(variables.pod.hostPID) && variables.pod.hostPID) && "
        "!(has(variables.pod.hostIPC) && variables.pod.hostIPC)",
        "a load Job shares no namespace with its node",
    ),
    (
        _CONTAINERS.format(
            "has(c.securityContext) && has(c.securityContext.allowPrivilegeEscalation) && "
            "!c.securityContext.allowPrivilegeEscalation"
        ),
        "a load Job cannot gain privileges",
    ),
)


def admission_policies(namespace: str | None, to: Sequence[Subject]) -> tuple[Json, ...]:
    """Return the policies with their bindings; ``namespace`` None: for all namespaces. ``to``: whom they limit."""
    suffix = f"-{namespace}" if namespace else ""
    written = (CONFIG_MAP, JOB, LEASE, CONTROLLER_REVISION)
    names = _policy(f"mpctl-names{suffix}", written, ("CREATE", "UPDATE", "DELETE"), to)
    names["spec"]["validations"] = [
        {"expression": _NAME, "message": "operators of mpctl write objects whose names begin with mpctl-"}
    ]
    jobs = _policy(f"mpctl-jobs{suffix}", (JOB,), ("CREATE",), to)
    jobs["spec"]["variables"] = [{"name": "pod", "expression": "object.spec.template.spec"}]
    jobs["spec"]["validations"] = [{"expression": rule, "message": message} for rule, message in _JOB_RULES]
    return names, _binding(names, namespace), jobs, _binding(jobs, namespace)


def _policy(name: str, kinds: Sequence[Kind], operations: Sequence[str], to: Sequence[Subject]) -> Json:
    rules = [
        {"apiGroups": [k.group], "apiVersions": ["*"], "operations": [*operations], "resources": [k.plural]}
        for k in kinds
    ]
    return {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": _metadata(name),
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": rules},
            "matchConditions": [{"name": "operators", "expression": _from_subjects(to)}],
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


def _from_subjects(to: Sequence[Subject]) -> str:
    """CEL: whether a request comes from one of the subjects."""
    users = [
        s.name if s.kind == "User" else f"system:serviceaccount:{s.namespace}:{s.name}" for s in to if s.kind != "Group"
    ]
    groups = [s.name for s in to if s.kind == "Group"]
    return (
        f"request.userInfo.username in {json.dumps(users)} || "
        f"(has(request.userInfo.groups) && request.userInfo.groups.exists(g, g in {json.dumps(groups)}))"
    )
