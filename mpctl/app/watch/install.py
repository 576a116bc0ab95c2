"""The objects that run the watch in a cluster: what they may do is what the policy needs, and no more.

Reporting takes the reader's calls, acting the operator's, as ``mpctl rbac`` grants them. Two replicas: the one that
holds the Lease works, the other waits.

The watch lives in a namespace without users: whoever has Kubernetes' role ``edit`` in a namespace may act as every
service account of it.
"""

from __future__ import annotations

from mpctl.app.environment_requests import WATCH_HOME, WatchInstallRequest
from mpctl.app.watch.loop import lease_of
from mpctl.errors import InputError
from mpctl.json_types import Json
from mpctl.platform.kubernetes.access.calls import WATCH, needs
from mpctl.platform.kubernetes.access.rbac import Subject, require_name, roles_of
from mpctl.platform.kubernetes.speculation_status import definition
from mpctl.watch.watch_policy import WatchPolicy

PORT = 9464
_POLICY_FILE = "watch.yaml"
_POD_MONITOR = "monitoring.coreos.com/v1", "PodMonitor"


def objects(request: WatchInstallRequest, policy_text: str) -> tuple[Json, ...]:
    """Return the objects to apply, in order; contacts nothing.

    Raises:
        InputError: a name or the policy cannot be used, or the watch would live beside the services it watches.
    """
    watched, home, name = request.namespace, request.home, name_of(request.namespace)
    if watched is not None:
        require_name(watched, "--namespace", dots=False)
    require_name(home, "--home", dots=False)
    for space in request.allow_from:
        require_name(space, "--allow-from", dots=False)
    _require_separate(request)
    policy = WatchPolicy.parse(policy_text, file=request.policy_file or "--watch-policy")
    subject = Subject("ServiceAccount", name, home)
    rows = (*needs("operator" if policy.fall_back else "reader"), *WATCH)

    def make(version: str, kind: str, body: Json) -> Json:
        metadata = {"name": name, "namespace": home, "labels": _labels(name)}
        return {"apiVersion": version, "kind": kind, "metadata": metadata, **body}

    return (
        definition(),
        *_home(request),
        make("v1", "ServiceAccount", {"automountServiceAccountToken": False}),
        *roles_of(rows, f"mpctl-watch.{home}", watched, to=(subject,), secrets=request.secrets),
        *_lease_role(request, subject),
        make("v1", "ConfigMap", {"data": {_POLICY_FILE: policy_text}}),
        make("apps/v1", "Deployment", {"spec": _deployment(request)}),
        make(
            "v1",
            "Service",
            {"spec": {"selector": _labels(name), "ports": [{"name": "metrics", "port": PORT}]}},
        ),
        make("networking.k8s.io/v1", "NetworkPolicy", {"spec": _network(name, request.allow_from)}),
        make(
            "policy/v1",
            "PodDisruptionBudget",
            {"spec": {"minAvailable": 1, "selector": _selector(name)}},
        ),
        *(
            []
            if "podmonitor" in request.without
            else [make(*_POD_MONITOR, {"spec": _monitor(name)})]
        ),
    )


def name_of(watched: str | None) -> str:
    """The name of all objects of a watch: those of several namespaces may share a home."""
    return f"mpctl-watch-{watched}" if watched else "mpctl-watch"


def _require_separate(request: WatchInstallRequest) -> None:
    watched = request.namespace == request.home or (
        request.namespace is None and request.home != WATCH_HOME
    )
    if watched and not request.shared_home:
        raise InputError(
            f"namespace {request.home} is watched: whoever has the role edit there can act as the watch",
            field="--home",
            hint=f"leave it out (default {WATCH_HOME}), or add --shared-home where operators alone have edit",
        )


def _home(request: WatchInstallRequest) -> tuple[Json, ...]:
    """The namespace that is the watch's alone; one with other users exists already, and has labels of its own."""
    if request.shared_home:
        return ()
    labels = {
        "app.kubernetes.io/managed-by": "mpctl",
        "pod-security.kubernetes.io/enforce": "restricted",
    }
    return (
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": request.home, "labels": labels},
        },
    )


def _labels(name: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "mpctl"}


def _lease_role(request: WatchInstallRequest, subject: Subject) -> tuple[Json, ...]:
    """The leader's Lease alone; RBAC cannot limit a create by name."""
    group = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    names = [lease_of(request.namespace)]
    rules = [
        {**group, "verbs": ["create"]},
        {**group, "resourceNames": names, "verbs": ["get", "patch", "update"]},
    ]
    rbac = "rbac.authorization.k8s.io"
    name = f"{subject.name}-leader"
    metadata = {"name": name, "namespace": request.home, "labels": _labels(subject.name)}
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
    services = ["-A"] if request.namespace is None else ["-n", request.namespace]
    source = ["--prometheus", request.prometheus] if request.prometheus else []
    return [
        *("watch", "run", "--platform", "kubernetes", *services, *source),
        *(
            "--watch-policy",
            f"/etc/mpctl/{_POLICY_FILE}",
            "--leader-elect",
            "--lease-namespace",
            request.home,
        ),
        *("--publish", "--listen", f"0.0.0.0:{PORT}", "-o", "json"),
    ]


def _deployment(request: WatchInstallRequest) -> Json:
    name = name_of(request.namespace)
    answers = {"httpGet": {"path": "/healthz", "port": "metrics"}, "timeoutSeconds": 5}
    env: list[Json] = [{"name": "HOME", "value": "/tmp"}]
    if request.webhook_secret:
        reference = {"name": request.webhook_secret, "key": "url"}
        env.append({"name": "MPCTL_WEBHOOK", "valueFrom": {"secretKeyRef": reference}})
    container = {
        "name": "watch",
        "image": request.image,
        "args": arguments(request),
        "env": env,
        "ports": [{"name": "metrics", "containerPort": PORT}],
        # Five minutes to import and to read the first services on a busy node; then a loop that hangs is restarted.
        "startupProbe": {**answers, "periodSeconds": 5, "failureThreshold": 60},
        "livenessProbe": {**answers, "periodSeconds": 15, "failureThreshold": 8},
        "resources": {
            "requests": {"cpu": "100m", "memory": "128Mi"},
            "limits": {"memory": "512Mi"},
        },
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
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
    }
    pod = {
        "serviceAccountName": name,
        "automountServiceAccountToken": True,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [{**spread, "labelSelector": _selector(name)}],
        "terminationGracePeriodSeconds": 30,
        "containers": [container],
        "volumes": [
            {"name": "policy", "configMap": {"name": name}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
        ],
    }
    return {
        "replicas": 2,
        "selector": _selector(name),
        "template": {"metadata": {"labels": _labels(name)}, "spec": pod},
    }


def _selector(name: str) -> Json:
    return {"matchLabels": {"app.kubernetes.io/name": name}}


def _network(name: str, allowed: tuple[str, ...]) -> Json:
    """In: the port of metrics and verdicts, from pods of the allowed namespaces alone. Kubernetes lets the node's own
    probes in. Out: everything, since neither the API server nor Prometheus has a fixed address."""
    pods = [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": space}}}
        for space in allowed
    ]
    rule = {"from": pods, "ports": [{"protocol": "TCP", "port": PORT}]}
    # A rule with an empty list of sources would let everything in.
    return {
        "podSelector": _selector(name),
        "policyTypes": ["Ingress"],
        "ingress": [rule] if pods else [],
    }


def _monitor(name: str) -> Json:
    # honorLabels: namespace and inference_service are those of the watched service, not of the watch's pod.
    endpoint = {"port": "metrics", "path": "/metrics", "interval": "30s", "honorLabels": True}
    return {"selector": _selector(name), "podMetricsEndpoints": [endpoint]}
