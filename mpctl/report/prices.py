"""The price table: read from a file, checked field by field, matched to a device by whole words.

A price needs a date, because every report prints it with the figure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from mpctl.errors import InputError
from mpctl.yaml_lines import Node, document

_OFFER = {"name": str, "device": str, "devices": int, "usd_per_hour": float, "as_of": str, "source": str}
_API = {"name": str, "output_usd": float, "as_of": str}
_OPTIONAL = {"devices": 1, "source": ""}


_MOST_USD = 1e9  # of any price, and of any number of devices


def _words(device: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", device.lower()))


@dataclass(frozen=True)
class MachinePrice:
    """USD per hour of a machine with ``devices`` accelerators of the kind ``device`` ("*": any)."""

    name: str
    device: str
    usd_per_hour: float
    as_of: str
    devices: int = 1
    source: str = ""

    def fits(self, device: str) -> bool:
        """Return whether an engine's ``device`` is of this kind: "L4" fits "NVIDIA L4", not "NVIDIA L40S"."""
        if self.device == "*":
            return True
        own, asked = _words(self.device), _words(device)
        return own <= asked and ("mig" in asked) == ("mig" in own)  # a slice is not priced as a whole GPU


@dataclass(frozen=True)
class TokenPrice:
    """USD per million output tokens of a hosted model."""

    name: str
    output_usd: float
    as_of: str


@dataclass(frozen=True)
class Prices:
    """A table of both."""

    offers: tuple[MachinePrice, ...]
    api: tuple[TokenPrice, ...]


def shipped_prices() -> Prices:
    """Return the table that comes with this version."""
    text = resources.files("mpctl.report").joinpath("prices.yaml").read_text(encoding="utf-8")
    return read_prices(text, file="prices.yaml")


def read_prices(text: str, *, file: str) -> Prices:
    """Read a price file.

    Raises:
        InputError: the text is not YAML, a key is unknown or missing, or a value is of the wrong kind.
    """
    table = document(text, file)
    if not set(table.body) & {"offers", "api"}:
        raise InputError("needs a list of offers, or one of API prices", file=file, field="offers", hint=_EXAMPLE)
    offers = tuple(MachinePrice(**_row(row, _OFFER)) for row in table.nodes("offers"))
    api = tuple(TokenPrice(**_row(row, _API)) for row in table.nodes("api"))
    table.done()
    return Prices(offers, api)


_EXAMPLE = 'offers: [{name: our node, device: "*", usd_per_hour: 0.85, as_of: 2026-11}]'


def _row(row: Node, kinds: Mapping[str, type]) -> dict[str, Any]:
    fields = {key: _value(row, key, kind) for key, kind in kinds.items() if row.has(key) or key not in _OPTIONAL}
    row.asked.update(kinds)
    row.done()
    return fields


def _value(row: Node, key: str, kind: type) -> Any:
    if not row.has(key):
        raise row.error(key, "required field is missing", _EXAMPLE)
    value = row.body[key]
    if kind is str:
        return _text(row, key, value)
    number = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= _MOST_USD
    if not number or (kind is int and value != int(value)):
        what = "a whole number" if kind is int else "a number"
        raise row.error(key, f"must be {what} above zero, not {value!r:.40}")
    return kind(value)


def _text(row: Node, key: str, value: Any) -> str:
    text = "" if isinstance(value, list | Mapping) else str(value).strip()  # YAML reads 2026 as a number
    if not text:
        raise row.error(key, "must be a text")
    if key == "as_of" and not re.match(r"\d{4}(?!\d)", text):
        raise row.error(key, f"must be a date that begins with the year, not {text!r}")
    if key == "device" and text != "*" and not _words(text):
        raise row.error(key, f'must be words of a device\'s name, or "*": {text!r}')
    return text
