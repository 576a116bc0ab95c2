"""The service as it should be and as it is: two small documents between commands and the supervisor.

Commands write ``desired.json``; the supervisor drives the processes there and writes ``observed.json``. Nothing else
passes between them, so either may die at any moment and go on from the files. The live manifest and the route are in
one document: promotion is one atomic write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mpctl import commands
from mpctl.errors import Conflict, InputError
from mpctl.platform.local.files import locked, read_json, write_json
from mpctl.records import restored

DESIRED = "desired.json"
OBSERVED = "observed.json"


@dataclass(frozen=True)
class DesiredArm:
    """An engine that should run: its manifest and the loopback port it answers on. ``fault``: arguments of a drill that
    its next starts get and its manifest does not have."""

    manifest: str
    port: int
    fault: tuple[str, ...] = ()


@dataclass(frozen=True)
class Process:
    """A process that cannot be mistaken for another: pid, and when it started in terms of which boot, which no change
    of the clock moves."""

    pid: int
    created: str


@dataclass(frozen=True)
class Desired:
    """``text``: the live manifest. ``port``: where the service answers; the supervisor forwards it to ``route``'s arm.

    ``cwd``: directory that relative paths of the manifest start from. ``python``: interpreter of the engine's
    environment.
    ``lifeline``: a process without which the service must not stay up (demo, tests), or None.
    """

    name: str
    namespace: str
    text: str
    port: int
    cwd: str
    python: str
    route: str
    arms: Mapping[str, DesiredArm] = field(default_factory=dict)
    lifeline: Process | None = None

    def with_arm(self, arm_id: str, arm: DesiredArm) -> Desired:
        """With one more arm."""
        return replace(self, arms={**self.arms, arm_id: arm})

    def only(self, arm_id: str) -> Desired:
        """With that arm alone.

        Raises:
            Conflict: it is missing.
        """
        if arm_id not in self.arms:
            raise Conflict(
                f"service {self.namespace}/{self.name} has no engine {arm_id} any more",
                hint=f"{commands.line('rollback', self.name, namespace=self.namespace)} restores what was recorded",
            )
        return replace(self, arms={arm_id: self.arms[arm_id]})

    def to_record(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            **self.__dict__,
            "arms": {k: dict(v.__dict__) for k, v in self.arms.items()},
            "lifeline": dict(self.lifeline.__dict__) if self.lifeline else None,
        }

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Desired:
        """The value :meth:`to_record` wrote."""
        return cls(
            **{
                **record,
                "arms": {k: DesiredArm(**{**v, "fault": tuple(v.get("fault", ()))}) for k, v in record["arms"].items()},
                "lifeline": Process(**record["lifeline"]) if record["lifeline"] else None,
            }
        )


@dataclass(frozen=True)
class ObservedArm:
    """The supervisor's state of one engine. ``phase`` is Starting, Ready or Failed; ``exit_code`` of its last
    process."""

    phase: str
    process: Process | None
    message: str = ""
    exit_code: int | None = None
    restarts: int = 0


@dataclass(frozen=True)
class Observed:
    """``router_error`` is empty while the service's port is served."""

    supervisor: Process
    arms: Mapping[str, ObservedArm] = field(default_factory=dict)
    router_error: str = ""

    def to_record(self) -> dict[str, Any]:
        """A JSON object."""
        arms = {
            k: {**v.__dict__, "process": dict(v.process.__dict__) if v.process else None} for k, v in self.arms.items()
        }
        return {"supervisor": dict(self.supervisor.__dict__), "arms": arms, "router_error": self.router_error}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Observed:
        """The value :meth:`to_record` wrote."""
        arms = {
            k: ObservedArm(**{**v, "process": Process(**v["process"]) if v["process"] else None})
            for k, v in record["arms"].items()
        }
        return cls(Process(**record["supervisor"]), arms, record["router_error"])


def read_desired(directory: Path) -> Desired | None:
    """The service's desired state, or None when it is not up.

    Raises:
        MpctlError: the file is damaged.
    """
    down = commands.line("local", "down", directory.name, namespace=directory.parent.name)
    up = commands.line("local", "up", "-f", "MANIFEST")
    hint = f"restore this file from a copy, or: {down}, then {up}; history stays"
    record = read_json(directory / DESIRED, hint=hint)
    return None if record is None else restored(directory / DESIRED, Desired.from_record, record, hint=hint)


def read_observed(directory: Path) -> Observed | None:
    """The supervisor's last report, or None when there was none.

    Raises:
        MpctlError: the file is damaged.
    """
    up = commands.line("local", "up", directory.name, namespace=directory.parent.name)
    hint = f"remove this file alone; the supervisor writes it anew, {up} starts one"
    record = read_json(directory / OBSERVED, hint=hint)
    return None if record is None else restored(directory / OBSERVED, Observed.from_record, record, hint=hint)


def change(directory: Path, edit: Callable[[Desired], Desired]) -> Desired:
    """Read, edit and write the desired state under its lock.

    Raises:
        InputError: the service is not up.
    """
    with locked(directory / "desired.lock"):
        before = read_desired(directory)
        if before is None:
            raise InputError(
                f"service {directory.parent.name}/{directory.name} is not up",
                hint=commands.line("local", "up", "-f", "MANIFEST"),
            )
        after = edit(before)
        if after != before:
            write_json(directory / DESIRED, after.to_record())
        return after
