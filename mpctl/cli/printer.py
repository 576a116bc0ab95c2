"""A command's result in the format that ``-o`` asks for. A new format is one more function and one more row here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from mpctl import escaping

API_VERSION = "mpctl.dev/v1alpha1"


class Result(NamedTuple):
    """A result before it has a format. ``table`` is given whether all columns are wanted."""

    kind: str
    record: Callable[[], Mapping[str, Any]]
    names: Callable[[], Iterable[str]]
    table: Callable[[bool], str]


class Format(NamedTuple):
    """An output format and its description in ``mpctl help output``."""

    write: Callable[[Result], str]
    help: str


def document(kind: str, record: Mapping[str, Any], output: str) -> str:
    """A JSON or YAML document with apiVersion and kind."""
    whole = {"apiVersion": API_VERSION, "kind": kind, **record}
    if output == "json":
        import json

        return json.dumps(whole, indent=2, ensure_ascii=False)
    import yaml

    return str(yaml.safe_dump(whole, sort_keys=False, allow_unicode=True)).rstrip()


_FORMATS: dict[str, Format] = {
    "table": Format(lambda r: r.table(False), "for reading; its columns may change from one version to the next"),
    "wide": Format(lambda r: r.table(True), "the same with more columns"),
    "json": Format(
        lambda r: document(r.kind, r.record(), "json"),
        "for programs: an object with apiVersion and kind; units are in the names",
    ),
    "yaml": Format(lambda r: document(r.kind, r.record(), "yaml"), "the same as YAML"),
    "name": Format(lambda r: "\n".join(r.names()), "names only, one per line"),
}
FORMATS = tuple(_FORMATS)


def render(output: str, result: Result) -> str:
    """The text of a result in the format ``output``; may be empty."""
    return _FORMATS[output].write(result)


def explain_formats() -> str:
    """The formats of ``-o``, one line each."""
    return "\n".join(f"-o {name:<7} {form.help}" for name, form in _FORMATS.items())


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns with three spaces between them; the last one is not padded."""
    rows = [[escaping.line(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        lines.append("   ".join([*cells, row[-1]]).rstrip())
    return "\n".join(lines)
