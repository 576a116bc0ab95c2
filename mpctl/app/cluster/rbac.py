"""Roles with no more permissions than mpctl's own calls need."""

from __future__ import annotations

import json

from mpctl.app.environment_requests import RbacRequest
from mpctl.errors import InputError
from mpctl.json_types import Json
from mpctl.platform.kubernetes.access.calls import OPTIONAL, CallRow, needs
from mpctl.platform.kubernetes.access.rbac import (
    Subject,
    admission_policies,
    require_name,
    roles,
    subject_of,
    to_yaml,
)
from mpctl.platform.kubernetes.load_job.job_manifest import KINDS, admission_texts


def make_roles(request: RbacRequest) -> tuple[Json, ...]:
    """Return the roles to apply, each followed by its binding; contacts nothing.

    Raises:
        InputError: the scope is missing or given twice, or a name is not valid in Kubernetes.
    """
    namespace = request.namespace
    if request.everywhere and namespace:
        raise InputError("cannot be combined with -n", field="--all-namespaces")
    if not request.everywhere and not namespace:
        raise InputError("required", field="--namespace", hint="-n NAME, or -A for all namespaces")
    if namespace:
        require_name(namespace, "--namespace", dots=False)
    for secret in request.secrets:
        require_name(secret, "--secret")
    subjects = [subject_of(text) for text in request.bind_to]
    granted, in_jobs = _allowed(request)
    if request.admission_policy and not subjects:
        raise InputError(
            "needs --to", field="--admission-policy", hint="name the operators to limit with --to"
        )
    if in_jobs and not request.admission_policy:
        raise InputError(f"{in_jobs[0][0]} needs --admission-policy", field="--allow")
    documents = roles(
        request.role,
        namespace,
        to=subjects,
        secrets=request.secrets,
        allow=granted,
        without=request.without,
    )
    if not request.admission_policy:
        return documents
    return *documents, *admission_policies(namespace, subjects, admission_texts(in_jobs))


def manifests(request: RbacRequest, form: str) -> str:
    """Return the roles as kubectl reads them: ``json``, else YAML.

    Raises:
        InputError: as :func:`make_roles`.
    """
    documents = make_roles(request)
    if form == "json":
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}, indent=2)
    return to_yaml(documents)


_EVERYONE = {
    "system:authenticated": "every user and service account of the cluster",
    "system:unauthenticated": "everyone who reaches the API server, without a credential",
    "system:anonymous": "everyone who reaches the API server, without a credential",
    "system:serviceaccounts": "every service account of the cluster",
}


def subject_warnings(request: RbacRequest) -> tuple[str, ...]:
    """Return who gets the role in addition to those that its user may mean."""
    subjects = dict.fromkeys(subject_of(text) for text in request.bind_to)
    return tuple(filter(None, (_warning(subject, request.role) for subject in subjects)))


def _warning(subject: Subject, role: str) -> str:
    if subject.kind == "ServiceAccount":  # Kubernetes' role edit creates tokens of service accounts
        text = f"whoever has the role edit in namespace {subject.namespace} can act as service account {subject.name}"
        return text if role == "operator" else ""
    name, subject_name = subject.name, f"{subject.kind.lower()} {subject.name}"
    if name in _EVERYONE:
        return f"{subject_name} is {_EVERYONE[name]}: all of them get the role {role}"
    group, _, namespace = name.partition("system:serviceaccounts:")
    if namespace and not group:
        return f"{subject_name}: whoever has the role edit in namespace {namespace} can act as its service accounts"
    if name.startswith("system:"):
        return (
            f"{subject_name} belongs to Kubernetes itself: name the user or group of your operators"
        )
    return ""


def _allowed(request: RbacRequest) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the rights to grant in addition to a role's, and kind and name of what load Jobs may have.

    Raises:
        InputError: a word is neither, or the role cannot have the right.
    """
    rights = [text for text in request.allowed if text in OPTIONAL]
    if "purge" in rights and request.role != "operator":
        raise InputError("purge needs the role operator", field="--allow")
    in_jobs = []
    for text in request.allowed:
        kind, _, name = text.partition(":")
        if name and kind in KINDS:
            in_jobs.append((kind, name))
        elif text not in OPTIONAL:
            forms = ", ".join((*OPTIONAL, *(f"{kind}:NAME" for kind in KINDS)))
            raise InputError(f"{text!r} is not a right", field="--allow", hint=f"write {forms}")
    return rights, in_jobs


def list_calls(request: RbacRequest) -> tuple[CallRow, ...]:
    """Return the API calls that a role permits, each with its purpose."""
    return needs(request.role, allow=_allowed(request)[0], without=request.without)
