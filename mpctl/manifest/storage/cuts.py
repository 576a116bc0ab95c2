"""Cuts in the text of an InferenceService's storage: entries, lists and values put in and taken out.

:mod:`mpctl.manifest.storage.edits` puts the cuts together and verifies the result.
"""

from __future__ import annotations

import json
import re
from typing import Any

from mpctl.manifest.speculation.editor import Editor
from mpctl.manifest.text.list_items import content_end, eol_of, line_end, line_start
from mpctl.manifest.text.view import View, text_of
from mpctl.manifest.text.yaml_tree import Mapping, Node, Scalar, Sequence

DRAFT_MOUNT = "/mnt/mpctl/draft"
VOLUME = "mpctl-draft"
Entry = tuple[Scalar, Node]


def storage_uri(predictor: View) -> tuple[View, View] | None:
    """The mapping that holds ``storageUri``, and its value."""
    for holder in filter(None, (predictor.get("model"), predictor)):
        uri = holder.get("storageUri")
        if uri is not None:
            return holder, uri
    return None


# Adding


def append(editor: Editor, view: View, item: dict[str, Any]) -> None:
    """One more item behind the last, in the list's own form."""
    node = _list(view)
    if not node.items:
        editor.cut(node.start + 1, node.start + 1, json.dumps(item))
    elif node.flow:
        editor.cut(node.items[-1].end, node.items[-1].end, f", {json.dumps(item)}")
    else:
        text, last = editor.text, node.items[-1]
        begin = line_start(text, last.start)
        head = text[begin : last.start]
        if head.strip() != "-":
            raise view.error("the list's last item shares its line", hint="put every item on lines of its own")
        at = line_end(text, content_end(text, last))
        editor.cut(at, at, eol_of(text) + _item(head, item, eol_of(text)))


def _item(head: str, item: dict[str, Any], eol: str) -> str:
    """A block list item: ``head`` up to its first key, the other keys below it; nested values in flow form."""
    blank = " " * len(head)
    lines = [f"{key}: {_value(value)}" for key, value in item.items()]
    return head + lines[0] + "".join(f"{eol}{blank}{line}" for line in lines[1:])


def _value(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"[a-z][A-Za-z0-9+]*://[\w./:@+-]+|/[\w./-]+|[a-z][\w./-]*", value):
        return value
    return json.dumps(value)


def add_list(editor: Editor, home: View, key: str, item: dict[str, Any]) -> None:
    """A list of one item under a new key: after the first short entry, so that nothing long is cut in two."""
    node = _mapping(home)
    if any(name.value == key for name, _ in node.entries):
        raise home.error(f'"{key}" is empty', hint=f"remove the line: {key} has no value")
    if node.flow:
        at = node.entries[-1][1].end
        editor.cut(at, at, f', "{key}": [{json.dumps(item)}]')
        return
    text = editor.text
    name, value = next(((n, v) for n, v in node.entries if _short(text, v)), node.entries[-1])
    column = name.start - line_start(text, name.start)
    at = line_end(text, max(content_end(text, value), name.end))
    eol, blank = eol_of(text), " " * column
    body = _item(f"{blank}- ", item, eol)
    editor.cut(at, at, f"{eol}{blank}{key}:{eol}{body}")


def _short(text: str, value: Node) -> bool:
    return isinstance(value, Scalar) and value.style not in ("|", ">") and "\n" not in text[value.start : value.end]


def move(editor: Editor, predictor: View, present_uri: tuple[View, View] | None, entries: list[dict[str, Any]]) -> None:
    """Write ``storageUris`` above a key of the predictor, in place of the ``storageUri`` at ``present_uri``."""
    node = _mapping(predictor)
    text, eol = editor.text, eol_of(editor.text)
    if node.flow:
        raise predictor.error(
            "the predictor is written as one flow mapping, which cannot be extended",
            hint="write the predictor in block form, one key per line",
        )
    if present_uri is not None:
        _cut_key(editor, present_uri[0], "storageUri")
    above = next((n for n, _ in node.entries if n.value != "storageUri" and _own_line(text, n)), None)
    if above is None:
        raise predictor.error("no key of the predictor is on a line of its own", hint="put each key on its own line")
    begin = line_start(text, above.start)
    blank = " " * (above.start - begin)
    body = "".join(_item(f"{blank}- ", entry, eol) + eol for entry in entries)
    editor.cut(begin, begin, f"{blank}storageUris:{eol}{body}")


def _own_line(text: str, key: Scalar) -> bool:
    return not text[line_start(text, key.start) : key.start].strip()


def _cut_key(editor: Editor, home: View, key: str) -> None:
    """Cut an entry out of a mapping."""
    node, text = _mapping(home), editor.text
    at = next(i for i, (name, _) in enumerate(node.entries) if name.value == key)
    name, value = node.entries[at]
    before = node.entries[at - 1] if at else None
    after = node.entries[at + 1] if at + 1 < len(node.entries) else None
    if before is None and after is None:
        raise home.error(f'"{key}" is the only key here', hint="name the model's format beside it")
    if not (node.flow or _own_line(text, name)) and (before is not None or after is None):
        raise home.error(f'"{key}" shares its line', hint="put every key on a line of its own, without ?")
    start, end = _extent(text, node, name, value, before, after)
    editor.cut(start, end, "")


def _extent(
    text: str, node: Mapping, name: Scalar, value: Node, before: Entry | None, after: Entry | None
) -> tuple[int, int]:
    """Return the characters of an entry: its lines in block form, itself and one comma in flow form."""
    if node.flow:
        if before is not None:
            return before[1].end, value.end
        assert after is not None
        return name.start, after[0].start
    if not _own_line(text, name):  # the first key of a list item: "- storageUri: x"
        assert after is not None
        return name.start, after[0].start
    end = line_end(text, max(content_end(text, value), name.end))
    following = end + (2 if text.startswith("\r\n", end) else 1)
    if end < len(text):
        return line_start(text, name.start), following
    assert before is not None
    return line_end(text, _content_end(text, before)), end


def _break_before(text: str, begin: int) -> str:
    """The line break that ends before a line's first character."""
    return "\r\n" if text.endswith("\r\n", 0, begin) else text[max(begin - 1, 0) : begin]


def _content_end(text: str, entry: Entry) -> int:
    return max(content_end(text, entry[1]), entry[0].end)


# Taking away


def drop_item(editor: Editor, home: View, key: str, field: str, value: str) -> None:
    """Cut the item of a list whose ``field`` is ``value``; a list that held nothing else goes with its key."""
    view = home.get(key)
    if view is None or isinstance(view.node, Mapping):
        return  # a mapping holds nothing of ours
    node, text = _list(view), editor.text
    ours = [i for i, item in enumerate(view.items()) if text_of(item.get(field)) == value]
    if len(ours) != 1:
        return
    at = ours[0]
    if len(node.items) == 1:
        _drop_list(editor, home, key, node)
    elif node.flow:
        start = node.items[at - 1].end if at else node.items[0].start
        editor.cut(start, node.items[at].end if at else node.items[1].start, "")
    else:
        _cut_lines(editor, line_start(text, node.items[at].start), line_end(text, content_end(text, node.items[at])))


def _drop_list(editor: Editor, home: View, key: str, node: Sequence) -> None:
    text, parent = editor.text, _mapping(home)
    at = next(i for i, (name, _) in enumerate(parent.entries) if name.value == key)
    name = parent.entries[at][0]
    if node.flow and not (parent.flow and at):
        editor.cut(node.start + 1, node.end - 1, "")  # the list was there, empty
    elif parent.flow:
        editor.cut(parent.entries[at - 1][1].end, node.end, "")
    else:
        begin, end = line_start(text, name.start), line_end(text, content_end(text, node))
        after = "\r\n" if text.startswith("\r\n", end) else text[end : end + 1]
        if key == "storageUris" and after:  # :func:`move` writes it with the break behind it
            editor.cut(begin, end + len(after), "")
        else:
            _cut_lines(editor, begin, end)


def _cut_lines(editor: Editor, begin: int, end: int) -> None:
    """Cut whole lines with the break before them, which is how :func:`append` and :func:`add_list` write them."""
    editor.cut(begin - len(_break_before(editor.text, begin)), end, "")


def _list(view: View) -> Sequence:
    if not isinstance(view.node, Sequence):
        raise view.error("expected a list, not an alias", hint="write it here instead of an alias")
    return view.node


def _mapping(view: View) -> Mapping:
    if not isinstance(view.node, Mapping):
        raise view.error("expected a mapping, not an alias", hint="write it here instead of an alias")
    return view.node
