"""The service as it should be and as it is: two small documents between commands and the supervisor.

Commands write ``desired.json``; the supervisor drives the processes there and writes ``observed.json``. Nothing else
passes between them, so either may die at any moment and go on from the files. The live manifest and the route are in
one document: promotion is one atomic write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mpctl import commands
from mpctl.errors import Conflict, InputError
from mpctl.platform.state_files import locked, read_json, write_json
from mpctl.records import Record, restored

DESIRED = "desired.json"
OBSERVED = "observed.json"


@dataclass(frozen=True)
class DesiredArm:
    """An engine that should run."""

    manifest: str
    port: int  # of loopback, on which it answers
    fault: tuple[
        str, ...
    ] = ()  # arguments of a drill that its next starts get and its manifest does not have


@dataclass(frozen=True)
class Process:
    """A process that cannot be mistaken for another: pid, and when it started in terms of which boot, which no change
    of the clock moves."""

    pid: int
    created: str


@dataclass(frozen=True)
class Desired(Record):
    """A service as it should be."""

    name: str
    namespace: str
    text: str  # the live manifest
    port: int  # where the service answers; the supervisor forwards it to the arm of the route
    cwd: str  # directory that relative paths of the manifest start from
    python: str  # interpreter of the engine's environment
    route: str
    arms: Mapping[str, DesiredArm] = field(default_factory=dict)
    lifeline: Process | None = (
        None  # a process without which the service must not stay up (demo, tests)
    )

    def with_arm(self, arm_id: str, arm: DesiredArm) -> Desired:
        """Return the state with one more arm."""
        return replace(self, arms={**self.arms, arm_id: arm})

    def without_arm(self, arm_id: str) -> Desired:
        """Return the state without an arm."""
        return replace(
            self, arms={other: arm for other, arm in self.arms.items() if other != arm_id}
        )

    def only(self, arm_id: str) -> Desired:
        """Return the state with that arm alone.

        Raises:
            Conflict: it is missing.
        """
        if arm_id not in self.arms:
            raise Conflict(
                f"service {self.namespace}/{self.name} has no engine {arm_id} any more",
                hint=f"{commands.line('rollback', self.name, namespace=self.namespace)} restores what was recorded",
            )
        return replace(self, arms={arm_id: self.arms[arm_id]})


@dataclass(frozen=True)
class ObservedArm:
    """The supervisor's state of one engine."""

    phase: str  # Starting, Restarting, Ready or Failed
    process: Process | None
    message: str = ""
    exit_code: int | None = None  # of its last process
    restarts: int = 0


@dataclass(frozen=True)
class Observed(Record):
    """A service as the supervisor reports it."""

    supervisor: Process
    arms: Mapping[str, ObservedArm] = field(default_factory=dict)
    router_error: str = ""  # empty while the service's port is served


def read_desired(directory: Path) -> Desired | None:
    """The service's desired state, or None when it is not up.

    Raises:
        MpctlError: the file is damaged.
    """
    down = commands.line("local", "down", directory.name, namespace=directory.parent.name)
    up = commands.line("local", "up", "-f", "MANIFEST")
    hint = f"restore this file from a copy, or: {down}, then {up}; history stays"
    record = read_json(directory / DESIRED, hint=hint)
    return (
        None
        if record is None
        else restored(directory / DESIRED, Desired.from_record, record, hint=hint)
    )


def require_desired(directory: Path) -> Desired:
    """The service's desired state.

    Raises:
        InputError: the service is not up.
    """
    desired = read_desired(directory)
    if desired is None:
        raise InputError(
            f"service {directory.parent.name}/{directory.name} is not up",
            hint=commands.line("local", "up", "-f", "MANIFEST"),
        )
    return desired


def read_observed(directory: Path) -> Observed | None:
    """The supervisor's last report, or None when there was none.

    Raises:
        MpctlError: the file is damaged.
    """
    up = commands.line("local", "up", directory.name, namespace=directory.parent.name)
    hint = f"remove this file alone; the supervisor writes it anew, {up} starts one"
    record = read_json(directory / OBSERVED, hint=hint)
    return (
        None
        if record is None
        else restored(directory / OBSERVED, Observed.from_record, record, hint=hint)
    )


def change(directory: Path, edit: Callable[[Desired], Desired]) -> Desired:
    """Read, edit and write the desired state under its lock.

    Raises:
        InputError: the service is not up.
    """
    with locked(directory / "desired.lock"):
        before = require_desired(directory)
        after = edit(before)
        if after != before:
            write_json(directory / DESIRED, after.to_record())
        return after
