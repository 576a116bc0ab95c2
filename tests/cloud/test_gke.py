"""GKE through google-cloud-container's own client and messages, over gRPC on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from mpctl.cloud.managed_cluster import Cluster
from mpctl.errors import MpctlError, NotPermitted

grpc = pytest.importorskip("grpc", reason="pip install 'mpctl[cloud]'")
pytest.importorskip("google.cloud.container_v1", reason="pip install 'mpctl[cloud]'")

from mpctl.cloud.gke import Gke  # noqa: E402

from .fake_gke import FakeGke, running  # noqa: E402

CLUSTER = Cluster("serving", "us-central1", "my-project")


@pytest.fixture
def fake() -> FakeGke:
    return FakeGke()


@pytest.fixture
def gke(fake: FakeGke) -> Iterator[Gke]:
    with running(fake) as client:
        yield Gke(CLUSTER, client=client)


def test_the_endpoint_is_the_clusters(gke: Gke) -> None:
    endpoint = gke.endpoint()
    assert endpoint.server == "https://203.0.113.7"
    assert endpoint.ca_data == "Q0E="


def test_a_cluster_that_is_reached_by_name_needs_no_authority(gke: Gke, fake: FakeGke) -> None:
    by_name = fake.cluster.control_plane_endpoints_config.dns_endpoint_config
    by_name.endpoint = "gke-0a1b.us-central1.gke.goog"
    assert gke.endpoint().server == "https://203.0.113.7", "nobody outside may use the name"
    by_name.allow_external_traffic = True
    endpoint = gke.endpoint()
    assert (endpoint.server, endpoint.ca_data) == ("https://gke-0a1b.us-central1.gke.goog", "")


def test_an_absent_cluster(fake: FakeGke) -> None:
    with (
        running(fake) as client,
        pytest.raises(MpctlError, match="gke/my-project/us-central1/servng") as error,
    ):
        Gke(Cluster("servng", "us-central1", "my-project"), client=client).endpoint()
    assert "zone" in (error.value.hint or "")


@pytest.mark.parametrize(
    ("status", "kind", "says"),
    [
        ("RESOURCE_EXHAUSTED", MpctlError, "failed for .*said by Google"),
        ("UNAUTHENTICATED", NotPermitted, "not allowed for .*Unauthenticated"),
        ("PERMISSION_DENIED", NotPermitted, "container.clusters.get is not allowed"),
        ("UNAVAILABLE", MpctlError, "failed for .*said by Google"),
    ],
)
def test_faults_are_told_apart(
    gke: Gke, fake: FakeGke, status: str, kind: type[MpctlError], says: str
) -> None:
    fake.fault = (getattr(grpc.StatusCode, status), "said by Google")
    with pytest.raises(MpctlError, match=says) as error:
        gke.endpoint()
    assert type(error.value) is kind


def test_a_cluster_without_an_endpoint_cannot_be_reached_yet(gke: Gke, fake: FakeGke) -> None:
    fake.cluster.endpoint = ""
    with pytest.raises(MpctlError, match="cannot be reached yet"):
        gke.endpoint()


class _TokenServer(BaseHTTPRequestHandler):
    answer = (200, {"access_token": "ya29.planted", "expires_in": 3600, "token_type": "Bearer"})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        status, body = self.answer
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[_TokenServer]]:
    """Application default credentials of a service account whose token service is on loopback."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    handler = type("Handler", (_TokenServer,), {})
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    account = {
        "type": "service_account",
        "project_id": "my-project",
        "private_key_id": "1",
        "private_key": key.decode(),
        "client_email": "mpctl@my-project.iam.gserviceaccount.com",
        "token_uri": f"http://127.0.0.1:{server.server_address[1]}/token",
    }
    (tmp_path / "account.json").write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
    yield handler
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_token_is_an_access_token(login: type[_TokenServer]) -> None:
    token = Gke(CLUSTER).token()
    assert token.value == "ya29.planted"
    assert (token.expires - datetime.now(UTC)).total_seconds() > 3000
    assert "planted" not in repr(token)


def test_a_login_that_is_over(login: type[_TokenServer]) -> None:
    login.answer = (
        400,
        {"error": "invalid_grant", "error_description": "Token has been expired or revoked."},
    )
    with pytest.raises(NotPermitted, match="RefreshError"):
        Gke(CLUSTER).token()


def test_no_credentials_say_how_to_log_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent/account.json")
    with pytest.raises(NotPermitted, match="DefaultCredentialsError") as error:
        Gke(CLUSTER).token()
    assert "gcloud auth" in (error.value.hint or "")
