"""The objects that run the watch in a cluster: what they may do is what the policy needs, and no more.

Reporting takes the reader's role, acting the operator's, as ``mpctl rbac`` prints them. Two replicas: the one that
holds the Lease works, the other waits.
"""

from __future__ import annotations

from typing import Any

from mpctl.app.requests import WatchInstallRequest
from mpctl.app.watch.leader import LEASE
from mpctl.platform.kubernetes.access.calls import WATCH
from mpctl.platform.kubernetes.access.rbac import Subject, granted, require_name, roles
from mpctl.platform.kubernetes.speculation_status import definition
from mpctl.watch.policy import WatchPolicy

Json = dict[str, Any]
NAME = "mpctl-watch"
PORT = 9464
_LABELS = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/managed-by": "mpctl"}
_POLICY_FILE = "watch.yaml"


def objects(request: WatchInstallRequest, policy_text: str) -> tuple[Json, ...]:
    """Return the objects to apply, in order; contacts nothing.

    Raises:
        InputError: a name or the policy cannot be used.
    """
    namespace = request.namespace
    require_name(namespace, "--namespace", dots=False)
    policy = WatchPolicy.parse(policy_text, file=request.policy_file)
    subject = Subject("ServiceAccount", NAME, namespace)
    watched = None if request.all_namespaces else namespace
    return (
        definition(),
        _object("v1", "ServiceAccount", namespace, {"automountServiceAccountToken": False}),
        *roles("operator" if policy.fall_back else "reader", watched, to=(subject,)),
        *granted(f"{NAME}-status", watched, WATCH, to=(subject,)),
        *_lease_role(namespace, subject),
        _object("v1", "ConfigMap", namespace, {"data": {_POLICY_FILE: policy_text}}),
        _object("apps/v1", "Deployment", namespace, {"spec": _deployment(request)}),
        _object("networking.k8s.io/v1", "NetworkPolicy", namespace, {"spec": _network()}),
        _object("policy/v1", "PodDisruptionBudget", namespace, {"spec": {"minAvailable": 1, "selector": _selector()}}),
        _object("monitoring.coreos.com/v1", "PodMonitor", namespace, {"spec": _monitor()}),
    )


def _object(version: str, kind: str, namespace: str, body: Json) -> Json:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": NAME, "namespace": namespace, "labels": _LABELS},
        **body,
    }


def _lease_role(namespace: str, subject: Subject) -> tuple[Json, ...]:
    """The leader's Lease alone; RBAC cannot limit a create by name."""
    group = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    rules = [{**group, "verbs": ["create"]}, {**group, "resourceNames": [LEASE], "verbs": ["get", "patch", "update"]}]
    rbac = "rbac.authorization.k8s.io"
    name = f"{NAME}-leader"
    metadata = {"name": name, "namespace": namespace, "labels": _LABELS}
    reference = {"apiGroup": rbac, "kind": "Role", "name": name}
    return (
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": rules},
        {
            **{"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", "metadata": metadata},
            **{"roleRef": reference, "subjects": [subject.to_record()]},
        },
    )


def arguments(request: WatchInstallRequest) -> list[str]:
    """Return the container's arguments after ``mpctl``."""
    place = ["-A"] if request.all_namespaces else []
    source = ["--prometheus", request.prometheus] if request.prometheus else []
    return [
        *("watch", "run", "--platform", "kubernetes", "-n", request.namespace, *place, *source),
        *("--watch-policy", f"/etc/mpctl/{_POLICY_FILE}", "--leader-elect", "--publish"),
        *("--listen", f"0.0.0.0:{PORT}", "-o", "json"),
    ]


def _deployment(request: WatchInstallRequest) -> Json:
    probe = {"httpGet": {"path": "/healthz", "port": "metrics"}, "periodSeconds": 15, "failureThreshold": 4}
    container = {
        "name": "watch",
        "image": request.image,
        "args": arguments(request),
        "env": [{"name": "HOME", "value": "/tmp"}],
        "ports": [{"name": "metrics", "containerPort": PORT}],
        "livenessProbe": probe,
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "policy", "mountPath": "/etc/mpctl", "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    pod = {
        "serviceAccountName": NAME,
        "automountServiceAccountToken": True,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
        "topologySpreadConstraints": [{**spread, "labelSelector": _selector()}],
        "terminationGracePeriodSeconds": 30,
        "containers": [container],
        "volumes": [
            {"name": "policy", "configMap": {"name": NAME}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
        ],
    }
    return {"replicas": 2, "selector": _selector(), "template": {"metadata": {"labels": _LABELS}, "spec": pod}}


def _selector() -> Json:
    return {"matchLabels": {"app.kubernetes.io/name": NAME}}


def _network() -> Json:
    """In: the metrics port. Out: everything, since neither the API server nor Prometheus has a fixed address."""
    return {
        "podSelector": _selector(),
        "policyTypes": ["Ingress"],
        "ingress": [{"ports": [{"protocol": "TCP", "port": PORT}]}],
    }


def _monitor() -> Json:
    # honorLabels: namespace and inference_service are those of the watched service, not of the watch's pod.
    endpoint = {"port": "metrics", "path": "/metrics", "interval": "30s", "honorLabels": True}
    return {"selector": _selector(), "podMetricsEndpoints": [endpoint]}
