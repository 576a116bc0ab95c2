"""The gateway of KServe's routes, its certificate and its authentication, as Kubernetes objects."""

from __future__ import annotations

from collections.abc import Mapping

from stacks.services.documents import named
from stacks.services.objects import Document
from stacks.settings.gateway import Gateway

API = "gateway.networking.k8s.io/v1"
ENVOY = "gateway.envoyproxy.io/v1alpha1"
PROXIES = "envoy-gateway-system"
PROXY = {"app.kubernetes.io/component": "proxy", "app.kubernetes.io/managed-by": "envoy-gateway"}
# What rules and panels read of an Envoy's thousands of series; `upstream_cx_destroy_remote_with_active_rq` are answers
# that an engine broke off, `upstream_rq_timeout` those that the route's timeout cut.
KEPT = "envoy_cluster_upstream_(rq_xx|rq_timeout|rq_completed|cx_destroy_remote_with_active_rq)"
# Seconds in which load balancers see that a node has no ready proxy: 6 checks each 10 s on AWS, 3 each 8 s on Google.
NOTICED_S = 60
PROBE_S = 5  # period of the proxies' readiness probe, set by the controller
CONTROLLER = "gateway.envoyproxy.io/gatewayclass-controller"


def gateway_documents(
    settings: Gateway,
    name: str,
    namespace: str,
    serving: str,
    annotations: Mapping[str, str],
    answer_s: int,
    envoy: str | None = None,
) -> list[Document]:
    """Return class, gateway, certificate and policies; *annotations* are the load balancer's, *answer_s* is the longest
    answer, *envoy* is the proxies' image where it is not the controller's default.
    """
    spec: Document = {"gatewayClassName": "envoy", "listeners": [listener(settings, serving)]}
    if annotations:
        spec["infrastructure"] = {"annotations": dict(annotations)}
    place = {"group": "gateway.envoyproxy.io", "kind": "EnvoyProxy", "name": "envoy"}
    kind: Document = {
        "controllerName": CONTROLLER,
        "parametersRef": {**place, "namespace": PROXIES},
    }
    made = [
        proxies(settings.replicas, answer_s, envoy),
        named("GatewayClass", API, "envoy", None, spec=kind),
        named("Gateway", API, name, namespace, spec=spec),
        idle_policy(name, namespace, answer_s),
        scrapes(),
    ]
    if settings.tls and settings.tls.issuer:
        made.append(certificate(settings, namespace))
    if settings.authenticated:
        made.append(security_policy(settings, name, namespace))
    return made


def proxies(replicas: int, answer_s: int, image: str | None) -> Document:
    """The proxies, which the controller makes itself: no chart renders them. One that ends first finishes its answers:
    the controller makes the pod's grace period 300 s longer than the drain. *image* is None for the controller's own.
    """
    spread = {
        "maxSkew": 1,
        "labelSelector": {"matchLabels": PROXY},
        # Nodes that a drain has cordoned, and those of GPUs, are no places to spread over.
        "nodeTaintsPolicy": "Honor",
        "matchLabelKeys": ["pod-template-hash"],
    }
    places = (
        ("topology.kubernetes.io/zone", "ScheduleAnyway"),
        ("kubernetes.io/hostname", "DoNotSchedule"),
    )
    # A proxy that drains takes new connections until the load balancers have noticed.
    probe = {"failureThreshold": NOTICED_S // PROBE_S}
    patch = {
        "spec": {"template": {"spec": {"containers": [{"name": "envoy", "readinessProbe": probe}]}}}
    }
    deployment: Document = {
        "replicas": replicas,
        "container": {"resources": {"requests": {"cpu": "500m", "memory": "512Mi"}}},
        "pod": {
            "topologySpreadConstraints": [
                {**spread, "topologyKey": key, "whenUnsatisfiable": otherwise}
                for key, otherwise in places
            ]
        },
        "patch": {"type": "StrategicMerge", "value": patch},
    }
    if image:
        deployment["container"]["image"] = image
    objects = {"envoyDeployment": deployment, "envoyPDB": {"maxUnavailable": 1}}
    spec = {
        "provider": {"type": "Kubernetes", "kubernetes": objects},
        "shutdown": {"drainTimeout": f"{answer_s}s", "minDrainDuration": f"{NOTICED_S}s"},
    }
    return named("EnvoyProxy", ENVOY, "envoy", PROXIES, spec=spec)


def scrapes() -> Document:
    """Scrapes of the proxies. Series of KServe's routes get the names of namespace and service that all rules use."""
    route = "httproute/([^/]+)/(.+?)(?:-predictor)?/rule/.*"
    names = [
        {
            "sourceLabels": ["envoy_cluster_name"],
            "regex": route,
            "targetLabel": label,
            "replacement": group,
        }
        for label, group in (("namespace", "$1"), ("inference_service", "$2"))
    ]
    kept = {"action": "keep", "sourceLabels": ["__name__"], "regex": KEPT}
    endpoint = {
        "port": "metrics",
        "path": "/stats/prometheus",
        "interval": "30s",
        "metricRelabelings": [kept, *names],
    }
    spec = {"selector": {"matchLabels": PROXY}, "podMetricsEndpoints": [endpoint]}
    return named("PodMonitor", "monitoring.coreos.com/v1", "gateway", PROXIES, spec=spec)


def listener(settings: Gateway, serving: str) -> Document:
    """One listener. With a certificate there is none for plain HTTP: a key sent there would be readable on its way."""
    # Routes of named namespaces only: any other could take over a service's host name.
    names = sorted({serving, *settings.namespaces})
    chosen = {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "In", "values": names}
        ]
    }
    made: Document = {
        "name": "https" if settings.tls else "http",
        "protocol": "HTTPS" if settings.tls else "HTTP",
        "port": 443 if settings.tls else 80,
        "allowedRoutes": {"namespaces": {"from": "Selector", "selector": chosen}},
    }
    if settings.domain:
        made["hostname"] = f"*.{settings.domain}"
    if settings.tls:
        made["tls"] = {
            "mode": "Terminate",
            "certificateRefs": [{"kind": "Secret", "name": settings.tls.secret}],
        }
    return made


def certificate(settings: Gateway, namespace: str) -> Document:
    """Host names of the certificate that cert-manager requests: KServe's are one label below the domain."""
    assert settings.tls and settings.tls.issuer
    spec = {
        "secretName": settings.tls.secret,
        "dnsNames": [f"*.{settings.domain}"],
        "issuerRef": {
            "group": "cert-manager.io",
            "kind": "ClusterIssuer",
            "name": settings.tls.issuer,
        },
        "privateKey": {"rotationPolicy": "Always"},
    }
    return named("Certificate", "cert-manager.io/v1", "gateway", namespace, spec=spec)


def idle_policy(name: str, namespace: str, answer_s: int) -> Document:
    """A stream may be silent for as long as an answer may take (Envoy's default is 5 minutes), and keep-alive packets
    keep its connection in the tables of load balancers that forget silent ones (350 s on AWS, 10 minutes on Google).
    A connection without a request is closed before clients count on it (Go keeps one for 90 s): a proxy drains until
    the last is closed, which is an hour later by default.
    """
    target = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": name}
    spec = {
        "targetRefs": [target],
        "timeout": {"http": {"streamIdleTimeout": f"{answer_s}s", "idleTimeout": "120s"}},
        "tcpKeepalive": {"idleTime": "60s", "interval": "30s", "probes": 3},
    }
    return named("ClientTrafficPolicy", ENVOY, "long-answers", namespace, spec=spec)


def security_policy(settings: Gateway, name: str, namespace: str) -> Document:
    """Envoy refuses (401) what has no credentials, on every route of the gateway."""
    target = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": name}
    spec: Document = {"targetRefs": [target]}
    if settings.api_keys:
        spec["apiKeyAuth"] = {
            "credentialRefs": [{"kind": "Secret", "name": settings.api_keys}],
            # OpenAI clients send `Authorization: Bearer KEY`; Envoy strips the word.
            "extractFrom": [{"headers": ["Authorization", "x-api-key"]}],
            # The engine's log must not hold keys.
            "sanitize": True,
        }
    if settings.jwt:
        provider = {
            "name": "callers",
            "issuer": settings.jwt.issuer,
            "audiences": list(settings.jwt.audiences),
            "remoteJWKS": {"uri": settings.jwt.jwks},
        }
        spec["jwt"] = {"providers": [provider]}
    return named("SecurityPolicy", ENVOY, "callers", namespace, spec=spec)
