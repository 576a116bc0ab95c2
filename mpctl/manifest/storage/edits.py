"""A draft in a service's storage: added and removed, every other byte kept.

A draft comes as an entry of ``storageUris`` (``storageUri`` moves there first, because KServe takes one or the
other), or as a volume claim with its mount. :func:`without_draft` removes both; where ``storageUri`` stood only the
recorded manifest knows, which ``mpctl rollback`` restores. Every edit is proved: the result is read again and compared
with what was meant, and taken back to the bytes from before.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from mpctl.errors import InputError
from mpctl.manifest.kinds.inference_service import MOUNT
from mpctl.manifest.service import Service
from mpctl.manifest.speculation.editor import Editor
from mpctl.manifest.speculation.setting import Json
from mpctl.manifest.storage.cuts import (
    DRAFT_MOUNT,
    VOLUME,
    add_list,
    append,
    drop_item,
    move,
    storage_uri,
)
from mpctl.manifest.text.contents import at, contents
from mpctl.manifest.text.view import View, text_of

Change = Callable[[dict[str, Any], dict[str, Any]], None]


def with_entry(service: Service, uri: str) -> Service:
    """This service with the draft as an entry of ``storageUris``, mounted at :data:`DRAFT_MOUNT`.

    Raises:
        InputError: it is mounted already, or the manifest's form cannot be edited.
    """
    predictor, _ = _homes(service)
    if any(storage.mount_path == DRAFT_MOUNT for storage in service.storage):
        raise predictor.error(f"{DRAFT_MOUNT} is already mounted", hint="roll the draft back first")
    editor = _editor(service)
    present = predictor.get("storageUris")
    entry = {"uri": uri, "mountPath": DRAFT_MOUNT}
    if present is not None:
        append(editor, present, entry)

        def change(spec: dict[str, Any], home: dict[str, Any]) -> None:
            spec["storageUris"].append(entry)
    else:
        present_uri = storage_uri(predictor)
        first = None if present_uri is None else {"uri": present_uri[1].text(), "mountPath": MOUNT}
        move(editor, predictor, present_uri, [uri_entry for uri_entry in (first, entry) if uri_entry])

        def change(spec: dict[str, Any], home: dict[str, Any]) -> None:
            for holder in (spec, spec.get("model") or {}):
                holder.pop("storageUri", None)
            spec["storageUris"] = [uri_entry for uri_entry in (first, entry) if uri_entry]

        if first is not None:  # only the recorded manifest knows where it stood
            return _made(service, editor, change)
    return _undoable(service, _made(service, editor, change))


def with_claim(service: Service, claim: str, sub_path: str) -> Service:
    """This service with a folder of a volume claim mounted, read only, at :data:`DRAFT_MOUNT`.

    Raises:
        InputError: a volume of that name exists, or the manifest's form cannot be edited.
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
        elif any(text_of(entry.get("name")) == VOLUME for entry in present.items()):
            raise present.error(f"{VOLUME} already exists", hint="roll the draft back first")
        else:
            append(editor, present, item)

    def change(spec: dict[str, Any], container: dict[str, Any]) -> None:
        spec.setdefault("volumes", []).append(volume)
        container.setdefault("volumeMounts", []).append(mount)

    return _undoable(service, _made(service, editor, change))


def without_draft(service: Service) -> Service:
    """This service without a draft's entry, volume and mount; itself when it has none of them.

    Raises:
        InputError: removing them would change something else.
    """
    if service.source is None or service.source.pod is None:
        return service
    predictor, home = _homes(service)
    editor = _editor(service)
    for view, key, field, value in (
        (predictor, "storageUris", "mountPath", DRAFT_MOUNT),
        (predictor, "volumes", "name", VOLUME),
        (home, "volumeMounts", "name", VOLUME),
    ):
        drop_item(editor, view, key, field, value)
    if not editor.cuts:
        return service

    def change(spec: dict[str, Any], container: dict[str, Any]) -> None:
        _drop(spec, "storageUris", "mountPath", DRAFT_MOUNT)
        _drop(spec, "volumes", "name", VOLUME)
        _drop(container, "volumeMounts", "name", VOLUME)

    return _made(service, editor, change)


def with_speculation(service: Service, config: Mapping[str, Json] | None) -> Service:
    """This service with another setting, beside the draft that is staged in it.

    Raises:
        InputError: it cannot be done, or setting and draft could not be removed again byte for byte.
    """
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
        raise _homes(before)[0].error(
            "a draft staged here could not be removed again byte for byte",
            hint="write the volumes and mounts in block form, and end every line alike",
        )
    return after


def _drop(home: dict[str, Any], key: str, field: str, value: str) -> None:
    listed = home.get(key)
    if not isinstance(listed, list):
        return  # a mapping holds nothing of ours
    others = [entry for entry in listed if not isinstance(entry, dict) or entry.get(field) != value]
    if len(others) == len(listed) - 1:
        home[key] = others


def _homes(service: Service) -> tuple[View, View]:
    """The mapping of the pod (a predictor, or the spec of a pod template) and the mapping of the engine in it."""
    if service.source is None or service.source.pod is None:
        raise InputError(
            f"{service.kind} {service.name} has no storage that can be changed", file=service.file, line=service.line
        )
    return service.source.pod, service.source.container or service.source.engine.home


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
        wanted, after = copy.deepcopy(contents(service.text, service.file)), contents(text, service.file)
        change(*(at(wanted[place.number], view.path) for view in (predictor, home)))
        for documents in (wanted, after):  # a list that is left empty goes with its key, or stays as []
            _forget_empty(*(at(documents[place.number], view.path) for view in (predictor, home)))
        if wanted == after:
            again = place.load(text, service.file)[place.index]
    except (InputError, IndexError, KeyError, TypeError):
        again = None
    if again is None:
        raise predictor.error(
            "the storage cannot be changed here without changing something else",
            hint="write the predictor in block form without anchors, or stage the draft by hand and name its path",
        )
    return again


def _forget_empty(spec: dict[str, Any], home: dict[str, Any]) -> None:
    for holder, key in ((spec, "storageUris"), (spec, "volumes"), (home, "volumeMounts")):
        if holder.get(key) == []:
            del holder[key]
