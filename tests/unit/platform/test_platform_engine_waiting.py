"""vLLM's processes sleep while they wait for each other on a CPU, and spin as vLLM means them to on a GPU."""

import os
import subprocess
import sys

import pytest

from mpctl.platform.local import engine

PLATFORM = """
class current_platform:
    @staticmethod
    def is_cpu():
        return {cpu}
"""
MESSAGES = """
def sched_yield():
    print("spins")

def wait():
    sched_yield()
"""
PROGRAM = """
from waiting import sleep_while_waiting
sleep_while_waiting()
from vllm.distributed.device_communicators.shm_broadcast import wait
wait()
"""


@pytest.fixture
def run(tmp_path):
    """Runs a program beside a vLLM of the two modules that are looked at."""

    def make(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(program, *, cpu=True, messages=MESSAGES):
        for package in ("vllm", "vllm/distributed", "vllm/distributed/device_communicators"):
            make(f"{package}/__init__.py", "")
        make("vllm/platforms.py", PLATFORM.format(cpu=cpu))
        if messages:
            make("vllm/distributed/device_communicators/shm_broadcast.py", messages)
        path = os.pathsep.join((str(engine.ENGINE_MAIN.parent), str(tmp_path)))
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    return run


def test_a_reader_on_a_cpu_sleeps_while_it_waits(run):
    assert run(PROGRAM) == ""


def test_a_reader_on_a_gpu_spins(run):
    assert run(PROGRAM, cpu=False) == "spins"


def test_a_vllm_whose_readers_do_not_spin_is_left_alone(run):
    assert run(PROGRAM, messages="def wait():\n    print('sleeps by itself')\n") == "sleeps by itself"


def test_a_vllm_without_such_messages_is_left_alone(run):
    program = "from waiting import sleep_while_waiting; sleep_while_waiting(); print('unchanged')"
    assert run(program, messages="") == "unchanged"
