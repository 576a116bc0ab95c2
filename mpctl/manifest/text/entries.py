"""Entries of mappings and lists as text: written below the present ones, and cut out again.

What is added in block form is whole lines behind the last line of an entry, so cutting the same lines restores every
byte.
"""

from __future__ import annotations

import json
import re
from typing import Any

from mpctl.json_types import Json
from mpctl.manifest.text.list_items import (
    Cut,
    break_before,
    content_end,
    entry_end,
    eol_of,
    line_end,
    line_start,
)
from mpctl.manifest.text.view import View
from mpctl.manifest.text.yaml_tree import Mapping, Node, Sequence

_PLAIN = re.compile(r"[A-Za-z][\w./-]*")


def add_entry(text: str, home: View, key: str, value: Any) -> Cut:
    """A new key behind the last entry of a block mapping."""
    return add_lines(text, home, block_lines({key: value}))


def add_lines(text: str, home: View, lines: list[str]) -> Cut:
    """A new key, written as these lines, behind the last entry of a block mapping."""
    node = _block_mapping(home)
    name, last = node.entries[-1]
    column = name.start - line_start(text, name.start)
    end = entry_end(text, name, last)
    eol = eol_of(text)
    return Cut(end, end, "".join(eol + " " * column + line for line in lines))


def add_item(text: str, view: View, lines: list[str]) -> Cut:
    """A new item behind the last of a block list, of these lines."""
    node = view.node
    if not isinstance(node, Sequence) or node.flow or not node.items:
        raise view.error(
            "this list cannot be extended",
            hint="write it in block form, each item behind its own dash",
        )
    last = node.items[-1]
    head = text[line_start(text, last.start) : last.start]
    if head.strip() != "-":
        raise view.error(
            "the list's last item shares its line", hint="put every item on lines of its own"
        )
    end = line_end(text, content_end(text, last))
    eol = eol_of(text)
    return Cut(end, end, eol + item_text(head, lines, eol))


def item_text(head: str, lines: list[str], eol: str) -> str:
    """An item of a block list: the first line behind ``head``, the others below it."""
    return f"{eol}{' ' * len(head)}".join([head + lines[0], *lines[1:]])


def cut_entry(text: str, home: View, key: str) -> Cut:
    """Cut a key of a block mapping with its lines; the inverse of :func:`add_entry`. Of the first key behind a dash,
    the next key takes the place."""
    entries = _block_mapping(home).entries
    name, value = next((n, v) for n, v in entries if n.value == key)
    following = entries[1][0].start if name is entries[0][0] and len(entries) > 1 else None
    before = text[line_start(text, name.start) : name.start].strip()
    if (
        before == "-"
        and following is not None
        and not text[content_end(text, value) : following].strip()
    ):
        return Cut(name.start, following, "")
    if before:
        raise home.error(
            f'"{key}" shares its line with another entry', hint="put every key on a line of its own"
        )
    return cut_lines(text, name, max(content_end(text, value), name.end))


def cut_item(text: str, view: View, index: int) -> Cut:
    """Cut an item of a block list with its lines; the inverse of :func:`add_item`."""
    node = view.node
    assert isinstance(node, Sequence)
    return cut_lines(text, node.items[index], content_end(text, node.items[index]))


def cut_lines(text: str, first: Node, end: int) -> Cut:
    """Cut whole lines with the break before them."""
    begin = line_start(text, first.start)
    return Cut(begin - len(break_before(text, begin)), line_end(text, end), "")


def block_lines(value: Json) -> list[str]:
    """A mapping as lines of block form."""
    lines: list[str] = []
    for key, inner in value.items():
        if isinstance(inner, dict):
            lines += [f"{key}:", *(f"  {line}" for line in block_lines(inner))]
        elif isinstance(inner, list):
            lines.append(f"{key}:")
            for item in inner:
                first, *others = block_lines(item)
                lines += [f"- {first}", *(f"  {line}" for line in others)]
        else:
            lines.append(f"{key}: {_scalar(inner)}")
    return lines


def _scalar(value: str) -> str:
    """Plain where every reader takes it for the same text, double quotes otherwise."""
    return value if _PLAIN.fullmatch(value) else json.dumps(value, ensure_ascii=False)


def _block_mapping(view: View) -> Mapping:
    node = view.node
    if not isinstance(node, Mapping) or node.flow or not node.entries:
        raise view.error(
            "this mapping cannot be extended", hint="write it in block form, one key per line"
        )
    return node
