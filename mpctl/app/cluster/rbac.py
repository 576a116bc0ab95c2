"""Roles with no more permissions than mpctl's own calls need."""

from __future__ import annotations

from typing import Any

from mpctl.app.requests import RbacRequest
from mpctl.errors import InputError
from mpctl.platform.kubernetes.access.admission import admission_policies
from mpctl.platform.kubernetes.access.calls import Row, needs
from mpctl.platform.kubernetes.access.rbac import require_name, roles, subject_of


def make_roles(request: RbacRequest) -> tuple[dict[str, Any], ...]:
    """Return the roles to apply, each followed by its binding; contacts nothing.

    Raises:
        InputError: the scope is missing or given twice, or a name is not valid in Kubernetes.
    """
    namespace = request.namespace
    if request.cluster_wide and namespace:
        raise InputError("cannot be combined with -n", field="--cluster-wide")
    if not request.cluster_wide and not namespace:
        raise InputError("required", field="--namespace", hint="-n NAME, or --cluster-wide for all namespaces")
    if namespace:
        require_name(namespace, "--namespace", dots=False)
    for secret in request.secrets:
        require_name(secret, "--secret")
    subjects = [subject_of(text) for text in request.bind_to]
    if request.purge and request.role != "operator":
        raise InputError("needs --role operator", field="--purge")
    if request.admission_policy and not subjects:
        raise InputError("needs --to", field="--admission-policy", hint="name the operators to limit with --to")
    made = roles(
        request.role,
        namespace,
        to=subjects,
        secrets=request.secrets,
        load=request.load,
        all_pods=request.all_pods,
        purge=request.purge,
        deployments=request.deployments,
    )
    return (*made, *admission_policies(namespace, subjects)) if request.admission_policy else made


def list_calls(request: RbacRequest) -> tuple[Row, ...]:
    """Return the API calls that a role permits, each with its purpose."""
    return needs(
        request.role,
        load=request.load,
        all_pods=request.all_pods,
        purge=request.purge,
        deployments=request.deployments,
    )
