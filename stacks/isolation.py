"""Isolation of the platform's namespaces: who may call its components. What they call themselves stays open, because
the API server and the clouds' APIs have no addresses that a policy could name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stacks.services.documents import Document, named
from stacks.services.isolation import from_namespace, port


@dataclass(frozen=True)
class Callers:
    """Ports of one namespace. ``api``: of webhooks and aggregated APIs, which the control plane calls from addresses of
    the cluster's network, or through agents in kube-system. ``anyone``: of proxies behind a load balancer.
    """

    api: Sequence[int] = ()
    anyone: Sequence[int] = ()


# Container ports of the charts in versions.yaml.
PLATFORM = {
    "cert-manager": Callers(api=(10250,)),
    # Envoy listens 10000 above the ports of the gateway's listeners; 9443 is the webhook of the controller.
    "envoy-gateway-system": Callers(api=(9443,), anyone=(10080, 10443)),
    "kserve": Callers(api=(9443,)),
    "monitoring": Callers(api=(10250, 6443)),
    "node-feature-discovery": Callers(),
    "dra-driver-nvidia-gpu": Callers(),
}


def ingress_policy(namespace: str, callers: Callers, network: str) -> Document:
    """One policy for all pods of a namespace: its own pods, scrapes, and the callers above."""
    rules: list[Document] = [{"from": [{"podSelector": {}}, from_namespace("monitoring")]}]
    if callers.api:
        rules.append(
            {
                "from": [{"ipBlock": {"cidr": network}}, from_namespace("kube-system")],
                "ports": [port(number) for number in callers.api],
            }
        )
    if callers.anyone:
        rules.append({"ports": [port(number) for number in callers.anyone]})
    spec = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": rules}
    return named("NetworkPolicy", "networking.k8s.io/v1", "callers", namespace, spec=spec)
