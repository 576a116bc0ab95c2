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
import time

class SpinCondition:
    busy_loop_s = 1.0

    def __init__(self, waited_s):
        self.last_read = time.monotonic() - waited_s

    def wait(self, timeout_ms=None):
        print("spins" if time.monotonic() <= self.last_read + self.busy_loop_s else f"waits {timeout_ms}")
"""
PROGRAM = """
import time
from serve import sleep_while_waiting
sleep_while_waiting()
from vllm.distributed.device_communicators.shm_broadcast import SpinCondition
naps = []
time.sleep = naps.append
for waited_s in (0.0, 0.1, 1.1):
    SpinCondition(waited_s).wait(timeout_ms=5)
print(*(round(nap, 6) for nap in naps))
"""

OTHER = """
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


def test_a_reader_on_a_cpu_sleeps_the_longer_the_longer_it_waits(beside):
    """After a second it waits for a message, as vLLM has it."""
    waits, naps = beside(PROGRAM).splitlines()
    assert waits == "waits 5"
    first, later = map(float, naps.split())
    assert 0 < first < 0.001 and 0.002 <= later < 0.02


def test_a_reader_on_a_gpu_spins(beside):
    assert beside(PROGRAM, cpu=False).splitlines()[:2] == ["spins", "spins"]


def test_a_vllm_whose_readers_do_not_spin_is_left_alone(beside):
    assert (
        beside(OTHER, messages="def wait():\n    print('sleeps by itself')\n") == "sleeps by itself"
    )


def test_a_vllm_without_such_messages_is_left_alone(beside):
    program = "from serve import sleep_while_waiting; sleep_while_waiting(); print('unchanged')"
    assert beside(program, messages="") == "unchanged"
