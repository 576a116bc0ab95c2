"""What a pod is told to do, and what is known of each of its containers."""

from __future__ import annotations

import asyncio
import datetime
from dataclasses import dataclass, field
from typing import Any

ANNOTATION = "rig.mpctl.dev/behave"


@dataclass(frozen=True)
class Behave:
    """How a pod fares.

    ``start_s``: seconds before its containers run. ``ready_s``: seconds more before it may be ready. ``engine``:
    scripted, real (vLLM of this environment) or none (nothing listens, the pod is just ready). ``crash``: exit code of
    the main container right after its start. ``pull_fails``, ``init_fails``, ``never_ready``: as they say. ``stop_s``:
    seconds that its end takes. ``script``: merged into the scripted engine's SCRIPT.
    """

    start_s: float = 0.1
    ready_s: float = 0.0
    engine: str = "scripted"
    crash: int | None = None
    pull_fails: bool = False
    init_fails: bool = False
    never_ready: bool = False
    stop_s: float = 0.0
    script: dict[str, Any] | None = None


@dataclass
class Unit:
    """One container of one pod."""

    name: str
    spec: dict[str, Any]
    process: asyncio.subprocess.Process | None = None
    exited: asyncio.Task[int] | None = None
    started: str = ""
    state: dict[str, Any] | None = None
    last: dict[str, Any] | None = None
    restarts: int = 0
    ready: bool = False
    up: bool = False
    argv: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    async def pause(self, seconds: float) -> None:
        """Until its process ends, at most ``seconds``. Not by ``asyncio.wait_for``: it loses a cancellation that comes
        when the process has just ended (Python 3.11), and a deleted pod would restart its container for ever."""
        if self.exited is None:
            await asyncio.sleep(seconds)
        else:
            await asyncio.wait({self.exited}, timeout=seconds)


def now() -> str:
    """The time as objects have it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
