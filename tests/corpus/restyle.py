"""Manifests written in other hands: the data of a service, spelled by a writer that uses all of YAML.

Where :mod:`tests.corpus.fuzz` damages texts of one form, this writer chooses the form of every node: quotes, block and
flow, folding, anchors and tags, comments between any two tokens, explicit keys, line ends, documents beside.
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Iterator
from typing import Any

import yaml

from tests.corpus.services import services

_COMMENTS = (
    "# x",
    "#",
    "# a: b, [c",
    "#- --speculative-config",
    "# \u00fcber \U0001f600",
    "# 'quote",
    "# | >",
)

_INTRUDERS = (
    "\u2028", "\x85", "\u00a0", "\u200b", "\ufeff", "\t", "\r", "\n", "\r\n", " ", "  ", ",", "-", "- ", ": ",
    "#", " #", "{{ .Values.a }}", "{{- if .b }}\n", "*a1", "&a1 ", "<<: *a1\n",
    "'", '"', "---\n", "...\n", "|", ">-", "[", "]", "{", "}",
)  # fmt: skip


def restyled(
    count: int, seed: int, bases: list[list[Any]] | None = None
) -> Iterator[tuple[str, str]]:
    """Names and texts; the same ``seed`` gives the same texts. ``bases``: data of files, instead of made-up ones."""
    for number in range(count):
        yield f"restyle {seed}-{number}", restyle(seed, number, bases)


def restyle(seed: int, number: int, bases: list[list[Any]] | None = None) -> str:
    """One of them."""
    rng = random.Random(f"{seed} {number} restyle")
    data = copy.deepcopy(rng.choice(bases)) if bases else services(rng)
    text = _ends(_Writer(rng).stream(data), rng)
    if rng.random() < 0.3:
        text = _damaged(text, rng)
    return text


def _damaged(text: str, rng: random.Random) -> str:
    """A character that readers of YAML treat differently, or a word of a template, somewhere."""
    position = rng.randrange(len(text) + 1)
    return text[:position] + rng.choice(_INTRUDERS) + text[position:]


def _ends(text: str, rng: random.Random) -> str:
    """Line ends, a byte order mark, blanks at the ends of lines, no break at the end."""
    kind = rng.random()
    if kind < 0.25:
        text = text.replace("\n", "\r\n")
    elif kind < 0.3:
        text = re.sub(r"\n", lambda _: rng.choice(("\n", "\r\n")), text)
    elif kind < 0.33:
        text = text.replace("\n", "\r")
    if rng.random() < 0.1:
        text = "\ufeff" + text
    return text.rstrip("\r\n") if rng.random() < 0.1 else text


class _Writer:
    """Writes data as YAML; every choice is the generator's. ``wild``: how often the unusual form is taken."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.wild = rng.choice((0.0, 0.02, 0.05, 0.15))
        self.anchors = 0
        self.step = rng.choice((2, 2, 2, 4, 3, 1))

    def odd(self, factor: float = 1.0) -> bool:
        return self.rng.random() < self.wild * factor

    def stream(self, data: list[Any]) -> str:
        parts = []
        for number, document in enumerate(data):
            head = "" if number == 0 and not self.odd(4) else "---" + self.rest() + "\n"
            if number == 0 and self.odd():
                head = "%YAML 1.2\n---\n"
            parts.append(
                head
                + self.gap("")
                + self.mapping(document, "")
                + ("...\n" if self.odd(0.3) else "")
            )
        if self.odd():
            parts.append("---\n# nothing\n")
        return "".join(parts)

    def gap(self, indent: str) -> str:
        """Nothing, or a blank line or a comment, indented anyhow."""
        if not self.odd(2):
            return ""
        form = self.rng.random()
        if form < 0.3:
            return self.rng.choice(("\n", "   \n", indent + "\n"))
        return self.rng.choice((indent, "", indent + "  ")) + self.rng.choice(_COMMENTS) + "\n"

    def rest(self) -> str:
        """What may follow a token on its line."""
        if not self.odd():
            return ""
        return (
            "\t# tab" if self.odd() else self.rng.choice(("  ", " " + self.rng.choice(_COMMENTS)))
        )

    def properties(self, value: Any) -> str:
        text = ""
        if self.odd(0.5):
            self.anchors += 1
            text += f"&a{self.anchors} "
        if self.odd(0.3):
            text += {str: "!!str ", dict: "!!map ", list: "!!seq "}.get(type(value), "")
        return text

    def mapping(self, data: dict[str, Any], indent: str) -> str:
        """Lines of a block mapping."""
        items = list(data.items())
        if self.rng.random() < 0.5:
            self.rng.shuffle(items)
        text = ""
        for key, value in items:
            text += self.gap(indent)
            name = self.key(key)
            if self.odd(0.2):
                text += f"{indent}? {name}\n{indent}:{self.value(value, indent, after_dash=False)}"
            else:
                text += f"{indent}{name}{' ' if self.odd(0.5) else ''}:{self.value(value, indent, after_dash=False)}"
        return text

    def key(self, key: str) -> str:
        if self.odd():
            return self.rng.choice((json.dumps(key), "'" + key.replace("'", "''") + "'"))
        return key if re.fullmatch(r"[A-Za-z][\w./-]*", key) else json.dumps(key)

    def value(self, value: Any, indent: str, *, after_dash: bool) -> str:
        """What follows ``key:`` or ``-``, with the end of its line."""
        inner = indent + " " * self.step
        properties = self.properties(value)
        space = "  " if self.odd() else " "
        if isinstance(value, dict) and value and not self.flows(value):
            if after_dash and not properties and not self.odd():
                lines = self.mapping(value, indent + "  ")
                if lines.startswith(indent + "  ") and lines[len(indent) + 2] not in "#\n ":
                    return " " + lines[len(indent) + 2 :]
                return "\n" + lines
            return f" {properties}".rstrip() + self.rest() + "\n" + self.mapping(value, inner)
        if isinstance(value, list) and value and not self.flows(value):
            dash = inner if after_dash or self.rng.random() < 0.5 else indent
            lines = "".join(
                self.gap(dash) + dash + "-" + self.value(one, dash, after_dash=True)
                for one in value
            )
            return f" {properties}".rstrip() + self.rest() + "\n" + lines
        if isinstance(value, dict | list):
            return space + properties + self.flow(value, inner) + self.rest() + "\n"
        if isinstance(value, str):
            block = self.block(value, inner)
            if block is not None:
                return space + properties + block
            spelled = self.scalar(value, inner, flow=False)
            newline = "\n" + inner if self.odd(0.5) and "\n" not in spelled else space
            return newline + properties + spelled + self.rest() + "\n"
        return space + self.plain_data(value) + self.rest() + "\n"

    def flows(self, value: Any) -> bool:
        short = len(json.dumps(value)) < 60
        return self.rng.random() < (0.25 if short else 0.03 + self.wild)

    def plain_data(self, value: Any) -> str:
        if value is None:
            return self.rng.choice(("null", "~", "Null"))
        return str(value).lower() if isinstance(value, bool) else str(value)

    def flow(self, value: Any, indent: str) -> str:
        """A flow collection or a scalar in one, on one line or several."""
        if isinstance(value, str):
            return self.scalar(value, indent, flow=True)
        if not isinstance(value, dict | list):
            return self.plain_data(value)
        broken = bool(value) and self.odd(3)
        items = []
        for one in value.items() if isinstance(value, dict) else value:
            if isinstance(value, dict):
                items.append(f"{self.key(one[0])}: {self.flow(one[1], indent)}")
            else:
                items.append(self.flow(one, indent))
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        if not broken:
            pad = " " if self.odd(2) else ""
            return (
                opening
                + pad
                + ", ".join(items)
                + ("," if items and self.odd() else "")
                + pad
                + closing
            )
        text = opening + self.rest()
        for number, item in enumerate(items):
            comma = "," if number < len(items) - 1 or self.odd(2) else ""
            early = self.odd(0.5) and comma
            text += "\n" + indent + item + (f"\n{indent}{comma}" if early else comma) + self.rest()
        return text + "\n" + indent + closing

    def block(self, value: str, indent: str) -> str | None:
        """A literal or folded scalar with its header, where the text allows it."""
        lines = value.split("\n")
        allowed = (
            value.strip()
            and all(c.isprintable() or c == "\n" for c in value)
            and lines[0][:1] not in (" ", "")
        )
        if not allowed or self.rng.random() > (0.7 if "\n" in value else self.wild):
            return None
        body, ends = value.rstrip("\n"), len(value) - len(value.rstrip("\n"))
        chomp = "-" if ends == 0 else "+" if ends > 1 or self.odd() else ""
        style = self.rng.choice("||>")
        if style == ">":
            if re.search(r"(^|\n)\s|\n", body):
                style = "|"
            else:
                body = re.sub(r"(?<=[^ ]) (?=[^ ])", lambda _: "\n" if self.odd(4) else " ", body)
        hint = str(len(indent) or 1) if self.odd(0.3) and len(indent) == self.step else ""
        shown = "".join((indent + line if line else "") + "\n" for line in body.split("\n"))
        header = style + (hint + chomp if self.odd(9) else chomp + hint)
        return header + self.rest() + "\n" + shown + "\n" * max(0, ends - 1)

    def scalar(self, value: str, indent: str, *, flow: bool) -> str:
        """A plain or quoted scalar."""
        forms = self.rng.sample(("", "'", '"'), 3)
        for form in forms:
            if form == "" and self.is_plain(value, flow=flow):
                return self.wrapped(value, indent) if self.odd() and not flow else value
            if form == "'" and all(c.isprintable() for c in value):
                text = "'" + value.replace("'", "''") + "'"
                return self.wrapped(text, indent) if self.odd() else text
            if form == '"':
                return self.double(value, indent)
        return json.dumps(value)

    def is_plain(self, value: str, *, flow: bool) -> bool:
        if not value or "\n" in value or (flow and re.search(r"[\[\]{},]", value)):
            return False
        try:
            return yaml.safe_load(f"[{value}]" if flow else f"k: {value}") == (
                [value] if flow else {"k": value}
            )
        except yaml.YAMLError:
            return False

    def double(self, value: str, indent: str) -> str:
        text = json.dumps(value, ensure_ascii=self.rng.random() < 0.3)
        text = re.sub(r"\\ud[89ab]..\\ud[c-f]..", lambda m: json.loads(f'"{m.group()}"'), text)
        if self.odd(0.5):
            text = re.sub(
                r"(?<!\\)[a-z]",
                lambda m: f"\\x{ord(m.group()):02x}" if self.odd() else m.group(),
                text,
            )
        if self.odd():
            position = self.rng.randrange(1, len(text))
            if (
                text[position - 1] != "\\"
                and text[position] not in ' "'
                and not re.search(r"\\(?:x.?|u.{0,3})$", text[:position])
            ):
                text = f"{text[:position]}\\\n{indent}{text[position:]}"
        return self.wrapped(text, indent) if self.odd(0.5) else text

    def wrapped(self, text: str, indent: str) -> str:
        """Folded at one of its single blanks."""
        places = [m.start() for m in re.finditer(r"(?<=[^\s\\:]) (?=[^\s#&*!|>%@`-])", text)]
        if not places:
            return text
        choice = self.rng.choice(places)
        return f"{text[:choice]}\n{indent}{text[choice + 1 :]}"
