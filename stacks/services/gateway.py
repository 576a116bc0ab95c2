"""The gateway of KServe's routes, its certificate and its authentication, as Kubernetes objects."""

from __future__ import annotations

from collections.abc import Mapping

from stacks.services.documents import Document, named, written
from stacks.settings.gateway import Gateway

API = "gateway.networking.k8s.io/v1"
ENVOY = "gateway.envoyproxy.io/v1alpha1"


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
    proxies = written("proxies", replicas=settings.replicas, answer_s=answer_s)
    if envoy:
        deployment = proxies["spec"]["provider"]["kubernetes"]["envoyDeployment"]
        deployment["container"]["image"] = envoy
    made = [
        proxies,
        written("gateway_class"),
        named("Gateway", API, name, namespace, spec=spec),
        written("idle_policy", name=name, namespace=namespace, answer_s=answer_s),
        written("scrapes"),
    ]
    tls = settings.tls
    if tls and tls.issuer:
        values = {"secret": tls.secret, "domain": settings.domain, "issuer": tls.issuer}
        made.append(written("certificate", namespace=namespace, **values))
    if settings.authenticated:
        made.append(security_policy(settings, name, namespace))
    return made


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
