"""Records: frozen dataclasses as JSON objects and back. A damaged record is reported by its name and its field.

msgspec converts fields by their annotations: nested dataclasses, enumerations, tuples, optional values. A field of a
type with ``to_record`` and ``from_record`` has that type's form.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from types import UnionType
from typing import Any, ClassVar, Self, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from mpctl.errors import MpctlError
from mpctl.json_types import Json

_Value = TypeVar("_Value")
_FORM = "form"


@dataclasses.dataclass(frozen=True)
class _Form:
    """The form of one field in records, where it is not that of the field's type."""

    write: Callable[[Any], Any] | None = None
    read: Callable[[Any], Any] | None = None


def form(
    *, write: Callable[[Any], Any] | None = None, read: Callable[[Any], Any] | None = None
) -> Json:
    """Metadata of a field with a separate form in records."""
    return {_FORM: _Form(write, read)}


class Record:
    """A frozen dataclass that is stored as a JSON object of its fields."""

    GONE: ClassVar[frozenset[str]] = (
        frozenset()
    )  # fields of earlier versions, which are read and not kept

    def to_record(self) -> Json:
        """A JSON object."""
        return encode(self)

    @classmethod
    def from_record(cls, record: Any) -> Self:
        """The value that :meth:`to_record` wrote.

        Raises:
            ValueError: a field is missing, unknown or of another type; the message names it.
        """
        if cls.GONE and isinstance(record, Mapping):
            record = {name: value for name, value in record.items() if name not in cls.GONE}
        return decode(cls, record)


def encode(value: Any) -> Json:
    """Return the fields of a dataclass as a JSON object."""

    def written(name: str, form: _Form) -> Any:
        field = getattr(value, name)
        if form.write is None and hasattr(field, "to_record"):
            return field.to_record()
        plain = field if form.write is None else form.write(field)
        return msgspec.json.decode(msgspec.json.encode(plain))  # lists, as JSON has

    shape: Any = type(value)
    return {f.name: written(f.name, f.form) for f in _fields_of(shape)}


def decode(kind: type[_Value], record: object) -> _Value:
    """Return the value that :func:`encode` wrote.

    Raises:
        ValueError: a field is missing, unknown or of another type; the message names it.
    """
    if not isinstance(record, Mapping):
        raise ValueError("not an object")
    shape: Any = kind  # mypy takes no type[...] for hashable
    fields = _fields_of(shape)
    if unknown := sorted(map(str, record.keys() - {f.name for f in fields})):
        raise ValueError(f"unknown field {unknown[0]}")
    if missing := [f.name for f in fields if f.required and f.name not in record]:
        raise ValueError(f"no field {missing[0]}")
    return kind(**{f.name: _decode(f, record[f.name]) for f in fields if f.name in record})


@dataclasses.dataclass(frozen=True)
class _Field:
    """A field of a record. ``read``: what makes its value, None for msgspec; ``optional``: the value may be None."""

    name: str
    kind: Any
    required: bool
    form: _Form
    read: Callable[[Any], Any] | None
    optional: bool


@cache
def _fields_of(kind: Any) -> tuple[_Field, ...]:
    hints = get_type_hints(kind)
    every: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(kind)
    return tuple(_field(f, hints[f.name]) for f in every)


def _field(field: dataclasses.Field[Any], kind: Any) -> _Field:
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    missing, form = dataclasses.MISSING, field.metadata.get(_FORM, _Form())
    required = field.default is missing and field.default_factory is missing
    readers = (each.from_record for each in kinds if hasattr(each, "from_record"))
    read = form.read or next(readers, None)
    return _Field(field.name, kind, required, form, read, type(None) in kinds)


def _decode(field: _Field, value: Any) -> Any:
    try:
        if field.read is not None:
            return None if value is None and field.optional else field.read(value)
        return msgspec.convert(value, field.kind)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$")
        raise ValueError(
            f"field {field.name}{path.rstrip('`')}: {reason[:1].lower()}{reason[1:]}"
        ) from error
    except (MpctlError, LookupError, TypeError, ValueError, AttributeError) as error:
        inner = str(error)
        separator = "." if inner.startswith("field ") else ": "
        raise ValueError(f"field {field.name}{separator}{inner.removeprefix('field ')}") from error


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
