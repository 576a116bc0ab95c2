"""YAML inside of a manifest's text: a literal block (``key: |``) whose text is a document of its own.

Its tree has views as every other, with the lines of the file; cuts of its text become cuts of the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from mpctl.errors import InputError
from mpctl.manifest.text.list_items import Cut, eol_of, line_start
from mpctl.manifest.text.scalar import pieces
from mpctl.manifest.text.view import View
from mpctl.manifest.text.yaml_tree import Mapping, Scalar, parse


@dataclass(frozen=True)
class Embedded:
    """A document inside of the scalar ``holder``. ``text``: its text behind as many line breaks as lines of the file
    stand before it, so that lines are the file's; ``root``: its tree."""

    holder: View
    text: str
    root: View

    @property
    def data(self) -> Any:
        """The document as YAML types it.

        Raises:
            InputError: another reader of YAML refuses it.
        """
        try:
            return yaml.safe_load(self.holder.text())
        except (yaml.YAMLError, ValueError) as error:
            raise self.holder.error(
                f"not valid YAML: {error}", hint="write it without tabs and odd dates"
            ) from error

    def cut(self, text: str, home: View, cut: Cut) -> Cut:
        """A cut of this text as one of the file's ``text``. ``home``: a block mapping, indented as new lines are."""
        whole, before = pieces(text, self.holder), self.holder.node.line
        assert isinstance(home.node, Mapping)
        first = line_start(self.text, home.node.entries[0][0].start) - before
        indent = text[line_start(text, whole[first].start) : whole[first].start]
        start, end = (
            whole[at - before].start if at - before < len(whole) else whole[-1].end
            for at in (cut.start, cut.end)
        )
        return Cut(start, end, cut.text.replace("\n", eol_of(text) + indent))


def embedded(holder: View, repeated: tuple[object, ...]) -> Embedded:
    """The document inside of a scalar. ``repeated``: nodes of the file that aliases repeat.

    Raises:
        InputError: it is no literal block, or no single document.
    """
    node = holder.node
    if (
        not isinstance(node, Scalar)
        or node.style != "|"
        or any(node is other for other in repeated)
    ):
        raise holder.error(
            "this text cannot be edited as it is written", hint="write it as a literal block (|)"
        )
    text = "\n" * node.line + node.value
    documents = parse(text, holder.file)
    if len(documents) != 1:
        raise holder.error(f"one document is expected in this text, it has {len(documents)}")
    if documents[0].repeated:
        raise holder.error(
            "anchors and aliases in this text are not read",
            hint="write the values where they are used",
        )
    return Embedded(holder, text, View(holder.file, holder.path, documents[0].root))


def require_mapping(home: View) -> None:
    """Refuse a home of arguments without lines of its own.

    Raises:
        InputError: it is no mapping in block form with an entry, or merges another.
    """
    home.get("")  # refuses merge keys
    if not isinstance(home.node, Mapping) or home.node.flow or not home.node.entries:
        raise InputError(
            "the arguments have no lines of their own here",
            file=home.file,
            line=home.node.line,
            field=home.path,
            hint="write one key per line below it",
        )
