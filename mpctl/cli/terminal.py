"""Print results to standard output and everything else to standard error; the only module that knows the terminal.

A reader may go away (``| head``). The work continues to its end all the same, and the exit code is that of the work.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

import click

from mpctl import safe_text
from mpctl.cli.printer import wrapped
from mpctl.cli.size import folded_command, height, width, width_of
from mpctl.errors import Cancelled, InputError, MpctlError

if TYPE_CHECKING:
    from mpctl.cli.live_screen import LiveView
    from mpctl.rollout.ports import PhaseProgress, RoundProgress

_REDRAW_S = 0.2
_CLOCK_S = 1.0  # between two drawings of an operation that reports nothing
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
        self._last_draw = 0.0
        self._view: LiveView | None = None  # of the work that is shown
        self._drawn: tuple[str, ...] = ()  # lines above the cursor that the next ones replace
        self._drawing = threading.RLock()

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
        self._leave_view()
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
        self._leave_view()
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
                self._leave_view()
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
        with self._drawing:
            begins = self._view is None or not self._view.has(phases)
            if begins:
                self._leave_view()
            now = time.monotonic()
            self._show_view(phases=tuple(phases), reported_at=now, detail="")
            if not any(phase.state.value == "running" for phase in phases):
                self._leave_view()
            elif begins:
                threading.Thread(target=self._keep_time, args=[phases], daemon=True).start()

    def step(self, name: str, detail: str) -> None:
        """Show that a step of a longer work begins, or that the same step continues."""
        if name == self._step:
            self.update(detail)
            return
        self._step = name
        if self.quiet:
            return
        if self.live:
            if self._view is not None and not self._view.phases:
                self._leave_view()
            self._show_view(step=self._step_head, detail=safe_text.line(detail))
        else:
            self._say(safe_text.lines(detail), self._step_head, "cyan")

    def update(self, detail: str) -> None:
        """Show the step's progress: redrawn on a terminal, elsewhere only with -v."""
        if self.quiet:
            return
        if not self.live:
            if self.verbose:
                self._say(safe_text.lines(detail), " " * _HEAD)
        elif time.monotonic() - self._last_draw >= _REDRAW_S:
            self._show_view(step=self._step_head, detail=safe_text.line(detail))

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
        from mpctl.cli.live_screen import LiveView, round_line

        if self.live:
            view = self._view or LiveView(step=self._step_head)
            self._show_view(rounds={**view.rounds, view.running: progress})
        else:
            self._say(round_line(progress), self._step_head, "cyan")

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
        self._leave_view()
        self._say(safe_text.lines(message), "error: ", "red")
        if hint:
            self._say(safe_text.lines(hint), "hint: ", "cyan")

    def aside(self, text: str) -> None:
        """Print a text as it is; also when quiet."""
        self._write_lines(safe_text.document(text))

    def _write_lines(self, text: str) -> None:
        """Write lines that stay: above the phases of an operation, below the step of other work."""
        with self._drawing:
            if self._view is None or not self._view.phases:
                self._leave_view()
            self._tell(self._erase() + text + "\n")
            self._draw_view()

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
        self._leave_view()
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

        return stoppable(self._leave_view)

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

    def _show_view(self, **changes: Any) -> None:
        """Change what is known of the running work, and draw it."""
        from mpctl.cli.live_screen import LiveView

        with self._drawing:
            self._view = (self._view or LiveView()).changed(**changes)
            self._draw_view()

    def _draw_view(self) -> None:
        """Draw the running work in place of the lines before; as many lines as the terminal is high."""
        with self._drawing:
            if self._view is None:
                return
            self._last_draw = time.monotonic()
            lines = tuple(self._view.lines(self._last_draw, width() - 1))[: max(height() - 1, 1)]
            self._tell(self._erase() + "\n".join(lines) + "\n")
            self._drawn = lines

    def _erase(self) -> str:
        """The control characters that erase the drawn lines. On a terminal that became too narrow for them, they stay:
        some terminals have wrapped them, others cut them, so their first row is unknown."""
        drawn, self._drawn = self._drawn, ()
        if not drawn or any(len(line) >= width() for line in drawn):
            return ""
        return f"\033[{len(drawn)}A\r\033[J"

    def _leave_view(self) -> None:
        """Leave the lines of the running work on the screen as they are."""
        with self._drawing:
            self._view, self._drawn = None, ()

    def _keep_time(self, phases: Sequence[PhaseProgress]) -> None:
        """Draw an operation every second, so that its time is right while nothing is reported."""
        while self._view is not None and self._view.has(phases):
            time.sleep(_CLOCK_S)
            self._draw_view()

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
