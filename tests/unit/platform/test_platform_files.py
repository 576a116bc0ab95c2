"""Files of the state on this machine: old or new and never half, readable by the owner alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mpctl.errors import MpctlError, NotPermitted
from mpctl.platform.state_files import (
    locked,
    read_json,
    service_dir,
    service_dirs,
    state_root,
    try_lock,
    write_json,
    write_text,
)

few = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_for_the_owner_alone_whatever_the_umask(tmp_path):
    old = os.umask(0)
    try:
        write_text(tmp_path / "new" / "file", "secret")
    finally:
        os.umask(old)
    assert mode(tmp_path / "new" / "file") == 0o600
    assert mode(tmp_path / "new") == 0o700


def test_replacing_a_wider_file_narrows_it(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o644)
    write_text(path, "new")
    assert (path.read_text(), mode(path)) == ("new", 0o600)


@few
@given(st.text(st.characters(codec="utf-8")))
def test_every_text_is_written_byte_for_byte(tmp_path, text):
    write_text(tmp_path / "file", text)
    assert (tmp_path / "file").read_bytes() == text.encode()


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, failing):
    path = tmp_path / "file"
    write_text(path, "old")

    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*{"fsync": (os, "fsync"), "replace": (Path, "replace")}[failing], fail)
    with pytest.raises(OSError, match="No space left"):
        write_text(path, "new")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "old"


def test_the_new_text_is_never_seen_half(tmp_path, monkeypatch):
    """Whoever opens the file while it is written sees the old one."""
    path = tmp_path / "file"
    write_text(path, "old")
    texts = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (texts.append(path.read_text()), sync(fd)))
    write_text(path, "new" * 100_000)
    assert set(texts[:1]) == {"old"}  # the next one is of the directory, after the change
    assert path.read_text() == "new" * 100_000


def test_json_is_read_back_and_absence_is_none(tmp_path):
    write_json(tmp_path / "a.json", {"b": [1, None, "é"]})
    assert read_json(tmp_path / "a.json") == {"b": [1, None, "é"]}
    assert read_json(tmp_path / "other.json") is None


@pytest.mark.parametrize("content", [b"", b"{", b'{"a": 1', b"\xff\xfe", b"nonsense"])
def test_damaged_json_names_the_file(tmp_path, content):
    path = tmp_path / "desired.json"
    path.write_bytes(content)
    with pytest.raises(MpctlError) as caught:
        read_json(path)
    assert caught.value.message.startswith(f"{path} is damaged")
    assert "restore this file" in caught.value.hint


def test_where_state_lies(tmp_path, monkeypatch):
    monkeypatch.setenv("MPCTL_STATE_DIR", str(tmp_path))
    assert state_root() == tmp_path
    assert service_dir("ns", "svc") == tmp_path / "local" / "ns" / "svc"
    assert service_dirs() == ()
    for namespace, name in (("b", "x"), ("a", "y"), ("a", "x")):
        write_json(service_dir(namespace, name) / "desired.json", {})
    write_json(service_dir("a", "down") / "ledger.json", {})  # history alone is no service
    assert [(p.parent.name, p.name) for p in service_dirs()] == [("a", "x"), ("a", "y"), ("b", "x")]


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_link_in_the_place_of_a_service_is_not_followed(tmp_path, monkeypatch, level):
    monkeypatch.setenv("MPCTL_STATE_DIR", str(tmp_path / "state"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = (tmp_path / "state").joinpath(*("local", "ns", "svc")[: level + 1])
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    with pytest.raises(NotPermitted, match=f"{link} is a symbolic link"):
        service_dir("ns", "svc")


def test_a_directory_of_another_user_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("MPCTL_STATE_DIR", str(tmp_path))
    service_dir("ns", "svc").mkdir(parents=True)
    monkeypatch.setattr("os.geteuid", lambda: (tmp_path / "local").stat().st_uid + 1)
    with pytest.raises(NotPermitted, match="belongs to another user"):
        service_dir("ns", "svc")


def test_a_state_directory_may_be_a_link_of_the_users_own(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "state").symlink_to(tmp_path / "real")
    monkeypatch.setenv("MPCTL_STATE_DIR", str(tmp_path / "state"))
    assert service_dir("ns", "svc") == tmp_path / "state" / "local" / "ns" / "svc"


def test_a_relative_state_directory_is_made_absolute(monkeypatch):
    monkeypatch.setenv("MPCTL_STATE_DIR", "somewhere")
    assert state_root() == Path.cwd() / "somewhere"


def test_without_an_override_state_follows_xdg(tmp_path, monkeypatch):
    monkeypatch.delenv("MPCTL_STATE_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_root() == tmp_path / "mpctl"


def test_a_lock_is_held_once(tmp_path):
    path = tmp_path / "new" / "lock"
    first = try_lock(path)
    assert first is not None
    assert try_lock(path) is None
    os.close(first)
    second = try_lock(path)
    assert second is not None
    os.close(second)
    with locked(path):
        assert try_lock(path) is None
    os.close(try_lock(path))
