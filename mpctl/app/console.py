"""The user as a use case sees one: told what happens, and asked before something changes."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from mpctl.rollout.ports import Progress


class Console(Progress, Protocol):
    """A terminal, or whatever stands in for it."""

    verbose: int
    """Number of ``-v`` options."""

    def warn(self, text: str) -> None:
        """Show a warning."""

    def next_command(self, command: str, remark: str = "") -> None:
        """Suggest the command to type next."""

    def confirm(self, question: str, *, typed: str = "") -> None:
        """Ask before something is changed. ``typed``: the answer has to be this word instead of yes, where nothing can
        undo it.

        Raises:
            Cancelled: the answer is no.
            InputError: no terminal to prompt on.
        """

    def stoppable(self) -> AbstractContextManager[None]:
        """A block in which a first Ctrl-C raises KeyboardInterrupt and a second one ends the process."""
