"""A new speculative setting on an engine's command line: which words change, in the spelling already used there.

The setting keeps its place. JSON stays JSON with its spacing, dotted keys stay dotted, ``--flag=value`` stays one
word; where the line has no setting yet, it is added at the end the way the other flags are written.
"""

from __future__ import annotations

from mpctl.errors import InputError
from mpctl.manifest.engine.engine_command import SPECULATIVE, parse
from mpctl.manifest.engine.locate import ArgumentToken
from mpctl.manifest.speculation.editor import Editor
from mpctl.manifest.speculation.setting import (
    KEY,
    JsonValue,
    Kind,
    Slot,
    Style,
    dotted_text,
    dotted_value,
    like,
    normal,
    plain_json,
    same,
    slots,
    spaced,
)

Pair = tuple[str, str]


def apply(editor: Editor, config: dict[str, JsonValue] | None, style: Style | None) -> None:
    """Record the cuts in ``editor`` that make its engine's line say ``config`` (None: nothing)."""
    engine = editor.engine
    setting_slots = slots(engine)
    if config is None:
        editor.remove([engine.tokens[i] for slot in setting_slots for i in slot.indexes])
        return
    main = _main(setting_slots)
    # A shell that reads the arguments once more takes dotted flags as they are, and JSON only in quotes.
    preferred: Style | None = "dotted" if engine.evaluated is not None and main is None else None
    chosen = _choose(config, style, main, preferred)
    if main is None:
        target = editor.appended_to
        bare = target is not None and target.scalar().style == ""
        _append(
            editor,
            _pairs(config, chosen, SPECULATIVE, plain_json(config) if bare else spaced(config)),
        )
        return
    mine = [slot for slot in setting_slots if slot.kind == main]
    spared = mine if main == chosen == "dotted" else mine[-1:] if main == "json" else mine[:1]
    _drop(editor, [slot for slot in setting_slots if slot not in spared])
    if main == chosen == "json":
        _value(editor, spared[0], config)
    elif main == chosen == "dotted":
        _dotted(editor, spared, config)
    else:
        flag = SPECULATIVE if main == "short" else spared[0].flag.written.partition(".")[0]
        bare = _unquoted(engine.tokens[spared[0].indexes[-1]])
        _fill(
            editor,
            spared,
            _pairs(config, chosen, flag, plain_json(config) if bare else spaced(config)),
        )


def _main(setting_slots: tuple[Slot, ...]) -> Kind | None:
    kinds = {slot.kind for slot in setting_slots}
    order: tuple[Kind, ...] = ("dotted", "json", "short")
    return next((kind for kind in order if kind in kinds), None)


def _choose(
    config: dict[str, JsonValue], style: Style | None, main: Kind | None, preferred: Style | None
) -> Style:
    odd = next((key for key in config if not KEY.fullmatch(key)), None)
    if style == "dotted" and odd is not None:
        raise InputError(
            f'key "{odd}" cannot be written as a dotted flag', hint="use JSON for this setting"
        )
    if style is not None:
        return style
    return "dotted" if "dotted" in (main, preferred) and odd is None else "json"


def _pairs(config: dict[str, JsonValue], style: Style, flag: str, text: str) -> list[Pair]:
    if style == "json":
        return [(flag, text)]
    return [(f"{flag}.{key}", dotted_text(value)) for key, value in config.items()]


def _append(editor: Editor, pairs: list[Pair]) -> None:
    flags = [flag for flag in parse(editor.engine.command.argv)[0] if flag.value is not None]
    joined = flags[-1].joined if flags else editor.engine.script is None
    editor.append(_words(pairs, joined=joined))


def _words(pairs: list[Pair], *, joined: bool) -> list[tuple[str, ...]]:
    """A group per flag: what belongs on one line of a script."""
    return [(f"{flag}={value}",) if joined else (flag, value) for flag, value in pairs]


def _drop(editor: Editor, unwanted: list[Slot]) -> None:
    editor.remove([editor.engine.tokens[i] for slot in unwanted for i in slot.indexes])


def _value(editor: Editor, slot: Slot, config: dict[str, JsonValue]) -> None:
    """Replace the JSON of a slot."""
    token = editor.engine.tokens[slot.indexes[-1]]
    text = like(slot.flag.value, config)
    if _unquoted(token):
        text = plain_json(config)
    _put(editor, slot, slot.flag.written, text)


def _unquoted(token: ArgumentToken) -> bool:
    return token.item.scalar().style == "" and (
        token.word is not None or not token.text.startswith("{")
    )


def _put(editor: Editor, slot: Slot, written: str, value: str) -> None:
    """Make one slot say ``written`` and ``value``, touching only what differs."""
    flag = slot.flag
    token = editor.engine.tokens[flag.index]
    if flag.value_index is not None:
        editor.rewrite(token, written)
        editor.rewrite(editor.engine.tokens[flag.value_index], value, like=token)
    elif written == flag.written:
        editor.rewrite(token, f"{written}={value}", keep=len(written) + 1)
    else:
        editor.rewrite(token, f"{written}={value}")


def _dotted(editor: Editor, spared: list[Slot], config: dict[str, JsonValue]) -> None:
    """Dotted keys by position: the setting's order, unless only values changed."""
    entries = dict(config)
    keys = [normal({slot.path[0]: None}).popitem()[0] for slot in spared if len(slot.path) == 1]
    if sorted(keys) == sorted(entries):
        entries = {key: entries[key] for key in keys}
    prefix = spared[0].flag.written.partition(".")[0]
    _fill(editor, spared, _pairs(entries, "dotted", prefix, ""))


def _fill(editor: Editor, spared: list[Slot], pairs: list[Pair]) -> None:
    """Give the pairs to the slots in order; surplus slots are removed, surplus pairs follow the last slot."""
    for slot, (flag, value) in zip(spared, pairs, strict=False):
        key = flag.partition(".")[2]
        same_key = slot.path == (key,) or normal({".".join(slot.path): None}) == {key: None}
        if slot.kind == "dotted" and same_key and not slot.listed:
            value_now = slot.flag.value or ""
            equal = same(dotted_value(value_now), dotted_value(value))
            _put(editor, slot, slot.flag.written, value_now if equal else value)
        else:
            _put(editor, slot, flag, value)
    _drop(editor, spared[len(pairs) :])
    remaining = pairs[len(spared) :]
    last = spared[min(len(pairs), len(spared)) - 1]
    editor.insert_after(
        editor.engine.tokens[last.indexes[-1]], _words(remaining, joined=last.flag.joined)
    )
