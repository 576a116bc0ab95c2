"""Run what others wrote (schemas, chat templates, tokenizers) in a child process with limits of time and memory.

The caller gets a value or the reason why there is none; it never waits or pays for the writer. One child handles many
items. An item that exceeds a limit ends its child; the next child continues with the item after it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from mpctl.json_types import Json

MEMORY_BYTES = 512 * 2**20  # of address space
_PROGRAM = Path(__file__).with_name("in_child.py")
# One thread and one arena: each further one reserves address space.
_ENVIRONMENT = {
    "TOKENIZERS_PARALLELISM": "false",
    "RAYON_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "LC_ALL": "C.UTF-8",
}


@dataclass(frozen=True)
class Unread:
    """The reason why an item has no value."""

    reason: str


def run_each(
    task: str,
    items: Sequence[Any],
    *,
    item_s: float,
    whole_s: float,
    settings: Json | None = None,
) -> list[Any]:
    """Return for each item the value of a task of :mod:`mpctl.platform.in_child`, or :class:`Unread`. ``item_s``: CPU
    time of each item, and of reading the settings; ``whole_s``: wall time of all of them."""
    results: list[Any] = []
    end, late = monotonic() + whole_s, f"all take longer than {whole_s:.0f} s"
    order = {
        "task": task,
        "settings": settings or {},
        "path": [folder for folder in sys.path if folder],
        "memory": MEMORY_BYTES,
        "cpu_s": max(1, int(whole_s)),
        "item_s": item_s,
    }
    while len(results) < len(items):
        lines = [json.dumps(order), *(json.dumps(item) for item in items[len(results) :])]
        received, ended = _child("\n".join(lines) + "\n", end - monotonic(), item_s)
        reason = ended or late
        opened, *values = received or [[False, reason]]
        if not opened[0]:
            values = [opened] * (len(items) - len(results))
        results += [value if read else Unread(value) for read, value in values]
        if len(results) < len(items):
            results.append(Unread(reason))
        if monotonic() >= end:
            results += [Unread(late)] * (len(items) - len(results))
    return results


def _child(lines: str, seconds: float, item_s: float) -> tuple[list[Any], str]:
    """Return what a child answered, and why it answered no more; empty if its time was over."""
    child = subprocess.Popen(
        [sys.executable, "-I", str(_PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=_ENVIRONMENT,
        cwd="/",
        text=True,
        encoding="utf-8",
        start_new_session=True,
    )
    text = ""
    with child:
        try:
            text, _ = child.communicate(lines, timeout=max(seconds, 0.1))
        except subprocess.TimeoutExpired:
            _kill(child)
            text, _ = child.communicate()
            reason = ""
        except BaseException:
            _kill(child)
            raise
        else:
            slow = child.returncode in (-signal.SIGPROF, -signal.SIGXCPU)
            limit = f"{MEMORY_BYTES // 2**20} MiB"
            reason = (
                f"it takes longer than {item_s:g} s"
                if slow
                else f"it needs more than {limit} or ends its process"
            )
    return [json.loads(line) for line in text.split("\n")[:-1]], reason


def _kill(child: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
