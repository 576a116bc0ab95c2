"""Google Kubernetes Engine through google-cloud-container: the endpoint and an access token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC
from typing import Any

import google.auth
from google.api_core import exceptions as api
from google.auth import exceptions as auth
from google.auth.transport.requests import Request
from google.cloud import container_v1

from mpctl.cloud.managed_cluster import Cluster, ClusterEndpoint, Token
from mpctl.errors import MpctlError, NotPermitted

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
TIMEOUT_S = 20.0
LOGIN = "log in (gcloud auth application-default login), or set GOOGLE_APPLICATION_CREDENTIALS"


@contextmanager
def _errors(action: str, cluster: Cluster) -> Iterator[None]:
    """``action`` in IAM's spelling, for example ``container.clusters.get``."""
    try:
        yield
    except (
        api.Unauthenticated,
        api.PermissionDenied,
        auth.DefaultCredentialsError,
        auth.RefreshError,
    ) as error:
        hint = f"{LOGIN}; the identity needs a role with {action}, for example roles/container.clusterViewer"
        raise NotPermitted(
            f"{action} is not allowed for {cluster.short}: {type(error).__name__}", hint=hint
        ) from None
    except (api.GoogleAPICallError, api.RetryError, auth.TransportError) as error:
        reason = str(error)[:300]
        hint = "check its project, location (a zonal cluster has a zone) and name, and proxies in between"
        raise MpctlError(f"{action} failed for {cluster.short}: {reason}", hint=hint) from None


class Gke:
    """A GKE cluster, with the application default credentials. ``client`` is a `ClusterManagerClient`."""

    def __init__(self, cluster: Cluster, *, client: Any = None) -> None:
        self.cluster, self.client = cluster, client

    def _credentials(self) -> Any:
        return google.auth.default(scopes=[SCOPE])[0]

    def endpoint(self) -> ClusterEndpoint:
        wanted = self.cluster
        resource = f"projects/{wanted.project}/locations/{wanted.location}/clusters/{wanted.name}"
        with _errors("container.clusters.get", wanted):
            client = self.client or container_v1.ClusterManagerClient(
                credentials=self._credentials()
            )
            cluster = client.get_cluster(name=resource, timeout=TIMEOUT_S, retry=None)
        by_name = cluster.control_plane_endpoints_config.dns_endpoint_config
        if by_name.allow_external_traffic:
            return ClusterEndpoint(f"https://{by_name.endpoint}", "")
        if not cluster.endpoint:
            hint = "wait until it is RUNNING and try again"
            raise MpctlError(
                f"{wanted.short} is {cluster.status.name} and cannot be reached yet", hint=hint
            )
        return ClusterEndpoint(
            f"https://{cluster.endpoint}", cluster.master_auth.cluster_ca_certificate
        )

    def token(self) -> Token:
        with _errors("container.clusters.connect", self.cluster):
            credentials = self._credentials()
            credentials.refresh(Request())
        return Token(credentials.token, credentials.expiry.replace(tzinfo=UTC))
