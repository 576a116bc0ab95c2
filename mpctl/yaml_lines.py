"""The reader of YAML files that people write: every value with its line, read by expected type, range and name.

A reader asks a :class:`Node` for the fields it knows and ends with :meth:`Node.done`, which refuses unknown ones. Every
error names file, line and field. Dates stay text. Manifests that are edited byte for byte have a reader of their own
(mpctl.manifest.text.yaml_tree).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.constructor import DuplicateKeyError, RoundTripConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.reader import ReaderError

from mpctl.errors import InputError, nearest

T = TypeVar("T")
_MISSING: Any = object()
_NO_FIELD = "required field is missing"


@dataclass(frozen=True)
class FilePosition:
    """File and line of a value."""

    file: str
    line: int

    def error(self, message: str, field_: str, hint: str | None = None) -> InputError:
        return InputError(message, file=self.file, line=self.line, field=field_, hint=hint)


class _Constructor(RoundTripConstructor):
    """Dates are text: no field is one, and a day that no calendar has would otherwise fail without its line. Numbers
    are plain ones, which records can encode."""


_Constructor.add_constructor("tag:yaml.org,2002:timestamp", lambda _, node: node.value)
_Constructor.add_constructor(
    "tag:yaml.org,2002:int", lambda reader, node: int(reader.construct_yaml_int(node))
)
_Constructor.add_constructor(
    "tag:yaml.org,2002:float", lambda reader, node: float(reader.construct_yaml_float(node))
)


def document(text: str, file: str) -> Node:
    """Return the one mapping of a YAML file; an empty file is an empty mapping.

    Raises:
        InputError: the text is not YAML, not a mapping, or holds more than one document.
    """
    nodes = list(documents(text, file))
    if len(nodes) > 1:
        raise InputError("expected one document", file=file, line=nodes[1].line)
    return nodes[0] if nodes else Node(CommentedMap(), file, 1, "")


def documents(text: str, file: str) -> Iterator[Node]:
    """Yield the mappings of a YAML stream; empty documents are skipped.

    Raises:
        InputError: the text is not YAML, or a document is not a mapping.
    """
    for body in _load(text, file):
        if body is None:
            continue
        if not isinstance(body, CommentedMap):
            kind = "a list" if isinstance(body, CommentedSeq) else "a single value"
            raise InputError(f"expected a mapping, got {kind}", file=file, line=1)
        yield Node(body, file, body.lc.line + 1, "")


def _load(text: str, file: str) -> list[Any]:
    reader = YAML(typ="rt")
    reader.Constructor = _Constructor
    try:
        return list(reader.load_all(text))
    except DuplicateKeyError as error:
        problem = str(error.problem).removeprefix("found ").partition(" with value")[0]
        raise InputError(problem, file=file, line=_line_of(error)) from error
    except MarkedYAMLError as error:
        raise InputError(f"not YAML: {error.problem}", file=file, line=_line_of(error)) from error
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise InputError("not YAML: unprintable character", file=file, line=line) from error
    except (
        YAMLError,
        ValueError,
        TypeError,
        AttributeError,
        LookupError,
        NotImplementedError,
        RecursionError,
    ) as error:
        raise InputError(
            f"not YAML: {error}", file=file
        ) from error  # ruamel.yaml's own errors on odd tags and keys


def _line_of(error: MarkedYAMLError) -> int | None:
    return error.problem_mark.line + 1 if error.problem_mark else None


class Node:
    """A mapping at a path of a file."""

    def __init__(self, body: CommentedMap, file: str, line: int, path: str) -> None:
        self.body = body
        self.file = file
        self.line = line
        self.path = path
        self.asked: set[str] = set()

    @property
    def place(self) -> FilePosition:
        return FilePosition(self.file, self.line)

    def field(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def line_of(self, name: str) -> int:
        data = self.body.lc.data or {}
        return data[name][0] + 1 if name in data else self.line

    def error(self, name: str, message: str, hint: str | None = None) -> InputError:
        return InputError(
            message, file=self.file, line=self.line_of(name), field=self.field(name), hint=hint
        )

    def item_error(self, name: str, index: int, message: str) -> InputError:
        """A complaint about one item of the list under *name*."""
        line = self.body[name].lc.item(index)[0] + 1
        return InputError(message, file=self.file, line=line, field=f"{self.field(name)}[{index}]")

    def has(self, name: str) -> bool:
        return name in self.body and self.body[name] is not None

    def value(self, name: str, kind: type[T], default: T = _MISSING) -> T:
        """The value of *name*, of exactly this scalar type (8 is a float, too); without a default it must be there."""
        self.asked.add(name)
        if not self.has(name):
            if default is _MISSING:
                raise self.error(name, _NO_FIELD)
            return default
        scalar = self.body[name]
        accepted = (float, int) if kind is float else kind
        if (kind is not bool and isinstance(scalar, bool)) or not isinstance(scalar, accepted):
            hint = "put it into quotes" if kind is str and isinstance(scalar, int | float) else None
            raise self.error(name, f"expected {WORDS[kind]}, got {scalar!r}", hint)
        return kind(scalar)  # type: ignore[call-arg]

    def text(
        self, name: str, default: str = _MISSING, *, pattern: str = r".+", what: str = "text"
    ) -> str:
        text = self.value(name, str, default)
        if text is not default and not re.fullmatch(pattern, text):
            raise self.error(name, f"{text!r} is not {what}")
        return text

    def maybe(self, name: str, *, pattern: str = r".+", what: str = "text") -> str | None:
        self.asked.add(name)
        return self.text(name, pattern=pattern, what=what) if self.has(name) else None

    def number(
        self, name: str, default: int = _MISSING, *, low: int = 0, high: int = 1_000_000
    ) -> int:
        number = self.value(name, int, default)
        if not low <= number <= high:
            raise self.error(name, f"{number} is not between {low} and {high}")
        return number

    def choice(self, name: str, allowed: tuple[str, ...], default: str = _MISSING) -> str:
        choice = self.value(name, str, default)
        if choice not in allowed:
            raise self.error(
                name, f"{choice!r} is not one of {', '.join(allowed)}{near(choice, allowed)}"
            )
        return choice

    def read(self, kind: type[T], hints: Mapping[str, str] | None = None) -> T:
        """The whole mapping as a msgspec.Struct, which declares its fields. ``hints``: on fields that may be missing.

        Raises:
            InputError: a field is unknown, missing, of another type or outside its limits.
        """
        try:
            return msgspec.convert(_without_nulls(self.body), kind)
        except msgspec.ValidationError as error:
            reason, _, where = str(error).partition(" - at `$")
            path, hint = where.rstrip("`").lstrip("."), None
            if named := re.search(r"(missing required|unknown) field `(.+)`", reason):
                path = f"{path}.{named[2]}".lstrip(".")
                field_names: tuple[str, ...] = getattr(kind, "__struct_encode_fields__", ())
                unknown = f"unknown field{near(path, field_names)}"
                reason, hint = (
                    (unknown, None)
                    if named[1] == "unknown"
                    else (_NO_FIELD, (hints or {}).get(path))
                )
            line, reason = self.line_of(re.split(r"[.\[]", path)[0]), _in_words(reason)
            raise InputError(
                reason, file=self.file, line=line, field=self.field(path), hint=hint
            ) from error

    def node(self, name: str) -> Node:
        """The mapping under *name*; an empty one stands in when it is absent."""
        self.asked.add(name)
        mapping = self.body[name] if self.has(name) else CommentedMap()
        if not isinstance(mapping, CommentedMap):
            raise self.error(name, f"expected a mapping, got {mapping!r}")
        return Node(mapping, self.file, self.line_of(name), self.field(name))

    def nodes(self, name: str) -> list[Node]:
        """The list of mappings under *name*."""
        items = self._list(name)
        result = []
        for index, item in enumerate(items):
            if not isinstance(item, CommentedMap):
                raise self.item_error(name, index, f"expected a mapping, got {item!r}")
            result.append(
                Node(item, self.file, items.lc.item(index)[0] + 1, f"{self.field(name)}[{index}]")
            )
        return result

    def texts(self, name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """The list of strings under *name*."""
        items = self._list(name)
        if not self.has(name):
            return default
        for index, item in enumerate(items):
            if not (item and isinstance(item, str)):
                raise self.item_error(name, index, f"expected text, got {item!r}")
        return tuple(str(item) for item in items)

    def mapping(self, name: str, convert: Callable[[Node, str], T]) -> dict[str, T]:
        """A mapping with free keys, each value read by *convert*."""
        inner = self.node(name)
        return {str(key): convert(inner, key) for key in inner.body}

    def mapping_of(self, names: tuple[str, ...]) -> dict[str, str]:
        """A mapping of text whose keys are among *names*."""
        texts = {name: self.text(name) for name in names if self.has(name)}
        self.asked.update(names)
        self.done()
        return texts

    def done(self) -> None:
        """Refuse a field of the file that no reader has taken."""
        for name in self.body:
            if name not in self.asked:
                raise self.error(
                    str(name), f"unknown field{near(str(name), tuple(sorted(self.asked)))}"
                )

    def _list(self, name: str) -> Any:
        self.asked.add(name)
        sequence = self.body.get(name)
        if sequence is None:
            return CommentedSeq()
        if not isinstance(sequence, CommentedSeq):
            raise self.error(name, f"expected a list, got {sequence!r}")
        return sequence


_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "array": "a list",
    "object": "a mapping",
}


def _in_words(reason: str) -> str:
    """A message of msgspec without the names of types."""
    words = re.sub(
        r"`([^`]+)`",
        lambda m: " or ".join(_KINDS.get(kind, kind) for kind in m[1].split(" | ")),
        reason,
    )
    return words[:1].lower() + words[1:]


def _without_nulls(value: Any) -> Any:
    """A null is a field that is not given."""
    if isinstance(value, dict):
        return {str(name): _without_nulls(item) for name, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


WORDS: dict[type, str] = {
    str: "text",
    int: "a whole number",
    bool: "true or false",
    float: "a number",
}


def near(name: str, allowed: tuple[str, ...]) -> str:
    close = nearest(name, allowed)
    return f", did you mean {close}?" if close else ""
