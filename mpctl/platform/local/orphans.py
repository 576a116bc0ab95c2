"""Orphaned engines: their service is not up, does not list them, or has no supervisor."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mpctl import commands
from mpctl.platform.local.desired import read_desired, read_observed
from mpctl.platform.local.files import state_root
from mpctl.platform.local.processes import alive, identify, stop_group, tagged

_UNSUPERVISED = "has lost its supervisor"


@dataclass(frozen=True)
class Orphan:
    """``arm`` is namespace/service/arm id; ``adoptable``: its service wants it, so that a new supervisor takes it."""

    arm: str
    pid: int
    reason: str
    adoptable: bool

    @property
    def remedy(self) -> str:
        """Return the advice to adopt or stop the orphan."""
        stop = f"{commands.line('local', 'down', '--orphans')} stops it"
        namespace, service = self.arm.split("/")[:2]
        adopt = commands.line("local", "up", service, namespace=namespace)
        return f"{adopt} adopts it, {stop}" if self.adoptable else stop

    def to_record(self) -> dict[str, Any]:
        """A JSON object."""
        return asdict(self)


def find_orphans() -> tuple[Orphan, ...]:
    """All orphans of this state directory."""
    orphans = []
    for tag, process in tagged(str(state_root())):
        namespace, name, arm_id = tag.split("/")
        reason = _orphan_reason(state_root() / "local" / namespace / name, arm_id)
        if reason:
            orphans.append(Orphan(tag, process.pid, reason, adoptable=reason == _UNSUPERVISED))
    return tuple(orphans)


def stop_orphans() -> tuple[Orphan, ...]:
    """Stop all orphans and return them."""
    orphans = find_orphans()
    for orphan in orphans:
        leader = identify(orphan.pid)
        stop_group(leader)
    return orphans


def _orphan_reason(directory: Path, arm_id: str) -> str:
    desired, observed = read_desired(directory), read_observed(directory)
    if observed is not None and alive(observed.supervisor) is not None:
        return ""  # a supervisor that lives stops what it does not want
    if desired is None:
        return "runs although its service is not up"
    if arm_id not in desired.arms:
        return "runs although its service does not want it"
    return _UNSUPERVISED
