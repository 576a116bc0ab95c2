"""Rules of admission (CEL) for the Jobs of limited operators: what :mod:`job_manifest` writes, and no other field.

A field that no rule names is refused, also one that a later Kubernetes adds. The API server's defaults are named.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from mpctl.platform.kubernetes.api import names
from mpctl.platform.kubernetes.capacity.quotas import LOAD_RESOURCES
from mpctl.platform.kubernetes.load_job.job_manifest import ENVIRONMENT, LONGEST_S, NOT_EVICTED, TTL_S

# As `--load-pods` allows.
MOST_PODS = 99
# The type checker knows no loop over the fields of a typed object, so all are dynamic.
VARIABLES = {
    "job": "dyn(object.spec)",
    "template": "dyn(object.spec.template.metadata)",
    "pod": "dyn(object.spec.template.spec)",
    "container": "dyn(object.spec.template.spec.containers[0])",
}
_JOB = (
    *("template", "completionMode", "completions", "parallelism", "backoffLimit", "ttlSecondsAfterFinished"),
    *("activeDeadlineSeconds", "suspend", "selector", "manualSelector", "podReplacementPolicy"),
)
_POD = (
    *("containers", "volumes", "restartPolicy", "terminationGracePeriodSeconds", "automountServiceAccountToken"),
    *("enableServiceLinks", "tolerations", "affinity", "topologySpreadConstraints", "securityContext"),
    *("imagePullSecrets", "nodeSelector", "runtimeClassName", "schedulerName", "dnsPolicy"),
)
_CONTAINER = (
    *("name", "image", "imagePullPolicy", "command", "workingDir", "env", "resources", "securityContext"),
    *("volumeMounts", "terminationMessagePath", "terminationMessagePolicy"),
)
_USER = ("runAsUser", "runAsGroup", "runAsNonRoot", "seccompProfile")
_SECURITY = (*_USER, "allowPrivilegeEscalation", "readOnlyRootFilesystem", "capabilities")
_LABELS = (
    *names.labels("", names.LOAD),
    names.SCOPE_LABEL,
    *(f"{prefix}{key}" for prefix in ("", "batch.kubernetes.io/") for key in ("controller-uid", "job-name")),
)
_ENV = [{"name": name, "value": value} for name, value in ENVIRONMENT.items()]
# What the serving pod may add that is not in every cluster: `mpctl rbac --allow-in-job KIND:NAME`.
KINDS: dict[str, tuple[str, ...]] = {
    "toleration": ("nvidia.com/gpu",),
    "pull-secret": (),
    "runtime-class": (),
    "scheduler": ("default-scheduler",),
}


def job_rules(allowed: Iterable[tuple[str, str]] = ()) -> tuple[tuple[str, str], ...]:
    """Return the rules, each with the message of its refusal. ``allowed``: pairs of a kind of ``KINDS`` and a name."""
    pairs = tuple(allowed)
    named = {kind: [*defaults, *(n for k, n in pairs if k == kind)] for kind, defaults in KINDS.items()}
    pod, container = "variables.pod", "variables.container"
    return (
        (_only("variables.job", _JOB), "a load Job has fields of mpctl alone"),
        (
            f"variables.job.parallelism <= {MOST_PODS} && variables.job.completions <= {MOST_PODS} && "
            "variables.job.backoffLimit == 0 && !variables.job.suspend && "
            "(!has(variables.job.manualSelector) || !variables.job.manualSelector) && "
            f"variables.job.ttlSecondsAfterFinished <= {TTL_S} && "
            f"variables.job.activeDeadlineSeconds <= {LONGEST_S}",
            f"a load Job has at most {MOST_PODS} pods and ends",
        ),
        (
            f"variables.template.all(k, k in ['labels', 'annotations', 'creationTimestamp']) && "
            f"{_optional('variables.template', 'labels', _LABELS)} && "
            f"{_optional('variables.template', 'annotations', NOT_EVICTED)}",
            "pods of a load Job have labels and annotations of mpctl alone",
        ),
        (_only(pod, _POD), "pods of a load Job have fields of mpctl alone"),
        (f"!{pod}.automountServiceAccountToken", "a load Job mounts no service account token"),
        (f"{pod}.dnsPolicy == 'ClusterFirst'", "a load Job uses the cluster's DNS"),
        (
            _each(pod, "tolerations", f"has(x.key) && x.key in {json.dumps(named['toleration'])}"),
            "a load Job tolerates what --allow-in-job toleration:KEY names",
        ),
        (
            _each(pod, "imagePullSecrets", f"x.name in {json.dumps(named['pull-secret'])}"),
            "a load Job uses pull secrets that --allow-in-job pull-secret:NAME names",
        ),
        (
            f"!has({pod}.runtimeClassName) || {pod}.runtimeClassName in {json.dumps(named['runtime-class'])}",
            "a load Job has a runtime class that --allow-in-job runtime-class:NAME names",
        ),
        (
            f"{pod}.schedulerName in {json.dumps(named['scheduler'])}",
            "a load Job has a scheduler that --allow-in-job scheduler:NAME names",
        ),
        (
            f"!has({pod}.affinity) || ({pod}.affinity.all(k, k in ['nodeAffinity', 'podAffinity']) && "
            + _optional(f"{pod}.affinity", "podAffinity", ("preferredDuringSchedulingIgnoredDuringExecution",))
            + ")",
            "a load Job keeps no other pod from its nodes",
        ),
        (
            f"{_optional(pod, 'securityContext', (*_USER, 'supplementalGroups', 'fsGroup'))} && "
            f"{_confined(pod)} && {_confined(container)}",
            "a load Job has a seccomp profile and no sysctls",
        ),
        (
            _each(pod, "volumes", "x.all(k, k in ['name', 'emptyDir']) && x.emptyDir.all(k, k == 'sizeLimit')"),
            "a load Job has emptyDir volumes on disk only",
        ),
        (
            f"size({pod}.containers) == 1 && {_only(container, _CONTAINER)}",
            "a load Job has one container of mpctl's form",
        ),
        (f"{container}.env == {json.dumps(_ENV)}", "a load Job has the variables that mpctl sets"),
        (
            f"{container}.securityContext.all(k, k in {json.dumps(_SECURITY)}) && "
            f"!{container}.securityContext.allowPrivilegeEscalation && "
            f"{container}.securityContext.readOnlyRootFilesystem && "
            f"{container}.securityContext.capabilities == {json.dumps({'drop': ['ALL']})}",
            "a load Job has no capabilities and cannot gain privileges",
        ),
        (
            f"{container}.resources.all(k, k in ['requests', 'limits']) && " + " && ".join(_bounded()),
            f"a load Job uses at most {' and '.join(map(str, LOAD_RESOURCES['limits'].values()))}, and no device",
        ),
    )


def _only(path: str, keys: Iterable[str]) -> str:
    """CEL: whether an object has no other keys."""
    return f"{path}.all(k, k in {json.dumps(list(keys))})"


def _optional(path: str, field: str, keys: Iterable[str]) -> str:
    return f"(!has({path}.{field}) || {_only(f'{path}.{field}', keys)})"


def _each(path: str, field: str, rule: str) -> str:
    return f"!has({path}.{field}) || {path}.{field}.all(x, {rule})"


def _confined(path: str) -> str:
    profile = f"{path}.securityContext.seccompProfile"
    absent = f"!has({path}.securityContext) || !has({profile})"
    return f"({absent} || {profile}.type in ['RuntimeDefault', 'Localhost'])"


def _bounded() -> Iterable[str]:
    for kind in ("requests", "limits"):
        amounts = f"variables.container.resources.{kind}"
        yield _only(amounts, LOAD_RESOURCES["limits"])
        for name, limit in LOAD_RESOURCES["limits"].items():
            yield f"quantity(string({amounts}.{name})).compareTo(quantity('{limit}')) <= 0"
