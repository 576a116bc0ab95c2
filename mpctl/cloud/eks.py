"""Amazon EKS through boto3: the endpoint and a signed token.

The token is what EKS' authenticator expects: a presigned STS GetCallerIdentity URL that carries the cluster's name in
a signed header, valid for a minute at STS and accepted by the cluster for fifteen (EKS user guide, cluster access).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
from botocore import exceptions as aws
from botocore.config import Config
from botocore.signers import RequestSigner

from mpctl.cloud.managed_cluster import Cluster, ClusterEndpoint, Token
from mpctl.errors import MpctlError, NotPermitted

LOGIN = "log in (aws sso login), or set AWS_PROFILE or --profile; `aws sts get-caller-identity` shows who you are"
TOKEN_LIFE = timedelta(minutes=14)  # one less than the cluster grants, for clocks that differ
URL_LIFE_S = 60
_KEY = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{8,}\b|(?:X-Amz-[\w-]+|Signature|Credential)=[^\s&]+")


@contextmanager
def _errors(action: str, cluster: Cluster) -> Iterator[None]:
    """``action`` in IAM's spelling, for example ``eks:DescribeCluster``."""
    try:
        yield
    except (aws.BotoCoreError, aws.ClientError) as error:
        reason = _KEY.sub("[redacted]", str(error))[:300]
        response = getattr(error, "response", {})
        forbidden = response.get("ResponseMetadata", {}).get("HTTPStatusCode") in {401, 403}
        logged_out = (
            aws.NoCredentialsError,
            aws.PartialCredentialsError,
            aws.TokenRetrievalError,
            aws.SSOError,
            aws.CredentialRetrievalError,
            aws.ProfileNotFound,
        )
        if forbidden or isinstance(error, logged_out):
            hint = f"{LOGIN}; the identity needs {action}"
            raise NotPermitted(
                f"{action} is not allowed for {cluster.short}: {reason}", hint=hint
            ) from None
        hint = f"check the cluster's name, its region {cluster.location}, and proxies in between"
        raise MpctlError(f"{action} failed for {cluster.short}: {reason}", hint=hint) from None


class Eks:
    """An EKS cluster, with the credentials of the default chain or of ``profile``."""

    def __init__(self, cluster: Cluster, *, profile: str | None = None) -> None:
        self.cluster = cluster
        with _errors("sts:GetCallerIdentity", cluster):
            self.session: Any = boto3.Session(profile_name=profile, region_name=cluster.location)

    def _client(self, service: str) -> Any:
        return self.session.client(service, config=Config(connect_timeout=5, read_timeout=20))

    def endpoint(self) -> ClusterEndpoint:
        with _errors("eks:DescribeCluster", self.cluster):
            description = self._client("eks").describe_cluster(name=self.cluster.name)["cluster"]
        if not description.get("endpoint"):
            hint = "wait until it is ACTIVE and try again"
            raise MpctlError(
                f"{self.cluster.short} is {description['status']} and cannot be reached yet",
                hint=hint,
            )
        return ClusterEndpoint(description["endpoint"], description["certificateAuthority"]["data"])

    def token(self) -> Token:
        with _errors("sts:GetCallerIdentity", self.cluster):
            sts = self._client("sts")
            credentials = self.session.get_credentials()
            if credentials is None:
                raise aws.NoCredentialsError
            service = sts.meta.service_model.service_id
            signer = RequestSigner(
                service, self.cluster.location, "sts", "v4", credentials, self.session.events
            )
            request = {
                "method": "GET",
                "url": f"{sts.meta.endpoint_url.rstrip('/')}/?Action=GetCallerIdentity&Version=2011-06-15",
                "body": {},
                "headers": {"x-k8s-aws-id": self.cluster.name},
                "context": {},
            }
            url = signer.generate_presigned_url(request, operation_name="", expires_in=URL_LIFE_S)
        encoded = base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")
        return Token(f"k8s-aws-v1.{encoded}", datetime.now(UTC) + TOKEN_LIFE)
