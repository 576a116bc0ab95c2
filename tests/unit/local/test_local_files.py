"""The documents of a service on this machine, its logs and its processes."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mpctl.errors import Conflict, InputError, MpctlError
from mpctl.local.desired import (
    Desired,
    DesiredArm,
    Observed,
    ObservedArm,
    Process,
    change,
    read_desired,
    read_observed,
)
from mpctl.local.logs import log_end, start_phase
from mpctl.local.processes import alive, arguments_of, identify, stop_group
from mpctl.local.supervisor import Supervisor
from mpctl.platform.state_files import write_json

few = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


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


def test_the_end_of_a_log_leaves_out_what_holds_a_request(tmp_path):
    path = tmp_path / "arm.log"
    path.write_text(
        "INFO Received request cmpl-1: prompt: 'my secret', params: P(n=1)\nValueError: no memory"
    )
    assert log_end(path) == "ValueError: no memory"
