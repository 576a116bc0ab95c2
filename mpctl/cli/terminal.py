"""Everything that is printed. Results go to standard output, the rest to standard error; nothing else asks what a
terminal can do."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

import click

from mpctl.errors import Cancelled, InputError

API_VERSION = "mpctl.dev/v1alpha1"
_REDRAW_S = 0.2


@dataclass
class Terminal:
    """``color``: whether to use it on standard error and output. ``live``: whether a line may be redrawn."""

    color: bool
    live: bool
    quiet: bool = False
    verbose: int = 0
    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)
    _open_line: bool = False
    _last_draw: float = 0.0

    @classmethod
    def of_environment(cls, color: str = "auto", *, quiet: bool = False, verbose: int = 0) -> Terminal:
        """Honour NO_COLOR, CLICOLOR, CLICOLOR_FORCE, TERM and CI (https://no-color.org, https://bixense.com/clicolors)."""
        environment = os.environ
        interactive = sys.stderr.isatty() and environment.get("TERM") != "dumb"
        if color == "auto":
            forced = environment.get("CLICOLOR_FORCE", "0") != "0"
            allowed = "NO_COLOR" not in environment and environment.get("CLICOLOR", "1") != "0"
            use = forced or (interactive and allowed)
        else:
            use = color == "always"
        return cls(use, interactive and "CI" not in environment, quiet, verbose)

    # Results

    def result(self, text: str) -> None:
        """A result for people or scripts, on standard output."""
        self._finish_line()
        print(text, file=self.out, flush=True)

    def record(self, kind: str, body: dict[str, Any], output: str) -> None:
        """A result as JSON or YAML with apiVersion and kind."""
        document = {"apiVersion": API_VERSION, "kind": kind, **body}
        if output == "json":
            self.result(json.dumps(document, indent=2))
            return
        import yaml

        self.result(yaml.safe_dump(document, sort_keys=False, allow_unicode=True).rstrip())

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Columns with two spaces or more between them, as kubectl prints them."""
        self.result(columns([list(header), *map(list, rows)]))

    # Everything else

    def step(self, name: str, detail: str) -> None:
        """A step of a longer work begins."""
        if self.quiet:
            return
        self._finish_line()
        head = self._paint(f"{name:<16}", "cyan")
        if self.live:
            print(f"{head}{detail}", end="", file=self.err, flush=True)
            self._open_line = True
        else:
            print(f"{head}{detail}", file=self.err, flush=True)

    def update(self, detail: str) -> None:
        """The step goes on: redrawn on a terminal, dropped elsewhere unless it is asked for with -v."""
        if self.quiet:
            return
        if not self.live:
            if self.verbose:
                print(f"{'':<16}{detail}", file=self.err, flush=True)
            return
        now = time.monotonic()
        if now - self._last_draw >= _REDRAW_S:
            self._last_draw = now
            width = click_width() - 17
            print(f"\r\033[K{'':<16}{detail[:width]}", end="", file=self.err, flush=True)
            self._open_line = True

    def note(self, text: str) -> None:
        """A line worth keeping."""
        if not self.quiet:
            self._finish_line()
            print(text, file=self.err, flush=True)

    def warn(self, text: str) -> None:
        """A warning; shown also when quiet."""
        self._finish_line()
        print(f"{self._paint('warning:', 'yellow')} {text}", file=self.err, flush=True)

    def error(self, message: str, hint: str | None) -> None:
        """What went wrong and what to do next."""
        self._finish_line()
        print(f"{self._paint('error:', 'red')} {message}", file=self.err, flush=True)
        if hint:
            print(f"{self._paint('hint:', 'cyan')} {hint}", file=self.err, flush=True)

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask before something is changed.

        Raises:
            Cancelled: the answer is no.
            InputError: there is nobody to ask.
        """
        if yes:
            return
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise InputError("there is no terminal to ask on", hint="say yes beforehand with -y")
        self._finish_line()
        if not click.confirm(question, err=True):
            raise Cancelled("cancelled; nothing was changed")

    def _finish_line(self) -> None:
        if self._open_line:
            print(file=self.err, flush=True)
            self._open_line = False

    def _paint(self, text: str, color: str) -> str:
        return click.style(text, fg=color) if self.color else text


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns; the last one is not padded."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        lines.append("   ".join([*cells, row[-1]]).rstrip())
    return "\n".join(lines)


def click_width() -> int:
    """Width of the terminal in characters."""
    import shutil

    return shutil.get_terminal_size().columns
