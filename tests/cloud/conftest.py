"""Clouds on loopback: moto's AWS over HTTP, an AWS that answers with faults, and a GKE that speaks gRPC."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

REGION = "us-east-1"
SECRET = "planted-secret-0123456789abcdefghijklmnop"


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No configuration, credentials or state of the machine's user is read or written."""
    for name in (
        "AWS_PROFILE",
        "AWS_SESSION_TOKEN",
        "AWS_DEFAULT_PROFILE",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "KUBECONFIG",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "aws-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "aws-credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7PLANTED")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("MPCTL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")


@pytest.fixture(scope="session")
def moto_server() -> Iterator[str]:
    server = pytest.importorskip("moto.server", reason="pip install 'mpctl[cloud,dev]' brings moto")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


class Faults(ThreadingHTTPServer):
    """Answers every AWS call with one error, and keeps what it was sent."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Fault)
        self.code, self.message, self.status = "InternalFailure", "", 400
        self.seen: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Fault(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        server: Any = self.server
        server.seen.append(self.path)
        body = json.dumps({"message": server.message, "__type": server.code}).encode()
        self.send_response(server.status)
        self.send_header("x-amzn-ErrorType", server.code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _answer  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    server = Faults()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    yield server
    server.shutdown()
    server.server_close()
    thread.join()
