"""The speculative setting: read from the engine's words in every spelling vLLM accepts, and spelled again.

Three spellings (vLLM 0.32): ``--speculative-config`` (or ``-sc``) with JSON; dotted keys
(``--speculative-config.method ngram``, lists with ``key+ a,b``), which replace the JSON when both are given; and the
short flags ``--spec-method``, ``--spec-model``, ``--spec-tokens``, which are added to either.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from mpctl.errors import InputError
from mpctl.json_types import Json, JsonView
from mpctl.manifest.engine.engine_command import SPECULATIVE, Flag, parse
from mpctl.manifest.engine.locate import Engine
from mpctl.methods import from_config

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
Style: TypeAlias = Literal["json", "dotted"]
Kind: TypeAlias = Literal["json", "dotted", "short"]

_SHORT = {
    "--spec-method": "method",
    "--spec-model": "model",
    "--spec-tokens": "num_speculative_tokens",
}
_SUFFIX = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
# Characters that YAML or a terminal may not show as themselves, and "$", to which Kubernetes and shells give a meaning.
_UNSAFE = re.compile(
    "[^\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]|\\$"
)
KEY = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Slot:
    """A place on the line that holds (part of) the setting.

    ``path``: the keys after the dots; ``listed``: written as ``key+ a,b``.
    """

    kind: Kind
    flag: Flag
    path: tuple[str, ...] = ()
    listed: bool = False

    @property
    def indexes(self) -> tuple[int, ...]:
        value_index = self.flag.value_index
        return (self.flag.index,) if value_index is None else (self.flag.index, value_index)


def slots(engine: Engine) -> tuple[Slot, ...]:
    """Return the places of the setting, in order. Raises when part of it comes from outside this manifest."""
    setting_slots = tuple(filter(None, (_slot(flag) for flag in parse(engine.command.argv)[0])))
    for slot in setting_slots:
        for index in slot.indexes:
            token = engine.tokens[index]
            if token.expanded:
                raise token.item.error(
                    "the speculative setting is built by variables or the shell and cannot be read or edited safely",
                    hint="write its value on the command line instead of a variable or $(...)",
                )
        if slot.flag.value is None:
            raise engine.tokens[slot.flag.index].item.error(f"{slot.flag.written} has no value")
    if not setting_slots and (reason := engine.hidden()) is not None:
        raise reason
    return setting_slots


def is_speculative(flag: Flag) -> bool:
    """Return whether a flag is (part of) the speculative setting."""
    return _slot(flag) is not None


def _slot(flag: Flag) -> Slot | None:
    if flag.name == SPECULATIVE:
        return Slot("json", flag)
    if flag.name in _SHORT:
        return Slot("short", flag)
    head, dot, tail = flag.name.partition(".")
    if head != SPECULATIVE or not dot:
        return None
    return Slot("dotted", flag, tuple(tail.removesuffix("+").split(".")), tail.endswith("+"))


def read(engine: Engine) -> dict[str, JsonValue] | None:
    """The setting vLLM would use, typed as it types it; None when there is none."""
    setting_slots = slots(engine)
    for token in (engine.tokens[index] for slot in setting_slots for index in slot.indexes):
        if token.split:
            raise token.item.error(
                "KServe's start script evaluates its arguments in a shell, which splits this value at its braces: "
                "vLLM never gets the setting",
                hint="quote the value inside the argument, --speculative-config='{...}', or write dotted flags",
            )
    value = _main(engine, setting_slots)
    for slot in setting_slots:
        if slot.kind == "short" and slot.flag.value is not None:
            key = _SHORT[slot.flag.name]
            value = {} if value is None else value
            if key in value and not _repeats(setting_slots, slot):
                raise engine.tokens[slot.flag.index].item.error(
                    f'{slot.flag.written} and "{key}" in the speculative config exclude each other',
                    hint="keep one of them; vLLM refuses to start with both",
                )
            value[key] = (
                _tokens(engine, slot) if key == "num_speculative_tokens" else slot.flag.value
            )
    return None if value is None else normal(value)


def _repeats(setting_slots: Sequence[Slot], slot: Slot) -> bool:
    first = next(
        other
        for other in setting_slots
        if other.kind == "short" and other.flag.name == slot.flag.name
    )
    return first is not slot


def _tokens(engine: Engine, slot: Slot) -> int:
    try:
        return int(slot.flag.value or "")
    except ValueError as error:
        raise engine.tokens[slot.flag.index].item.error(
            f"{slot.flag.written} needs a whole number"
        ) from error


def _main(engine: Engine, setting_slots: Sequence[Slot]) -> dict[str, JsonValue] | None:
    """Return the setting of JSON or dotted keys: dotted keys come last in vLLM, and of several the last wins."""
    groups: dict[str, dict[str, JsonValue]] = {}
    for slot in setting_slots:
        if slot.kind == "dotted":
            prefix = slot.flag.written.partition(".")[0].replace("_", "-")
            _merge(groups.setdefault(prefix, {}), _nested(slot))
    if groups:
        return list(groups.values())[-1]
    last = next((slot for slot in reversed(setting_slots) if slot.kind == "json"), None)
    if last is None or last.flag.value in (None, "", "None"):
        return None
    item = engine.tokens[last.indexes[-1]].item
    try:
        value = json.loads(last.flag.value or "")
    except ValueError as error:
        raise item.error(
            f"{last.flag.written} is not valid JSON: {error}",
            hint="check that the quotes survive YAML and, in a script, the shell",
        ) from error
    if value is None:
        return None
    if not isinstance(value, dict):
        raise item.error(f"{last.flag.written} needs a JSON object")
    return value


def _nested(slot: Slot) -> dict[str, JsonValue]:
    text = slot.flag.value or ""
    value: JsonValue = [*text.split(",")] if slot.listed else dotted_value(text)
    for key in reversed(slot.path):
        value = {key: value}
    assert isinstance(value, dict)
    return value


def _merge(into: dict[str, JsonValue], update: Mapping[str, JsonValue]) -> None:
    for key, value in update.items():
        old = into.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            _merge(old, value)
        elif isinstance(old, list) and isinstance(value, list):
            old.extend(value)
        else:
            into[key] = value


def dotted_value(text: str) -> JsonValue:
    """The value of a dotted key as vLLM types it: JSON, else a number with a suffix (1k, 2M), else text."""
    try:
        value: JsonValue = json.loads(text)
        return value
    except ValueError:
        pass
    suffixed = _SUFFIX.fullmatch(text.strip())
    try:
        if suffixed is None:
            return int(text.strip())
        number, unit = suffixed.groups()
        return (
            int(number) * _BINARY[unit] if unit in _BINARY else int(float(number) * _DECIMAL[unit])
        )
    except ValueError:
        return text


def normal(config: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """vLLM reads ``num-speculative-tokens`` as ``num_speculative_tokens`` (outermost keys only)."""
    return {key.replace("-", "_"): value for key, value in config.items()}


def check(config: JsonView) -> dict[str, JsonValue]:
    """A copy of ``config`` that is certain to be JSON. Raises :class:`InputError` naming the setting."""
    if not config:
        raise InputError(
            "the speculative config is empty", hint="use --spec none to turn speculation off"
        )
    try:
        copy = json.loads(json.dumps(dict(config), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InputError(f"the speculative config cannot be written as JSON: {error}") from error
    if not _text_keys(config):
        raise InputError(
            "the speculative config has a key that is not text", hint="JSON keys are text"
        )
    return normal(copy)


def _text_keys(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _text_keys(inner) for key, inner in value.items())
    return not isinstance(value, list | tuple) or all(map(_text_keys, value))


def same(first: JsonValue, second: JsonValue) -> bool:
    """Return whether two values are equal as JSON: unlike ==, True is not 1 and 1.0 is not 1."""
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


def needs_both_ends(config: Mapping[str, JsonValue] | None) -> bool:
    """Return whether prefill and decode pods need a setting alike: its draft has KV cache of its own, which NIXL
    transfers too (vLLM 0.32.0, nixl/base_worker.py: the number of KV layers must match)."""
    if config is None:
        return False
    settings: Json = dict(config)
    method = from_config(settings).known
    return config.get("model") is not None if method is None else method.has_kv_cache


def compact(value: JsonValue) -> str:
    return _dump(value, (",", ":"))


def spaced(value: JsonValue) -> str:
    return _dump(value, (", ", ": "))


def _dump(value: JsonValue, separators: tuple[str, str]) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=separators)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def plain_json(value: JsonValue) -> str:
    """JSON that YAML takes inside an unquoted scalar: no ``: `` and no `` #``."""
    return compact(value).replace(": ", ":\\u0020").replace(" #", " \\u0023")


def like(old: str | None, value: JsonValue) -> str:
    """``value`` as JSON with the spacing of ``old``."""
    if old is None:
        return spaced(value)
    try:
        written = json.loads(old)
    except ValueError:
        return spaced(value)
    if old.strip() == compact(written):
        return compact(value)
    if old.strip() == spaced(written) or re.search(r'"\s*:\s', old):
        return spaced(value)
    return compact(value)


def dotted_text(value: JsonValue) -> str:
    """The value of a dotted key: text bare where vLLM reads it back as the same text, JSON otherwise."""
    if isinstance(value, str) and value == dotted_value(value) and _bare(value):
        return value
    return plain_json(value)


def _bare(text: str) -> bool:
    odd = _UNSAFE.search(text) or ": " in text or " #" in text
    return (
        bool(text)
        and text == text.strip()
        and not text.startswith("#")
        and not text.endswith(":")
        and not odd
    )
