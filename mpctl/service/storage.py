"""What an InferenceService mounts, edited byte for byte: a draft added, and taken away again exactly.

Three edits, each with its inverse in :func:`without_draft`: an entry of ``storageUris`` (``storageUri`` is moved there
first, because KServe takes one or the other), a volume claim with its mount, and another image in place of the
target's. What cannot be told apart later, the place a key was moved from and a replaced value, is kept in a comment
beside the edit, so that leaving the draft gives back the bytes that were there. Where comments were lost, as in a copy
that went through a server, the draft's entry goes and the rest stays as the server has it.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from mpctl.errors import InputError
from mpctl.service.editor import Editor
from mpctl.service.listing import content_end, eol_of, line_end, line_start
from mpctl.service.model import Service, Storage
from mpctl.service.view import View, text_of
from mpctl.service.yamltext import Mapping, Node, Scalar, Sequence, resolve

DRAFT_MOUNT = "/mnt/mpctl/draft"
VOLUME = "mpctl-draft"
_MOVED = "# mpctl staging, moved from "
_SWAPPED = "  # mpctl staging, was "
_WAS = re.compile(re.escape(_SWAPPED) + r'("(?:[^"\\]|\\.)*")')
Entry = tuple[Scalar, Node]
Change = Callable[[dict[str, Any], dict[str, Any]], None]


def with_entry(service: Service, uri: str) -> Service:
    """This service with the draft as an entry of ``storageUris``, mounted at :data:`DRAFT_MOUNT`.

    Raises:
        InputError: it is there already, or the manifest's form leaves no room for the edit.
    """
    predictor, _ = _homes(service)
    if any(one.mount_path == DRAFT_MOUNT for one in service.storage):
        raise predictor.error(f"{DRAFT_MOUNT} is already mounted", hint="Roll the draft back first")
    editor = _editor(service)
    present = predictor.get("storageUris")
    entry = {"uri": uri, "mountPath": DRAFT_MOUNT}
    if present is not None:
        _append(editor, present, entry)

        def change(spec: dict[str, Any], home: dict[str, Any]) -> None:
            spec["storageUris"].append(entry)
    else:
        held = _storage_uri(predictor)
        first = None if held is None else {"uri": held[1].text(), "mountPath": "/mnt/models"}
        _move(editor, predictor, held, [one for one in (first, entry) if one])

        def change(spec: dict[str, Any], home: dict[str, Any]) -> None:
            for holder in (spec, spec.get("model") or {}):
                holder.pop("storageUri", None)
            spec["storageUris"] = [one for one in (first, entry) if one]

    return _made(service, editor, change)


def with_claim(service: Service, claim: str, sub_path: str) -> Service:
    """This service with a folder of a volume claim mounted, read only, at :data:`DRAFT_MOUNT`.

    Raises:
        InputError: a volume of that name is there already, or the manifest's form leaves no room for the edit.
    """
    predictor, home = _homes(service)
    volume = {"name": VOLUME, "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
    mount = {"name": VOLUME, "mountPath": DRAFT_MOUNT, "subPath": sub_path, "readOnly": True}
    editor = _editor(service)
    # The inner one first: both may end at the same place of the text.
    for view, key, item in ((home, "volumeMounts", mount), (predictor, "volumes", volume)):
        present = view.get(key)
        if present is None:
            _add_list(editor, view, key, item)
        elif any(text_of(one.get("name")) == VOLUME for one in present.items()):
            raise present.error(f"{VOLUME} is already there", hint="Roll the draft back first")
        else:
            _append(editor, present, item)

    def change(spec: dict[str, Any], container: dict[str, Any]) -> None:
        spec.setdefault("volumes", []).append(volume)
        container.setdefault("volumeMounts", []).append(mount)

    return _made(service, editor, change)


def with_image(service: Service, uri: str) -> Service:
    """This service with the image ``uri``, which holds target and draft, in place of what the target came from.

    Raises:
        InputError: there is not exactly one place the target comes from, or no room for the comment that keeps it.
    """
    predictor, _ = _homes(service)
    found = [view for view in _uris(predictor) if text_of(view) is not None]
    if len(found) != 1:
        raise predictor.error(
            f"The target comes from {len(found)} places, so no one image can replace it",
            hint="Stage with storageUris or a volume claim",
        )
    node = found[0].scalar()
    editor = _editor(service)
    text = service.text
    rest = text[node.end : line_end(text, node.end)]
    if node.flow or node.style in ("|", ">") or "\n" in text[node.start : node.end] or not _ends_line(rest):
        raise found[0].error(
            "The old value has no room beside the new one", hint="Write this key on a line of its own, unquoted"
        )
    was = json.dumps(text[node.start : node.end])
    editor.cut(node.start, node.end, f"{json.dumps(uri)}{_SWAPPED}{was}")
    old = node.value

    def change(spec: dict[str, Any], home: dict[str, Any]) -> None:
        for holder in (spec, spec.get("model") or {}):
            if holder.get("storageUri") == old:
                holder["storageUri"] = uri
        for one in spec.get("storageUris") or ():
            if one["uri"] == old:
                one["uri"] = uri

    return _made(service, editor, change)


def without_draft(service: Service) -> Service:
    """This service without what the functions above added; itself when there is nothing of them."""
    if service.kind != "InferenceService":
        return service
    predictor, home = _homes(service)
    editor = _editor(service)
    _undo_swap(editor, predictor)
    if not _undo_move(editor, predictor):
        _drop_item(editor, predictor, "storageUris", "mountPath", DRAFT_MOUNT)
    _drop_item(editor, predictor, "volumes", "name", VOLUME)
    _drop_item(editor, home, "volumeMounts", "name", VOLUME)
    if not editor.cuts:
        return service
    place = service.source.place if service.source else None
    assert place is not None
    return place.load(editor.result(), service.file)[place.index]


def staged(service: Service) -> bool:
    """Whether a draft was added by one of the functions above."""
    return without_draft(service) is not service


def _homes(service: Service) -> tuple[View, View]:
    """The predictor, and the mapping of the engine (``model``, or its container)."""
    if service.kind != "InferenceService" or service.source is None:
        raise InputError(
            f"{service.kind} {service.name} has no storage that can be changed", file=service.file, line=service.line
        )
    root = View(service.file, "", service.source.place.document.root)
    return root.need("spec").need("predictor"), service.source.engine.home


def _editor(service: Service) -> Editor:
    assert service.source is not None
    return Editor(service.text, service.source.place.document, service.source.engine)


def _storage_uri(predictor: View) -> tuple[View, View] | None:
    """The mapping that holds ``storageUri``, and its value."""
    for holder in filter(None, (predictor.get("model"), predictor)):
        found = holder.get("storageUri")
        if found is not None:
            return holder, found
    return None


def _uris(predictor: View) -> list[View]:
    one = _storage_uri(predictor)
    several = predictor.get("storageUris")
    entries = [] if several is None else [item.need("uri") for item in several.items()]
    return ([one[1]] if one else []) + [view for view in entries if not view.text().startswith("pvc://")]


def _ends_line(rest: str) -> bool:
    return not rest.strip() or rest.lstrip().startswith("#")


# Adding


def _append(editor: Editor, view: View, item: dict[str, Any]) -> None:
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
            raise view.error("The list's last item shares its line", hint="Put every item on lines of its own")
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


def _add_list(editor: Editor, home: View, key: str, item: dict[str, Any]) -> None:
    """A list of one item under a new key: after the first short entry, so that nothing long is cut in two."""
    node = _mapping(home)
    if any(name.value == key for name, _ in node.entries):
        raise home.error(f'"{key}" is there but empty', hint=f"Remove the line: {key} has no value")
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


def _move(editor: Editor, predictor: View, held: tuple[View, View] | None, entries: list[dict[str, Any]]) -> None:
    """``storageUris`` above a key of the predictor, with a comment that holds what it replaces and where that was."""
    node = _mapping(predictor)
    text, eol = editor.text, eol_of(editor.text)
    if node.flow:
        raise predictor.error(
            "The predictor is written as one flow mapping, which has no room for the change",
            hint="Write the predictor in block form, one key per line",
        )
    holder, removed = None, None
    if held is not None:
        holder = "predictor" if held[0].node is predictor.node else "model"
        removed = _cut_key(editor, held[0], "storageUri")
    above = next((n for n, _ in node.entries if n.value != "storageUri" and _own_line(text, n)), None)
    if above is None:
        raise predictor.error(
            "No key of the predictor stands on a line of its own", hint="Put each key on its own line"
        )
    begin = line_start(text, above.start)
    blank = " " * (above.start - begin)
    note = json.dumps({"from": holder, **(removed or {})})
    body = "".join(_item(f"{blank}- ", entry, eol) + eol for entry in entries)
    editor.cut(begin, begin, f"{blank}{_MOVED}{note}{eol}{blank}storageUris:{eol}{body}")


def _own_line(text: str, key: Scalar) -> bool:
    return not text[line_start(text, key.start) : key.start].strip()


def _cut_key(editor: Editor, home: View, key: str) -> dict[str, Any]:
    """Cut an entry out of a mapping; what was cut, and how far it stood from a neighbour."""
    node, text = _mapping(home), editor.text
    at = next(i for i, (name, _) in enumerate(node.entries) if name.value == key)
    name, value = node.entries[at]
    before = node.entries[at - 1] if at else None
    after = node.entries[at + 1] if at + 1 < len(node.entries) else None
    if before is None and after is None:
        raise home.error(f'"{key}" is the only key here', hint="Name the model's format beside it")
    start, end = _extent(text, node, name, value, before, after)
    editor.cut(start, end, "")
    cut = {"text": text[start:end]}
    if before is not None:
        return {**cut, "after": before[0].value, "gap": start - _behind(text, node, before)}
    assert after is not None
    return {**cut, "before": after[0].value, "gap": after[0].start - end}


def _extent(
    text: str, node: Mapping, name: Scalar, value: Node, before: Entry | None, after: Entry | None
) -> tuple[int, int]:
    """Which characters an entry is: its lines in block form, itself and one comma in flow form."""
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


def _behind(text: str, node: Mapping, entry: Entry) -> int:
    """Where an entry is over: its value in flow form, its last line in block form, which may get longer meanwhile."""
    return entry[1].end if node.flow else line_end(text, _content_end(text, entry))


def _break_before(text: str, begin: int) -> str:
    """The line break that ends before a line's first character."""
    return "\r\n" if text.endswith("\r\n", 0, begin) else text[max(begin - 1, 0) : begin]


def _content_end(text: str, entry: Entry) -> int:
    return max(content_end(text, entry[1]), entry[0].end)


# Taking away


def _undo_move(editor: Editor, predictor: View) -> bool:
    """Put back what :func:`_move` took; False when there is no comment of it above ``storageUris``."""
    text = editor.text
    node = resolve(predictor.node)
    if not isinstance(node, Mapping) or node.flow:
        return False
    at = next((i for i, (name, _) in enumerate(node.entries) if name.value == "storageUris"), None)
    if at is None or at + 1 >= len(node.entries):
        return False
    key = line_start(text, node.entries[at][0].start)
    begin = line_start(text, key - len(_break_before(text, key))) if key else 0
    line = text[begin : line_end(text, begin)].strip()
    if not line.startswith(_MOVED):
        return False
    try:
        kept = json.loads(line.removeprefix(_MOVED))
    except ValueError:
        return False
    mounts = [text_of(one.get("mountPath")) for one in View(predictor.file, "", node.entries[at][1]).items()]
    if mounts[-1:] != [DRAFT_MOUNT] or len(mounts) > 2:
        return False  # somebody added to the list since; only the draft's entry goes
    editor.cut(begin, line_start(text, node.entries[at + 1][0].start), "")
    if not isinstance(kept, dict) or kept.get("from") is None:
        return True
    home = predictor if kept["from"] == "predictor" else predictor.get("model")
    where = None if home is None else _where(text, _mapping(home), kept)
    if where is None:
        editor.cuts.pop()
        return False
    editor.cut(where, where, str(kept["text"]))
    return True


def _where(text: str, node: Mapping, kept: dict[str, Any]) -> int | None:
    """Where the cut text stood, by the neighbour it stood beside; None when that is gone."""
    for entry in node.entries:
        if entry[0].value == kept.get("after"):
            return _behind(text, node, entry) + int(kept["gap"])
        if entry[0].value == kept.get("before"):
            return entry[0].start - int(kept["gap"])
    return None


def _undo_swap(editor: Editor, predictor: View) -> None:
    for view in _uris(predictor):
        node = view.scalar()
        found = _WAS.match(editor.text, node.end)
        if found is not None:
            editor.cut(node.start, found.end(), str(json.loads(found[1])))


def _drop_item(editor: Editor, home: View, key: str, field: str, value: str) -> None:
    """Cut the item of a list whose ``field`` is ``value``; a list that held nothing else goes with its key."""
    view = home.get(key)
    if view is None:
        return
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
        begin = line_start(text, node.items[at].start)
        editor.cut(begin - len(_break_before(text, begin)), line_end(text, content_end(text, node.items[at])), "")


def _drop_list(editor: Editor, home: View, key: str, node: Sequence) -> None:
    text, parent = editor.text, _mapping(home)
    at = next(i for i, (name, _) in enumerate(parent.entries) if name.value == key)
    name = parent.entries[at][0]
    if node.flow and not (parent.flow and at):
        editor.cut(node.start + 1, node.end - 1, "")  # the list was there, empty
    elif parent.flow:
        editor.cut(parent.entries[at - 1][1].end, node.end, "")
    else:
        begin = line_start(text, name.start)
        editor.cut(begin - len(_break_before(text, begin)), line_end(text, content_end(text, node)), "")


def _list(view: View) -> Sequence:
    if not isinstance(view.node, Sequence):
        raise view.error("Expected a list written out here", hint="Write it here instead of an alias")
    return view.node


def _mapping(view: View) -> Mapping:
    if not isinstance(view.node, Mapping):
        raise view.error("Expected a mapping written out here", hint="Write it here instead of an alias")
    return view.node


# Verifying


def _made(service: Service, editor: Editor, change: Change) -> Service:
    """Read the edited text; refuse it when it is not exactly the change to the data that was meant."""
    assert service.source is not None
    place = service.source.place
    predictor, home = _homes(service)
    text = editor.result()
    again = None
    try:
        before, after = _data(service.text), _data(text)
        wanted = copy.deepcopy(before)
        spec = _served(wanted, place.index)
        change(spec, _at(spec, home.path.removeprefix(predictor.path)))
        good = wanted == after
        services = place.load(text, service.file)
        again = services[place.index] if good and len(services) == place.count else None
        if again is not None and without_draft(again).text != service.text:
            again = None
    except (InputError, YAMLError, IndexError, KeyError, TypeError):
        again = None
    if again is None:
        raise predictor.error(
            "The storage cannot be changed here without changing something else",
            hint="Write the predictor in block form without anchors, or stage the draft by hand and name its path",
        )
    return again


def _data(text: str) -> list[Any]:
    return [one for one in YAML(typ="safe", pure=True).load_all(text) if one is not None]


def _served(documents: list[Any], index: int) -> dict[str, Any]:
    kinds = ("InferenceService", "ModelDeployment")
    found = [one for one in documents if isinstance(one, dict) and one.get("kind") in kinds][index]
    predictor: dict[str, Any] = found["spec"]["predictor"]
    return predictor


def _at(spec: dict[str, Any], path: str) -> dict[str, Any]:
    """The mapping below the predictor that a view's path names: ``.model``, ``.containers[0]``."""
    here: Any = spec
    for key, index in re.findall(r"\.([^.\[]+)(?:\[(\d+)\])?", path):
        here = here[key]
        here = here[int(index)] if index else here
    found: dict[str, Any] = here
    return found


__all__ = ["DRAFT_MOUNT", "VOLUME", "Storage", "staged", "with_claim", "with_entry", "with_image", "without_draft"]
