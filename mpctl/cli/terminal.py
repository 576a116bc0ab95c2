"""Print results to standard output and everything else to standard error; the only module that knows the terminal.

A reader may go away (``| head``). The work continues to its end all the same, and the exit code is that of the work.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

import click

from mpctl import safe_text
from mpctl.cli.printer import wrapped
from mpctl.cli.size import folded_command, height, width_of
from mpctl.errors import Cancelled, InputError, MpctlError

if TYPE_CHECKING:
    from mpctl.cli.live_screen import LiveScreen
    from mpctl.rollout.ports import PhaseProgress, RoundProgress

_REDRAW_S = 0.2
_HEAD = 16  # columns of a step's name
_ALTERNATE, _NORMAL = "\033[?1049h\033[?25l", "\033[?25h\033[?1049l"


class _Unread(Exception):
    """The reader of standard output is gone."""


class Terminal:
    """``color``: whether to use it on standard error. ``live``: whether lines there may be redrawn."""

    pages = False  # whether a long result goes through the pager

    def __init__(
        self,
        *,
        color: bool,
        live: bool,
        quiet: bool = False,
        verbose: int = 0,
        asks: bool = True,
        yes: bool = False,
    ) -> None:
        self.color = color
        self.live = live
        self.quiet = quiet
        self.verbose = verbose
        self.asks = asks
        self.yes = yes
        self._step = ""
        self._screen: LiveScreen | None = None

    @classmethod
    def of_environment(cls, color: str = "auto", **settings: Any) -> Terminal:
        """``--color`` over NO_COLOR over CLICOLOR_FORCE over CLICOLOR over what standard error is
        (https://no-color.org, https://bixense.com/clicolors); nothing is redrawn in CI."""
        environment = os.environ
        interactive = sys.stderr.isatty() and environment.get("TERM") != "dumb"
        if color != "auto":
            use = color == "always"
        elif environment.get("NO_COLOR"):
            use = False
        elif environment.get("CLICOLOR_FORCE", "0") != "0":
            use = True
        else:
            use = interactive and environment.get("CLICOLOR", "1") != "0"
        return cls(color=use, live=interactive and "CI" not in environment, **settings)

    @property
    def out(self) -> TextIO:
        """Standard output."""
        return sys.stdout

    @property
    def err(self) -> TextIO:
        """Standard error."""
        return sys.stderr

    @property
    def page_width(self) -> int | None:
        """Width of the terminal that shows results; None where they go to a file or a pipe."""
        return width_of(self.out)

    # Results

    def result(self, text: str) -> None:
        """A result for people or scripts, on standard output; through the pager if ``pages`` is set and it is longer
        than the terminal.

        Raises:
            MpctlError: it cannot be written, other than for want of a reader.
        """
        self._leave_screen()
        document = safe_text.document(text) + "\n"
        if self.pages and self.page_width and document.count("\n") >= height():
            click.echo_via_pager(document)
            return
        with suppress(_Unread):
            self._show(document)

    def exact(self, text: str) -> None:
        """A document byte for byte, whatever the locale.

        Raises:
            MpctlError: as :meth:`result`.
        """
        self._leave_screen()
        with suppress(_Unread), self._writing():
            self.out.flush()
            self.out.buffer.write(text.encode())
            self.out.buffer.flush()

    @contextmanager
    def screen(self) -> Iterator[Callable[[str], None]]:
        """A function that shows a text in place of the last one: on the alternate screen of a terminal, whose last
        text is then printed to stay; elsewhere as lines, whenever the text has changed. Ctrl-C ends the block, and so
        does a reader that goes away."""
        last = ""
        alternate = self.live and self.out.isatty()

        def show(text: str) -> None:
            nonlocal last
            text = safe_text.document(text)
            changed, last = text != last, text  # before it is drawn: Ctrl-C may come at any moment
            if alternate:
                shown = "\n".join(text.split("\n")[: height() - 1])
                self._show(f"\033[H\033[J{shown}")
            elif changed:
                self._leave_screen()
                self._show(text + "\n")

        if alternate:
            self._show(_ALTERNATE)
        try:
            yield show
        except (KeyboardInterrupt, _Unread):
            pass
        finally:
            if alternate:
                self._show(_NORMAL + last + "\n")

    # Everything else

    def phases(self, phases: Sequence[PhaseProgress]) -> None:
        """Show the phases of an operation on a terminal, in lines that are redrawn and stay when it ended; elsewhere
        its steps are lines."""
        if self.quiet or not self.live:
            return
        self._live_screen.show_phases(phases)

    def step(self, name: str, detail: str) -> None:
        """Show that a step of a longer work begins, or that the same step continues."""
        if name == self._step:
            self.update(detail)
            return
        self._step = name
        if self.quiet:
            return
        if self.live:
            self._live_screen.show_step(self._step_head, safe_text.line(detail), begins=True)
        else:
            self._say(safe_text.lines(detail), self._step_head, "cyan")

    def update(self, detail: str) -> None:
        """Show the step's progress: redrawn on a terminal, elsewhere only with -v."""
        if self.quiet:
            return
        if not self.live:
            if self.verbose:
                self._say(safe_text.lines(detail), " " * _HEAD)
        elif time.monotonic() - self._live_screen.drawn_at >= _REDRAW_S:
            self._live_screen.show_step(self._step_head, safe_text.line(detail), begins=False)

    def note(self, text: str, color: str = "") -> None:
        """Print a line, its first word in a colour where one is given."""
        if not self.quiet:
            head, _, body = text.partition(" ") if color else ("", "", text)
            self._say(safe_text.lines(body), f"{head} " if head else "", color)

    def round(self, progress: RoundProgress) -> None:
        """Show the round that ended, the time and the intervals so far: redrawn on a terminal, a line per round
        elsewhere."""
        if self.quiet:
            return
        if self.live:
            self._live_screen.show_round(self._step_head, progress)
        else:
            self._say(progress.describe(), self._step_head, "cyan")

    def next_command(self, command: str, remark: str = "") -> None:
        """Suggest the command to type next."""
        if not self.quiet:
            space, comment = ("   # ", remark) if remark else ("", "")
            command, columns = safe_text.line(command), width_of(self.err)
            if columns is not None and len(f"next: {command}{space}{comment}") > columns:
                command, space, comment = folded_command(command, columns - len("next: ")), "", ""
            self._write_lines(
                f"{self._stamp()}{self._paint('next:', 'cyan')} {command}{space}{comment}"
            )

    def warn(self, text: str) -> None:
        """Print a warning; also when quiet."""
        self._say(safe_text.lines(text), "warning: ", "yellow")

    def error(self, message: str, hint: str | None) -> None:
        """Show an error and what to do next."""
        self._leave_screen()
        self._say(safe_text.lines(message), "error: ", "red")
        if hint:
            self._say(safe_text.lines(hint), "hint: ", "cyan")

    def aside(self, text: str) -> None:
        """Print a text as it is; also when quiet."""
        self._write_lines(safe_text.document(text))

    def _write_lines(self, text: str) -> None:
        if self._screen is not None:
            self._screen.write(text)
        else:
            self._tell(text + "\n")

    def confirm(self, question: str, *, typed: str = "") -> None:
        """Ask before something is changed. ``typed``: the answer has to be this word instead of yes. What is agreed to
        beforehand is told all the same.

        Raises:
            Cancelled: the answer is no.
            InputError: there is no terminal to prompt on.
        """
        if self.yes:
            for line in question.splitlines():
                if not line.endswith("?"):
                    self.note(line)
            return
        if not self.asks:
            raise InputError(
                "--no-input is set and a confirmation is needed", hint="confirm beforehand with -y"
            )
        if not (sys.stdin.isatty() and self.err.isatty()):
            raise InputError("no terminal to prompt on", hint="confirm beforehand with -y")
        self._leave_screen()
        try:
            if typed:
                self._say(safe_text.lines(question))
                agreed = (
                    click.prompt(
                        f"Type {typed} to confirm", err=True, default="", show_default=False
                    )
                    == typed
                )
            else:
                agreed = click.confirm(safe_text.lines(question), err=True)
        except click.Abort:
            self._say("")
            agreed = False
        if not agreed:
            raise Cancelled("cancelled; nothing was changed")

    def stoppable(self) -> AbstractContextManager[None]:
        """A block in which a first Ctrl-C raises KeyboardInterrupt and a second one ends the process."""
        from mpctl.cli.interrupt import stoppable

        return stoppable(self._leave_screen)

    def _say(self, text: str, head: str = "", color: str = "") -> None:
        """Write a text behind its head, wrapped to the terminal; the lines after the first are indented."""
        stamp, columns = self._stamp(), width_of(self.err)
        if columns is not None:
            first = " " * len(stamp + head)
            text = wrapped(text, max(columns, 40), first, first if len(head) == _HEAD else "  ")[
                len(first) :
            ]
        label = head.rstrip()
        self._write_lines(stamp + self._paint(label, color) + head[len(label) :] + text)

    @property
    def _live_screen(self) -> LiveScreen:
        if self._screen is None:
            from mpctl.cli.live_screen import LiveScreen

            self._screen = LiveScreen(self._tell)
        return self._screen

    def _leave_screen(self) -> None:
        """Leave the running work on the screen as it is."""
        if self._screen is not None:
            self._screen.leave()

    def _tell(self, text: str) -> None:
        try:
            print(text, end="", file=self.err, flush=True)
        except OSError:  # no reader, disk full: the rollout matters more than its messages
            drop(self.err)

    def _show(self, text: str) -> None:
        with self._writing():
            print(text, end="", file=self.out, flush=True)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Write standard output; after a failure everything written to it is discarded."""
        try:
            yield
        except BrokenPipeError:
            drop(self.out)
            raise _Unread from None
        except OSError as error:
            drop(self.out)
            raise MpctlError(
                f"standard output cannot be written: {error.strerror}",
                hint="free space on its disk",
            ) from error

    @property
    def _step_head(self) -> str:
        return f"{self._step:<{_HEAD}}"

    def _stamp(self) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%S%z ") if self.verbose > 1 else ""

    def _paint(self, text: str, color: str) -> str:
        return click.style(text, fg=color) if self.color and color and text else text


def drop(stream: TextIO) -> None:
    """Discard what is buffered for ``stream`` and everything written to it later."""
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), stream.fileno())


def as_called(text: str, program: str) -> str:
    """A text with our commands as the user calls us: ``kubectl mpctl`` for a plugin of kubectl."""
    if program == "mpctl":
        return text
    named = text.replace(f"{program} ", "mpctl ")  # undone first, so that nothing is renamed twice
    return named.replace("mpctl ", f"{program} ")
