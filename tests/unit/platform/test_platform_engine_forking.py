"""Engine processes on a CPU are forked, each on the cores that vLLM chose for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mpctl.platform.local import engine

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
from forking import fork_engine_processes
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
    sources = {"vllm/platforms/cpu.py": CPU, "vllm/utils/ompmultiprocessing.py": OMP, "torch.py": TORCH}
    packages = dict.fromkeys(("vllm/__init__.py", "vllm/platforms/__init__.py", "vllm/utils/__init__.py"), "")
    for name, text in {**sources, **packages}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def run(folder: Path, program: str = PROGRAM, **environment: str) -> str:
    path = os.pathsep.join((str(engine.ENGINE_MAIN.parent), str(folder)))
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("VLLM_")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**inherited, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_the_cpu_platform_forks_and_a_worker_inherits_its_cores_and_threads(vllm):
    assert run(vllm) == "fork (1, 1) (True, 7)"


def test_a_method_chosen_by_the_user_stays(vllm):
    program = PROGRAM.replace("CpuPlatform.check_and_update_config(None)", "")
    assert run(vllm, program, VLLM_WORKER_MULTIPROC_METHOD="forkserver").startswith("forkserver (")


def test_a_vllm_without_these_modules_is_left_alone(vllm):
    (vllm / "vllm" / "utils" / "ompmultiprocessing.py").unlink()
    program = "from forking import fork_engine_processes; fork_engine_processes(); print('unchanged')"
    assert run(vllm, program) == "unchanged"
