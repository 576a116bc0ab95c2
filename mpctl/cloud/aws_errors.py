"""botocore's failures as ours. The message names the call and the cluster; never a key, a token or a signed URL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mpctl.cloud.cluster import Cluster
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
        hint = f"Is the region {cluster.place} right, and is there a proxy or a private endpoint between?"
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
