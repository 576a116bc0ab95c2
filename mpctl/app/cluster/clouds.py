"""Managed clusters: a kubeconfig, and the tokens that its plugin asks for."""

from __future__ import annotations

import json
import os

import yaml

from mpctl.app.environment_requests import ConnectRequest
from mpctl.cloud.managed_cluster import open_cloud, parse_cluster
from mpctl.errors import InputError
from mpctl.json_types import Json

V1 = "client.authentication.k8s.io/v1"


def kubeconfig(request: ConnectRequest) -> str:
    """Return a kubeconfig of the cluster without a secret: kubectl asks ``mpctl credential`` for a token at each call.

    Raises:
        InputError: the request names no cluster.
        NotPermitted: the cloud knows no credentials, or they may not read the cluster.
    """
    cluster = parse_cluster(request.cluster)
    endpoint = open_cloud(cluster, profile=request.profile).endpoint()
    name = request.context or cluster.short
    plugin: Json = {
        "apiVersion": V1,
        "command": "mpctl",
        "args": ["credential", cluster.short],
        "interactiveMode": "Never",
        "installHint": "mpctl is not on PATH: install it with its extra cloud",
    }
    if request.profile:
        plugin["env"] = [{"name": "AWS_PROFILE", "value": request.profile}]
    namespace_entry = {"namespace": request.namespace} if request.namespace else {}
    cluster_record = {"server": endpoint.server}
    if endpoint.ca_data:
        cluster_record["certificate-authority-data"] = endpoint.ca_data
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster_record}],
        "users": [{"name": name, "user": {"exec": plugin}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, **namespace_entry}}],
        "current-context": name,
    }
    return yaml.safe_dump(config, sort_keys=False).rstrip()


def credential(request: ConnectRequest) -> str:
    """Return an ExecCredential with a short-lived token, in the version that kubectl asked for.

    Raises:
        InputError: the request names no cluster, or kubectl asks for an unknown version.
    """
    exec_info = os.environ.get("KUBERNETES_EXEC_INFO", "")
    try:
        version = json.loads(exec_info)["apiVersion"] if exec_info else V1
    except (ValueError, KeyError, TypeError):
        raise InputError("is not what kubectl sends", field="KUBERNETES_EXEC_INFO") from None
    if version not in {V1, f"{V1}beta1"}:
        raise InputError(
            f"asks for {version}",
            field="KUBERNETES_EXEC_INFO",
            hint="update kubectl to 1.22 or later",
        )
    token = open_cloud(parse_cluster(request.cluster), profile=request.profile).token()
    status = {
        "token": token.value,
        "expirationTimestamp": token.expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    return json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})
