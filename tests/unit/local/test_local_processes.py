"""Processes of engines are found and ended by their marks, also when one renamed itself and its leader is gone."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from mpctl.local.processes import identify, marked, marks_of, stop_group, tagged

RENAMED = """
import sys, time
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
with open("/proc/self/mem", "r+b", buffering=0) as memory:
    memory.seek(int(fields[47]))  # env_start, proc_pid_stat(5): what setproctitle overwrites
    memory.write(bytes(40))
print("renamed", flush=True)
time.sleep(60)
"""
LEADER = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {RENAMED!r}])
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def engine(tmp_path):
    """A leader, and the pid of its child, which has renamed itself."""
    environment = marked(
        {"MPCTL_STATE_DIR": "/another", **os.environ}, str(tmp_path), "default/demo/arm-1"
    )
    leader = subprocess.Popen(
        [sys.executable, "-c", LEADER],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    child = int(leader.stdout.readline())
    assert leader.stdout.readline() == "renamed\n"
    yield leader, child
    for pid in (leader.pid, child):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    leader.wait()
    leader.stdout.close()


def test_marks_outlive_a_renamed_process(engine, tmp_path):
    _, child = engine
    assert "PATH" not in psutil.Process(child).environ()
    assert marks_of(child)["MPCTL_STATE_DIR"] == str(tmp_path)
    assert marks_of(child)["MPCTL_ARM"] == "default/demo/arm-1"


def test_what_a_killed_leader_leaves_behind_is_found_and_ended(engine, tmp_path):
    leader, child = engine
    process = identify(leader.pid)
    leader.kill()
    leader.wait()
    assert [(tag, found.pid) for tag, found in tagged(str(tmp_path))] == [
        ("default/demo/arm-1", child)
    ]
    stop_group(process, grace_s=5)
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
