"""The local platform: implements ``mpctl.rollout.ports.Platform`` for services that are processes on this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from mpctl import commands
from mpctl.errors import Conflict, InputError, MpctlError, Refused
from mpctl.manifest import Service, foreign_changes, masked
from mpctl.platform.local.desired import Desired, DesiredArm, ObservedArm, Process, change, read_desired, read_observed
from mpctl.platform.local.engine import (
    api_key,
    check_model,
    drain_s,
    engine_command,
    notes,
    read_service,
    served_name,
)
from mpctl.platform.local.processes import (
    STATE_VARIABLE,
    alive,
    arguments_of,
    memory_of,
    stop_group,
    wait_until_gone,
    who_listens,
)
from mpctl.platform.local.state_files import locked, log_end, log_path, service_dir, state_root, try_lock, write_json
from mpctl.rollout.ports import Arm, ArmState, Demand, Endpoint, Live, Phase, RetainedBaseline
from mpctl.rollout.revision import text_digest
from mpctl.safe_text import telling_lines

_RESTARTED = "# mpctl: restarted at "
_STOP_TIMEOUT_S = 45.0  # two signals, after the last request
_PHASES = {"Starting": Phase.STARTING, "Restarting": Phase.STARTING, "Ready": Phase.READY, "Failed": Phase.FAILED}


class LocalPlatform:
    """A service of this machine. ``supervises``: reading an arm replaces a supervisor that is gone, as a command that
    changes the service needs; otherwise reading changes nothing."""

    name = "local"
    replaces_pods_itself = False
    scaler = None
    router = None

    def __init__(self, namespace: str, service: str, *, supervises: bool = False) -> None:
        self._supervises = supervises
        self._spawned: subprocess.Popen[bytes] | None = None
        self.directory = service_dir(namespace, service)
        self._namespace = namespace
        self._service = service

    # Reading

    def desired(self) -> Desired:
        """Return the desired state.

        Raises:
            InputError: the service is not up.
        """
        desired = read_desired(self.directory)
        if desired is None:
            raise InputError(
                f"service {self._namespace}/{self._service} is not up",
                hint=commands.line("local", "up", "-f", "MANIFEST"),
            )
        return desired

    def exists(self) -> bool:
        """Return whether the service is up."""
        return read_desired(self.directory) is not None

    def supervised(self) -> bool:
        """Return whether a supervisor of the service runs."""
        observed = read_observed(self.directory)
        return observed is not None and alive(observed.supervisor) is not None

    def router_error(self) -> str:
        """Describe why the service's own port does not answer; empty if it answers."""
        observed = read_observed(self.directory)
        return observed.router_error if observed else ""

    def read(self) -> Live:
        """Return the live manifest and the route."""
        desired = self.desired()
        return Live(self._service, self._namespace, desired.text, text_digest(desired.text), desired.route)

    def foreign_changes(self, before: str, after: str) -> tuple[str, ...]:
        """Paths of the fields in which two manifests differ beyond speculation and staging."""
        return foreign_changes(before, after)

    def settled_text(self, text: str, known: tuple[str, ...]) -> str:
        """The same text: a change sets nothing for its duration here."""
        return text

    def restarted_text(self, at: str) -> str:
        """The live manifest with a comment at its end: another text is another engine here."""
        lines = [line for line in self.desired().text.splitlines(keepends=True) if not line.startswith(_RESTARTED)]
        text = "".join(lines)
        return f"{text}{'' if text.endswith(chr(10)) else chr(10)}{_RESTARTED}{at}\n"

    def configs(self) -> tuple[str, ...]:
        """None: the manifest says all."""
        return ()

    def live_text(self) -> str | None:
        """The live manifest; None when the service is down."""
        desired = read_desired(self.directory)
        return None if desired is None else desired.text

    def address(self, turn: int) -> Endpoint | None:
        """The service's own port, behind which the supervisor's router is."""
        desired = self.desired()
        return self._endpoint(read_service(desired.text, desired.name), desired.port)

    def check(self, demand: Demand) -> tuple[str, ...]:
        """Refuse a manifest whose model is not on this machine, or more engines than there is memory for."""
        service = read_service(demand.arm.manifest, self._service)
        desired = self.desired()
        check_model(service, Path(desired.cwd))
        if demand.side_by_side and demand.arm.id not in desired.arms:
            self._check_memory(desired.route, 2 if demand.pair else 1)
        return notes(service)

    def _check_memory(self, serving: str, engines: int) -> None:
        """Refuse more engines without memory for them, estimated from the serving one, which the kernel may kill."""
        observed_arm = self._observed_arm(serving)
        needed = engines * memory_of(observed_arm.process if observed_arm else None)
        free = psutil.virtual_memory().available
        if free < needed:
            need = "a second engine needs" if engines == 1 else f"{engines} more engines need"
            raise Refused(
                f"{need} about {needed / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are available",
                hint="--strategy in-place runs one engine at a time",
            )

    def scaling(self) -> None:
        """Nothing scales processes of this machine."""
        return

    def added_fields(self, arm: Arm, live: Live) -> tuple[str, ...] | None:
        """None: manifests are stored as written."""
        return () if live.text == arm.manifest else None

    def route(
        self, name: str | None, steps: tuple[int, ...], *, mirror: int = 0, force: bool = False
    ) -> dict[str, Any]:
        """The service's port leads to one arm.

        Raises:
            InputError: always.
        """
        raise InputError(
            "the port of a local service leads to one engine: its traffic can be neither split nor mirrored",
            field="--mirror" if mirror else "--traffic-steps",
            hint="leave it out: both engines are measured on the same prompts",
        )

    def retained_baseline(self) -> RetainedBaseline | None:
        """None: a retained engine is one of the service's arms, which a rollback finds without a record."""
        return None

    def state(self, arm: Arm) -> ArmState:
        """Return the state of an arm."""
        desired = self.desired()
        wanted, arm_id = desired.arms.get(arm.id), arm.id
        if wanted is None:
            return ArmState(arm_id, Phase.ABSENT)
        if self._supervises:
            self.ensure_supervisor()
        observed_arm = self._observed_arm(arm_id)
        if observed_arm is None:
            return ArmState(arm_id, Phase.STARTING, message="waiting for the supervisor")
        return self._assess(arm_id, wanted, observed_arm, desired)

    def _assess(self, arm_id: str, arm: DesiredArm, observed_arm: ObservedArm, desired: Desired) -> ArmState:
        service = read_service(arm.manifest, self._service)
        running = arguments_of(observed_arm.process)
        phase = _PHASES[observed_arm.phase]
        if running is None and phase is Phase.READY:
            phase = Phase.STARTING  # it just ended; the supervisor has not observed it yet
        message = observed_arm.message
        if running is None and not self._supervises and not self.supervised():
            phase, message = Phase.ABSENT, "its process is gone, and so is the supervisor"
        return ArmState(
            id=arm_id,
            phase=phase,
            endpoint=self._endpoint(service, arm.port) if phase is Phase.READY else None,
            argv=running,
            matches=_same_arguments(running, engine_command(desired.python, service, arm.port)),
            message=message,
            restarts=observed_arm.restarts,
            kv_pool_tokens=self._kv_pool(arm_id) if phase is Phase.READY else None,
        )

    def _kv_pool(self, arm_id: str) -> int | None:
        from mpctl.estimate.memory import kv_pool_tokens

        try:
            return kv_pool_tokens(log_path(self.directory, arm_id).read_text(errors="replace"))
        except FileNotFoundError:
            return None

    def _endpoint(self, service: Service, port: int) -> Endpoint:
        return Endpoint(
            base_url=f"http://127.0.0.1:{port}",
            model=served_name(service),
            token=api_key(service),
            same_user=True,
        )

    def describe_foreign_change(self, known: tuple[Arm, ...], scaling: dict[str, Any] | None = None) -> str | None:
        """The service was stopped, or its manifest was changed."""
        title, desired = f"service {self._namespace}/{self._service}", read_desired(self.directory)
        if desired is None:
            return f"{title} was stopped"
        return None if desired.text in {arm.manifest for arm in known} else f"{title} was changed by another client"

    def device(self, arm: Arm) -> str:
        """Empty: the load client reads it where the engine runs on the same machine."""
        return ""

    def lost_pods(self) -> tuple[str, ...]:
        """None: an engine's process that ended has its last words in its log."""
        return ()

    def describe_failure(self, arm: Arm) -> str:
        """The lines of the engine's log that name an error, or its last ones, and where the log is."""
        path = log_path(self.directory, arm.id)
        try:
            lines = masked(log_end(path)).splitlines()
        except FileNotFoundError:
            return f"there is no log {path}"
        return "\n".join([*telling_lines(lines)[-3:], f"the whole log: {path}"])

    # Acting

    def create(self, manifest: str, *, port: int | None, cwd: str, python: str, lifeline: Process | None) -> Desired:
        """Bring the service up with one arm.

        Raises:
            Conflict: it is up with another manifest, or the port is in use.
        """
        arm = Arm(manifest)
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        present = read_desired(self.directory)
        if present is not None and present.text == manifest:
            self.start(Arm(manifest))  # restores engines that ended meanwhile
            return present
        with locked(self.directory / "desired.lock"):
            if read_desired(self.directory) is not None:
                up = commands.line("local", "up", self._service, namespace=self._namespace)
                rollout = commands.line("rollout", self._service, "--spec", "METHOD", namespace=self._namespace)
                raise Conflict(
                    f"service {self._namespace}/{self._service} is already up with another manifest",
                    hint=f"{up} without -f brings it back; {rollout} changes it",
                )
            if port is not None:
                check_port(port)
            service_port, engine = free_ports(2) if port is None else (port, *free_ports(1))
            desired = Desired(
                name=self._service,
                namespace=self._namespace,
                text=manifest,
                port=service_port,
                cwd=cwd,
                python=python,
                route=arm.id,
                arms={arm.id: DesiredArm(manifest, engine)},
                lifeline=lifeline,
            )
            write_json(self.directory / "desired.json", desired.to_record())
        self.ensure_supervisor()
        return desired

    def start(self, arm: Arm) -> None:
        """Add the arm; a failed one is started afresh, and one that still finishes its requests once it is gone."""
        self._clear_failed(arm)
        if arm.id not in self.desired().arms:
            self._wait_until(lambda arms: arm.id not in arms)
        change(self.directory, lambda d: d if arm.id in d.arms else d.with_arm(arm.id, _new(arm)))
        self.ensure_supervisor()

    def replace(self, arm: Arm, *, expect: tuple[Arm, ...] = (), downtime: bool = True) -> None:
        """Stop every other arm, then start this one; the service's port refuses connections meanwhile."""
        self._clear_failed(arm)

        def without_others(desired: Desired) -> Desired:
            arms = {arm.id: desired.arms[arm.id]} if arm.id in desired.arms else {}
            return replace(desired, arms=arms)

        change(self.directory, without_others)
        self._wait_until(lambda arms: set(arms) <= {arm.id})
        self.start(arm)
        # On one machine the switch is the change of the service itself: its port answers from the new arm once that
        # is ready.
        change(self.directory, lambda d: replace(d, route=arm.id))

    def promote(
        self, arm: Arm, *, expect: tuple[Arm, ...], downtime: bool = False, candidate_serves: bool = False
    ) -> None:
        """Write manifest and route in one document."""

        def edit(desired: Desired) -> Desired:
            if desired.text not in {known.manifest for known in expect}:
                diff = commands.line("diff", desired.name, namespace=desired.namespace)
                raise Conflict(
                    f"service {desired.namespace}/{desired.name} was changed by another client meanwhile",
                    hint=f"run '{diff}' to see the change; nothing was overwritten",
                )
            return replace(desired, text=arm.manifest, route=arm.id)

        change(self.directory, edit)

    def restore_strategy(self, arm: Arm) -> None:
        """Nothing to restore: a change sets no strategy here."""

    def stop_all_except(self, arm: Arm) -> None:
        """Stop every other arm and wait until it is gone."""
        change(self.directory, lambda d: d.only(arm.id))
        self._wait_until(lambda arms: set(arms) <= {arm.id})

    def stop(self, arm: Arm) -> None:
        """Stop an arm that does not serve and wait until it is gone.

        Raises:
            Conflict: it serves.
        """

        def without(desired: Desired) -> Desired:
            if desired.route == arm.id:
                raise Conflict(f"{arm.id} serves {desired.namespace}/{desired.name} and is not stopped")
            return desired.without_arm(arm.id)

        change(self.directory, without)
        self._wait_until(lambda arms: arm.id not in arms)

    def remove(self) -> None:
        """Take the service down: engines, supervisor and port. History and measurements remain."""
        with locked(self.directory / "desired.lock"):
            (self.directory / "desired.json").unlink(missing_ok=True)
        observed = read_observed(self.directory)
        if observed is None:
            return
        if alive(observed.supervisor) is not None:
            wait_until_gone(observed.supervisor, _STOP_TIMEOUT_S)
        for arm in observed.arms.values():
            stop_group(arm.process)
        (self.directory / "observed.json").unlink(missing_ok=True)

    def ensure_supervisor(self) -> None:
        """Start the supervisor unless one runs."""
        if self._spawned is not None and self._spawned.poll() is None:
            return  # it runs, or is about to take the lock
        descriptor = try_lock(self.directory / "supervisor.lock")
        if descriptor is None:
            return
        os.close(descriptor)
        with (self.directory / "supervisor.log").open("ab") as log:
            # Not from the user's directory: a random.py there would be found before the standard library's.
            self._spawned = subprocess.Popen(
                [sys.executable, "-P", "-m", "mpctl.platform.local.supervisor", str(self.directory)],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, STATE_VARIABLE: str(state_root())},
                start_new_session=True,
            )

    def _clear_failed(self, arm: Arm) -> None:
        observed_arm = self._observed_arm(arm.id)
        if observed_arm is not None and observed_arm.phase == "Failed":
            change(self.directory, lambda desired: desired.without_arm(arm.id))
            self._wait_until(lambda arms: arm.id not in arms)

    def _observed_arm(self, arm_id: str) -> ObservedArm | None:
        observed = read_observed(self.directory)
        return observed.arms.get(arm_id) if observed else None

    def _wait_until(self, reached: Callable[[Mapping[str, ObservedArm]], bool]) -> None:
        """Wait until the supervisor reports it: engines that stop finish their requests first."""
        desired = self.desired()
        # One that stops is not among the desired arms any more; it has the service's time for its requests.
        texts = [desired.text, *(arm.manifest for arm in desired.arms.values())]
        patience = _STOP_TIMEOUT_S + max(drain_s(read_service(text, self._service)) for text in texts)
        end = time.monotonic() + patience
        while time.monotonic() < end:
            self.ensure_supervisor()
            observed = read_observed(self.directory)
            if observed is not None and reached(observed.arms):
                return
            time.sleep(0.1)
        raise MpctlError(
            f"engines of {self._namespace}/{self._service} did not stop within {patience:.0f} s",
            hint=f"read {self.directory / 'supervisor.log'}; then run the same command again to resume",
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


def check_port(port: int) -> None:
    """Raise unless the port can be listened on.

    Raises:
        Conflict: it is in use; the message names the process.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise Conflict(
                f"port {port} is in use by {who_listens(port)}: {error.strerror}",
                hint="choose another with --port, or leave it out for a free one",
            ) from error
