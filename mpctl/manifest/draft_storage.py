"""A draft in a service's storage: added and removed, every other byte kept.

A draft comes as an entry of ``storageUris`` (``storageUri`` moves there first, because KServe takes one or the
other), or as a volume claim with its mount. :func:`without_draft` removes both; where ``storageUri`` stood only the
recorded manifest knows, which ``mpctl rollback`` restores. Every edit is proved: the result is read again and compared
with what was meant, and taken back to the bytes from before.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Mapping

from mpctl.errors import InputError
from mpctl.json_types import Json
from mpctl.manifest.kinds.inference_service import MOUNT
from mpctl.manifest.service import Service
from mpctl.manifest.speculation.editor import Editor
from mpctl.manifest.speculation.setting import JsonValue
from mpctl.manifest.text import yaml_tree as tree
from mpctl.manifest.text.entries import add_item, cut_item, cut_lines, item_text
from mpctl.manifest.text.list_items import (
    content_end,
    entry_end,
    eol_of,
    has_key,
    line_end,
    line_start,
)
from mpctl.manifest.text.view import View, text_of
from mpctl.manifest.text.yaml_tree import at, contents

DRAFT_MOUNT = "/mnt/mpctl/draft"
VOLUME = "mpctl-draft"
Change = Callable[[Json, Json], None]
Home = tuple[
    View, View, int
]  # the mapping of a pod, that of the engine in it, and the number of their document


def with_entry(service: Service, uri: str) -> Service:
    """This service with the draft as an entry of ``storageUris``, mounted at :data:`DRAFT_MOUNT`.

    Raises:
        InputError: it is mounted already, or the manifest's form cannot be edited.
    """
    predictor, _, _ = _homes(service)[0]
    if any(storage.mount_path == DRAFT_MOUNT for storage in service.storage):
        raise predictor.error(f"{DRAFT_MOUNT} is already mounted", hint="roll the draft back first")
    editor = _editor(service)
    present = predictor.get("storageUris")
    entry = {"uri": uri, "mountPath": DRAFT_MOUNT}
    if present is not None:
        _append(editor, present, entry)

        def change(spec: Json, home: Json) -> None:
            spec["storageUris"].append(entry)
    else:
        present_uri = _storage_uri(predictor)
        first = None if present_uri is None else {"uri": present_uri[1].text(), "mountPath": MOUNT}
        _move(
            editor, predictor, present_uri, [uri_entry for uri_entry in (first, entry) if uri_entry]
        )

        def change(spec: Json, home: Json) -> None:
            for holder in (spec, spec.get("model") or {}):
                holder.pop("storageUri", None)
            spec["storageUris"] = [uri_entry for uri_entry in (first, entry) if uri_entry]

        if first is not None:  # only the recorded manifest knows where it stood
            return _verified(service, editor, change)
    return _undoable(service, _verified(service, editor, change))


def with_claim(service: Service, claim: str, sub_path: str) -> Service:
    """This service with a folder of a volume claim mounted, read only, at :data:`DRAFT_MOUNT`.

    Raises:
        InputError: a volume of that name exists, or the manifest's form cannot be edited.
    """
    volume = {"name": VOLUME, "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
    mount = {"name": VOLUME, "mountPath": DRAFT_MOUNT, "subPath": sub_path, "readOnly": True}
    editor = _editor(service)
    # The inner one first: both may end at the same place of the text.
    lists = ((view, key, item) for pod, home, _ in _homes(service)
             for view, key, item in ((home, "volumeMounts", mount), (pod, "volumes", volume)))  # fmt: skip
    for view, key, item in lists:
        present = view.get(key)
        if present is None:
            _add_list(editor, view, key, item)
        elif any(text_of(entry.get("name")) == VOLUME for entry in present.items()):
            raise present.error(f"{VOLUME} already exists", hint="roll the draft back first")
        else:
            _append(editor, present, item)

    def change(spec: Json, container: Json) -> None:
        spec.setdefault("volumes", []).append(volume)
        container.setdefault("volumeMounts", []).append(mount)

    return _undoable(service, _verified(service, editor, change))


def without_draft(service: Service) -> Service:
    """This service without a draft's entry, volume and mount; itself when it has none of them.

    Raises:
        InputError: removing them would change something else.
    """
    if service.source is None or service.source.pod is None:
        return service
    editor = _editor(service)
    for pod, home, _ in _homes(service, every=False):
        _drop_item(editor, pod, "storageUris", "mountPath", DRAFT_MOUNT)
        _drop_item(editor, pod, "volumes", "name", VOLUME)
        _drop_item(editor, home, "volumeMounts", "name", VOLUME)
    if not editor.cuts:
        return service

    def change(spec: Json, container: Json) -> None:
        _drop(spec, "storageUris", "mountPath", DRAFT_MOUNT)
        _drop(spec, "volumes", "name", VOLUME)
        _drop(container, "volumeMounts", "name", VOLUME)

    return _verified(service, editor, change)


def with_speculation(service: Service, config: Mapping[str, JsonValue] | None) -> Service:
    """This service with another setting, beside the draft that is staged in it.

    Raises:
        InputError: it cannot be done, or setting and draft could not be removed again byte for byte.
    """
    if config is None:
        service.require_removable()
    changed = service.with_speculation(config)
    bare = without_draft(service)
    if config is not None and bare is not service and service.speculation() is None:
        _undoable(bare, changed)
    return changed


def _undoable(before: Service, after: Service) -> Service:
    """``after``, when it returns to ``before`` byte for byte."""
    try:
        restored = without_draft(after).with_speculation(before.speculation()).text
    except InputError:
        restored = None
    if restored != before.text:
        raise _homes(before)[0][0].error(
            "a draft staged here could not be removed again byte for byte",
            hint="write the volumes and mounts in block form, and end every line alike",
        )
    return after


def _drop(home: Json, key: str, field: str, value: str) -> None:
    listed = home.get(key)
    if not isinstance(listed, list):
        return  # a mapping holds nothing of ours
    others = [entry for entry in listed if not isinstance(entry, dict) or entry.get(field) != value]
    if len(others) == len(listed) - 1:
        home[key] = others


def _homes(service: Service, *, every: bool = True) -> list[Home]:
    """The mappings of the pods that load a draft (a predictor, or the spec of a pod template), the service's own first,
    then those of its prefill pods. ``every``: refuse where one of them has no storage that can be changed."""
    assert service.source is not None
    source = service.source
    ends = [(source.pod, source.engine.home, source.origin.number)]
    ends += [(prefill.pod, prefill.engine.home, prefill.number) for prefill in source.prefill]
    homes = [(pod, home, number) for pod, home, number in ends if pod is not None]
    if source.pod is None or (every and len(homes) < len(ends)):
        whose = "" if source.pod is None else "prefill of "
        raise InputError(
            f"{whose}{service.kind} {service.name} has no storage that can be changed",
            file=service.file,
            line=service.line,
            hint="give it a pod template with the engine's container",
        )
    return homes


def _editor(service: Service) -> Editor:
    assert service.source is not None
    return Editor(service.text, service.source.origin.document, service.source.engine)


# Verifying


def _verified(service: Service, editor: Editor, change: Change) -> Service:
    """Read the edited text; refuse it when it is not exactly the change to the data that was meant."""
    assert service.source is not None
    origin, homes = service.source.origin, _homes(service, every=False)
    text = editor.result()
    again = None
    try:
        wanted, after = (
            copy.deepcopy(contents(service.text, service.file)),
            contents(text, service.file),
        )
        for pod, home, number in homes:
            change(*(at(wanted[number], view.path) for view in (pod, home)))
            for documents in (
                wanted,
                after,
            ):  # a list that is left empty goes with its key, or stays as []
                spec, mounts = (at(documents[number], view.path) for view in (pod, home))
                for holder, key in (
                    (spec, "storageUris"),
                    (spec, "volumes"),
                    (mounts, "volumeMounts"),
                ):
                    if holder.get(key) == []:
                        del holder[key]
        if wanted == after:
            again = origin.load(text, service.file)[origin.index]
    except (InputError, IndexError, KeyError, TypeError):
        again = None
    if again is None:
        raise homes[0][0].error(
            "the storage cannot be changed here without changing something else",
            hint="write the predictor in block form without anchors, or stage the draft by hand and name its path",
        )
    return again


# Cuts in the text: added


def _storage_uri(predictor: View) -> tuple[View, View] | None:
    """The mapping that holds ``storageUri``, and its value."""
    for holder in filter(None, (predictor.get("model"), predictor)):
        uri = holder.get("storageUri")
        if uri is not None:
            return holder, uri
    return None


def _append(editor: Editor, view: View, item: Json) -> None:
    """Append an item behind the last, in the list's own form."""
    node = _list(view)
    if not node.items:
        editor.cut(node.start + 1, node.start + 1, json.dumps(item))
    elif node.flow:
        editor.cut(node.items[-1].end, node.items[-1].end, f", {json.dumps(item)}")
    else:
        editor.cuts.append(add_item(editor.text, view, _lines(item)))


def _lines(item: Json) -> list[str]:
    """The keys of a list's item, one per line; nested values in flow form."""
    return [f"{key}: {_value(value)}" for key, value in item.items()]


def _value(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(
        r"[a-z][A-Za-z0-9+]*://[\w./:@+-]+|/[\w./-]+|[a-z][\w./-]*", value
    ):
        return value
    return json.dumps(value)


def _add_list(editor: Editor, home: View, key: str, item: Json) -> None:
    """A list of one item under a new key: after the first short entry, so that nothing long is cut in two."""
    node = _mapping(home)
    if has_key(home, key):
        raise home.error(f'"{key}" is empty', hint=f"remove the line: {key} has no value")
    if node.flow:
        end = node.entries[-1][1].end
        editor.cut(end, end, f', "{key}": [{json.dumps(item)}]')
        return
    text, eol = editor.text, eol_of(editor.text)
    name, value = next(((n, v) for n, v in node.entries if _is_short(text, v)), node.entries[-1])
    blank = " " * (name.start - line_start(text, name.start))
    end = entry_end(text, name, value)
    editor.cut(end, end, f"{eol}{blank}{key}:{eol}{item_text(f'{blank}- ', _lines(item), eol)}")


def _is_short(text: str, value: tree.Node) -> bool:
    inline = isinstance(value, tree.Scalar) and value.style not in ("|", ">")
    return inline and "\n" not in text[value.start : value.end]


def _move(
    editor: Editor,
    predictor: View,
    present_uri: tuple[View, View] | None,
    entries: list[Json],
) -> None:
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
    anchor = next(
        (n for n, _ in node.entries if n.value != "storageUri" and _begins_line(text, n)), None
    )
    if anchor is None:
        raise predictor.error(
            "no key of the predictor is on a line of its own", hint="put each key on its own line"
        )
    begin = line_start(text, anchor.start)
    blank = " " * (anchor.start - begin)
    body = "".join(item_text(f"{blank}- ", _lines(entry), eol) + eol for entry in entries)
    editor.cut(begin, begin, f"{blank}storageUris:{eol}{body}")


def _begins_line(text: str, key: tree.Scalar) -> bool:
    return not text[line_start(text, key.start) : key.start].strip()


# Cuts in the text: removed


def _cut_key(editor: Editor, home: View, key: str) -> None:
    """Cut an entry out of a mapping: its lines in block form, itself and one comma in flow form."""
    node, text = _mapping(home), editor.text
    index = next(i for i, (name, _) in enumerate(node.entries) if name.value == key)
    name, value = node.entries[index]
    before = node.entries[index - 1] if index else None
    after = node.entries[index + 1] if index + 1 < len(node.entries) else None
    if before is None and after is None:
        raise home.error(f'"{key}" is the only key here', hint="name the model's format beside it")
    begins_line = _begins_line(text, name)
    if not (node.flow or begins_line) and (before is not None or after is None):
        raise home.error(
            f'"{key}" shares its line', hint="put every key on a line of its own, without ?"
        )
    end = entry_end(text, name, value)
    if node.flow and before is not None:
        editor.cut(before[1].end, value.end, "")
    elif node.flow or not begins_line:  # the first key, also of a list item: "- storageUri: x"
        assert after is not None
        editor.cut(name.start, after[0].start, "")
    elif end < len(text):
        _cut_with_break(editor, name, end)
    else:
        assert before is not None
        editor.cut(entry_end(text, *before), end, "")


def _cut_with_break(editor: Editor, key: tree.Scalar, end: int) -> None:
    """Cut the lines from a key to ``end`` with the break behind them."""
    line_break = 2 if editor.text.startswith("\r\n", end) else 1
    editor.cut(line_start(editor.text, key.start), end + line_break, "")


def _drop_item(editor: Editor, home: View, key: str, field: str, value: str) -> None:
    """Cut the item of a list whose ``field`` is ``value``; a list that held nothing else goes with its key."""
    view = home.get(key)
    if view is None or isinstance(view.node, tree.Mapping):
        return  # a mapping holds nothing of ours
    node = _list(view)
    ours = [i for i, item in enumerate(view.items()) if text_of(item.get(field)) == value]
    if len(ours) != 1:
        return
    index = ours[0]
    if len(node.items) == 1:
        _drop_list(editor, home, key, node)
    elif node.flow:
        start = node.items[index - 1].end if index else node.items[0].start
        editor.cut(start, node.items[index].end if index else node.items[1].start, "")
    else:
        editor.cuts.append(cut_item(editor.text, view, index))


def _drop_list(editor: Editor, home: View, key: str, node: tree.Sequence) -> None:
    text, parent = editor.text, _mapping(home)
    index = next(i for i, (name, _) in enumerate(parent.entries) if name.value == key)
    name = parent.entries[index][0]
    end = line_end(text, content_end(text, node))
    if node.flow and not (parent.flow and index):
        editor.cut(node.start + 1, node.end - 1, "")  # the list was there, empty
    elif parent.flow:
        editor.cut(parent.entries[index - 1][1].end, node.end, "")
    elif key == "storageUris" and end < len(
        text
    ):  # :func:`_move` writes it with the break behind it
        _cut_with_break(editor, name, end)
    else:
        editor.cuts.append(cut_lines(text, name, content_end(text, node)))


def _list(view: View) -> tree.Sequence:
    if not isinstance(view.node, tree.Sequence):
        raise view.error("expected a list, not an alias", hint="write it here instead of an alias")
    return view.node


def _mapping(view: View) -> tree.Mapping:
    if not isinstance(view.node, tree.Mapping):
        raise view.error(
            "expected a mapping, not an alias", hint="write it here instead of an alias"
        )
    return view.node
