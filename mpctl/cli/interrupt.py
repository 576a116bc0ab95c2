"""Ctrl-C, and SIGTERM as a CI job gets it at its time limit. Every step can be repeated, so the first one stops the
work where it is, and the error says what is left; the second, while that is still under way, ends the process at once.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from mpctl.errors import Cancelled

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stoppable(leave_screen: Callable[[], None]) -> Iterator[None]:
    """A block in which a first Ctrl-C raises KeyboardInterrupt and a second one ends the process. ``leave_screen``:
    called first, so that nothing is redrawn over the message."""

    def first(number: int, frame: object) -> NoReturn:
        leave_screen()
        _first(number, frame)

    before = {number: signal.signal(number, first) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _first(number: int, _frame: object) -> NoReturn:
    for signal_number in _SIGNALS:
        signal.signal(signal_number, _second)
    again = "press Ctrl-C again" if number == signal.SIGINT else "terminate again"
    # Not through the terminal: a handler may run in the middle of a line that is being printed.
    with suppress(
        OSError
    ):  # the reader may have had the Ctrl-C first: mpctl rollout 2>&1 | tee log
        os.write(
            sys.__stderr__.fileno() if sys.__stderr__ else 2,
            f"\nstopping; {again} to stop at once\n".encode(),
        )
    raise KeyboardInterrupt


def _second(_signal: int, _frame: object) -> None:
    os._exit(Cancelled.exit_code)
