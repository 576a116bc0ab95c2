"""The user as a use case sees one: told what happens, and asked before something changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from mpctl.rollout.ports import PhaseProgress, Progress, RoundProgress


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


class Unattended:
    """Nobody to ask: whoever started it has agreed, and what operations report goes to ``tell``."""

    verbose = 0

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def phases(self, phases: Sequence[PhaseProgress]) -> None:
        """Steps are reported."""

    def step(self, name: str, detail: str) -> None:
        """Report a step."""
        self._tell(f"{name}: {detail}")

    def update(self, detail: str) -> None:
        """Waiting is not reported."""

    def note(self, text: str) -> None:
        """Report a line."""
        self._tell(text)

    def round(self, progress: RoundProgress) -> None:
        """Rounds are in the records."""

    def warn(self, text: str) -> None:
        """Report a warning."""
        self._tell(f"warning: {text}")

    def next_command(self, command: str, remark: str = "") -> None:
        """Nobody types it."""

    def confirm(self, question: str, *, typed: str = "") -> None:
        """Whoever started it has agreed."""

    def stoppable(self) -> AbstractContextManager[None]:
        """The process handles its signals itself."""
        return nullcontext()
