"""Records: frozen dataclasses as JSON objects and back. A damaged record is reported by its name and its field.

Fields of a type with a form of its own (a spec, a policy) are given a writer or a reader; msgspec converts the others
by their annotations: nested dataclasses, enumerations, tuples, optional values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar, get_args, get_type_hints

from mpctl.errors import MpctlError

_Value = TypeVar("_Value")
Reader = Callable[[Any], Any]
Writer = Callable[[Any], Any]


def encode(value: Any, writers: Mapping[type, Writer] | None = None) -> dict[str, Any]:
    """Return the fields of a dataclass as a JSON object."""
    return {f.name: _encode(getattr(value, f.name), writers or {}) for f in dataclasses.fields(value)}


def _encode(value: Any, writers: Mapping[type, Writer]) -> Any:
    import msgspec

    write = writers.get(type(value))
    return msgspec.json.decode(msgspec.json.encode(value)) if write is None else write(value)  # lists, as JSON has


def decode(kind: type[_Value], record: object, readers: Mapping[type, Reader] | None = None) -> _Value:
    """Return the value that :func:`encode` wrote.

    Raises:
        ValueError: a field is missing, unknown or of another type; the message names it.
    """
    if not isinstance(record, Mapping):
        raise ValueError("not an object")
    shape: Any = kind  # mypy takes no type[...] for hashable
    required, hints = _fields_of(shape)
    if unknown := sorted(map(str, record.keys() - hints.keys())):
        raise ValueError(f"unknown field {unknown[0]}")
    if missing := [name for name in required if name not in record]:
        raise ValueError(f"no field {missing[0]}")
    return kind(**{name: _decode(name, hints[name], value, readers or {}) for name, value in record.items()})


@cache
def _fields_of(kind: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Names of the fields without a default, and the types of all of them."""
    every = dataclasses.fields(kind)
    missing = dataclasses.MISSING
    required = tuple(f.name for f in every if f.default is missing and f.default_factory is missing)
    hints = get_type_hints(kind)
    return required, {f.name: hints[f.name] for f in every}


def _decode(name: str, hint: Any, value: Any, readers: Mapping[type, Reader]) -> Any:
    import msgspec

    read = next((readers[kind] for kind in (hint, *get_args(hint)) if kind in readers), None)
    try:
        if read is not None:
            return None if value is None and type(None) in get_args(hint) else read(value)
        return msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$")
        raise ValueError(f"field {name}{path.rstrip('`')}: {reason[:1].lower()}{reason[1:]}") from error
    except (MpctlError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"field {name}: {error}") from error


def restored(what: object, read: Callable[[Any], _Value], record: Any, *, hint: str) -> _Value:
    """Return what ``read`` makes of a stored record.

    Raises:
        MpctlError: the record is damaged; the message names ``what``.
    """
    try:
        return read(record)
    except KeyError as error:
        raise MpctlError(f"{what} is damaged: no field {error}", hint=hint) from error
    except (MpctlError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise MpctlError(f"{what} is damaged: {error}", hint=hint) from error
