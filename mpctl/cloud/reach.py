"""The cloud of a cluster, and what kubectl's credential protocol wants to read."""

from __future__ import annotations

import json
from collections.abc import Mapping

from mpctl.cloud.cluster import Cluster
from mpctl.cloud.ports import Cloud, Token
from mpctl.errors import InputError

API = "client.authentication.k8s.io"


def open_cloud(cluster: Cluster, *, profile: str | None = None) -> Cloud:
    if cluster.provider == "eks":
        from mpctl.cloud.eks import Eks

        return Eks(cluster, profile=profile)
    if profile:
        raise InputError("is for EKS; GKE uses the application default credentials", field="--profile")
    from mpctl.cloud.gke import Gke

    return Gke(cluster)


def exec_credential(token: Token, environment: Mapping[str, str]) -> str:
    """The ExecCredential that client-go reads, in the version it asked for."""
    asked = environment.get("KUBERNETES_EXEC_INFO", "")
    try:
        version = json.loads(asked)["apiVersion"] if asked else f"{API}/v1"
    except (ValueError, KeyError, TypeError):
        raise InputError("is not what kubectl sends", field="KUBERNETES_EXEC_INFO") from None
    if version not in {f"{API}/v1", f"{API}/v1beta1"}:
        raise InputError(f"asks for {version}", field="KUBERNETES_EXEC_INFO", hint="Update kubectl to 1.22 or later")
    expires = token.expires.strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {"token": token.value, "expirationTimestamp": expires}
    return json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})
