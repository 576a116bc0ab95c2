"""Starts ``vllm serve`` in the engine's own environment. Run by path; imports nothing of mpctl.

Two faults of vLLM's CPU builds and one of processors (``tiles.py``) are met here, from outside and only where they are
present: the missing name of the distribution (``distribution.py``), and a kernel that loses its result:
``vllm.utils.cpu_triton_utils._expand_kernel_impl`` of 0.32 and 0.33 fills a temporary copy for every dtype but int64.
Under speculation temperature and top_p then stay uninitialised: wrong tokens when sampling, and needlessly rejected
drafts when greedy. The kernel is tried on two numbers; if the result is lost, a replacement does the work.

Engine processes that vLLM spawns run this module again as ``__mp_main__``, so the repair holds in all of them. On a CPU
they are forked (``forking.py``), which starts an engine in less than half the CPU time, and sleep while they wait for
each other (``waiting.py``).
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

from arguments import with_more  # type: ignore[import-not-found,unused-ignore]
from distribution import name_the_distribution  # type: ignore[import-not-found,unused-ignore]
from forking import fork_engine_processes  # type: ignore[import-not-found,unused-ignore]
from tiles import avoid_broken_tiles  # type: ignore[import-not-found,unused-ignore]
from waiting import sleep_while_waiting  # type: ignore[import-not-found,unused-ignore]


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


def expand(output: Any, values: Any, ends: Any, replace_from: Any, replace_to: Any, *_unused: Any) -> None:
    """``output[ends[i-1]:ends[i]] = values[i]``, with ``replace_from`` turned into ``replace_to``."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    counts = torch.diff(ends.to(torch.int64), prepend=ends.new_zeros(1, dtype=torch.int64))
    replaced = torch.where(values == replace_from, torch.full_like(values, replace_to), values)
    expanded = torch.repeat_interleave(replaced, counts)
    output[: expanded.shape[0]].copy_(expanded)


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
    sys.argv = with_more(["vllm", *sys.argv[1:]], json.loads(os.environ.pop("MPCTL_SECRET_ARGUMENTS", "[]")))
    main()  # type: ignore[no-untyped-call,unused-ignore]
