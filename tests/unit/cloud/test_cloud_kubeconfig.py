from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from mpctl.cloud.kubeconfig import KubeconfigEntry, kubeconfig_path, write_entry
from mpctl.errors import Conflict, InputError

ENTRY = KubeconfigEntry("eks/us-east-1/a", "https://a.example", "Q0E=", "mpctl", ("credential", "eks/us-east-1/a"), {})

FOREIGN = """\
# kept by hand
apiVersion: v1
kind: Config
clusters:
- name: minikube   # the one on my desk
  cluster: {server: "https://192.0.2.1:8443", certificate-authority: /home/me/ca.crt}
contexts:
- context:
    cluster: minikube
    user: minikube
  name: minikube
current-context: minikube
users:
- name: minikube
  user:
    token: 'abc'
preferences: {}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config"


def test_a_new_file_is_private_and_complete(path: Path) -> None:
    written = write_entry(path, ENTRY)
    assert written.changed
    assert written.current
    assert written.backup is None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    document = yaml.safe_load(path.read_text())
    assert document["clusters"][0]["cluster"]["server"] == "https://a.example"
    assert document["users"][0]["user"]["exec"]["command"] == "mpctl"
    assert document["current-context"] == ENTRY.name
    assert [p.name for p in path.parent.iterdir()] == ["config"]


def test_everything_foreign_stays_as_it_was_written(path: Path) -> None:
    path.write_text(FOREIGN)
    path.chmod(0o640)
    written = write_entry(path, ENTRY)
    text = path.read_text()
    lines = [line for line in FOREIGN.splitlines() if line not in text.splitlines()]
    assert lines == []
    assert yaml.safe_load(text)["current-context"] == "minikube"
    assert not written.current
    assert written.backup is not None
    assert written.backup.read_text() == FOREIGN
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_second_time_writes_nothing(path: Path) -> None:
    path.write_text(FOREIGN)
    write_entry(path, ENTRY)
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    assert not write_entry(path, ENTRY).changed
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_our_own_entry_is_renewed_and_keeps_a_namespace_set_with_kubectl(path: Path) -> None:
    write_entry(path, ENTRY)
    document = yaml.safe_load(path.read_text())
    document["contexts"][0]["context"]["namespace"] = "inference"
    path.write_text(yaml.safe_dump(document))
    assert write_entry(path, replace(ENTRY, server="https://b.example")).changed
    document = yaml.safe_load(path.read_text())
    assert document["clusters"][0]["cluster"]["server"] == "https://b.example"
    assert document["contexts"][0]["context"]["namespace"] == "inference"
    assert len(document["clusters"]) == 1


@pytest.mark.parametrize("section", ["clusters", "users", "contexts"])
def test_an_entry_of_somebody_else_is_a_conflict(path: Path, section: str) -> None:
    text = f"apiVersion: v1\nkind: Config\n{section}:\n- name: eks/us-east-1/a\n  {section[:-1]}: {{}}\n"
    path.write_text(text)
    with pytest.raises(Conflict, match=section):
        write_entry(path, ENTRY)
    assert path.read_text() == text
    assert not path.with_name("config.lock").exists()


def test_kubectls_lock_is_honoured(path: Path) -> None:
    path.with_name("config.lock").touch()
    with pytest.raises(Conflict, match="being written"):
        write_entry(path, ENTRY)
    assert not path.exists()
    assert path.with_name("config.lock").exists()


@pytest.mark.parametrize("text", ["a: [", "- a\n", "kind: Pod\n", "kind: Config\nclusters: no\n"])
def test_a_file_that_is_none_is_left_alone(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(InputError, match="config"):
        write_entry(path, ENTRY)
    assert path.read_text() == text


def test_a_write_that_fails_leaves_the_file_and_no_litter(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text(FOREIGN)

    def broken(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="disk full"):
        write_entry(path, ENTRY)
    assert path.read_text() == FOREIGN
    assert sorted(p.name for p in path.parent.iterdir()) == ["config", "config.mpctl-backup"]


def test_a_symbolic_link_stays_one(path: Path) -> None:
    real = path.with_name("real")
    real.write_text(FOREIGN)
    path.symlink_to(real)
    write_entry(path, ENTRY)
    assert path.is_symlink()
    assert ENTRY.name in real.read_text()


def test_use_moves_the_current_context(path: Path) -> None:
    path.write_text(FOREIGN)
    assert write_entry(path, ENTRY, use=True).current
    assert yaml.safe_load(path.read_text())["current-context"] == ENTRY.name


def test_which_file_is_written() -> None:
    assert kubeconfig_path("/a", {"KUBECONFIG": "/b:/c"}) == Path("/a")
    assert kubeconfig_path(None, {"KUBECONFIG": ":/b:/c"}) == Path("/b")
    assert kubeconfig_path(None, {}) == Path("~/.kube/config").expanduser()
