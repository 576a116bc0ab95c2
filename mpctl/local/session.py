"""A service on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mpctl import commands
from mpctl.app.console import Console
from mpctl.app.session.base import (
    Edit,
    EngineCounters,
    Place,
    Session,
    choose,
    who,
)
from mpctl.app.session.service_status import Status
from mpctl.errors import InputError
from mpctl.estimate.shape import find_gpu
from mpctl.experiment.counters import CounterError
from mpctl.json_types import Json
from mpctl.local.engine import installed_version, model_of, read_service
from mpctl.local.logs import log_path
from mpctl.local.platform import LocalPlatform
from mpctl.manifest import Service
from mpctl.methods import from_config
from mpctl.platform.file_store import FileStore
from mpctl.platform.kubernetes.api.connection import missing_kubeconfig, reachable
from mpctl.platform.state_files import service_dirs
from mpctl.rollout.ports import COPY, Arm

if TYPE_CHECKING:
    from mpctl.platform.meter import HttpMeter


class LocalSession(Session):
    """A service on this machine."""

    store: FileStore
    platform: LocalPlatform
    shares_files = True
    stages = False  # engines on this machine read paths and repositories as they are

    def __init__(self, namespace: str, name: str, console: Console) -> None:
        self.name, self.namespace, self.console = name, namespace, console
        self.platform = LocalPlatform(namespace, name)
        self.store = FileStore(self.platform.directory, who())

    def service(self) -> Service:
        """The live service as a value."""
        return read_service(self.platform.read().text, self.name)

    def with_speculation(self, config: Json | None, edit: Edit | None = None) -> str:
        """The manifest with another speculative setting: only the bytes of the setting change. Engines on this machine
        read paths and repositories as they are, so that nothing is staged.
        """
        return self.service().with_speculation(config).to_yaml()

    def engine_version(self, service: Service) -> str | None:
        """The version of the installed engine."""
        return installed_version() or service.image

    def target_of(self, service: Service) -> str | None:
        """The model that the engine loads, by its argument or its storage."""
        return model_of(service)

    @property
    def paths(self) -> str:
        """The paths of checkpoints that can be read: all of this machine."""
        return (
            f"no config.json lies there (a relative path starts from {self.platform.desired().cwd})"
        )

    def folder(self, name: str | None) -> Path | None:
        """Relative paths start from where the service was started."""
        folder = Path(self.platform.desired().cwd) / Path(name).expanduser() if name else None
        return folder if folder is not None and folder.is_dir() else None

    def absence(self) -> InputError | None:
        """Why the service is not up, with what starts it again; None when it is."""
        if self.platform.live_text() is not None:
            return None
        recorded = self.command("history", "--revision", "N", "-o", "yaml", "--show-secrets")
        return InputError(
            f"{self.title} is not up",
            hint=f"'{recorded} > service.yaml' writes a recorded manifest, "
            f"'{commands.line('local', 'up', '-f', 'service.yaml')}' starts it",
        )

    def engine_log(self) -> str | None:
        """The beginning of the serving arm's log, where vLLM says how large its KV pool is."""
        path = log_path(self.platform.directory, self.platform.desired().route)
        try:
            with path.open(encoding="utf-8", errors="replace") as file:
                return file.read(2**20)
        except OSError:
            return None

    def gpu(self) -> str | None:
        """The GPU of this machine."""
        from mpctl.platform.meter import device

        gpu = find_gpu(device())
        return None if gpu is None else gpu.name

    def counters(self) -> EngineCounters:
        """Read the counters of the engine that gets the traffic."""
        from mpctl.platform.meter import read_counters

        desired = self.platform.desired()
        arm = desired.arms.get(desired.route)
        state = None if arm is None else self.platform.engines.state(Arm(arm.manifest))
        if state is None or state.endpoint is None:
            return EngineCounters(
                {}, {desired.route: state.message if state else "it does not run"}, 1
            )
        try:
            return EngineCounters({state.id: read_counters(state.endpoint)}, {}, 1)
        except CounterError as error:
            return EngineCounters({}, {state.id: str(error)}, 1)

    def status(self) -> Status:
        """The service as it is."""
        desired, supervised = self.platform.desired(), self.platform.supervised()
        arms = tuple(
            self.platform.engines.state(Arm(a.manifest, copy=i.endswith(COPY)))
            for i, a in desired.arms.items()
        )
        config: Json | None = read_service(desired.text, self.name).speculation()
        if supervised or self.holder() is not None:
            problem = self.platform.router_error()
        else:
            up = commands.line("local", "up", self.name, namespace=self.namespace)
            problem = f"the supervisor is gone, port {desired.port} does not answer: {up} brings both back"
        return self.describe(
            desired.text,
            from_config(config).describe(),
            url=f"http://127.0.0.1:{desired.port}/v1",
            routed=desired.route,
            arms=arms,
            problems=(problem,) if problem else (),
            supervised=supervised,
        )

    def _open(self) -> tuple[LocalPlatform, HttpMeter]:
        """A supervisor that is gone is replaced."""
        from mpctl.platform.client import StreamClient
        from mpctl.platform.meter import HttpMeter

        meter = HttpMeter(StreamClient(), self.platform.desired().cwd)
        return LocalPlatform(self.namespace, self.name, supervises=True), meter


def open_local(
    place: Place, console: Console, name: str | None, *, gone: bool = False
) -> LocalSession:
    """The service asked for; without a name the only one of this machine. ``gone``: one that is named and not up, but
    has a history, will do too.

    Raises:
        InputError: there is none, or several; the message lists them.
    """
    where = f" in namespace {place.namespace}" if place.namespace else " on this machine"
    services, none = (
        known_services(place.namespace),
        f"run '{commands.line('local', 'up', '-f', 'MANIFEST')}' to start one",
    )
    if name is not None and all(n != name for _, n in services):
        none += f"; {_cluster()}"
    if gone and name is not None:
        services += [
            pair
            for pair in known_services(place.namespace, with_history=True)
            if pair not in services
        ]
    return LocalSession(
        *choose(services, name, where=where, none=none, elsewhere=_namespaces), console
    )


def local_sessions(place: Place, console: Console) -> list[LocalSession]:
    """Every service that is up on this machine, or in the namespace."""
    return [
        LocalSession(namespace, service, console)
        for namespace, service in known_services(place.namespace)
    ]


def _namespaces(name: str) -> list[str]:
    """Namespaces of this machine with a service of that name."""
    return [namespace for namespace, service in known_services(None) if service == name]


def _cluster() -> str:
    """Say how to look on the cluster instead, or why there is none."""
    try:
        has_cluster = reachable(None, None)
    except InputError as error:
        return error.message
    return (
        "use --platform kubernetes for the cluster of the kubeconfig"
        if has_cluster
        else missing_kubeconfig()
    )


def known_services(namespace: str | None, *, with_history: bool = False) -> list[tuple[str, str]]:
    """(namespace, name) of every service that is up on this machine, in one namespace or in all; ``with_history``: of
    every one that has a history."""
    pairs = [
        (d.parent.name, d.name)
        for d in service_dirs("ledger.jsonl" if with_history else "desired.json")
    ]
    return [(ns, n) for ns, n in pairs if namespace in (None, ns)]
