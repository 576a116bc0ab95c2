"""The engine that a drill breaks."""

from __future__ import annotations

import json
import shlex
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import psutil

from mpctl import commands
from mpctl.app.session.base import Session
from mpctl.errors import Conflict, Refused
from mpctl.local.desired import Desired, change, read_observed
from mpctl.local.engine import api_key, read_service, served_name
from mpctl.local.platform import LocalPlatform
from mpctl.local.processes import alive
from mpctl.local.session import LocalSession
from mpctl.rollout.ports import Arm, Phase

_FAULTY = (
    Path(__file__).parents[2] / "tests" / "local" / "faulty"
)  # what plants faults in a sampler


class Rig(Protocol):
    """The engine that a drill breaks, as :class:`LocalRig`."""

    url: str
    model: str
    token: str | None

    def crash(self, fault: tuple[str, ...] = ()) -> None: ...
    def mend(self) -> None: ...
    def ready_to_plant(self) -> None: ...
    def plant(self, fault: dict[str, Any]) -> None: ...
    def serves(self) -> bool: ...


class LocalRig:
    """The serving engine of one service, and where its users ask."""

    def __init__(self, platform: LocalPlatform) -> None:
        self._platform = platform
        desired = platform.desired()
        service = read_service(desired.text, desired.name)
        self.url = f"http://127.0.0.1:{desired.port}"
        self.model, self.token = served_name(service), api_key(service)
        self._python, self._faulty_python = desired.python, platform.directory / "drill-python"
        if self._python == str(self._faulty_python):  # an earlier drill was killed
            self._python = shlex.split(
                self._faulty_python.read_text(encoding="utf-8").splitlines()[-1]
            )[1]
        self._file = platform.directory / "drill-fault.json"

    def crash(self, fault: tuple[str, ...] = ()) -> None:
        """Kill the serving engine. Its supervisor starts it again, from now on with ``fault`` added to its arguments.

        Raises:
            Conflict: no engine serves.
        """
        self._restart(fault, self._python)

    def _restart(self, fault: tuple[str, ...], python: str) -> None:
        def edit(desired: Desired) -> Desired:
            arm = desired.arms.get(desired.route)
            if arm is None:
                raise Conflict(
                    f"service {desired.namespace}/{desired.name} has no engine that serves"
                )
            return replace(
                desired.with_arm(desired.route, replace(arm, fault=fault)), python=python
            )

        desired = change(self._platform.directory, edit)
        observed = read_observed(self._platform.directory)
        observed_arm = observed.arms.get(desired.route) if observed else None
        leader = alive(observed_arm.process) if observed_arm is not None else None
        if (
            leader is not None
        ):  # with all its children, as the kernel does to an engine that took too much memory
            members = [leader, *leader.children(recursive=True)]
            for member in members:
                with suppress(psutil.NoSuchProcess):
                    member.kill()
            psutil.wait_procs(members, timeout=5.0)

    def mend(self) -> None:
        """Start the serving engine without its fault, if it has one."""
        desired = self._platform.desired()
        arm = desired.arms.get(desired.route)
        if arm is not None and (arm.fault or desired.python != self._python):
            self.crash()

    def ready_to_plant(self) -> None:
        """Start the serving engine with a sampler that reads its fault from a file, and no fault in it."""
        self.plant({})
        more = f"PYTHONPATH={shlex.quote(str(_FAULTY))}${{PYTHONPATH:+:$PYTHONPATH}}"
        exports = f"MPCTL_WRONG={shlex.quote(str(self._file))} {more}"
        program = f'#!/bin/sh\nexport {exports}\nexec {shlex.quote(self._python)} "$@"\n'
        self._faulty_python.write_text(program, encoding="utf-8")
        self._faulty_python.chmod(0o700)
        self._restart((), str(self._faulty_python))

    def plant(self, fault: dict[str, Any]) -> None:
        """Write the fault that the engine reads with its next step."""
        self._file.write_text(json.dumps(fault), encoding="utf-8")

    def serves(self) -> bool:
        """Return whether the serving engine is ready."""
        desired = self._platform.desired()
        arm = desired.arms.get(desired.route)
        return (
            arm is not None and self._platform.engines.state(Arm(arm.manifest)).phase is Phase.READY
        )


def rig_of(session: Session) -> LocalRig:
    """The serving engine of a service of this machine.

    Raises:
        Refused: users would notice a fault.
    """
    if not isinstance(session, LocalSession):
        raise Refused(
            f"{session.title} serves in a cluster, where a drill would break the engines of its users",
            hint=f"start the same manifest on this machine: {commands.line('local', 'up', '-f', 'MANIFEST')}",
        )
    return LocalRig(session.platform)
