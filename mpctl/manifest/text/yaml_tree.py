"""YAML as text with a tree on top: every node knows the exact characters it came from.

A user's manifest is never emitted again. The tree is built from ruamel's parse events and used to read, and to know
where to cut; what is written is the user's own text with a few spans replaced. Invariants:
``text[node.start:node.end]`` is the source of a node (a block collection ends with its last descendant), aliases stay
visible as :class:`Alias`, and text that YAML readers disagree about (duplicate keys, custom tags) is refused here, with
its line.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from mpctl.errors import InputError
from mpctl.json_types import Json

_CORE = "tag:yaml.org,2002:"
_DEPTH = 100  # of lists and mappings in each other; a pod of Kubernetes needs about 20
_VALUES = 1_000_000  # of a document, counted again for every alias; manifests have thousands
_NULLS = ("", "~", "null", "Null", "NULL")
_PLAIN: Json = {**dict.fromkeys(_NULLS), "true": True, "false": False}


@dataclass(frozen=True)
class Scalar:
    """A scalar; ``style`` is '' for plain, or the character that opens it. ``flow``: it stands inside [] or {}."""

    value: str
    style: str
    start: int
    end: int
    line: int
    anchor: str | None = None
    flow: bool = False

    @property
    def null(self) -> bool:
        return not self.style and self.value in _NULLS


@dataclass(frozen=True)
class Sequence:
    items: tuple[Node, ...]
    flow: bool
    start: int
    end: int
    line: int
    anchor: str | None = None


@dataclass(frozen=True)
class Mapping:
    entries: tuple[tuple[Scalar, Node], ...]
    flow: bool
    start: int
    end: int
    line: int
    anchor: str | None = None


@dataclass(frozen=True)
class Alias:
    """``*name``: stands where it was written; ``target`` is the node it repeats."""

    target: Scalar | Sequence | Mapping
    start: int
    end: int
    line: int
    anchor: str | None = None


Node: TypeAlias = Scalar | Sequence | Mapping | Alias


@dataclass(frozen=True)
class Document:
    """A document: its root, and the nodes that an alias repeats elsewhere (editing those changes two places)."""

    root: Node
    repeated: tuple[Node, ...]


def resolve(node: Node) -> Scalar | Sequence | Mapping:
    return node.target if isinstance(node, Alias) else node


def data(node: Node) -> Any:
    """The node as mappings, lists and text; empty values are None, and true and false booleans.

    Numbers and dates stay the text that was written: nothing here depends on how a reader would type them.
    """
    return _data(node, {})


def _data(node: Node, made: dict[int, Any]) -> Any:
    resolved = resolve(node)
    if isinstance(resolved, Scalar):
        return resolved.value if resolved.style else _PLAIN.get(resolved.value, resolved.value)
    if id(resolved) not in made:  # what aliases repeat is made once, however often it is repeated
        made[id(resolved)] = (
            [_data(item, made) for item in resolved.items]
            if isinstance(resolved, Sequence)
            else {key.value: _data(value, made) for key, value in resolved.entries}
        )
    return made[id(resolved)]


@lru_cache(
    maxsize=16
)  # an edit is verified by reading its result, which the caller then reads again
def parse(text: str, file: str) -> tuple[Document, ...]:
    """The non-empty documents of ``text``. Raises :class:`InputError` with the line for what is not usable YAML."""
    try:
        events = _events(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = error.problem or error.context or "syntax error"
        line = None if mark is None else mark.line + 1
        raise InputError(
            f"not valid YAML: {reason}", file=file, line=line, hint=_TEMPLATE_HINT
        ) from error
    except YAMLError as error:
        position = getattr(error, "position", None)
        line = None if not isinstance(position, int) else text.count("\n", 0, position) + 1
        raise InputError("not valid YAML: unprintable character", file=file, line=line) from error
    except RecursionError as error:
        raise InputError(
            "the YAML is nested too deep", file=file, hint="remove the nested lists"
        ) from error
    return tuple(
        document
        for document in _Builder(file, iter(events)).documents()
        if not (isinstance(document.root, Scalar) and document.root.null)
    )


def _events(text: str) -> list[Event]:
    """ruamel's events. It stops at tabs between tokens, which YAML allows outside indentation: they read as blanks."""
    while True:
        try:
            return list(_shallow(YAML(typ="safe", pure=True).parse(text)))
        except MarkedYAMLError as error:
            index = -1 if error.problem_mark is None else error.problem_mark.index
            before = text[
                max(text.rfind("\n", 0, index), text.rfind("\r", 0, index)) + 1 : max(index, 0)
            ]
            if text[index : index + 1] != "\t" or not before.strip():
                raise
            following = text[index:].lstrip("\t")
            text = text[:index] + " " * (len(text) - index - len(following)) + following


def _shallow(events: Iterable[Event]) -> Iterator[Event]:
    """The events, which stop where they are nested too deep: reading further would take minutes."""
    depth = 0
    for event in events:
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > _DEPTH:
            raise RecursionError
        yield event


_TEMPLATE_HINT = "fix the syntax at that line; render templates (Helm, Kustomize) first"


@dataclass
class _Builder:
    """Turns the event stream into trees; keeps the anchors of the document at hand."""

    file: str
    events: Iterator[Event]
    anchors: dict[str, Scalar | Sequence | Mapping] = field(default_factory=dict)
    repeated: list[Node] = field(default_factory=list)
    depth: int = 0
    values: int = 0
    sizes: dict[str, int] = field(default_factory=dict)  # values of an anchored node, by its anchor

    def documents(self) -> Iterator[Document]:
        for event in self.events:
            if isinstance(event, DocumentStartEvent):
                self.anchors, self.repeated, self.values = {}, [], 0
                root = self.node(next(self.events))
                yield Document(root, tuple(self.repeated))
            elif isinstance(event, DocumentEndEvent):
                continue

    def node(self, event: Event) -> Node:
        line = event.start_mark.line + 1
        if isinstance(event, AliasEvent):
            return self.alias(event, line)
        assert isinstance(event, ScalarEvent | SequenceStartEvent | MappingStartEvent)
        tag = event.tag
        if tag and tag != "!" and not str(tag).startswith(_CORE):
            raise InputError(
                f"custom tag {tag} has no meaning for Kubernetes",
                file=self.file,
                line=line,
                hint="remove the tag",
            )
        start, end = event.start_mark.index, event.end_mark.index
        anchor, before = event.anchor, self.values
        self.values += 1
        node: Scalar | Sequence | Mapping
        if isinstance(event, ScalarEvent):
            node = Scalar(event.value, event.style or "", start, end, line, anchor, self.depth > 0)
        elif isinstance(event, SequenceStartEvent):
            node = self.sequence(event, start, line)
        else:
            node = self.mapping(event, start, line)
        if anchor:
            self.anchors[anchor], self.sizes[anchor] = node, self.values - before
        return node

    def alias(self, event: AliasEvent, line: int) -> Alias:
        target = self.anchors.get(event.anchor)
        if target is None:
            raise InputError(
                f"alias *{event.anchor} has no anchor before it", file=self.file, line=line
            )
        self.values += self.sizes[event.anchor]
        if self.values > _VALUES:
            raise InputError(
                f"aliases make more than {_VALUES} values of this file",
                file=self.file,
                line=line,
                hint="write it out",
            )
        self.repeated.append(target)
        return Alias(target, event.start_mark.index, event.end_mark.index, line)

    def sequence(self, opening: SequenceStartEvent, start: int, line: int) -> Sequence:
        flow = bool(opening.flow_style)
        self.depth += flow
        items: list[Node] = []
        while not isinstance(event := next(self.events), SequenceEndEvent):
            items.append(self.node(event))
        self.depth -= flow
        end = event.end_mark.index if flow or not items else items[-1].end
        return Sequence(tuple(items), flow, start, end, line, opening.anchor)

    def mapping(self, opening: MappingStartEvent, start: int, line: int) -> Mapping:
        flow = bool(opening.flow_style)
        self.depth += flow
        entries: list[tuple[Scalar, Node]] = []
        keys: set[str] = set()
        while not isinstance(event := next(self.events), MappingEndEvent):
            key = resolve(self.node(event))
            if not isinstance(key, Scalar):
                raise InputError(
                    "a key that is not plain text cannot be read",
                    file=self.file,
                    line=key.line,
                    hint=_TEMPLATE_HINT,
                )
            if key.value in keys:
                raise InputError(
                    f'key "{key.value}" is defined twice in one mapping',
                    file=self.file,
                    line=key.line,
                    field=key.value,
                    hint="remove one of them: YAML readers differ in which one they use",
                )
            keys.add(key.value)
            entries.append((key, self.node(next(self.events))))
        self.depth -= flow
        end = (
            event.end_mark.index
            if flow or not entries
            else max(entries[-1][1].end, entries[-1][0].end)
        )
        return Mapping(tuple(entries), flow, start, end, line, opening.anchor)


def contents(text: str, file: str) -> list[Any]:
    """The data of every document of a file."""
    return [data(document.root) for document in parse(text, file)]


def at(document: Any, path: str) -> Json:
    """The mapping at a view's path, such as ``spec.predictor.containers[0]``. Keys may have dots.

    Raises:
        KeyError: there is none.
    """
    here = document
    while path:
        if isinstance(here, list):
            index, _, path = path.removeprefix("[").partition("]")
            here = here[int(index)]
        else:
            key = max((k for k in here if _begins(path, k)), key=len, default=None)
            if key is None:
                raise KeyError(path)
            here, path = here[key], path[len(key) :]
        path = path.removeprefix(".")
    mapping: Json = here
    return mapping


def _begins(path: str, key: str) -> bool:
    return bool(key) and path.startswith(key) and path[len(key) : len(key) + 1] in ("", ".", "[")


def dump(record: abc.Mapping[str, Any]) -> str:
    """Canonical YAML of an object, the same bytes for the same object: sorted keys, block style, no folding.

    Pure ASCII, since readers and writers of YAML disagree on what may stand unescaped.
    """
    text: str = yaml.safe_dump(
        dict(record), sort_keys=True, default_flow_style=False, width=2**31, allow_unicode=False
    )
    return text
