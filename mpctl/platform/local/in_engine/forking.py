"""Forks vLLM's CPU engine processes instead of spawning them. Imports nothing of mpctl.

vLLM's server, engine core and worker each import the same modules, 8 to 9 s of CPU time apiece. On GPUs the last two
are forked from the first. The CPU platform insists on spawning, because OpenMP reads its thread count and cores from
the environment when it is loaded. A forked worker inherits both from the thread that forks it, so they are set there.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

METHOD = "VLLM_WORKER_MULTIPROC_METHOD"
_NEEDED = ("vllm.platforms.cpu", "vllm.utils.ompmultiprocessing")


def fork_engine_processes() -> None:
    """Choose ``fork`` on the CPU platform, unless the environment chooses a method or this vLLM starts workers in
    another way."""
    if METHOD in os.environ or not all(importlib.util.find_spec(name) for name in _NEEDED):
        return
    import vllm.platforms.cpu  # type: ignore[import-not-found,unused-ignore]
    import vllm.utils.ompmultiprocessing  # type: ignore[import-not-found,unused-ignore]

    platform: Any = vllm.platforms.cpu.CpuPlatform
    manager: Any = vllm.utils.ompmultiprocessing.OMPProcessManager
    check = platform.check_and_update_config.__func__
    configure = manager.configure_omp_envs

    def check_and_update_config(cls: Any, config: Any) -> None:
        check(cls, config)
        os.environ[METHOD] = "fork"

    @contextmanager
    def configure_and_bind(self: Any, rank: int, local_rank: int) -> Iterator[None]:
        with configure(self, rank, local_rank), bound_to(self.cpu_lists[local_rank] if self.cpu_lists else ()):
            yield

    platform.check_and_update_config = classmethod(check_and_update_config)
    manager.configure_omp_envs = configure_and_bind


@contextmanager
def bound_to(cores: Any) -> Iterator[None]:
    """Give this thread, and so what it forks, these cores and a torch thread for each; none: leave both alone."""
    if not cores:
        yield
        return
    import torch  # type: ignore[import-not-found,unused-ignore]

    affinity, threads = os.sched_getaffinity(0), torch.get_num_threads()
    os.sched_setaffinity(0, cores)
    torch.set_num_threads(len(cores))
    try:
        yield
    finally:
        os.sched_setaffinity(0, affinity)
        torch.set_num_threads(threads)
