"""Ctrl-C. Every step can be repeated, so the first one stops the work where it is; the second, while that is still
under way, ends the process at once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from mpctl.errors import Cancelled


@contextmanager
def stoppable() -> Iterator[None]:
    """A block in which a first Ctrl-C raises KeyboardInterrupt and a second one ends the process."""
    before = signal.signal(signal.SIGINT, _first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _first(_signal: int, _frame: object) -> NoReturn:
    signal.signal(signal.SIGINT, _second)
    # Not through the terminal: a handler may run in the middle of a line that is being printed.
    with suppress(OSError):  # the reader may have had the Ctrl-C first: mpctl rollout 2>&1 | tee log
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"\nstopping; press Ctrl-C again to stop at once\n")
    raise KeyboardInterrupt


def _second(_signal: int, _frame: object) -> None:
    os._exit(Cancelled.exit_code)
