"""connect and credential as people and kubectl run them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from mpctl.cli.cluster.clouds import connect, credential
from mpctl.cloud.managed_cluster import Cluster, ClusterEndpoint, Token
from mpctl.errors import Conflict, InputError, MpctlError, Refused

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


def test_connect_writes_an_entry_that_asks_mpctl_for_tokens(run: Callable[..., Result], tmp_path: Path) -> None:
    path = tmp_path / "config"
    result = run(connect, "eks/us-east-1/serving", "--kubeconfig", str(path), "--profile", "prod", "-n", "inference")
    assert result.exit_code == 0, result.output
    assert result.stdout == f"wrote context eks/us-east-1/serving in {path}\n"
    assert result.stderr == "next: kubectl get nodes\n"
    document = yaml.safe_load(path.read_text())
    assert document["current-context"] == "eks/us-east-1/serving"
    (user,) = document["users"]
    assert user["user"]["exec"]["args"] == ["credential", "eks/us-east-1/serving"]
    assert user["user"]["exec"]["env"] == [{"name": "AWS_PROFILE", "value": "prod"}]
    assert document["contexts"][0]["context"]["namespace"] == "inference"
    assert "planted" not in path.read_text()


def test_connect_twice_says_so(run: Callable[..., Result], tmp_path: Path) -> None:
    arguments = ("eks/us-east-1/serving", "--kubeconfig", str(tmp_path / "config"))
    run(connect, *arguments)
    again = run(connect, *arguments)
    assert again.exit_code == 0
    assert again.stdout.startswith("unchanged: context eks/us-east-1/serving")


def test_connect_refuses_an_entry_of_somebody_else(run: Callable[..., Result], tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("apiVersion: v1\nkind: Config\nusers: [{name: prod, user: {token: abc}}]\n")
    before = path.read_bytes()
    error = failed(run(connect, "eks/us-east-1/serving", "--kubeconfig", str(path), "--context", "prod"), Conflict)
    assert "--context" in (error.hint or "")
    assert path.read_bytes() == before


def test_connect_tells_what_it_did_as_json(run: Callable[..., Result], tmp_path: Path) -> None:
    result = run(connect, "serving", "--region", "us-east-1", "--kubeconfig", str(tmp_path / "c"), "-o", "json")
    document = json.loads(result.stdout)
    assert (document["kind"], document["context"]) == ("Connection", "eks/us-east-1/serving")


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_credential_speaks_the_version_that_kubectl_asks_for(run: Callable[..., Result], version: str) -> None:
    fields = {"KUBERNETES_EXEC_INFO": json.dumps({"apiVersion": f"client.authentication.k8s.io/{version}"})}
    result = run(credential, "eks/us-east-1/serving", env=fields)
    document = json.loads(result.stdout)
    assert document == {
        "apiVersion": f"client.authentication.k8s.io/{version}",
        "kind": "ExecCredential",
        "status": {"token": TOKEN, "expirationTimestamp": "2026-11-21T12:14:00Z"},
    }
    assert result.stderr == ""


def test_a_place_in_the_environment_completes_a_bare_name_and_never_contradicts_a_full_one(
    cloud: FakeCloud, tmp_path: Path
) -> None:
    def run(command: Any, *arguments: str) -> Result:
        return CliRunner().invoke(command, arguments, env={"MPCTL_REGION": "eu-west-1"})

    assert run(credential, "eks/us-east-1/serving").exit_code == 0
    bare = run(connect, "serving", "--kubeconfig", str(tmp_path / "c"), "-o", "name")
    assert bare.stdout == "eks/eu-west-1/serving\n"
    failed(run(credential, "eks/us-east-1/serving", "--region", "eu-west-1"), InputError)


def test_credential_refuses_another_version(run: Callable[..., Result]) -> None:
    fields = {"KUBERNETES_EXEC_INFO": json.dumps({"apiVersion": "client.authentication.k8s.io/v1alpha1"})}
    failed(run(credential, "eks/us-east-1/serving", env=fields), InputError)


def test_credential_prints_no_token_on_a_terminal(run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "mpctl.cli.cluster.clouds.sys", type("sys", (), {"stdout": type("tty", (), {"isatty": lambda: True})})
    )
    result = run(credential, "eks/us-east-1/serving")
    failed(result, Refused)
    assert TOKEN not in result.output


@pytest.mark.parametrize("name", ["connect", "credential"])
def test_help_imports_no_client_library(name: str) -> None:
    program = (
        "import sys\n"
        f"from mpctl.cli.cluster.clouds import {name} as command\n"
        "command.main(['--help'], standalone_mode=False)\n"
        "heavy = {'boto3', 'botocore', 'google', 'grpc', 'ruamel', 'yaml'} & {m.split('.')[0] for m in sys.modules}\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "CLUSTER" in done.stdout
