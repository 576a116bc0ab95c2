"""Does without AMX where the processor announces it and does not execute it, as in some virtual machines that were
moved: each matrix product would end the engine with an illegal instruction. Imports nothing of mpctl.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

LIMIT = "ONEDNN_MAX_CPU_ISA"
WITHOUT = "AVX512_CORE_BF16"


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
        sys.stderr.write("mpctl: this processor announces AMX and does not execute it; the engine does without\n")
        environment[LIMIT] = WITHOUT  # engine processes inherit it, and need no trial of their own
    cpu._is_amx_tile_supported = lambda: False


def _product(torch: Any) -> object:
    square = torch.ones(64, 64, dtype=torch.bfloat16)
    return square @ square
