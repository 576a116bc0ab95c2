"""Network isolation of the serving namespace: nothing in or out but what a line here allows, each with
its reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stacks.services.documents import named
from stacks.services.objects import FETCH, Document
from stacks.services.values import Service

GATEWAY = "envoy-gateway-system"
MONITORING = "monitoring"
INGRESS, EGRESS = "Ingress", "Egress"
LOAD_PODS = {
    "mpctl.dev/part": "load"
}  # as mpctl.platform.kubernetes.load_job.job_manifest labels them
# Addresses of the credential services inside a node: EKS Pod Identity agent, cloud metadata server, GKE's
# metadata proxy.
CREDENTIALS = (("169.254.170.23/32", 80), ("169.254.169.254/32", 80), ("169.254.169.252/32", 988))
# Addresses of resolvers that are no pods: Cloud DNS for GKE, NodeLocal DNSCache.
RESOLVERS = ("169.254.169.254/32", "169.254.20.10/32")


def policy(
    name: str, namespace: str, pods: Document, types: Sequence[str], **rules: Any
) -> Document:
    """A policy of these *types*; a type without a rule denies all of its kind. The key of such a type is left out:
    Terraform's provider gets an empty list back as null and calls its own apply inconsistent
    (hashicorp/terraform-provider-kubernetes#2783).
    """
    return named(
        "NetworkPolicy",
        "networking.k8s.io/v1",
        name,
        namespace,
        spec={"podSelector": pods, "policyTypes": list(types), **rules},
    )


def port(number: int, protocol: str = "TCP") -> Document:
    return {"port": number, "protocol": protocol}


def from_namespace(name: str) -> Document:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}


def namespace_policies(namespace: str) -> list[Document]:
    """Deny by default; name resolution for all; the Job that sends a measurement's load reaches the engines, and
    nobody reaches it but the node's own port-forward.
    """
    resolvers = [
        from_namespace("kube-system"),
        *({"ipBlock": {"cidr": block}} for block in RESOLVERS),
    ]
    dns = {"to": resolvers, "ports": [port(53, "UDP"), port(53)]}
    every = {
        "matchExpressions": [{"key": "serving.kserve.io/inferenceservice", "operator": "Exists"}]
    }
    engines = {"to": [{"podSelector": every}], "ports": [port(8080)]}
    return [
        policy("default-deny", namespace, {}, (INGRESS, EGRESS)),
        policy("allow-dns", namespace, {}, (EGRESS,), egress=[dns]),
        policy("allow-load", namespace, {"matchLabels": LOAD_PODS}, (EGRESS,), egress=[engines]),
    ]


def download_egress() -> list[Document]:
    """Hubs and buckets have no fixed addresses: port 443 anywhere but the pod's own private ranges, and
    credentials.
    """
    private = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"]
    return [
        {"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": private}}], "ports": [port(443)]},
        *(
            {"to": [{"ipBlock": {"cidr": block}}], "ports": [port(number)]}
            for block, number in CREDENTIALS
        ),
    ]


def service_policies(service: Service, namespace: str) -> list[Document]:
    """Requests through the gateway and scrapes in; downloads out only while the pod itself downloads."""
    # The label is KServe's own on its pods; our objects never carry it (its orphan cleanup would take them).
    # The candidate of a rollout, and a copy of the baseline measured beside it, are services of the same needs.
    names = [service.name, f"{service.name}-candidate", f"{service.name}-copy"]
    pods = {
        "matchExpressions": [
            {"key": "serving.kserve.io/inferenceservice", "operator": "In", "values": names}
        ]
    }
    callers = [
        {
            "from": [from_namespace(GATEWAY), from_namespace(MONITORING), {"podSelector": {}}],
            "ports": [port(8080)],
        }
    ]
    name = f"{service.name}-predictor"
    if service.staging == "storageUris":
        return [
            policy(
                name, namespace, pods, (INGRESS, EGRESS), ingress=callers, egress=download_egress()
            )
        ]
    return [policy(name, namespace, pods, (INGRESS,), ingress=callers)]


def fetch_policy(namespace: str) -> Document:
    """The download Job talks to hubs and buckets, and nobody talks to it."""
    pods = {"matchLabels": {"app.kubernetes.io/name": FETCH}}
    return policy(FETCH, namespace, pods, (EGRESS,), egress=download_egress())
