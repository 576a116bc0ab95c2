"""Files of the local platform: old or new and never half, readable by the owner alone."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mpctl.errors import Conflict, InputError, MpctlError, NotPermitted
from mpctl.platform.local.desired import (
    Desired,
    DesiredArm,
    Observed,
    ObservedArm,
    Process,
    change,
    read_desired,
    read_observed,
)
from mpctl.platform.local.processes import alive, arguments_of, identify, stop_group
from mpctl.platform.local.state_files import (
    locked,
    read_json,
    service_dir,
    service_dirs,
    start_phase,
    state_root,
    try_lock,
    write_json,
    write_text,
)
from mpctl.platform.local.supervisor import Supervisor

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


@pytest.mark.parametrize(
    "content", ["{", "[]", "{}", "7", '{"arms": {"arm-1": 1}}', '{"arms": {}, "other": 1}']
)
@pytest.mark.parametrize(
    ("name", "read", "may"),
    [
        (
            "desired.json",
            read_desired,
            "mpctl local down svc -n ns, then mpctl local up -f MANIFEST; history stays",
        ),
        ("observed.json", read_observed, "remove this file alone; the supervisor writes it anew"),
    ],
)
def test_a_damaged_state_file_is_named_and_what_may_be_removed_is_never_the_directory(
    tmp_path, name, read, may, content
):
    path = tmp_path / "ns" / "svc" / name
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(MpctlError) as caught:
        read(path.parent)
    assert caught.value.message.startswith(f"{path} is damaged: ")
    assert may in caught.value.hint


def test_a_supervisor_writes_a_removed_report_anew(tmp_path):
    supervisor = Supervisor(tmp_path, Process(1, "boot/1"))
    report = tmp_path / "observed.json"
    supervisor._report()
    report.unlink()
    supervisor._report()
    assert read_observed(tmp_path).supervisor == Process(1, "boot/1")


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


# Desired and observed

words = st.text(st.characters(codec="utf-8"), max_size=8)
ports = st.integers(1, 65535)
processes = st.builds(Process, st.integers(1, 2**22), words)
desired_values = st.builds(
    Desired,
    name=words,
    namespace=words,
    text=words,
    port=ports,
    cwd=words,
    python=words,
    route=words,
    arms=st.dictionaries(words, st.builds(DesiredArm, words, ports), max_size=3),
    lifeline=st.none() | processes,
)
observed_arms = st.builds(
    ObservedArm,
    st.sampled_from(["Starting", "Ready", "Failed", "Restarting"]),
    st.none() | processes,
    words,
    st.none() | st.integers(-15, 255),
    st.integers(0, 9),
)
observed_values = st.builds(
    Observed, processes, st.dictionaries(words, observed_arms, max_size=3), words
)

UP = Desired(
    "svc", "ns", "text\r\n", 8000, "/", "python", "arm-1", {"arm-1": DesiredArm("text\r\n", 8001)}
)


@few
@given(desired_values, observed_values)
def test_desired_and_observed_round_trip_through_their_files(tmp_path, desired, observed):
    write_json(tmp_path / "desired.json", desired.to_record())
    write_json(tmp_path / "observed.json", observed.to_record())
    assert read_desired(tmp_path) == desired
    assert read_observed(tmp_path) == observed
    assert json.loads((tmp_path / "desired.json").read_text())["text"] == desired.text


def test_arms_come_and_go():
    two = UP.with_arm("arm-2", DesiredArm("other", 8002))
    assert list(two.arms) == ["arm-1", "arm-2"]
    assert two.only("arm-2").arms == {"arm-2": DesiredArm("other", 8002)}
    assert list(UP.arms) == ["arm-1"]


def test_a_change_is_written_only_if_it_changes(tmp_path):
    directory = tmp_path / "ns" / "svc"
    write_json(directory / "desired.json", UP.to_record())
    before = (directory / "desired.json").stat().st_ino
    assert change(directory, lambda d: d) == UP
    assert (directory / "desired.json").stat().st_ino == before
    after = change(directory, lambda d: d.with_arm("arm-2", DesiredArm("x", 1)))
    assert read_desired(directory) == after != UP


def test_a_change_that_fails_changes_nothing(tmp_path):
    directory = tmp_path / "ns" / "svc"
    write_json(directory / "desired.json", UP.to_record())
    with pytest.raises(Conflict, match="has no engine arm-9"):
        change(directory, lambda d: d.only("arm-9"))
    assert read_desired(directory) == UP
    assert change(directory, lambda d: d) == UP  # the lock is free again


def test_a_service_that_is_not_up_is_named(tmp_path):
    with pytest.raises(InputError, match="service ns/svc is not up"):
        change(tmp_path / "ns" / "svc", lambda d: d)
    assert read_desired(tmp_path) is None
    assert read_observed(tmp_path) is None


# The engine's log and processes


@pytest.mark.parametrize(
    ("log", "phase"),
    [
        ("", "starting"),
        ("Triton is installed, but doesn't include CPU backend.\n", "starting"),
        (
            "(Worker pid=7) INFO [gpu_model_runner.py:68] Starting to load model m...\n",
            "loading weights",
        ),
        ("Starting to load model m...\nLoading drafter model...\nshards: 0%", "loading the draft"),
        ("Starting to load model m...\nINFO GPU KV cache size: 1,024 tokens\n", "warming up"),
        # A restart appends to the log of the start before it.
        ("GPU KV cache size: 1,024 tokens\nStarting to load model m...\n", "loading weights"),
        ("é" * 90_000 + "\nStarting to load model m\nend", "loading weights"),
    ],
)
def test_a_start_is_told_by_its_phase_and_not_by_the_engines_noise(tmp_path, log, phase):
    path = tmp_path / "arm.log"
    path.write_text(log, encoding="utf-8")
    assert start_phase(path) == phase
    assert start_phase(tmp_path / "none.log") == ""


def test_a_process_is_told_by_its_pid_and_its_start():
    me = identify(os.getpid())
    assert alive(me).pid == os.getpid()
    assert alive(Process(me.pid, "another boot/1")) is None  # the pid went to somebody else
    assert alive(None) is None
    assert arguments_of(me)
    assert arguments_of(Process(me.pid, "another boot/1")) is None
    stop_group(Process(me.pid, "another boot/1"))  # ends nobody
    stop_group(None)
