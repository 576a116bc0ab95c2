"""Ctrl-C. Every step can be repeated, so the first one ends the work where it is and says how to go on; the second,
while that is still under way, ends the process at once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from mpctl.errors import Cancelled


@contextmanager
def interruptible(explain: Callable[[], Cancelled]) -> Iterator[None]:
    """Turn Ctrl-C in the block into what ``explain`` says.

    Raises:
        Cancelled: Ctrl-C was pressed.
    """
    before = signal.signal(signal.SIGINT, _first)
    try:
        yield
    except KeyboardInterrupt:
        raise explain() from None
    finally:
        signal.signal(signal.SIGINT, before)


def _first(_signal: int, _frame: object) -> NoReturn:
    signal.signal(signal.SIGINT, _second)
    # Not through the terminal: a handler may run in the middle of a line that is being printed.
    with suppress(OSError):  # whoever read it may have had the Ctrl-C first: mpctl rollout 2>&1 | tee log
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"\nstopping; press Ctrl-C again to stop at once\n")
    raise KeyboardInterrupt


def _second(_signal: int, _frame: object) -> None:
    os._exit(Cancelled.exit_code)
