"""Build a :class:`Spec` from the command line: defaults < --spec-config < --draft < --set.

Everything vLLM's own class refuses without looking at a model is refused here, in milliseconds and with the field's
name; so is what it accepts although nobody means it (see tests/data/vllm). An unknown key is kept: a newer engine
may know it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from mpctl.errors import InputError, nearest
from mpctl.methods.keys import INTERNAL, KEYS, LARGE_K, check_combination, check_value
from mpctl.methods.method import Method
from mpctl.methods.preflight.preflight_rule import Finding, ordered
from mpctl.methods.spec import JsonValue, Spec, cli_name
from mpctl.methods.table import METHODS, UNMANAGED
from mpctl.methods.versions import REMOVED

_PREFIXES = ("speculative_config.", "speculative.", "sc.")


def build(
    method: str,
    *,
    draft: str | None = None,
    sets: Sequence[str] = (),
    config: Mapping[str, JsonValue] | None = None,
) -> tuple[Spec, tuple[Finding, ...]]:
    """The spec for ``--spec METHOD``, and what there is to say about it that is no error.

    A null value takes a default away. Raises :class:`InputError` with ``field`` set to the key at fault.
    """
    row = _method(method)
    if row.name == "none":
        return _nothing(draft, sets, config), ()
    settings: dict[str, JsonValue] = dict(row.defaults)
    settings.update(_from_config(row, config or {}))
    if draft is not None:
        settings["model"] = _draft(row, draft)
    for text in sets:
        _set(settings, text)
    settings = {key: value for key, value in settings.items() if value is not None}
    for name, value in settings.items():
        if name in KEYS:
            check_value(KEYS[name], value)
    check_combination(row, settings)
    name = cli_name(str(row.engine_method), parallel=settings.get("parallel_drafting") is True)
    return Spec(name, settings), ordered(_remarks(row, METHODS[name], settings))


def parse_config(text: str, *, file: str | None = None) -> dict[str, JsonValue]:
    """The object behind ``--spec-config``; errors carry file, line and column."""
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        where = (
            f"line {error.lineno} column {error.colno}" if file is None else f"column {error.colno}"
        )
        raise InputError(
            f"is not JSON: {error.msg} ({where})",
            file=file,
            line=error.lineno,
            field="spec-config",
            hint="JSON needs double quotes; keep the shell from eating them with '...' around the whole"
            if text.lstrip().startswith("{'") or ("{" in text and '"' not in text)
            else None,
        ) from error
    except ValueError as error:
        raise InputError(str(error), file=file, field="spec-config") from error
    except RecursionError as error:
        raise InputError("is nested too deep", file=file, field="spec-config") from error
    if not isinstance(value, dict):
        raise InputError(
            f"must be an object, got {type(value).__name__}",
            file=file,
            field="spec-config",
            hint='write {"num_speculative_tokens": 3}',
        )
    return value


def _unique(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    unique: dict[str, JsonValue] = {}
    for key, value in pairs:
        if key in unique:
            raise ValueError(f"has the key '{key}' twice")
        unique[key] = value
    return unique


def _no_constant(name: str) -> JsonValue:
    raise ValueError(f"has {name}, which is not JSON")


def _method(name: str) -> Method:
    """The method, or an error that names the nearest."""
    if name in METHODS:
        return METHODS[name]
    alias = cli_name(name.strip().lower().replace(" ", ""), parallel=False)
    near = (
        alias
        if alias in METHODS
        else nearest(alias.replace("-", "_"), METHODS) or nearest(alias, METHODS)
    )
    if name in UNMANAGED:
        raise InputError(
            f"'{name}' is not managed: it runs user code or writes hidden states", field="spec"
        )
    raise InputError(
        f"unknown method '{name}'" + (f", did you mean '{near}'?" if near else ""),
        field="spec",
        hint=f"methods: {', '.join(METHODS)}",
    )


def _nothing(
    draft: str | None, sets: Sequence[str], config: Mapping[str, JsonValue] | None
) -> Spec:
    for value, flag in ((draft, "draft"), (sets, "set"), (config, "spec-config")):
        if value:
            raise InputError("method 'none' takes no settings", field=flag, hint="leave it out")
    return Spec("none")


def _draft(method: Method, draft: str) -> str:
    if not method.loads_weights:
        others = ", ".join(other.name for other in METHODS.values() if other.loads_weights)
        raise InputError(
            f"method '{method.name}' loads no draft, got '{draft}'",
            field="draft",
            hint=f"leave --draft out, or choose one of: {others}",
        )
    if not draft.strip():
        raise InputError("must be a path or repository, got an empty text", field="draft")
    return draft


def _from_config(method: Method, config: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """--spec-config with its keys normalised; a method in it must agree with the one asked for."""
    settings: dict[str, JsonValue] = {}
    for raw, value in config.items():
        name = _name(raw)
        if name in settings:
            raise InputError("is given twice, with dashes and with underscores", field=name)
        settings[name] = value
    label = settings.pop("method", None)
    if label is not None and label not in (method.name, method.engine_method):
        named = (
            cli_name(label, parallel=settings.get("parallel_drafting") is True)
            if isinstance(label, str)
            else None
        )
        if named != method.name:
            raise InputError(
                f"is {label!r} in --spec-config, but --spec says '{method.name}'", field="method"
            )
    if (
        settings.get("model") is not None
        and not method.loads_weights
        and settings["model"] != method.engine_method
    ):
        _draft(method, str(settings["model"]))
    return settings


def _name(raw: str) -> str:
    """A key without prefix and dashes; keys that are gone or misspelt in a known way are refused."""
    name = raw.strip().lstrip("-").replace("-", "_")
    name = next(
        (name.removeprefix(prefix) for prefix in _PREFIXES if name.startswith(prefix)), name
    )
    if not name:
        raise InputError(f"a key is empty in '{raw}'", field="set")
    gone = REMOVED.get(name)
    if gone and gone.kind == "key":
        raise InputError(
            f"is gone since vLLM {gone.since}: {gone.why}",
            field=name,
            hint=f"use {gone.replacement} ({gone.source})",
        )
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip(
        "_"
    )
    if snake != name and snake in KEYS:
        raise InputError(
            "is not a key: vLLM's keys have underscores", field=name, hint=f"write '{snake}'"
        )
    if name in INTERNAL:
        raise InputError(
            "is filled in by the engine and cannot be set", field=name, hint="remove it"
        )
    return name


def _set(settings: dict[str, JsonValue], text: str) -> None:
    """Apply one ``--set key=value``; dots descend into objects."""
    raw, equals, value = text.partition("=")
    if not equals:
        raise InputError(
            f"must be KEY=VALUE, got '{text}'",
            field="set",
            hint="for example num_speculative_tokens=3",
        )
    first, *path_below = _name(raw).split(".")
    if first == "method":
        raise InputError("is chosen with --spec, not with --set", field="method")
    key = KEYS.get(_name(first))
    if not value:
        raise InputError("has no value", field=first, hint="null takes a default away")
    if not path_below:
        settings[first] = (
            value if key and key.kind in ("text", "choice") and value != "null" else _typed(value)
        )
        return
    inner = settings.get(first)
    settings[first] = _descend(
        first, inner if isinstance(inner, Mapping) else {}, path_below, _typed(value)
    )


def _descend(
    field: str, into: Mapping[str, JsonValue], path: Sequence[str], value: JsonValue
) -> dict[str, JsonValue]:
    step, *path_below = path
    if not step:
        raise InputError("has an empty part between two dots", field=field)
    inner = into.get(step)
    child = (
        _descend(field, inner if isinstance(inner, Mapping) else {}, path_below, value)
        if path_below
        else value
    )
    return {**into, step: child}


def _typed(text: str) -> JsonValue:
    """true, false, null, numbers, lists and objects as JSON, as vLLM reads its dotted flags; else the text."""
    try:
        value: JsonValue = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text
    return value


def _remarks(requested: Method, method: Method, settings: Mapping[str, JsonValue]) -> list[Finding]:
    """Findings about settings that are unusual but may be intended."""
    remarks = [_unknown(name) for name in settings if name not in KEYS]
    k = settings.get("num_speculative_tokens")
    if isinstance(k, int) and k > LARGE_K:
        remarks.append(
            Finding(
                "large-k",
                "warn",
                f"num_speculative_tokens is {k}; every step verifies that many tokens per request",
                f"published drafts use K up to 15, vLLM's suffix example {LARGE_K}; vLLM 0.32.0 accepts any K",
                "lower K; a bench with --set compares values",
            )
        )
    keys = [KEYS[name] for name in settings if name in KEYS]
    remarks += [
        Finding(
            "key-without-effect",
            "warn",
            f"'{key.name}' has no effect with {method.name}; it acts on {', '.join(sorted(key.acts_on))}",
            "vLLM 0.32.0, vllm/config/speculative.py",
            "remove it, or choose the method it belongs to",
        )
        for key in keys
        if method.name not in key.acts_on
    ]
    if requested is not method:
        remarks.append(
            Finding(
                "parallel-eagle3",
                "note",
                f"{requested.name} with parallel_drafting is shown as {method.name}",
                "vLLM blog 2026-03-13, PR #32887",
                "name a head trained for parallel drafting",
            )
        )
    return remarks


def _unknown(name: str) -> Finding:
    near = nearest(name, KEYS)
    return Finding(
        "unknown-key",
        "refuse",
        f"'{name}' is no key we know" + (f", did you mean '{near}'?" if near else ""),
        "vLLM 0.32.0 exits on any key it does not know (Unexpected keyword argument)",
        "correct it, or add --accept unknown-key if your engine is newer and documents it",
    )
