"""Windows in which GKE may upgrade a cluster by itself. EKS never does within a minor's standard support."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from mpctl.yaml_lines import Node

DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
# GKE, "Maintenance windows and exclusions": windows of at least 4 hours, 48 hours in 32 days; exclusions of all
# upgrades last 30 days at most, and there are three of them.
SHORTEST_HOURS = 4
LEAST_HOURS, PERIOD_DAYS = 48, 32
LONGEST_FREEZE = dt.timedelta(days=30)
MOST_FREEZES = 3
SCOPES = {
    "upgrades": "NO_UPGRADES",
    "minor-upgrades": "NO_MINOR_UPGRADES",
    "minor-and-node-upgrades": "NO_MINOR_OR_NODE_UPGRADES",
}
A_MONDAY = dt.date(2026, 1, 5)


@dataclass(frozen=True)
class Exclusion:
    """A time in which GKE upgrades nothing, or only patches (``scope``)."""

    name: str
    start: dt.datetime
    end: dt.datetime
    scope: str


@dataclass(frozen=True)
class Maintenance:
    """A weekly window in UTC, and the times that are excluded from it."""

    days: tuple[str, ...] = DAYS
    start: str = "03:00"
    hours: int = SHORTEST_HOURS
    exclusions: tuple[Exclusion, ...] = ()

    @property
    def recurrence(self) -> str:
        """The days as an RFC 5545 rule."""
        return (
            "FREQ=DAILY"
            if len(self.days) == len(DAYS)
            else f"FREQ=WEEKLY;BYDAY={','.join(self.days)}"
        )

    @property
    def first(self) -> tuple[str, str]:
        """Start and end of the first window: its length is what counts, later ones follow the rule."""
        hour, minute = (int(part) for part in self.start.split(":"))
        day = A_MONDAY + dt.timedelta(days=min(DAYS.index(name) for name in self.days))
        start = dt.datetime.combine(day, dt.time(hour, minute))
        return stamp(start), stamp(start + dt.timedelta(hours=self.hours))


def stamp(moment: dt.datetime) -> str:
    """A moment in UTC as RFC 3339 writes it."""
    return f"{moment.replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def read_maintenance(node: Node) -> Maintenance:
    """Read ``maintenance`` of an environment.

    Raises:
        InputError: GKE would refuse the windows or an exclusion.
    """
    days = node.texts("days", DAYS)
    for day in days:
        if day not in DAYS:
            raise node.error("days", f"{day!r} is not one of {', '.join(DAYS)}")
    maintenance = Maintenance(
        days=tuple(day for day in DAYS if day in days),
        start=node.text(
            "start",
            "03:00",
            pattern=r"([01]\d|2[0-3]):[0-5]\d",
            what='a time in UTC such as "03:00"',
        ),
        hours=node.number("hours", SHORTEST_HOURS, low=SHORTEST_HOURS, high=24),
        exclusions=tuple(exclusion(entry) for entry in node.nodes("exclusions")),
    )
    offered = len(maintenance.days) * maintenance.hours * PERIOD_DAYS // 7
    if offered < LEAST_HOURS:
        raise node.error(
            "hours",
            f"GKE wants {LEAST_HOURS} hours for maintenance in {PERIOD_DAYS} days, these windows give {offered}",
            "set more hours or more days",
        )
    if sum(entry.scope == SCOPES["upgrades"] for entry in maintenance.exclusions) > MOST_FREEZES:
        raise node.error(
            "exclusions", f"GKE takes at most {MOST_FREEZES} exclusions of all upgrades"
        )
    node.done()
    return maintenance


def exclusion(node: Node) -> Exclusion:
    """One entry of ``maintenance.exclusions``: from the start of a day in UTC to the start of another."""
    exclusion = Exclusion(
        name=node.text("name", pattern=r"[a-z][a-z0-9-]{0,62}", what="a lower-case name"),
        start=day(node, "from"),
        end=day(node, "until"),
        scope=SCOPES[node.choice("no", tuple(SCOPES), "upgrades")],
    )
    if exclusion.end <= exclusion.start:
        raise node.error("until", "ends before it begins")
    if exclusion.scope == SCOPES["upgrades"] and exclusion.end - exclusion.start > LONGEST_FREEZE:
        raise node.error(
            "until",
            f"GKE holds all upgrades back for at most {LONGEST_FREEZE.days} days",
            "set no: minor-upgrades, which may last until the minor's end of support",
        )
    node.done()
    return exclusion


def day(node: Node, name: str) -> dt.datetime:
    """A date as the moment at which it begins in UTC."""
    text = node.text(name)
    try:
        return dt.datetime.combine(dt.date.fromisoformat(text), dt.time())
    except ValueError:
        raise node.error(name, f"{text!r} is not a date such as 2026-12-20") from None
