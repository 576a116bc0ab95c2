"""A user without a terminal, for the tests of mpctl.app."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from world import Silent

from mpctl.errors import Cancelled


class RecordingConsole(Silent):
    """Keeps what it is told and asked; ``declines``: the answer to every question is no."""

    def __init__(self, *, declines: bool = False, verbose: int = 0) -> None:
        super().__init__()
        self.verbose = verbose
        self.warnings: list[str] = []
        self.questions: list[str] = []
        self.suggested: list[str] = []
        self._declines = declines

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def next_command(self, arguments: str) -> None:
        self.suggested.append(arguments)

    def confirm(self, question: str, *, typed: str = "") -> None:
        self.questions.append(f"{question} [{typed}]" if typed else question)
        if self._declines:
            raise Cancelled("cancelled; nothing was changed")

    def stoppable(self) -> AbstractContextManager[None]:
        return nullcontext()
