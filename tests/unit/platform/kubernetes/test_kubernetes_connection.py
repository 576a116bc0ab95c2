"""From kubeconfig files to a connection: what cannot be used is told with file and field, and why nothing answers."""

from __future__ import annotations

import json
import os
import socket

import pytest
import yaml

from mpctl.errors import InputError, MpctlError, NotPermitted
from mpctl.platform.kubernetes.api import api_client
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.connection import ClusterConnection, connect
from mpctl.platform.kubernetes.api.kinds import CONFIG_MAP
from mpctl.platform.kubernetes.api.replies import OutcomeUnknown, Unreachable


def kubeconfig(cluster=None, user=None):
    return {
        "current-context": "one",
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "chat"}}
        ],
        "clusters": [
            {
                "name": "c",
                "cluster": {"server": "https://127.0.0.1:1"} if cluster is None else cluster,
            }
        ],
        "users": [{"name": "u", "user": user or {}}],
    }


@pytest.fixture
def written(tmp_path):
    def write(content, name="config"):
        path = tmp_path / name
        path.write_bytes(
            content if isinstance(content, bytes) else yaml.safe_dump(content).encode()
        )
        return str(path)

    return write


def test_a_kubeconfig_that_can_be_used(written):
    actual_connect = connect(written(kubeconfig()))
    assert (
        actual_connect.context,
        actual_connect.namespace,
        actual_connect.configuration.host,
    ) == (
        "one",
        "chat",
        "https://127.0.0.1:1",
    )


@pytest.mark.parametrize(
    "content", [b"\xff\xfe\x00", b"{", b"- 1\n", b"text", b"contexts: 7", b"users: [{}]"]
)
def test_a_file_that_is_no_kubeconfig_is_named_wherever_it_stands(written, monkeypatch, content):
    broken, sound = written(content, "broken"), written(kubeconfig())
    for files in ((broken,), (sound, broken)):
        monkeypatch.setenv("KUBECONFIG", os.pathsep.join(files))
        with pytest.raises(InputError) as caught:
            connect(context="one")
        assert caught.value.file == broken


def test_an_error_of_the_syntax_names_its_line(written):
    with pytest.raises(InputError) as caught:
        connect(written(b"contexts: [a\nusers: []\n"))
    message = caught.value.message
    assert (message.count("\n"), ":2: not YAML: expected" in message) == (0, True)


def test_an_empty_file_is_passed_over(written, monkeypatch):
    monkeypatch.setenv(
        "KUBECONFIG", os.pathsep.join((written(b"", "empty"), written(kubeconfig())))
    )
    assert connect().context == "one"
    with pytest.raises(InputError, match="has no current context"):
        connect(written(b"", "empty"))
    with pytest.raises(InputError, match="context two not found; available: none"):
        connect(written(b"", "empty"), "two")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"cluster": {}}, "cluster c: server"),
        ({"cluster": {"server": "not a url"}}, "cluster c: server"),
        (
            {"cluster": {"server": "https://x", "certificate-authority-data": "x"}},
            "certificate-authority-data",
        ),
        ({"user": {"client-certificate-data": "x"}}, "user u: client-certificate-data"),
    ],
)
def test_a_field_that_cannot_be_used_is_named(written, change, field):
    path = written(kubeconfig(**change))
    with pytest.raises(InputError) as caught:
        connect(path)
    assert caught.value.file == path
    assert field in caught.value.field


def test_a_credential_plugin_that_fails_is_heard_and_its_command_told_without_secrets(
    written, capfd
):
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": ["-c", "echo log in first >&2; exit 1"],
        "env": [{"name": "TOKEN", "value": "hidden"}],
    }
    with pytest.raises(NotPermitted) as caught:
        connect(written(kubeconfig(user={"exec": plugin})))
    assert "sh gave no credential: exec: process returned 1. log in first" in caught.value.message
    assert "sh -c 'echo log in first >&2; exit 1'" in caught.value.hint
    assert "(the kubeconfig sets TOKEN)" in caught.value.hint
    assert "hidden" not in caught.value.message + caught.value.hint
    assert capfd.readouterr().err == ""


# Nothing answers


@pytest.fixture
def opened(monkeypatch):
    from kubernetes.client import Configuration

    clients = []

    def client(host, **settings):
        configuration = Configuration()
        configuration.host = host
        for name, value in settings.items():
            setattr(configuration, name, value)
        clients.append(
            Client(
                ClusterConnection(configuration, "ns", "test"), timeout_s=0.3, sleep=lambda _: None
            )
        )
        return clients[-1]

    yield client
    for one in clients:
        one.close()


def test_a_server_that_hangs_is_named_while_it_is_waited_for(opened, monkeypatch):
    """It takes connections and answers none; after the last try there is an error, and before that no silence."""
    monkeypatch.setattr(api_client, "_SILENT_S", 0.02)
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        host = f"http://127.0.0.1:{hanging.getsockname()[1]}"
        client, told = opened(host), []
        client.tell = told.append
        with pytest.raises(Unreachable):
            client.version()
    assert told[:2] == [f"waiting for the API server {host} (request {n})" for n in (1, 2)]


@pytest.mark.parametrize("name_known", [True, False])
def test_why_nothing_answers_is_told(opened, monkeypatch, name_known):
    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    if not name_known:
        monkeypatch.setattr(socket, "getaddrinfo", unknown)
    why = "connection refused" if name_known else "name or service not known"
    client = opened("http://127.0.0.1:1")
    with pytest.raises(
        Unreachable, match=rf"^path /version: the API server \S+ does not answer \({why}\)$"
    ):
        client.version()
    with pytest.raises(OutcomeUnknown):
        client.merge(CONFIG_MAP, "c", "ns", {})


def test_silence_has_its_time(opened):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = opened(f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(Unreachable, match=r"does not answer \(timeout after 0.3 s\)"):
            client.get(CONFIG_MAP, "c", "ns")


@pytest.mark.parametrize("host", ["ftp://x", "not a url", "https://x:99999"])
def test_an_address_that_is_none_is_asked_once(opened, host):
    client = opened(host)
    with pytest.raises(InputError, match="is not the address of an API server"):
        client.get(CONFIG_MAP, "c", "ns")
    assert client.reads == 1


@pytest.mark.parametrize("seconds", [0, -1.0])
def test_a_request_has_some_time(seconds):
    with pytest.raises(InputError, match="MPCTL_REQUEST_TIMEOUT: must be more than 0 s"):
        Client(None, timeout_s=seconds)


def test_a_login_page_is_no_answer(opened, monkeypatch):
    client = opened("http://127.0.0.1:1")
    monkeypatch.setattr(client, "raw", lambda _: "<html>log in</html>")
    with pytest.raises(MpctlError, match="the API server's answer is not JSON: '<html>") as caught:
        client.version()
    assert "login page" in caught.value.hint
    monkeypatch.setattr(client, "raw", lambda _: json.dumps({"gitVersion": "v1.36.2"}))
    assert client.version() == {"gitVersion": "v1.36.2"}
