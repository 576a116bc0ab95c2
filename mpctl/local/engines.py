"""The engines of a service of this machine: processes that its supervisor starts and stops by the desired state."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from mpctl.errors import Conflict, MpctlError
from mpctl.estimate.memory import kv_pool_tokens
from mpctl.local.desired import (
    Desired,
    DesiredArm,
    ObservedArm,
    change,
    read_observed,
    require_desired,
)
from mpctl.local.engine import api_key, drain_s, engine_command, read_service, served_name
from mpctl.local.logs import log_end, log_path
from mpctl.local.processes import STATE_VARIABLE, arguments_of, is_supervised
from mpctl.manifest import Service, masked
from mpctl.platform.state_files import state_root, try_lock
from mpctl.rollout.ports import Arm, ArmState, Endpoint, Phase
from mpctl.safe_text import telling_lines

STOP_TIMEOUT_S = 45.0  # two signals, after the last request
_PHASES = {
    "Starting": Phase.STARTING,
    "Restarting": Phase.STARTING,
    "Ready": Phase.READY,
    "Failed": Phase.FAILED,
}


class LocalEngines:
    """Starts, stops and reads the arms of one service. ``supervises``: reading an arm replaces a supervisor that is
    gone, as a command that changes the service needs; otherwise reading changes nothing."""

    def __init__(self, directory: Path, *, supervises: bool = False) -> None:
        """``directory``: of the service's files."""
        self._directory = directory
        self._supervises = supervises
        self._spawned: subprocess.Popen[bytes] | None = None

    def state(self, arm: Arm) -> ArmState:
        """Return the state of an arm."""
        desired = require_desired(self._directory)
        wanted, arm_id = desired.arms.get(arm.id), arm.id
        if wanted is None:
            return ArmState(arm_id, Phase.ABSENT)
        if self._supervises:
            self.ensure_supervisor()
        observed_arm = self.observed(arm_id)
        if observed_arm is None:
            return ArmState(arm_id, Phase.STARTING, message="waiting for the supervisor")
        return self._assess(arm_id, wanted, observed_arm, desired)

    def _assess(
        self, arm_id: str, arm: DesiredArm, observed_arm: ObservedArm, desired: Desired
    ) -> ArmState:
        service = read_service(arm.manifest, self._directory.name)
        running = arguments_of(observed_arm.process)
        phase = _PHASES[observed_arm.phase]
        if running is None and phase is Phase.READY:
            phase = Phase.STARTING  # it just ended; the supervisor has not observed it yet
        message = observed_arm.message
        if running is None and not self._supervises and not is_supervised(self._directory):
            phase, message = Phase.ABSENT, "its process is gone, and so is the supervisor"
        return ArmState(
            id=arm_id,
            phase=phase,
            endpoint=endpoint_of(service, arm.port) if phase is Phase.READY else None,
            argv=running,
            matches=_same_arguments(running, engine_command(desired.python, service, arm.port)),
            message=message,
            restarts=observed_arm.restarts,
            kv_pool_tokens=_kv_pool(self._directory, arm_id) if phase is Phase.READY else None,
        )

    def describe_failure(self, arm: Arm) -> str:
        """The lines of the engine's log that name an error, or its last ones, and where the log is."""
        path = log_path(self._directory, arm.id)
        try:
            lines = masked(log_end(path)).splitlines()
        except FileNotFoundError:
            return f"there is no log {path}"
        return "\n".join([*telling_lines(lines)[-3:], f"the whole log: {path}"])

    def device(self, arm: Arm) -> str:
        """Empty: the load client reads it where the engine runs on the same machine."""
        return ""

    def lost_pods(self) -> tuple[str, ...]:
        """None: an engine's process that ended has its last words in its log."""
        return ()

    def start(self, arm: Arm) -> None:
        """Add the arm; a failed one is started afresh, and one that still finishes its requests once it is gone."""
        self._clear_failed(arm)
        if arm.id not in require_desired(self._directory).arms:
            self.wait_until(lambda arms: arm.id not in arms)
        change(self._directory, lambda d: d if arm.id in d.arms else d.with_arm(arm.id, _new(arm)))
        self.ensure_supervisor()

    def stop(self, arm: Arm) -> None:
        """Stop an arm that does not serve and wait until it is gone.

        Raises:
            Conflict: it serves.
        """

        def without(desired: Desired) -> Desired:
            if desired.route == arm.id:
                raise Conflict(
                    f"{arm.id} serves {desired.namespace}/{desired.name} and is not stopped"
                )
            return desired.without_arm(arm.id)

        change(self._directory, without)
        self.wait_until(lambda arms: arm.id not in arms)

    def stop_all_except(self, arm: Arm) -> None:
        """Stop every other arm and wait until it is gone."""
        change(self._directory, lambda d: d.only(arm.id))
        self.wait_until(lambda arms: set(arms) <= {arm.id})

    def _clear_failed(self, arm: Arm) -> None:
        observed_arm = self.observed(arm.id)
        if observed_arm is not None and observed_arm.phase == "Failed":
            change(self._directory, lambda desired: desired.without_arm(arm.id))
            self.wait_until(lambda arms: arm.id not in arms)

    def observed(self, arm_id: str) -> ObservedArm | None:
        """Return the supervisor's state of an arm; None when it reports none."""
        observed = read_observed(self._directory)
        return observed.arms.get(arm_id) if observed else None

    def wait_until(self, reached: Callable[[Mapping[str, ObservedArm]], bool]) -> None:
        """Wait until the supervisor reports it: engines that stop finish their requests first."""
        desired = require_desired(self._directory)
        # One that stops is not among the desired arms any more; it has the service's time for its requests.
        texts = [desired.text, *(arm.manifest for arm in desired.arms.values())]
        patience = STOP_TIMEOUT_S + max(
            drain_s(read_service(text, self._directory.name)) for text in texts
        )
        end = time.monotonic() + patience
        while time.monotonic() < end:
            self.ensure_supervisor()
            observed = read_observed(self._directory)
            if observed is not None and reached(observed.arms):
                return
            time.sleep(0.1)
        raise MpctlError(
            f"engines of {self._directory.parent.name}/{self._directory.name} did not stop within {patience:.0f} s",
            hint=f"read {self._directory / 'supervisor.log'}; then run the same command again to resume",
        )

    def ensure_supervisor(self) -> None:
        """Start the supervisor unless one runs."""
        if self._spawned is not None and self._spawned.poll() is None:
            return  # it runs, or is about to take the lock
        descriptor = try_lock(self._directory / "supervisor.lock")
        if descriptor is None:
            return
        os.close(descriptor)
        with (self._directory / "supervisor.log").open("ab") as log:
            # Not from the user's directory: a random.py there would be found before the standard library's.
            self._spawned = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "mpctl.local.supervisor",
                    str(self._directory),
                ],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, STATE_VARIABLE: str(state_root())},
                start_new_session=True,
            )


def _kv_pool(directory: Path, arm_id: str) -> int | None:
    try:
        return kv_pool_tokens(log_path(directory, arm_id).read_text(errors="replace"))
    except FileNotFoundError:
        return None


def endpoint_of(service: Service, port: int) -> Endpoint:
    """Return the endpoint of a service's engine on a port of this machine."""
    return Endpoint(
        base_url=f"http://127.0.0.1:{port}",
        model=served_name(service),
        token=api_key(service),
        same_user=True,
    )


def _same_arguments(running: tuple[str, ...] | None, wanted: list[str]) -> bool:
    """Return whether the process runs what was asked for; arguments before the script belong to the interpreter."""
    after_interpreter = tuple(wanted[1:])
    return running is not None and running[-len(after_interpreter) :] == after_interpreter


def _new(arm: Arm) -> DesiredArm:
    return DesiredArm(arm.manifest, free_ports(1)[0])


def free_ports(count: int) -> tuple[int, ...]:
    """Loopback ports that are free now, all different."""
    with ExitStack() as open_probes:
        ports = []
        for _ in range(count):
            probe = open_probes.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            ports.append(int(probe.getsockname()[1]))
        return tuple(ports)
