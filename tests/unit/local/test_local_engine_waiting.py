"""vLLM's processes sleep while they wait for each other on a CPU, and spin as vLLM means them to on a GPU."""

import pytest

from tests.unit.support.beside_vllm import run, write

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
from serve import sleep_while_waiting
sleep_while_waiting()
from vllm.distributed.device_communicators.shm_broadcast import wait
wait()
"""


@pytest.fixture
def beside(tmp_path):
    """Runs a program beside a vLLM of the two modules that are looked at."""

    def beside(program, *, cpu=True, messages=MESSAGES):
        other = (
            {"vllm/distributed/device_communicators/shm_broadcast.py": messages} if messages else {}
        )
        write(tmp_path, {"vllm/platforms.py": PLATFORM.format(cpu=cpu), **other})
        return run(tmp_path, program)

    return beside


def test_a_reader_on_a_cpu_sleeps_while_it_waits(beside):
    assert beside(PROGRAM) == ""


def test_a_reader_on_a_gpu_spins(beside):
    assert beside(PROGRAM, cpu=False) == "spins"


def test_a_vllm_whose_readers_do_not_spin_is_left_alone(beside):
    assert (
        beside(PROGRAM, messages="def wait():\n    print('sleeps by itself')\n")
        == "sleeps by itself"
    )


def test_a_vllm_without_such_messages_is_left_alone(beside):
    program = "from serve import sleep_while_waiting; sleep_while_waiting(); print('unchanged')"
    assert beside(program, messages="") == "unchanged"
