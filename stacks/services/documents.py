"""Parts that many Kubernetes objects have in common."""

from __future__ import annotations

from typing import Any

# The restricted Pod Security Standard's requirements for every container, and a read-only root.
CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def named(kind: str, api: str, name: str, namespace: str | None, **body: Any) -> dict[str, Any]:
    """Return a Kubernetes object with mpctl's labels; without a namespace for a cluster's own."""
    meta: dict[str, Any] = (
        {"name": name} if namespace is None else {"name": name, "namespace": namespace}
    )
    labels = {"app.kubernetes.io/managed-by": "mpctl", "app.kubernetes.io/part-of": "inference"}
    return {"apiVersion": api, "kind": kind, "metadata": {**meta, "labels": labels}, **body}
