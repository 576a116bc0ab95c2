"""Amazon EKS through boto3: the endpoint and a signed token.

The token is what EKS' authenticator expects: a presigned STS GetCallerIdentity URL that carries the cluster's name in
a signed header, valid for a minute at STS and accepted by the cluster for fifteen (EKS user guide, cluster access).

A message about a failure names the call and the cluster; never a key, a token or a signed URL.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from mpctl.cloud.managed_cluster import Cluster, ClusterEndpoint, Token
from mpctl.errors import InputError, MpctlError, NotPermitted

THROTTLED = {
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "RequestLimitExceeded",
    "TooManyRequestsException",
}
EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired"}
UNKNOWN = {"UnrecognizedClientException", "InvalidClientTokenId", "AuthFailure", "InvalidAccessKeyId",
           "SignatureDoesNotMatch", "InvalidSignatureException", "IncompleteSignature"}  # fmt: skip
DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "UnauthorizedException"}
ABSENT = {"ResourceNotFoundException", "ResourceNotFound"}

LOGIN = "Log in again (aws sso login), or set AWS_PROFILE or --profile; `aws sts get-caller-identity` shows who you are"

_KEY = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{8,}\b|(?:X-Amz-[\w-]+|Signature|Credential)=[^\s&]+")


def redacted(text: str) -> str:
    return _KEY.sub("[redacted]", text)[:300]


@contextmanager
def aws_errors(action: str, cluster: Cluster) -> Iterator[None]:
    """``action`` in IAM's spelling, for example ``eks:DescribeCluster``."""
    from botocore import exceptions as aws

    try:
        yield
    except aws.ClientError as error:
        raise _from_code(error.response, action, cluster) from None
    except (aws.NoCredentialsError, aws.PartialCredentialsError):
        raise NotPermitted(f"No AWS credentials for {cluster.short}", hint=LOGIN) from None
    except (aws.TokenRetrievalError, aws.SSOError, aws.CredentialRetrievalError) as error:
        raise NotPermitted(f"The AWS login for {cluster.short} is over: {type(error).__name__}", hint=LOGIN) from None
    except aws.ProfileNotFound as error:
        raise InputError(redacted(str(error)), field="--profile") from None
    except (aws.HTTPClientError, aws.ConnectionError) as error:
        hint = f"Is the region {cluster.location} right, and is there a proxy or a private endpoint between?"
        raise MpctlError(f"{action} for {cluster.short} got no answer: {type(error).__name__}", hint=hint) from None
    except aws.BotoCoreError as error:
        raise MpctlError(f"{action} for {cluster.short} failed: {redacted(str(error))}") from None


def _from_code(response: Any, action: str, cluster: Cluster) -> MpctlError:
    code = str(response.get("Error", {}).get("Code", "?"))
    message = redacted(str(response.get("Error", {}).get("Message", "")))
    if code in THROTTLED:
        return MpctlError(f"AWS throttles {action} for {cluster.short}", hint="Wait a minute and try again")
    if code in EXPIRED:
        return NotPermitted(f"The AWS credentials for {cluster.short} have expired", hint=LOGIN)
    if code in UNKNOWN:
        return NotPermitted(f"AWS does not know the credentials used for {cluster.short} ({code})", hint=LOGIN)
    if code in DENIED:
        hint = f"Ask for {action} on this cluster in your IAM policy"
        return NotPermitted(f"{action} is not allowed for {cluster.short}: {message}", hint=hint)
    if code in ABSENT:
        return InputError(f"{cluster.short} does not exist: {message}", field="CLUSTER")
    return MpctlError(f"{action} for {cluster.short} failed: {code}: {message}")


TOKEN_PREFIX = "k8s-aws-v1."
TOKEN_LIFE = timedelta(minutes=14)  # one less than the cluster grants, for clocks that differ
URL_LIFE_S = 60


def _now() -> datetime:
    return datetime.now(UTC)


class Eks:
    """An EKS cluster, with the credentials of the default chain or of ``profile``."""

    def __init__(self, cluster: Cluster, *, profile: str | None = None, now: Callable[[], datetime] = _now) -> None:
        self.cluster, self.now = cluster, now
        try:
            import boto3
        except ImportError:
            raise MpctlError("EKS needs boto3", hint="pip install '.[cloud]' in the checkout of mpctl") from None
        with aws_errors("sts:GetCallerIdentity", cluster):
            self.session: Any = boto3.Session(profile_name=profile, region_name=cluster.location)

    def _client(self, service: str) -> Any:
        from botocore.config import Config

        config = Config(connect_timeout=5, read_timeout=20)
        return self.session.client(service, region_name=self.cluster.location, config=config)

    def endpoint(self) -> ClusterEndpoint:
        with aws_errors("eks:DescribeCluster", self.cluster):
            client = self._client("eks")
            try:
                description = client.describe_cluster(name=self.cluster.name)["cluster"]
            except client.exceptions.ResourceNotFoundException:
                raise self._absent(client) from None
        if description.get("status") not in {"ACTIVE", "UPDATING"} or not description.get("endpoint"):
            hint = "Wait until it is ACTIVE and try again"
            raise MpctlError(
                f"{self.cluster.short} is {description.get('status')} and cannot be reached yet", hint=hint
            )
        return ClusterEndpoint(description["endpoint"], description["certificateAuthority"]["data"])

    def _absent(self, client: Any) -> InputError:
        hint = f"Is {self.cluster.location} the right region, and the account the right one?"
        try:
            names = client.list_clusters()["clusters"]
        except Exception:  # noqa: BLE001  only for the hint; the absence is the error
            names = []
        if names:
            hint = f"In {self.cluster.location} there are: {', '.join(sorted(names)[:10])}"
        return InputError(f"{self.cluster.short} does not exist", field="CLUSTER", hint=hint)

    def token(self) -> Token:
        from botocore.signers import RequestSigner

        with aws_errors("sts:GetCallerIdentity", self.cluster):
            sts = self._client("sts")
            credentials = self.session.get_credentials()
            if credentials is None:
                raise NotPermitted(f"No AWS credentials for {self.cluster.short}", hint="Set AWS_PROFILE or --profile")
            service = sts.meta.service_model.service_id
            signer = RequestSigner(service, self.cluster.location, "sts", "v4", credentials, self.session.events)
            request = {
                "method": "GET",
                "url": f"{sts.meta.endpoint_url.rstrip('/')}/?Action=GetCallerIdentity&Version=2011-06-15",
                "body": {},
                "headers": {"x-k8s-aws-id": self.cluster.name},
                "context": {},
            }
            url = signer.generate_presigned_url(request, operation_name="", expires_in=URL_LIFE_S)
        encoded = base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")
        return Token(TOKEN_PREFIX + encoded, self.now() + TOKEN_LIFE)
