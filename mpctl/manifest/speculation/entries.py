"""Entries of block mappings and lists as text: written below the present ones, and cut out again.

What is added is whole lines behind the last line of an entry, so cutting the same lines restores every byte.
"""

from __future__ import annotations

import json
import re
from typing import Any

from mpctl.manifest.text.list_items import Cut, content_end, eol_of, line_end, line_start
from mpctl.manifest.text.view import View
from mpctl.manifest.text.yaml_tree import Mapping, Node, Sequence

_PLAIN = re.compile(r"[A-Za-z][\w./-]*")


def add_entry(text: str, home: View, key: str, value: Any) -> Cut:
    """A new key behind the last entry of a block mapping."""
    node = _block_mapping(home)
    name, last = node.entries[-1]
    column = name.start - line_start(text, name.start)
    at = line_end(text, max(content_end(text, last), name.end))
    eol = eol_of(text)
    return Cut(at, at, "".join(eol + " " * column + line for line in _lines({key: value})))


def add_item(text: str, view: View, value: dict[str, Any]) -> Cut:
    """A new item behind the last of a block list."""
    node = view.node
    if not isinstance(node, Sequence) or node.flow or not node.items:
        raise view.error("this list cannot be extended", hint="write it in block form, each item behind its own dash")
    last = node.items[-1]
    head = text[line_start(text, last.start) : last.start]
    if head.strip() != "-":
        raise view.error("the list's last item shares its line", hint="put every item on lines of its own")
    at = line_end(text, content_end(text, last))
    first, *others = _lines(value)
    eol = eol_of(text)
    blank = " " * len(head)
    return Cut(at, at, eol + head + first + "".join(eol + blank + line for line in others))


def cut_entry(text: str, home: View, key: str) -> Cut:
    """Cut a key of a block mapping with its lines; the inverse of :func:`add_entry`. Of the first key behind a dash,
    the next key takes the place."""
    entries = _block_mapping(home).entries
    name, value = next((n, v) for n, v in entries if n.value == key)
    following = entries[1][0].start if name is entries[0][0] and len(entries) > 1 else None
    dashed = text[line_start(text, name.start) : name.start].strip() == "-"
    if dashed and following is not None and not text[content_end(text, value) : following].strip():
        return Cut(name.start, following, "")
    if text[line_start(text, name.start) : name.start].strip():
        raise home.error(f'"{key}" shares its line with another entry', hint="put every key on a line of its own")
    return _cut_lines(text, name, max(content_end(text, value), name.end))


def cut_item(text: str, view: View, index: int) -> Cut:
    """Cut an item of a block list with its lines; the inverse of :func:`add_item`."""
    node = view.node
    assert isinstance(node, Sequence)
    return _cut_lines(text, node.items[index], content_end(text, node.items[index]))


def _cut_lines(text: str, first: Node, end: int) -> Cut:
    begin = line_start(text, first.start)
    gap = 2 if text.endswith("\r\n", 0, begin) else min(begin, 1)
    return Cut(begin - gap, line_end(text, end), "")


def _block_mapping(view: View) -> Mapping:
    node = view.node
    if not isinstance(node, Mapping) or node.flow or not node.entries:
        raise view.error("this mapping cannot be extended", hint="write it in block form, one key per line")
    return node


def _lines(value: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for key, inner in value.items():
        if isinstance(inner, dict):
            lines += [f"{key}:", *(f"  {line}" for line in _lines(inner))]
        elif isinstance(inner, list):
            lines.append(f"{key}:")
            for item in inner:
                first, *others = _lines(item)
                lines += [f"- {first}", *(f"  {line}" for line in others)]
        else:
            lines.append(f"{key}: {_scalar(inner)}")
    return lines


def _scalar(value: str) -> str:
    """Plain where every reader takes it for the same text, double quotes otherwise."""
    return value if _PLAIN.fullmatch(value) else json.dumps(value, ensure_ascii=False)
