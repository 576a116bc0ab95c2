"""Cost per million output tokens, from the price of the machine and the measured throughput.

Baseline: ``usd = usd_per_hour / 3600 / tokens_per_second * 1e6``; the candidate's is that over the throughput ratio.
Over several cells the costs add up by their part of the output tokens: share of the requests times length of the
answers on the baseline. A machine with more devices than the engine uses is counted by the part used. The figure
assumes that the machine serves at this load all the time, and says so.

The price table is read from a file, checked field by field, and matched to a device by whole words. A price needs a
date, because every report prints it with the figure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from mpctl import commands
from mpctl.errors import InputError
from mpctl.experiment.arm import ArmSummary
from mpctl.experiment.run import ArmConditions
from mpctl.report.values import ApiPrice, CellReport, Cost, Offer
from mpctl.stats.confidence import Interval
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
        kind, words = _words(self.device), _words(device)
        return kind <= words and ("mig" in words) == ("mig" in kind)  # a slice is not priced as a whole GPU


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


_PARALLEL = re.compile(r"--(?:tensor|pipeline|data)-parallel-size$|-(?:tp|pp|dp)$")


@dataclass(frozen=True)
class _Arm:
    """One arm: its device, how many of them its engine uses, and machine hours per million output tokens."""

    device: str
    devices: int
    hours: float | None

    def hourly(self, offer: MachinePrice) -> float | None:
        """Return the price of the part used, USD per hour; None where the offer is of another device."""
        return offer.usd_per_hour * self.devices / offer.devices if offer.fits(self.device) else None

    def usd(self, offer: MachinePrice) -> float | None:
        """Return the cost of a million output tokens at an offer."""
        hourly = self.hourly(offer)
        return None if hourly is None or self.hours is None else hourly * self.hours


def cost_of(cells: Sequence[CellReport], baseline: ArmConditions, candidate: ArmConditions, prices: Prices) -> Cost:
    """Return the cost on each arm at every price of its own device and for the devices that it uses."""
    api = tuple(ApiPrice(p.name, p.output_usd, p.as_of) for p in sorted(prices.api, key=lambda p: p.output_usd))
    weights = _weights(cells)
    base_hours = _hours_per_million([c.comparison.baseline.throughput for c in cells], weights)
    cand_hours = _hours_per_million([_candidate_rate(c) for c in cells], weights)
    # An arm whose device was not recorded ran on that of the other.
    base = _Arm(baseline.device or candidate.device, devices_used(baseline.argv), base_hours)
    cand = _Arm(candidate.device or baseline.device, devices_used(candidate.argv), cand_hours)
    offers = [o for o in prices.offers if o.fits(base.device) or o.fits(cand.device)]
    if not offers:
        devices = " and ".join(dict.fromkeys(arm.device or "an unnamed device" for arm in (base, cand)))
        return Cost(
            api=api,
            missing=f"no price is known for {devices}: {commands.line('report', '--prices', 'FILE')} takes yours",
        )
    if base.hours is None and cand.hours is None:
        return Cost(api=api, missing="throughput was not measured on either arm")
    return Cost(tuple(_offer(offer, base, cand, cells) for offer in offers), api, basis=_basis(cells, base, cand))


def devices_used(argv: Sequence[str]) -> int:
    """Return the number of devices the engine's arguments ask for: the product of its parallel sizes."""
    product = 1
    for index, argument in enumerate(argv):
        flag, equals, value = argument.partition("=")
        if not _PARALLEL.match(flag.replace("_", "-")):
            continue
        text = value if equals else argv[index + 1] if index + 1 < len(argv) else ""
        product *= int(text) if text.isdecimal() and int(text) else 1
    return product


def _weights(cells: Sequence[CellReport]) -> list[float]:
    """Each cell's part of the output tokens, 0..1."""
    shares = [c.share for c in cells]
    if any(s is None for s in shares) or not sum(s or 0.0 for s in shares):
        shares = [1.0] * len(cells)
    parts = [(share or 0.0) * _answer_length(c) for share, c in zip(shares, cells, strict=True)]
    return [part / sum(parts) for part in parts]


def _answer_length(cell: CellReport) -> float:
    """Return the mean tokens of an answer on the baseline, on the candidate where that has none, else 1."""
    arms = (cell.comparison.baseline, cell.comparison.candidate)
    return next((length for arm in arms if (length := _mean_tokens(arm))), 1.0)


def _mean_tokens(arm: ArmSummary) -> float:
    answered = arm.requests - arm.failed
    return arm.output_tokens / answered if answered > 0 else 0.0


def _candidate_rate(cell: CellReport) -> float | None:
    """Return tokens per second of the candidate: the baseline's times the throughput ratio, where there is one."""
    ratio, base = cell.comparison.throughput_ratio, cell.comparison.baseline.throughput
    return base * ratio.value if ratio and base else cell.comparison.candidate.throughput


def _hours_per_million(rates: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """Return machine hours per million output tokens; None where a cell that counts was not measured."""
    if not weights or any(not rate and weight for rate, weight in zip(rates, weights, strict=True)):
        return None
    return sum(weight * 1e6 / 3600.0 / rate for rate, weight in zip(rates, weights, strict=True) if rate)


def _offer(offer: MachinePrice, base: _Arm, cand: _Arm, cells: Sequence[CellReport]) -> Offer:
    base_usd, cand_usd = base.usd(offer), cand.usd(offer)
    saving = 1.0 - cand_usd / base_usd if base_usd and cand_usd is not None else None
    return Offer(
        name=offer.name,
        baseline_usd_per_hour=base.hourly(offer),
        candidate_usd_per_hour=cand.hourly(offer),
        as_of=offer.as_of,
        source=offer.source,
        baseline_usd=base_usd,
        candidate_usd=cand_usd,
        saving=saving,
        saving_interval=_saving_interval(cells, saving, cand.devices / base.devices),
    )


def _saving_interval(cells: Sequence[CellReport], saving: float | None, devices: float) -> Interval | None:
    """Return the interval of the share saved: with one cell 1 - devices / r over the throughput ratio's interval."""
    ratio = cells[0].comparison.throughput_ratio if len(cells) == 1 else None
    if saving is None or ratio is None:
        return None
    low, high = (1.0 - devices / bound if bound else None for bound in (ratio.low, ratio.high))
    return replace(ratio, value=saving, low=low, high=high)


def _basis(cells: Sequence[CellReport], base: _Arm, cand: _Arm) -> str:
    used = str(base.devices) if base.devices == cand.devices else f"{base.devices} and {cand.devices}"
    several = max(base.devices, cand.devices) > 1
    what = f"{used} device{'s' if several else ''} busy at the measured load all the time; idle hours cost extra"
    if len(cells) == 1:
        return what
    shared = all(c.share is not None for c in cells)
    by = "by the shares of requests" if shared else "all cells alike, no shares were given"
    return f"{what}; {by}, weighted by the length of their answers"
