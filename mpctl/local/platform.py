"""The local platform: implements ``mpctl.rollout.ports.Platform`` for services that are processes on this machine."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import psutil

from mpctl import commands
from mpctl.errors import Conflict, InputError, Refused
from mpctl.json_types import Json
from mpctl.local.desired import (
    Desired,
    DesiredArm,
    Process,
    change,
    read_desired,
    read_observed,
    require_desired,
)
from mpctl.local.engine import check_model, notes, read_service
from mpctl.local.engines import STOP_TIMEOUT_S, LocalEngines, endpoint_of, free_ports
from mpctl.local.processes import (
    alive,
    is_supervised,
    memory_of,
    stop_group,
    wait_until_gone,
    who_listens,
)
from mpctl.manifest import foreign_changes
from mpctl.platform.state_files import locked, service_dir, write_json
from mpctl.rollout.ports import Arm, Demand, Endpoint, Fit, Live, RetainedBaseline
from mpctl.rollout.revision import text_digest

_RESTARTED = "# mpctl: restarted at "


class LocalPlatform:
    """A service of this machine. ``supervises``: reading an arm replaces a supervisor that is gone, as a command that
    changes the service needs; otherwise reading changes nothing."""

    name = "local"
    replaces_pods_itself = False
    scaler = None
    router = None

    def __init__(self, namespace: str, service: str, *, supervises: bool = False) -> None:
        self.directory = service_dir(namespace, service)
        self.engines = LocalEngines(self.directory, supervises=supervises)
        self._namespace = namespace
        self._service = service

    # Reading

    def desired(self) -> Desired:
        """Return the desired state.

        Raises:
            InputError: the service is not up.
        """
        return require_desired(self.directory)

    def supervised(self) -> bool:
        """Return whether a supervisor of the service runs."""
        return is_supervised(self.directory)

    def router_error(self) -> str:
        """Describe why the service's own port does not answer; empty if it answers."""
        observed = read_observed(self.directory)
        return observed.router_error if observed else ""

    def read(self) -> Live:
        """Return the live manifest and the route."""
        desired = self.desired()
        return Live(
            self._service, self._namespace, desired.text, text_digest(desired.text), desired.route
        )

    def settled_text(self, text: str, known: tuple[str, ...]) -> str:
        """The same text: a change sets nothing for its duration here."""
        return text

    def restarted_text(self, at: str) -> str:
        """The live manifest with a comment at its end: another text is another engine here."""
        lines = [
            line
            for line in self.desired().text.splitlines(keepends=True)
            if not line.startswith(_RESTARTED)
        ]
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
        return endpoint_of(read_service(desired.text, desired.name), desired.port)

    def fits(self, *demands: Demand) -> tuple[Fit, ...]:
        """Return whether the model of each demand is on this machine, and memory for its engines."""
        return tuple(Fit.of(self._check, demand) for demand in demands)

    def _check(self, demand: Demand) -> tuple[str, ...]:
        service = read_service(demand.arm.manifest, self._service)
        desired = self.desired()
        check_model(service, Path(desired.cwd))
        if demand.side_by_side and demand.arm.id not in desired.arms:
            self._check_memory(desired.route, 2 if demand.pair else 1)
        return notes(service)

    def _check_memory(self, serving: str, engines: int) -> None:
        """Refuse more engines without memory for them, estimated from the serving one, which the kernel may kill."""
        observed_arm = self.engines.observed(serving)
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
    ) -> Json:
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

    def foreign_changes(self, before: str, after: str) -> tuple[str, ...]:
        """Paths of the fields in which two manifests differ beyond speculation and staging."""
        return foreign_changes(before, after)

    def describe_foreign_change(
        self, known: tuple[Arm, ...], scaling: Json | None = None
    ) -> str | None:
        """The service was stopped, or its manifest was changed."""
        title, desired = f"service {self._namespace}/{self._service}", read_desired(self.directory)
        if desired is None:
            return f"{title} was stopped"
        return (
            None
            if desired.text in {arm.manifest for arm in known}
            else f"{title} was changed by another client"
        )

    # Acting

    def create(
        self, manifest: str, *, port: int | None, cwd: str, python: str, lifeline: Process | None
    ) -> Desired:
        """Bring the service up with one arm.

        Raises:
            Conflict: it is up with another manifest, or the port is in use.
        """
        arm = Arm(manifest)
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        present = read_desired(self.directory)
        if present is not None and present.text == manifest:
            self.engines.start(Arm(manifest))  # restores engines that ended meanwhile
            return present
        with locked(self.directory / "desired.lock"):
            if read_desired(self.directory) is not None:
                up = commands.line("local", "up", self._service, namespace=self._namespace)
                rollout = commands.line(
                    "rollout", self._service, "--spec", "METHOD", namespace=self._namespace
                )
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
        self.engines.ensure_supervisor()
        return desired

    def replace(self, arm: Arm, *, expect: tuple[Arm, ...] = (), downtime: bool = True) -> None:
        """Stop every other arm, then start this one; the service's port refuses connections meanwhile."""

        def without_others(desired: Desired) -> Desired:
            arms = {arm.id: desired.arms[arm.id]} if arm.id in desired.arms else {}
            return replace(desired, arms=arms)

        change(self.directory, without_others)
        self.engines.wait_until(lambda arms: set(arms) <= {arm.id})
        self.engines.start(arm)
        # On one machine the switch is the change of the service itself: its port answers from the new arm once that
        # is ready.
        change(self.directory, lambda d: replace(d, route=arm.id))

    def promote(
        self,
        arm: Arm,
        *,
        expect: tuple[Arm, ...],
        downtime: bool = False,
        candidate_serves: bool = False,
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

    def remove(self) -> None:
        """Take the service down: engines, supervisor and port. History and measurements remain."""
        with locked(self.directory / "desired.lock"):
            (self.directory / "desired.json").unlink(missing_ok=True)
        observed = read_observed(self.directory)
        if observed is None:
            return
        if alive(observed.supervisor) is not None:
            wait_until_gone(observed.supervisor, STOP_TIMEOUT_S)
        for arm in observed.arms.values():
            stop_group(arm.process)
        (self.directory / "observed.json").unlink(missing_ok=True)


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
