"""A plan as text, and as Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from mpctl.report.plan.page import Page, Rows


def plan_text(page: Page, table: Callable[[Rows, str], str], width: int) -> str:
    """The page for a terminal of that width; ``table`` aligns and indents a table."""
    title = f"Plan: {page.title}"
    if page.rows is not None:
        return "\n".join([title, table(page.rows, ""), _wrapped(page.head, width, "")])
    parts = [title, _wrapped(page.head, width)]
    for section in page.sections:
        parts += ["", section.title, _wrapped(section.runs, width)]
        for rows in section.tables:
            parts += ["", table(rows, "  ")]
        if section.details:
            parts += ["", _wrapped(section.details, width)]
    return "\n".join(part for index, part in enumerate(parts) if part or (index and parts[index - 1]))


def _wrapped(lines: Sequence[str], width: int, indent: str = "  ") -> str:
    """Lines wrapped to the width, continued with a deeper indent."""
    deeper = indent + "  "
    wrapper = textwrap.TextWrapper(
        width, initial_indent=indent, subsequent_indent=deeper, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(wrapper.fill(line) for line in lines)


def plan_markdown(page: Page) -> str:
    """The page as Markdown."""
    parts = [f"# Plan: {_escaped(page.title)}\n"]
    if page.rows is not None:
        parts.append(_table(page.rows) + "\n")
    parts += _items(page.head)
    for section in page.sections:
        parts += [f"\n## {_escaped(section.title)}\n", *_items(section.runs)]
        parts += ["\n" + _table(rows) + "\n" for rows in section.tables]
        parts += _items(section.details)
    return "\n".join(parts)


def _items(lines: Sequence[str]) -> list[str]:
    return [f"- {_escaped(line.strip())}" for line in lines]


def _table(rows: Rows) -> str:
    head, *body = ["| " + " | ".join(_escaped(cell) for cell in row) + " |" for row in rows]
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body])


def _escaped(text: str) -> str:
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>|#" else c for c in text)
