"""connect and credential as people and kubectl run them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from mpctl.cli.cluster import connect, credential
from mpctl.cloud.managed_cluster import Cluster, ClusterEndpoint, Token
from mpctl.errors import InputError, MpctlError, Refused

TOKEN = "k8s-aws-v1.planted-token"


class FakeCloud:
    def endpoint(self) -> ClusterEndpoint:
        return ClusterEndpoint("https://cluster.example", "Q0E=")

    def token(self) -> Token:
        return Token(TOKEN, datetime(2026, 11, 21, 12, 14, tzinfo=UTC))


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCloud]:
    fake = FakeCloud()

    def opened(cluster: Cluster, *, profile: str | None = None) -> FakeCloud:
        return fake

    monkeypatch.setattr("mpctl.app.cluster.clouds.open_cloud", opened)
    yield fake


@pytest.fixture
def run(cloud: FakeCloud) -> Callable[..., Result]:
    def invoke(command: Any, *arguments: str, **kwargs: Any) -> Result:
        return CliRunner().invoke(command, arguments, **kwargs)

    return invoke


def failed(result: Result, kind: type[MpctlError]) -> MpctlError:
    assert type(result.exception) is kind, (result.exception, result.output)
    return result.exception


def test_connect_prints_a_kubeconfig_that_asks_mpctl_for_tokens(run: Callable[..., Result]) -> None:
    result = run(connect, "eks/us-east-1/serving", "--profile", "prod", "-n", "inference")
    assert result.exit_code == 0, result.output
    document = yaml.safe_load(result.stdout)
    assert document["current-context"] == "eks/us-east-1/serving"
    assert document["clusters"][0]["cluster"]["server"] == "https://cluster.example"
    (user,) = document["users"]
    assert user["user"]["exec"]["command"] == "mpctl", "a path would tie the file to this machine"
    assert user["user"]["exec"]["args"] == ["credential", "eks/us-east-1/serving"]
    assert user["user"]["exec"]["env"] == [{"name": "AWS_PROFILE", "value": "prod"}]
    assert document["contexts"][0]["context"]["namespace"] == "inference"
    assert "planted" not in result.output


def test_a_cluster_with_a_public_certificate_gets_no_authority(
    run: Callable[..., Result], cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kubeconfig() -> dict[str, Any]:
        entry = yaml.safe_load(run(connect, "gke/project/us-central1/serving").stdout)
        return dict(entry["clusters"][0]["cluster"])

    assert kubeconfig()["certificate-authority-data"] == "Q0E="
    monkeypatch.setattr(cloud, "endpoint", lambda: ClusterEndpoint("https://a.gke.goog", ""))
    assert kubeconfig() == {"server": "https://a.gke.goog"}


def test_context_names_the_entries(run: Callable[..., Result]) -> None:
    document = yaml.safe_load(run(connect, "eks/us-east-1/serving", "--context", "prod").stdout)
    parts = [entry for section in ("clusters", "users", "contexts") for entry in document[section]]
    assert {document["current-context"], *(entry["name"] for entry in parts)} == {"prod"}


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_credential_speaks_the_version_that_kubectl_asks_for(
    run: Callable[..., Result], version: str
) -> None:
    fields = {
        "KUBERNETES_EXEC_INFO": json.dumps(
            {"apiVersion": f"client.authentication.k8s.io/{version}"}
        )
    }
    result = run(credential, "eks/us-east-1/serving", env=fields)
    document = json.loads(result.stdout)
    assert document == {
        "apiVersion": f"client.authentication.k8s.io/{version}",
        "kind": "ExecCredential",
        "status": {"token": TOKEN, "expirationTimestamp": "2026-11-21T12:14:00Z"},
    }
    assert result.stderr == ""


def test_credential_refuses_another_version(run: Callable[..., Result]) -> None:
    fields = {
        "KUBERNETES_EXEC_INFO": json.dumps({"apiVersion": "client.authentication.k8s.io/v1alpha1"})
    }
    failed(run(credential, "eks/us-east-1/serving", env=fields), InputError)


def test_credential_prints_no_token_on_a_terminal(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "mpctl.cli.cluster.sys",
        type("sys", (), {"stdout": type("tty", (), {"isatty": lambda: True})}),
    )
    result = run(credential, "eks/us-east-1/serving")
    failed(result, Refused)
    assert TOKEN not in result.output


@pytest.mark.parametrize("name", ["connect", "credential"])
def test_help_imports_no_client_library(name: str) -> None:
    program = (
        "import sys\n"
        f"from mpctl.cli.cluster import {name} as command\n"
        "command.main(['--help'], standalone_mode=False)\n"
        "heavy = {'boto3', 'botocore', 'google', 'grpc', 'ruamel', 'yaml'} & {m.split('.')[0] for m in sys.modules}\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "CLUSTER" in done.stdout
