"""The table of pinned versions, read once, and the calendar of Kubernetes support."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from infra.templates import entries
from mpctl.errors import InputError

FILE = Path(__file__).with_name("versions.yaml")
# Time to plan an upgrade; a cluster made later than this before the end would be born old.
NOTICE = dt.timedelta(days=60)


@dataclass(frozen=True)
class Pin:
    """A version, the day it was looked at and why it is this one."""

    name: str
    version: str
    date: dt.date
    reason: str
    repository: str | None = None
    chart: str | None = None


@dataclass(frozen=True)
class Table:
    """All pins by section, and the minors each cloud supports."""

    pins: Mapping[str, Mapping[str, Pin]]
    kubernetes: Mapping[str, Any]

    def chart(self, name: str) -> Pin:
        return self.pins["charts"][name]

    def provider(self, name: str) -> str:
        return self.pins["providers"][name].version

    def image(self, name: str) -> str:
        return self.pins["images"][name].version

    def minor(self, provider: str, wanted: str | None) -> str:
        """*wanted*, or the default minor of *provider*."""
        return wanted or str(self.kubernetes[provider]["default"])


def pin(name: str, row: Mapping[str, Any]) -> Pin:
    where = {key: str(row[key]) for key in ("repository", "chart") if key in row}
    return Pin(name, str(row["version"]), row["date"], str(row["reason"]), **where)


@cache
def table() -> Table:
    body = entries(FILE)
    sections = {
        section: {name: pin(name, row) for name, row in rows.items()}
        for section, rows in body.items()
        if section != "kubernetes"
    }
    return Table(sections, body["kubernetes"])


@dataclass(frozen=True)
class Support:
    """Verdict on one minor: usable or refused, with the reason for people."""

    allowed: bool
    reason: str


def assess_minor(provider: str, minor: str, today: dt.date, *, extended: bool) -> Support:
    """Return whether a cluster of this minor should be created today."""
    known = table().kubernetes[provider]
    if key(minor) < key(known["floor"]):
        return Support(
            False,
            f"Kubernetes {minor} is below {known['floor']}, the floor for GPUs through DRA here",
        )
    if minor not in known["minors"]:
        return Support(
            False,
            f"Kubernetes {minor} is not in {FILE.name} for {provider}; add its end of standard support",
        )
    until: dt.date = known["minors"][minor]["standard_until"]
    if today > until and not extended:
        return Support(False, f"Kubernetes {minor} left standard support on {provider} on {until}")
    if today > until - NOTICE:
        return Support(
            True,
            f"Kubernetes {minor} leaves standard support on {provider} on {until}: plan the upgrade",
        )
    return Support(True, f"Kubernetes {minor} is in standard support on {provider} until {until}")


def key(minor: str) -> tuple[int, ...]:
    return tuple(int(part) for part in str(minor).split("."))


def require_minor(provider: str, minor: str, today: dt.date, *, extended: bool) -> Support:
    """The verdict, or an error that names the setting which overrides it."""
    verdict = assess_minor(provider, minor, today, extended=extended)
    if not verdict.allowed:
        raise InputError(
            verdict.reason,
            hint="set kubernetes.extended_support: true to accept the cost, or a newer version",
        )
    return verdict
