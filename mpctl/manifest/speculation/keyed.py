"""An engine whose arguments are keys of a mapping, such as ``vllm: {max-model-len: 4096}`` in a config file.

The setting is one key with one value, the text of its JSON. A new key goes behind the last, and a setting of other keys
is replaced by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mpctl.errors import InputError
from mpctl.manifest.engine.locate import ArgumentToken, Engine, KeyedArguments
from mpctl.manifest.speculation.setting import JsonValue, Style, slots, spaced
from mpctl.manifest.text.embedded import Embedded, require_mapping
from mpctl.manifest.text.entries import add_lines, cut_entry
from mpctl.manifest.text.list_items import Cut
from mpctl.manifest.text.scalar import escape
from mpctl.manifest.text.view import View
from mpctl.manifest.text.yaml_tree import at


def keyed(document: Embedded, home: View, values: Any) -> Engine:
    """The engine whose flags are the keys of ``home``, with the text of their values. ``values``: its data.

    Raises:
        InputError: a value is a mapping where only its text would reach vLLM, or the mapping is not in block form.
    """
    require_mapping(home)
    if len(home.pairs()) != len(values):
        raise home.error("two keys are one to YAML", hint="remove one of them")
    tokens = tuple(
        ArgumentToken(word, home, index, view)
        for index, ((key, view), value) in enumerate(
            zip(home.pairs(), values.values(), strict=True)
        )
        for word in _words(key, value, view)
    )
    return Engine(home, tokens, None, None, {}, keyed=KeyedArguments(document))


def _words(key: str, value: Any, view: View) -> Iterator[str]:
    """Return an argument as it would be on vLLM's command line."""
    if isinstance(value, bool):
        yield f"--{key}" if value else f"--no-{key}"
    elif isinstance(value, dict | list):
        raise view.error(
            f"vLLM gets this as Python's text, not as JSON: {key}",
            hint="write it as JSON in quotes",
        )
    elif value is not None:
        yield from (f"--{key}", str(value))


def edited(
    text: str, engine: Engine, wanted: dict[str, JsonValue] | None, style: Style | None
) -> str:
    """The file with another setting (None: without one).

    Raises:
        InputError: another style than JSON is asked for, or the key shares its line with another.
    """
    assert engine.keyed is not None
    if style == "dotted":
        raise InputError(
            "a setting that is a key of a mapping is written as JSON", hint="leave the style out"
        )
    home, document = engine.home, engine.keyed.document
    keys = list(dict.fromkeys(engine.tokens[slot.flag.index].index for slot in slots(engine)))
    entries = home.pairs()
    cuts = []
    if wanted is not None:
        value = f"'{escape(spaced(wanted), chr(39))}'"
        present = next(
            (i for i in keys if entries[i][0].replace("_", "-") == "speculative-config"), None
        )
        if present is None:
            cuts.append(add_lines(document.text, home, [f"speculative-config: {value}"]))
        else:
            node = entries[present][1].node
            cuts.append(Cut(node.start, node.end, value))
            keys.remove(present)
    cuts += [cut_entry(document.text, home, entries[i][0]) for i in keys]
    for cut in sorted(
        (document.cut(text, home, cut) for cut in cuts), key=lambda cut: cut.start, reverse=True
    ):
        text = text[: cut.start] + cut.text + text[cut.end :]
    return text


def without_setting(engine: Engine) -> Any:
    """The data of the whole embedded document but for the setting, to compare it before and after."""
    assert engine.keyed is not None
    taken = {engine.tokens[slot.flag.index].index for slot in slots(engine)}
    keys = {key for i, (key, _) in enumerate(engine.home.pairs()) if i in taken}
    data = engine.keyed.document.data
    home = at(data, engine.home.path.removeprefix(f"{engine.keyed.document.holder.path}."))
    for key in keys:
        home.pop(key)
    return data
