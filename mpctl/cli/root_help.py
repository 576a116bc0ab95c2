"""The help of the program from what its commands and shared options declare, as click prints it, but without click."""

from __future__ import annotations

from mpctl.cli.registry import ABOUT, COMMANDS, EPILOG
from mpctl.cli.size import fit_examples

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WIDTH = 80  # of the terminal, at least
_PAGE = WIDTH - 2
_COLUMN = 32  # of the texts beside the options, at most


def text() -> str:
    """The text of ``mpctl --help``."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    about, _, examples = fit_examples(ABOUT, _PAGE - 2).partition("\n\n\b\n")
    yield "Usage: mpctl [OPTIONS] COMMAND [ARGS]...\n"
    yield "  " + _folded(about, "  ") + "\n"
    yield from (f"  {line}" for line in examples.splitlines())
    topics: dict[str, list[tuple[str, str]]] = {}
    for name, (_, help_, topic) in COMMANDS.items():
        if topic:
            topics.setdefault(topic, []).append((name, help_))
    for topic, rows in topics.items():
        yield from _section(topic, rows)
    yield f"\n  {EPILOG}"


def _section(title: str, rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield f"\n{title}:"
    column = min(max(len(name) for name, _ in rows) + 2, _COLUMN)
    for name, help_ in rows:
        indent = " " * (column + 2)
        first = f"  {name}".ljust(column + 2) if len(name) <= column - 2 else f"  {name}\n{indent}"
        yield first + _folded(help_, indent)


def _folded(text: str, indent: str) -> str:
    """A text that begins behind ``indent`` and is continued there."""
    lines = [""]
    for word in text.split(" "):
        if len(f"{indent}{lines[-1]} {word}") > _PAGE:
            lines.append(word)
        else:
            lines[-1] += f" {word}" if lines[-1] else word
    return f"\n{indent}".join(line.rstrip() for line in lines)
