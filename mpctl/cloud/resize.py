"""A node pool enlarged for a side-by-side candidate and restored afterwards, each recorded before it happens.

The ledger is one file per pool with one JSON line per event, appended and flushed to disk before the cloud is called.
A run that died between the line and the call is seen by the next one, which repeats the call: setting a size twice
is harmless. Nothing is ever set back over somebody else's change.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from mpctl import commands
from mpctl.cloud.cluster import Cluster
from mpctl.cloud.ports import Cloud
from mpctl.errors import Conflict, InputError, MpctlError, Refused
from mpctl.estimate.capacity import Pool

Event = Literal["enlarging", "enlarged", "returning", "returned"]


@dataclass(frozen=True)
class Resize:
    """One event: the pool goes, or went, from ``before`` to ``after`` nodes at ``at`` (ISO 8601, UTC)."""

    event: Event
    cluster: str
    pool: str
    before: int
    after: int
    at: str

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Resize:
        return cls(**record)

    def to_record(self) -> dict[str, Any]:
        return asdict(self)


class Ledger:
    """The events of one pool, oldest first."""

    def __init__(self, folder: Path, cluster: Cluster, pool: str) -> None:
        self.cluster, self.pool = cluster.short, pool
        self.path = folder / f"{cluster.short.replace('/', '_')}_{pool}.jsonl"

    def last(self) -> Resize | None:
        if not self.path.exists():
            return None
        last = None
        for number, line in enumerate(self.path.read_text().splitlines(keepends=True), 1):
            if not line.endswith("\n"):
                break  # a write that was cut off: its act was never begun
            try:
                last = Resize.from_record(json.loads(line))
            except (ValueError, TypeError):
                raise InputError("not an event of the resize ledger", file=str(self.path), line=number) from None
        return last

    def append(self, event: Event, before: int, after: int, at: datetime) -> None:
        entry = Resize(event, self.cluster, self.pool, before, after, at.isoformat(timespec="seconds"))
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        cut = self.path.exists() and not self.path.read_bytes().endswith(b"\n") and self.path.stat().st_size
        with self.path.open("r+b" if self.path.exists() else "wb") as out:
            if cut:
                out.truncate(self.path.read_bytes().rfind(b"\n") + 1)
            out.seek(0, os.SEEK_END)
            out.write(json.dumps(entry.to_record()).encode() + b"\n")
            out.flush()
            os.fsync(out.fileno())


def _restore(cluster: str, pool: str) -> str:
    return commands.line("capacity", cluster, "--pool", pool, "--restore", "--objects", "FILE")


def enlarge(cloud: Cloud, ledger: Ledger, pool: Pool, add: int, now: Callable[[], datetime]) -> tuple[int, bool]:
    """Enlarge ``pool`` by ``add`` nodes; return its new size and whether anything was done now."""
    last = ledger.last()
    if last and last.event == "enlarged":
        if pool.size >= last.after:
            return pool.size, False
        hint = f"Return it first: {_restore(ledger.cluster, pool.name)}"
        raise Conflict(f"Pool {pool.name} was enlarged to {last.after} at {last.at} and has {pool.size} now", hint=hint)
    if last and last.event == "returning":
        hint = f"Finish it first: {_restore(ledger.cluster, pool.name)}"
        raise Conflict(f"Pool {pool.name} is being returned since {last.at}", hint=hint)
    before, after = (last.before, last.after) if last and last.event == "enlarging" else (pool.size, pool.size + add)
    if after > pool.maximum:
        raise Refused(
            f"Pool {pool.name} may have {pool.maximum} nodes, {after} are needed",
            hint="Raise the maximum in the fleet manifest and deploy the cluster stack",
        )
    ledger.append("enlarging", before, after, now())
    set_to = cloud.resize(pool, after)
    ledger.append("enlarged", before, set_to, now())
    return set_to, True


def restore(cloud: Cloud, ledger: Ledger, pool: Pool, now: Callable[[], datetime]) -> tuple[int, bool]:
    """Restore ``pool`` to its size before :func:`enlarge`; return its size and whether anything was done now."""
    last = ledger.last()
    if last is None or last.event == "returned":
        return pool.size, False
    if last.event == "enlarged" and pool.size not in {last.before, last.after}:
        raise Conflict(
            f"Pool {pool.name} went from {last.before} to {last.after} and has {pool.size} now: somebody changed it",
            hint=f"Set the size yourself, then remove {ledger.path}",
        )
    ledger.append("returning", last.before, last.after, now())
    try:
        set_to = cloud.resize(pool, last.before)
    except MpctlError as error:
        error.hint = error.hint or f"{_restore(ledger.cluster, pool.name)} tries again"
        raise
    ledger.append("returned", set_to, last.after, now())
    return set_to, True
