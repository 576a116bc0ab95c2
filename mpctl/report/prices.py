"""The price table: read from a file, checked field by field, matched to a device by whole words.

A price without a date is refused, because every report prints the date beside the figure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from mpctl.errors import InputError
from mpctl.experiment.yaml_file import read_mapping

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
        """Whether ``device``, as an engine names it, is of this kind: "L4" fits "NVIDIA L4", not "NVIDIA L40S"."""
        if self.device == "*":
            return True
        return _words(self.device) <= _words(device)


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

    def of(self, device: str) -> tuple[MachinePrice, ...]:
        """The offers of a device, in the order of the table."""
        return tuple(o for o in self.offers if o.fits(device))


def shipped_prices() -> Prices:
    """The table that comes with this version."""
    text = resources.files("mpctl.report").joinpath("prices.yaml").read_text(encoding="utf-8")
    return read_prices(text, file="prices.yaml")


def read_prices(text: str, *, file: str) -> Prices:
    """Read a price file.

    Raises:
        InputError: it is no YAML, a key is unknown or missing, or a value is of the wrong kind.
    """
    table, _ = read_mapping(text, file=file)
    if not set(table) & {"offers", "api"}:
        raise InputError("needs a list of offers, or one of API prices", file=file, field="offers", hint=_EXAMPLE)
    if unknown := sorted(set(table) - {"offers", "api"}):
        raise InputError("unknown; known are offers, api", file=file, field=unknown[0])
    offers = tuple(MachinePrice(**row) for row in _rows(table, "offers", _OFFER, file))
    return Prices(offers, tuple(TokenPrice(**row) for row in _rows(table, "api", _API, file)))


_EXAMPLE = 'offers: [{name: our node, device: "*", usd_per_hour: 0.85, as_of: 2026-11}]'


def _rows(table: Mapping[Any, Any], key: str, kinds: Mapping[str, type], file: str) -> list[dict[str, Any]]:
    rows = table.get(key) or []
    if not isinstance(rows, list):
        raise InputError("must be a list", file=file, field=key, hint=_EXAMPLE)
    return [_row(row, f"{key}[{index}]", kinds, file) for index, row in enumerate(rows)]


def _row(row: Any, where: str, kinds: Mapping[str, type], file: str) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise InputError("must be a mapping", file=file, field=where, hint=_EXAMPLE)
    for key in row:
        if key not in kinds:
            raise InputError(f"unknown; known are {', '.join(kinds)}", file=file, field=f"{where}.{key}")
    result: dict[str, Any] = {}
    for key, kind in kinds.items():
        if key not in row:
            if key not in _OPTIONAL:
                raise InputError("is missing", file=file, field=f"{where}.{key}", hint=_EXAMPLE)
            continue
        result[key] = _value(row[key], kind, f"{where}.{key}", file)
    return result


def _value(value: Any, kind: type, where: str, file: str) -> Any:
    if kind is str:  # YAML reads 2026 as a number
        text = str(value).strip() if value is not None else ""
        if not text or isinstance(value, list | Mapping):
            raise InputError("must be a text", file=file, field=where)
        if where.endswith(".as_of") and not re.match(r"\d{4}(?!\d)", text):
            raise InputError(f"must be a date that begins with the year, not {text!r}", file=file, field=where)
        if where.endswith(".device") and text != "*" and not _words(text):
            raise InputError(f'must be words of a device\'s name, or "*": {text!r}', file=file, field=where)
        return text
    number = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= _MOST_USD
    if not number or (kind is int and value != int(value)):
        what = "a whole number" if kind is int else "a number"
        raise InputError(f"must be {what} above zero, not {value!r:.40}", file=file, field=where)
    return kind(value)
