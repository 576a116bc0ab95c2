"""Lets vLLM's processes sleep while they wait for each other. Imports nothing of mpctl.

Engine core and worker pass messages through shared memory, and a reader spins (``sched_yield``) for a second after each
message. That is made for a machine whose cores do nothing else. With two engines on the cores of one CPU, the one that
has just answered spins on the cores of the one that is asked next: the first answer after a change of engine then took
0.4 to 1.0 s longer more often than not (Linux 6.18, two cores).
"""

from __future__ import annotations

import importlib.util
import time

_MODULE = "vllm.distributed.device_communicators.shm_broadcast"
_PAUSE_S = 2e-5  # the kernel adds about 50 us; a decode step takes milliseconds


def sleep_while_waiting() -> None:
    """Let a reader sleep for a moment instead of spinning, on the CPU platform, if this vLLM's readers spin."""
    if not _present():
        return
    from vllm.platforms import current_platform  # type: ignore[import-not-found,unused-ignore]

    if not current_platform.is_cpu():
        return
    import vllm.distributed.device_communicators.shm_broadcast as messages  # type: ignore[import-not-found,unused-ignore]

    if hasattr(messages, "sched_yield"):
        messages.sched_yield = pause


def _present() -> bool:
    try:
        return importlib.util.find_spec(_MODULE) is not None
    except ModuleNotFoundError:  # a package above it is missing
        return False


def pause() -> None:
    """Wait for the other process for a moment, on no core."""
    time.sleep(_PAUSE_S)
