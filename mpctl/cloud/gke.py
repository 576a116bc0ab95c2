"""Google Kubernetes Engine through google-cloud-container: the endpoint and an access token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC
from typing import Any

from mpctl.cloud.managed_cluster import Cluster, ClusterEndpoint, Token
from mpctl.errors import Conflict, InputError, MpctlError, NotPermitted

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
TIMEOUT_S = 20.0
LOGIN = "Log in again (gcloud auth application-default login), or set GOOGLE_APPLICATION_CREDENTIALS"


@contextmanager
def google_errors(action: str, cluster: Cluster) -> Iterator[None]:
    """``action`` in IAM's spelling, for example ``container.clusters.get``. Details of a refusal stay with Google."""
    from google.api_core import exceptions as api
    from google.auth import exceptions as auth

    try:
        yield
    except (api.ResourceExhausted, api.TooManyRequests):
        raise MpctlError(f"Google throttles {action} for {cluster.short}", hint="Wait a minute and try again") from None
    except api.Unauthenticated:
        raise NotPermitted(f"The Google credentials for {cluster.short} have expired", hint=LOGIN) from None
    except api.PermissionDenied:
        hint = f"Ask for a role with {action} in project {cluster.account}, for example roles/container.clusterViewer"
        raise NotPermitted(f"{action} is not allowed for {cluster.short}", hint=hint) from None
    except api.NotFound:
        hint = f"Are project {cluster.account} and location {cluster.location} right? A zonal cluster has a zone there"
        raise InputError(f"{cluster.short} does not exist", field="CLUSTER", hint=hint) from None
    except (api.FailedPrecondition, api.Aborted) as error:
        hint = "Another operation is running on the cluster: wait for it and try again"
        raise Conflict(f"{action} for {cluster.short} was refused: {_said(error)}", hint=hint) from None
    except (api.DeadlineExceeded, api.ServiceUnavailable, api.RetryError):
        hint = "Is there a proxy or a firewall between?"
        raise MpctlError(f"{action} for {cluster.short} got no answer in {TIMEOUT_S:.0f} s", hint=hint) from None
    except auth.DefaultCredentialsError:
        raise NotPermitted(f"No Google credentials for {cluster.short}", hint=LOGIN) from None
    except auth.RefreshError:
        raise NotPermitted(f"The Google login for {cluster.short} is over", hint=LOGIN) from None
    except auth.TransportError:
        raise MpctlError(f"Google's token service gave no answer for {cluster.short}") from None
    except api.GoogleAPICallError as error:
        raise MpctlError(f"{action} for {cluster.short} failed: {_said(error)}") from None


def _said(error: Any) -> str:
    return str(getattr(error, "message", "") or type(error).__name__)[:300]


def _credentials(cluster: Cluster) -> Any:
    try:
        import google.auth
    except ImportError:
        hint = "pip install '.[cloud]' in the checkout of mpctl"
        raise MpctlError("GKE needs google-cloud-container", hint=hint) from None
    with google_errors("container.clusters.get", cluster):
        return google.auth.default(scopes=[SCOPE])[0]


def cluster_manager(cluster: Cluster) -> Any:
    """A client with the application default credentials."""
    credentials = _credentials(cluster)
    from google.cloud import container_v1

    return container_v1.ClusterManagerClient(credentials=credentials)


class Gke:
    """A GKE cluster. ``client`` is a `ClusterManagerClient`; without one it is made at the first call."""

    def __init__(self, cluster: Cluster, *, client: Any = None) -> None:
        self.cluster = cluster
        self._client = client

    @property
    def client(self) -> Any:
        if self._client is None:
            self._client = cluster_manager(self.cluster)
        return self._client

    def endpoint(self) -> ClusterEndpoint:
        cluster = self._get("container.clusters.get")
        if not cluster.endpoint:
            hint = "Wait until it is RUNNING and try again"
            raise MpctlError(f"{self.cluster.short} is {cluster.status.name} and cannot be reached yet", hint=hint)
        return ClusterEndpoint(f"https://{cluster.endpoint}", cluster.master_auth.cluster_ca_certificate)

    def _get(self, action: str) -> Any:
        client = self.client
        with google_errors(action, self.cluster):
            return client.get_cluster(name=self.cluster.resource, timeout=TIMEOUT_S, retry=None)

    def token(self) -> Token:
        credentials = _credentials(self.cluster)
        from google.auth.transport.requests import Request

        with google_errors("container.clusters.connect", self.cluster):
            credentials.refresh(Request())
        return Token(credentials.token, credentials.expiry.replace(tzinfo=UTC))
