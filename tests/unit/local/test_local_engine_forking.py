"""Engine processes on a CPU are forked, each on the cores that vLLM chose for it."""

import pytest

from tests.unit.support.beside_vllm import run, write

CPU = """
import os

class CpuPlatform:
    @classmethod
    def check_and_update_config(cls, config):
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
"""
OMP = """
from contextlib import contextmanager

class OMPProcessManager:
    cpu_lists = [[min(__import__("os").sched_getaffinity(0))]]

    @contextmanager
    def configure_omp_envs(self, rank, local_rank):
        yield
"""
TORCH = """
threads = 7

def get_num_threads():
    return threads

def set_num_threads(count):
    global threads
    threads = count
"""
PROGRAM = """
import os, torch
from serve import fork_engine_processes
before = os.sched_getaffinity(0)
fork_engine_processes()
from vllm.platforms.cpu import CpuPlatform
from vllm.utils.ompmultiprocessing import OMPProcessManager
CpuPlatform.check_and_update_config(None)
with OMPProcessManager().configure_omp_envs(0, 0):
    inside = (len(os.sched_getaffinity(0)), torch.threads)
restored = (os.sched_getaffinity(0) == before, torch.threads)
print(os.environ["VLLM_WORKER_MULTIPROC_METHOD"], inside, restored)
"""


@pytest.fixture
def vllm(tmp_path):
    """A package with the two modules of vLLM that the repair touches."""
    write(
        tmp_path,
        {"vllm/platforms/cpu.py": CPU, "vllm/utils/ompmultiprocessing.py": OMP, "torch.py": TORCH},
    )
    return tmp_path


def test_the_cpu_platform_forks_and_a_worker_inherits_its_cores_and_threads(vllm):
    assert run(vllm, PROGRAM) == "fork (1, 1) (True, 7)"


def test_a_method_chosen_by_the_user_stays(vllm):
    program = PROGRAM.replace("CpuPlatform.check_and_update_config(None)", "")
    assert run(vllm, program, VLLM_WORKER_MULTIPROC_METHOD="forkserver").startswith("forkserver (")


def test_a_vllm_without_these_modules_is_left_alone(vllm):
    (vllm / "vllm" / "utils" / "ompmultiprocessing.py").unlink()
    program = "from serve import fork_engine_processes; fork_engine_processes(); print('unchanged')"
    assert run(vllm, program) == "unchanged"
