"""EKS by boto3 over HTTP: against moto where it answers truly, against faults and Stubber where it does not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import httpx
import pytest

from mpctl.cloud.managed_cluster import Cluster
from mpctl.errors import MpctlError, NotPermitted

from .conftest import REGION, SECRET, Faults

boto3 = pytest.importorskip("boto3", reason="pip install 'mpctl[cloud]'")

from mpctl.cloud.eks import Eks  # noqa: E402

CLUSTER = Cluster("serving", REGION)


def client(service: str, endpoint: str | None = None) -> Any:
    keys = {"aws_access_key_id": "AKIAIOSFODNN7PLANTED", "aws_secret_access_key": SECRET}
    return boto3.client(service, region_name=REGION, endpoint_url=endpoint, **keys)


@pytest.fixture(scope="module")
def account(moto_server: str) -> str:
    """The cluster 'serving'."""
    httpx.post(f"{moto_server}/moto-api/reset", timeout=60).raise_for_status()
    ec2, eks = client("ec2", moto_server), client("eks", moto_server)
    subnets = [net["SubnetId"] for net in ec2.describe_subnets()["Subnets"]][:2]
    role = "arn:aws:iam::123456789012:role/eks"
    eks.create_cluster(name="serving", roleArn=role, resourcesVpcConfig={"subnetIds": subnets})
    return moto_server


@pytest.fixture
def cluster(account: str, monkeypatch: pytest.MonkeyPatch) -> Eks:
    monkeypatch.setenv("AWS_ENDPOINT_URL", account)
    return Eks(CLUSTER)


def test_the_endpoint_is_the_clusters(cluster: Eks) -> None:
    endpoint = cluster.endpoint()
    assert endpoint.server.startswith("https://")
    assert base64.b64decode(endpoint.ca_data)


def signature(url: str, headers: dict[str, str]) -> str:
    """Signature version 4 of a presigned GET, computed from AWS' description of it, as STS checks it."""
    parts = urlsplit(url)
    query = [part for part in parts.query.split("&") if not part.startswith("X-Amz-Signature=")]
    actual_parts = dict(part.split("=", 1) for part in query)
    _, day, region, service, _ = unquote(actual_parts["X-Amz-Credential"]).split("/")
    lines = "".join(
        f"{name}:{value}\n" for name, value in sorted({"host": parts.netloc, **headers}.items())
    )
    signed = unquote(actual_parts["X-Amz-SignedHeaders"])
    empty = hashlib.sha256(b"").hexdigest()
    canonical = "\n".join(["GET", parts.path, "&".join(sorted(query)), lines, signed, empty])
    scope = f"{day}/{region}/{service}/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", actual_parts["X-Amz-Date"], scope, digest])
    key = b"AWS4" + SECRET.encode()
    for step in (day, region, service, "aws4_request", text):
        key = hmac.new(key, step.encode(), hashlib.sha256).digest()
    return key.hex()


def test_the_token_is_a_signed_url_that_sts_accepts(cluster: Eks) -> None:
    started = datetime.now(UTC) - timedelta(seconds=1)
    token = cluster.token()
    assert token.expires - datetime.now(UTC) <= timedelta(minutes=14) <= token.expires - started
    prefix, encoded = token.value[:11], token.value[11:]
    assert prefix == "k8s-aws-v1."
    assert "=" not in encoded
    url = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    query = parse_qs(urlsplit(url).query)
    assert query["Action"] == ["GetCallerIdentity"]
    assert query["X-Amz-Expires"] == ["60"]
    assert "x-k8s-aws-id" in query["X-Amz-SignedHeaders"][0]
    assert query["X-Amz-Signature"] == [signature(url, {"x-k8s-aws-id": "serving"})]
    assert query["X-Amz-Signature"] != [signature(url, {"x-k8s-aws-id": "another"})]
    # moto takes the service of a call from this header alone; it does not check signatures.
    scope = {"Authorization": f"AWS4-HMAC-SHA256 Credential={query['X-Amz-Credential'][0]},"}
    answer = httpx.get(url, headers={"x-k8s-aws-id": "serving", **scope}, timeout=30)
    assert answer.status_code == 200
    assert "GetCallerIdentityResult" in answer.text


def test_the_token_never_shows_in_a_representation(cluster: Eks) -> None:
    token = cluster.token()
    assert token.value not in repr(token)
    assert token.value not in str(token)


def test_an_absent_cluster_is_named(cluster: Eks) -> None:
    with pytest.raises(
        MpctlError, match=r"failed for eks/us-east-1/servng: .*ResourceNotFound"
    ) as error:
        Eks(Cluster("servng", REGION)).endpoint()
    assert "us-east-1" in (error.value.hint or "")


@pytest.mark.parametrize(
    ("code", "status", "kind", "says"),
    [
        (
            "ThrottlingException",
            429,
            MpctlError,
            "eks:DescribeCluster failed for .*ThrottlingException",
        ),
        (
            "ExpiredTokenException",
            403,
            NotPermitted,
            "not allowed for eks/us-east-1/serving: .*ExpiredToken",
        ),
        ("AccessDeniedException", 403, NotPermitted, "eks:DescribeCluster is not allowed"),
        ("ServerException", 500, MpctlError, "eks:DescribeCluster failed for .*ServerException"),
    ],
)
def test_faults_are_told_apart(
    faults: Faults, code: str, status: int, kind: type[MpctlError], says: str
) -> None:
    faults.code, faults.status = code, status
    faults.message = "User AKIAIOSFODNN7PLANTED is not authorized, X-Amz-Signature=abc123"
    with pytest.raises(MpctlError, match=says) as error:
        Eks(CLUSTER).endpoint()
    assert type(error.value) is kind
    assert error.value.hint
    assert "PLANTED" not in error.value.message
    assert "abc123" not in error.value.message


def test_no_credentials_say_how_to_log_in(faults: Faults, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    for call in (Eks(CLUSTER).endpoint, Eks(CLUSTER).token):
        with pytest.raises(NotPermitted, match="Unable to locate credentials") as error:
            call()
        assert "AWS_PROFILE" in (error.value.hint or "")


def test_an_unknown_profile_is_named() -> None:
    with pytest.raises(NotPermitted, match="nobody"):
        Eks(CLUSTER, profile="nobody")


def test_an_endpoint_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # discard: nothing listens
    with pytest.raises(MpctlError, match="Could not connect to the endpoint") as error:
        Eks(CLUSTER).endpoint()
    assert "region us-east-1" in (error.value.hint or "")


def test_a_cluster_that_is_being_made_cannot_be_reached_yet(
    cluster: Eks, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Creating:
        def describe_cluster(self, name: str) -> Any:
            return {"cluster": {"status": "CREATING"}}

    monkeypatch.setattr(cluster, "_client", lambda _: Creating())
    with pytest.raises(MpctlError, match="is CREATING"):
        cluster.endpoint()


def test_no_secret_is_logged(cluster: Eks, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="mpctl"):
        token = cluster.token()
        cluster.endpoint()
    assert SECRET not in caplog.text
    assert token.value not in caplog.text
