"""Network isolation of the serving namespace: nothing in or out but what objects.yaml allows, each with its reason."""

from __future__ import annotations

from stacks.services.documents import Document, written
from stacks.services.values import Service

POLICIES = ("default_deny", "allow_dns", "allow_load")


def port(number: int) -> Document:
    return {"port": number, "protocol": "TCP"}


def from_namespace(name: str) -> Document:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}


def namespace_policies(namespace: str) -> list[Document]:
    """Deny by default; name resolution for all; a measurement's load reaches the engines."""
    return [written(name, namespace=namespace) for name in POLICIES]


def fetch_policy(namespace: str) -> Document:
    """Downloads of the fetch Job."""
    return written("fetch", namespace=namespace)


def service_policies(service: Service, namespace: str) -> list[Document]:
    """Requests and scrapes in; the downloads of the fetch Job out where the pod itself downloads."""
    made = written("serve", name=service.name, namespace=namespace)
    if service.staging == "storageUris":
        made["spec"]["policyTypes"].append("Egress")
        made["spec"]["egress"] = fetch_policy(namespace)["spec"]["egress"]
    return [made]
