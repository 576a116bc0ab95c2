"""Port-forwards: a private socket that other users of the machine cannot open, a loopback port only where asked for."""

import gc
import socket
import ssl
import stat
import threading
import warnings
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from mpctl.platform.kubernetes.api.port_forward import Forward, Forwards
from tests.cluster.rig.certificates import Authority


@pytest.fixture
def forwards():
    actual_forwards = Forwards(None, "ns")
    yield actual_forwards
    actual_forwards.close()


def test_a_forward_listens_on_a_socket_of_this_user_alone(forwards):
    first, second = forwards.target("a", 8080), forwards.target("b", 8080)
    assert first.url == "http://a:8080"
    assert first.socket != second.socket
    path = Path(first.socket)
    assert stat.S_ISSOCK(path.stat().st_mode)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert forwards.target("a", 8080) == first


def test_the_sockets_go_with_the_forwards(forwards):
    directory = Path(forwards.target("a", 8080).socket).parent
    forwards.close()
    assert not directory.exists()


def test_a_long_directory_of_temporary_files_is_no_obstacle(forwards, monkeypatch, tmp_path):
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    assert len(forwards.target("a", 8080).socket) < 108


class Answering(HTTPServer):
    """An API server that answers every port-forward with one status."""

    def __init__(self, status, location=""):
        answers, self.seen = (status, location), []
        seen = self.seen

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                seen.append(self.headers.get("Authorization"))
                self.send_response(answers[0])
                self.send_header("Content-Length", "0")
                if answers[1]:
                    self.send_header("Location", answers[1])
                self.end_headers()

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def end(self):
        self.shutdown()
        self.server_close()


def connected(server):
    """What a connection through a forward receives, and what the forward says of it."""
    where = {"host": server.url, "verify_ssl": False, "cert_file": None, "tls_server_name": None}
    client = SimpleNamespace(
        configuration=SimpleNamespace(**where),
        header_lines=lambda: ["Authorization: Bearer PLANTED"],
    )
    forwards = Forwards(client, "ns")
    with socket.socket(socket.AF_UNIX) as mine:
        mine.connect(forwards.target("a", 8080).socket)
        received = mine.recv(10)
    refusal = forwards.refusal("a", 8080)
    forwards.close()
    return received, refusal


def test_a_redirect_does_not_get_the_users_token():
    other = Answering(200)
    server = Answering(302, other.url.replace("http", "ws"))
    received, refusal = connected(server)
    server.end()
    other.end()
    assert received == b""
    assert "cannot be forwarded" in refusal.message
    assert (server.seen, other.seen) == (["Bearer PLANTED"], [])


def test_a_refused_stream_is_closed_at_once():
    server = Answering(403)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        received, refusal = connected(server)
        gc.collect()
    server.end()
    assert received == b""
    assert "not allowed to create pods/portforward" in refusal.message
    assert not [w for w in caught if issubclass(w.category, ResourceWarning)]


class Pod:
    """The stream to a pod's port where a TLS server sends back all it gets, and no byte unencrypted."""

    def __init__(self, folder):
        pair = Authority(folder, "rig").sign("engine", "engine")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
        self._near, self._far = socket.socketpair()
        threading.Thread(target=self._echo, args=(context,), daemon=True).start()

    def _echo(self, context):
        with context.wrap_socket(self._far, server_side=True) as secure:
            while received := secure.recv(65536):
                secure.sendall(received)

    def socket(self, port):
        assert port == 8443
        return self._near

    def close(self):
        self._near.close()


def test_an_engine_behind_tls_is_reached_without_it(forwards, monkeypatch, tmp_path):
    monkeypatch.setattr(Forward, "_stream", lambda _: Pod(tmp_path))
    sent = bytes(range(256)) * 4096  # more than the buffers of all sockets between
    with socket.socket(socket.AF_UNIX) as mine:
        mine.connect(forwards.target("a", 8443, tls=True).socket)
        threading.Thread(target=mine.sendall, args=(sent,), daemon=True).start()
        received = b""
        while len(received) < len(sent) and (part := mine.recv(65536)):
            received += part
    assert received == sent
