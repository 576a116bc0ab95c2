"""A real kubectl reads what `connect` writes, runs our credential plugin, and sends its token."""

from __future__ import annotations

import base64
import json
import os
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from mpctl.app.cluster.clouds import kubeconfig
from mpctl.app.environment_requests import ConnectRequest
from mpctl.cloud.managed_cluster import ClusterEndpoint
from tests.cluster.rig.binaries import cache_folder

pytest.importorskip("boto3", reason="pip install 'mpctl[cloud]'")
pytest.importorskip("cryptography", reason="pip install 'mpctl[dev]' brings it with moto")

BUILT = cache_folder() / "bin"  # asked now: tests have another home


def certificate(folder: Path) -> Path:
    """Key and certificate of 127.0.0.1, for an hour, its own authority: kubectl sends no token without TLS."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.x509.oid import NameOID

    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "api")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(True, None), True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / "api.pem"
    path.write_bytes(private + made.public_bytes(pem))
    return path


class ApiServer(HTTPServer):
    def __init__(self, pem: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Api)
        self.authorizations: list[str] = []
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.ca_data = base64.b64encode(
            pem.read_bytes()[pem.read_bytes().index(b"-----BEGIN CERT") :]
        ).decode()


class _Api(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server: Any = self.server
        server.authorizations.append(self.headers.get("Authorization", ""))
        body = json.dumps({"gitVersion": "v1.35.0"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServer]:
    server = ApiServer(certificate(tmp_path))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_kubectl_gets_its_token_from_mpctl(
    api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl = shutil.which("kubectl", path=f"{os.environ['PATH']}:{BUILT}")
    if kubectl is None:
        pytest.skip("kubectl is not on PATH, and tests/cluster has built none yet")
    path = tmp_path / "config"
    plugin = tmp_path / "mpctl"
    plugin.write_text(f"#!{sys.executable}\nfrom mpctl.cli.main import main\nmain()\n")
    plugin.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    endpoint = ClusterEndpoint(f"https://127.0.0.1:{api.server_port}", api.ca_data)
    monkeypatch.setattr("mpctl.cloud.eks.Eks.endpoint", lambda _: endpoint)
    path.write_text(kubeconfig(ConnectRequest("eks/us-east-1/serving")))
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [kubectl, "--kubeconfig", str(path), "get", "--raw", "/version"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"gitVersion": "v1.35.0"}
    authorization = api.authorizations[
        -1
    ]  # a dispatching kubectl asks for the server's version first
    scheme, token = authorization.split()
    assert scheme == "Bearer"
    assert token.startswith("k8s-aws-v1.")
    encoded = token.removeprefix("k8s-aws-v1.")
    url = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    assert url.startswith("https://sts.us-east-1.amazonaws.com/?Action=GetCallerIdentity")
    assert token not in done.stderr
