"""What an InferenceService mounts, edited byte for byte: a draft added, and taken away again exactly.

Three edits, each with its inverse in :func:`without_draft`: an entry of ``storageUris`` (``storageUri`` is moved there
first, because KServe takes one or the other), a volume claim with its mount, and another image in place of the
target's. What cannot be told apart later, the place a key was moved from and a replaced value, is kept in a comment
beside the edit, so that leaving the draft gives back the bytes that were there. Where comments were lost, as in a copy
that went through a server, or the list was changed since, the draft's entry goes and the rest stays as it is.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

from mpctl.errors import InputError
from mpctl.manifest.kinds.kserve import MOUNT
from mpctl.manifest.service import Service
from mpctl.manifest.speculation.editor import Editor
from mpctl.manifest.storage.cuts import (
    DRAFT_MOUNT,
    VOLUME,
    add_list,
    append,
    drop_item,
    ends_line,
    move,
    storage_uri,
    swap,
    undo_move,
    undo_swap,
    uris,
)
from mpctl.manifest.text.list_items import line_end
from mpctl.manifest.text.view import View, text_of
from mpctl.manifest.text.yaml_tree import data, parse

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
        append(editor, present, entry)

        def change(spec: dict[str, Any], home: dict[str, Any]) -> None:
            spec["storageUris"].append(entry)
    else:
        held = storage_uri(predictor)
        first = None if held is None else {"uri": held[1].text(), "mountPath": MOUNT}
        move(editor, predictor, held, [one for one in (first, entry) if one])

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
            add_list(editor, view, key, item)
        elif any(text_of(one.get("name")) == VOLUME for one in present.items()):
            raise present.error(f"{VOLUME} is already there", hint="Roll the draft back first")
        else:
            append(editor, present, item)

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
    found = [view for view in uris(predictor) if text_of(view) is not None]
    if len(found) != 1:
        raise predictor.error(
            f"The target comes from {len(found)} places, so no one image can replace it",
            hint="Stage with storageUris or a volume claim",
        )
    node = found[0].scalar()
    editor = _editor(service)
    text = service.text
    rest = text[node.end : line_end(text, node.end)]
    if node.flow or node.style in ("|", ">") or "\n" in text[node.start : node.end] or not ends_line(rest):
        raise found[0].error(
            "The old value has no room beside the new one", hint="Write this key on a line of its own, unquoted"
        )
    swap(editor, node, uri)
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
    """This service without what the functions above added; itself when there is nothing of them.

    Raises:
        InputError: the image that holds target and draft is another one than was written.
    """
    if service.kind != "InferenceService":
        return service
    predictor, home = _homes(service)
    editor = _editor(service)
    undo_swap(editor, predictor)
    if not undo_move(editor, predictor):
        drop_item(editor, predictor, "storageUris", "mountPath", DRAFT_MOUNT)
    drop_item(editor, predictor, "volumes", "name", VOLUME)
    drop_item(editor, home, "volumeMounts", "name", VOLUME)
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


# Verifying


def _made(service: Service, editor: Editor, change: Change) -> Service:
    """Read the edited text; refuse it when it is not exactly the change to the data that was meant."""
    assert service.source is not None
    place = service.source.place
    predictor, home = _homes(service)
    text = editor.result()
    again = None
    try:
        before, after = _data(service.text, service.file), _data(text, service.file)
        wanted = copy.deepcopy(before)
        spec = _served(wanted, place.index)
        change(spec, _at(spec, home.path.removeprefix(predictor.path)))
        good = wanted == after
        services = place.load(text, service.file)
        again = services[place.index] if good and len(services) == place.count else None
        if again is not None and without_draft(again).text != service.text:
            again = None
    except (InputError, IndexError, KeyError, TypeError):
        again = None
    if again is None:
        raise predictor.error(
            "The storage cannot be changed here without changing something else",
            hint="Write the predictor in block form without anchors, or stage the draft by hand and name its path",
        )
    return again


def _data(text: str, file: str) -> list[Any]:
    return [data(document.root) for document in parse(text, file)]


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


__all__ = ["DRAFT_MOUNT", "VOLUME", "staged", "with_claim", "with_entry", "with_image", "without_draft"]
