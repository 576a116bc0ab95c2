"""Port-forwards: a private socket that other users of the machine cannot open, a loopback port only where asked for."""

import stat
from pathlib import Path

import pytest

from mpctl.platform.kubernetes.api.port_forward import Forwards


@pytest.fixture
def forwards():
    made = Forwards(None, "ns")
    yield made
    made.close()


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


def test_a_load_client_of_this_machine_gets_a_loopback_port(forwards):
    forwards.use_loopback()
    target = forwards.target("a", 8080)
    assert target.socket is None
    assert target.url.startswith("http://127.0.0.1:")
