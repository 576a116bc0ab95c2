"""Items of a YAML list as text: where they are cut out and put in, for block (``- a``) and flow (``[a]``) lists."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from mpctl.manifest.text.scalar import spell
from mpctl.manifest.text.view import View
from mpctl.manifest.text.yaml_tree import Mapping, Node, Scalar, Sequence, resolve

_BREAK = re.compile(r"\r\n|\n|\r")
_ANCHORS = ("command", "image", "runtime", "modelFormat", "name")


@dataclass(frozen=True)
class Cut:
    """Replace ``start:end`` of the file with ``text``."""

    start: int
    end: int
    text: str


def insert(text: str, view: View, index: int, texts: Seq[str]) -> list[Cut]:
    """Add items after item ``index`` (-1: an empty flow list), in the style of the items before them."""
    node = _sequence(view)
    style = _style(node, index, text)
    if node.flow:
        return [
            _insert_flow(
                text, node, index, [spell(item_text, style, flow=True) for item_text in texts]
            )
        ]
    item = View(view.file, f"{view.path}[{index}]", node.items[index])
    dash = _dash(text, item)
    begin = line_start(text, dash)
    end = line_end(text, content_end(text, node.items[index]))
    head = _own_break(text, begin, dash, item) + text[begin : dash + 1] + " "
    return [
        Cut(end, end, "".join(head + spell(item_text, style, flow=False) for item_text in texts))
    ]


def _insert_flow(text: str, node: Sequence, index: int, spelled: Seq[str]) -> Cut:
    if index < 0:
        return Cut(node.start + 1, node.start + 1, ", ".join(spelled))
    glue = ", "
    if index > 0:
        between = text[node.items[index - 1].end : node.items[index].start]
        glue = glue if "#" in between or not re.fullmatch(r"\s*,\s*", between) else between
    end = node.items[index].end
    return Cut(end, end, "".join(glue + item_text for item_text in spelled))


def remove(text: str, home: View, view: View, indexes: Collection[int]) -> list[Cut]:
    """Cut items out. A block list without items goes with its key, a flow list becomes ``[]``."""
    node = _sequence(view)
    remaining = [i for i in range(len(node.items)) if i not in indexes]
    if node.flow:
        if not remaining and (cut := _added_key(text, home, node)) is not None:
            return [cut]
        return list(_remove_flow(text, node, sorted(indexes), remaining))
    if not remaining:
        return [_remove_block_key(text, home, view, node)]
    cuts = []
    for i in sorted(indexes):
        item = View(view.file, f"{view.path}[{i}]", node.items[i])
        begin = line_start(text, _dash(text, item))
        gap = _own_break(text, begin, _dash(text, item), item)
        cuts.append(Cut(begin - len(gap), line_end(text, content_end(text, node.items[i])), ""))
    return cuts


def _remove_flow(
    text: str, node: Sequence, indexes: Seq[int], remaining: Seq[int]
) -> Iterator[Cut]:
    items = node.items
    if not remaining:
        tail = re.compile(r"\s*,").match(text, items[-1].end)
        yield Cut(items[0].start, items[-1].end if tail is None else tail.end(), "")
        return
    first = items[remaining[0]]
    leading = [i for i in indexes if i < remaining[0]]
    if leading and "#" not in text[items[0].start : first.start]:
        yield Cut(items[0].start, first.start, "")
        leading = []
    for i in (
        leading
    ):  # a comment stands among them: take each item with the comma behind it, leave the rest
        yield Cut(items[i].start, items[i].end, "")
        yield _comma(text, items[i].end)
    for i in indexes:
        if i < remaining[0]:
            continue
        before, item = items[i - 1], items[i]
        if "#" not in text[before.end : item.start]:
            yield Cut(before.end, item.end, "")
        else:
            yield _comma(text, before.end)
            yield Cut(item.start, item.end, "")


_COMMA = re.compile(r"(?:[^,#]|#[^\r\n]*)*,")


def _comma(text: str, at: int) -> Cut:
    """The comma behind an item, which may stand behind a comment."""
    comma = _COMMA.match(text, at)
    assert comma is not None
    return Cut(comma.end() - 1, comma.end(), "")


def _remove_block_key(text: str, home: View, view: View, node: Sequence) -> Cut:
    parent = resolve(home.node)
    assert isinstance(parent, Mapping)
    key = next(key for key, value in parent.entries if value is view.node)
    end = line_end(text, content_end(text, node.items[-1]))
    begin = line_start(text, key.start)
    gap = break_before(text, begin)
    alone = len(parent.entries) == 1 or text[begin : key.start].strip(" ")
    if alone or not gap or not re.fullmatch(r"[ \t]*:[ \t]*[\r\n]\s*", text[key.end : node.start]):
        return Cut(text.index(":", key.end) + 1, end, " []")
    return Cut(begin - len(gap), end, "")


def _added_key(text: str, home: View, node: Sequence) -> Cut | None:
    """``, args: [ x ]`` in a flow mapping is how :func:`add_key` writes it, so it goes as a whole."""
    parent = resolve(home.node)
    if not isinstance(parent, Mapping) or not parent.flow:
        return None
    written = text[node.start : node.end]
    index = next((i for i, (_, value) in enumerate(parent.entries) if value is node), 0)
    if index == 0 or not written.startswith("[ ") or not written.endswith(" ]"):
        return None
    return Cut(parent.entries[index - 1][1].end, node.end, "")


def add_key(text: str, root: Node, home: View, key: str, texts: Seq[str]) -> Cut:
    """Give the mapping at ``home`` a list: after ``command``, ``image`` or another short key, else at its end."""
    parent = resolve(home.node)
    if not isinstance(parent, Mapping) or not parent.entries:
        raise home.error(f'"{key}" cannot be added to an empty mapping')
    if parent.flow:
        mark = '"' if parent.entries[-1][0].style == '"' else ""
        items = ", ".join(spell(item_text, mark or "'", flow=True) for item_text in texts)
        end = parent.entries[-1][1].end
        return Cut(end, end, f", {mark}{key}{mark}: [ {items} ]")
    named = {name.value: (name, value) for name, value in parent.entries}
    name, value = next(
        (named[anchor] for anchor in _ANCHORS if anchor in named), parent.entries[-1]
    )
    column = name.start - line_start(text, name.start)
    end = entry_end(text, name, value)
    eol = eol_of(text)
    dash = eol + " " * (column + _offset(text, root)) + "- "
    return Cut(
        end,
        end,
        f"{eol}{' ' * column}{key}:"
        + "".join(dash + spell(item_text, "'", flow=False) for item_text in texts),
    )


def has_key(view: View, key: str) -> bool:
    return any(name == key for name, _ in view.pairs())


def _offset(text: str, root: Node) -> int:
    """Return the indentation of a list's dashes below its key in this file."""
    resolved = resolve(root)
    values: Seq[Node] = ()
    if isinstance(resolved, Mapping):
        for key, value in resolved.entries:
            node = resolve(value)
            if isinstance(node, Sequence) and not node.flow and node.start > key.end:
                return _column(text, node.start) - _column(text, key.start)
        values = [value for _, value in resolved.entries]
    elif isinstance(resolved, Sequence):
        values = resolved.items
    return next((offset for value in values if (offset := _offset(text, value))), 0)


def _style(node: Sequence, index: int, text: str) -> str:
    """The quoting of the last item up to ``index`` that is on one line; a list of none is quoted."""
    styles = [
        scalar.style
        for item in node.items[: index + 1]
        if isinstance(scalar := resolve(item), Scalar)
    ]
    inline = [style for style in styles if style not in ("|", ">")]
    if inline:
        return inline[-1]
    return '"' if node.flow and re.search(r'"\s*:\s*$', text[: node.start]) else "'"


def content_end(text: str, node: Node) -> int:
    """Return the end of a node's text; a block scalar ends on its last line, before the break."""
    if isinstance(node, Scalar):
        if node.style not in ("|", ">"):
            return node.end
        body = text[node.start : node.end]
        keeps = re.match(r"[^\r\n]*", body)
        if keeps is not None and "+" in keeps.group().partition("#")[0]:
            last_break = re.search(r"(?:\r\n|\n|\r)$", body)
            return node.end if last_break is None else node.start + last_break.start()
        return node.start + len(body.rstrip("\r\n \t"))
    if isinstance(node, Sequence) and not node.flow and node.items:
        return content_end(text, node.items[-1])
    if isinstance(node, Mapping) and not node.flow and node.entries:
        key, value = node.entries[-1]
        return max(key.end, content_end(text, value))
    return node.end


def entry_end(text: str, key: Node, value: Node) -> int:
    """Return the end of the last line of a mapping's entry, before the break."""
    return line_end(text, max(content_end(text, value), key.end))


def line_end(text: str, at: int) -> int:
    line_break = _BREAK.search(text, at)
    return len(text) if line_break is None else line_break.start()


def line_start(text: str, at: int) -> int:
    """Return the start of the line that holds position ``at``."""
    return max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1


def _column(text: str, at: int) -> int:
    return at - line_start(text, at)


def break_before(text: str, begin: int) -> str:
    """The line break before position ``begin``."""
    if text.endswith("\r\n", 0, begin):
        return "\r\n"
    return text[begin - 1 : begin] if begin else ""


def eol_of(text: str) -> str:
    """The line break this text uses."""
    line_break = _BREAK.search(text)
    return "\n" if line_break is None else line_break.group()


def _dash(text: str, item: View) -> int:
    dash = len(text[: item.node.start].rstrip()) - 1
    if dash < 0 or text[dash] != "-":
        raise item.error(
            "this list item cannot be edited safely", hint="write it directly after its dash"
        )
    return dash


def _own_break(text: str, begin: int, dash: int, item: View) -> str:
    gap = break_before(text, begin)
    if not gap or text[begin:dash].strip(" "):
        raise item.error(
            "this list item shares its line", hint="put every item of the list on its own line"
        )
    return gap


def _sequence(view: View) -> Sequence:
    node = view.node
    if not isinstance(node, Sequence):
        raise view.error("expected a list here")
    return node
