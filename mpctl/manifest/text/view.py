"""A place in a manifest that can be read and can say where it is.

Readers walk with ``at.get("spec")`` and ``at.items()``; whatever goes wrong becomes an :class:`InputError` that
carries file, line and the path of the field.
"""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.errors import InputError
from mpctl.manifest.text.yaml_tree import Mapping, Node, Scalar, Sequence, resolve


@dataclass(frozen=True)
class View:
    """``node`` at ``path`` of ``file``; an alias is kept in ``node`` and looked through by the readers."""

    file: str
    path: str
    node: Node

    def error(self, message: str, *, hint: str | None = None) -> InputError:
        return InputError(
            message, file=self.file, line=self.node.line, field=self.path or None, hint=hint
        )

    def get(self, key: str) -> View | None:
        """The value under ``key``; None when it is missing or null. Raises when this is no mapping."""
        node = resolve(self.node)
        if isinstance(node, Scalar) and node.null:
            return None
        if not isinstance(node, Mapping):
            raise self.error("expected a mapping here")
        child = None
        for name, value in node.entries:
            if name.value == "<<":
                raise self.error(
                    "merge keys (<<) are not supported",
                    hint="write the merged keys out in this mapping",
                )
            if name.value == key:
                child = value
        if child is None or _null(child):
            return None
        return View(self.file, f"{self.path}.{key}" if self.path else key, child)

    def need(self, key: str) -> View:
        child = self.get(key)
        if child is None:
            raise self.error(f'"{key}" is missing')
        return child

    def at(self, *keys: str) -> View | None:
        """The value under a path of keys, or None when any step is missing."""
        here: View | None = self
        for key in keys:
            if here is None:
                return None
            here = here.get(key)
        return here

    def items(self) -> tuple[View, ...]:
        node = resolve(self.node)
        if not isinstance(node, Sequence):
            raise self.error("expected a list here")
        return tuple(
            View(self.file, f"{self.path}[{i}]", item) for i, item in enumerate(node.items)
        )

    def items_at(self, *keys: str) -> tuple[View, ...]:
        """The items of the list under a path of keys; none when any step is missing."""
        listing = self.at(*keys)
        return () if listing is None else listing.items()

    def pairs(self) -> tuple[tuple[str, View], ...]:
        node = resolve(self.node)
        if not isinstance(node, Mapping):
            raise self.error("expected a mapping here")
        return tuple(
            (key.value, View(self.file, f"{self.path}.{key.value}", value))
            for key, value in node.entries
        )

    def scalar(self) -> Scalar:
        node = resolve(self.node)
        if not isinstance(node, Scalar):
            raise self.error("expected text here", hint="quote the value if it is meant to be text")
        return node

    def text(self) -> str:
        """The scalar as text. A number or boolean is read as it was written."""
        return self.scalar().value


def text_of(view: View | None) -> str | None:
    return None if view is None else view.text()


def _null(node: Node) -> bool:
    resolved = resolve(node)
    return isinstance(resolved, Scalar) and resolved.null
