"""A service and everything that works on it, for every platform."""

from __future__ import annotations

import getpass
import os
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mpctl import annex, commands
from mpctl.app.session.service_status import Status, arm_problems
from mpctl.errors import Cancelled, InputError, MpctlError, nearest
from mpctl.estimate import ModelFacts
from mpctl.estimate.facts import engine_identity, target_name_of
from mpctl.experiment.answers import Answer, Ask
from mpctl.experiment.counters import Counters
from mpctl.json_types import Json
from mpctl.manifest import Service
from mpctl.methods import Finding
from mpctl.methods.versions import engine_release
from mpctl.platform.checkpoints import read_model
from mpctl.platform.state_files import service_dirs
from mpctl.rollout.context import Context
from mpctl.rollout.ledger import lost_history
from mpctl.rollout.operation import (
    Operation,
    unfinished_operation,
    unfinished_retirement,
)
from mpctl.rollout.plan import Kind
from mpctl.rollout.ports import ArmState, Clock, Platform, Store

if TYPE_CHECKING:
    from mpctl.app.console import Console
    from mpctl.platform.meter import HttpMeter


class Place(NamedTuple):
    """The platform, and on a cluster the way to its API server. ``timeout_s``: of one request to it."""

    platform: str = "local"
    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None
    as_user: str | None = None
    timeout_s: float | None = None


def find_platform(context: str | None, kubeconfig: str | None) -> str:
    """The platform of ``auto``: a cluster that is named, else this machine while a service is up on it, else the
    kubeconfig's current cluster.

    Raises:
        InputError: KUBECONFIG names no file that exists.
    """
    if context or kubeconfig:
        return "kubernetes"
    if not annex.is_installed("mpctl.local"):
        return "kubernetes"
    if next(iter(service_dirs()), None) is not None:
        return "local"
    from mpctl.platform.kubernetes.api.connection import (
        VARIABLE,
        kubeconfig_files,
        missing_kubeconfig,
        reachable,
    )

    if os.environ.get(VARIABLE) and not kubeconfig_files(None):
        raise InputError(
            missing_kubeconfig(),
            hint=f"correct or unset {VARIABLE}, or choose this machine with --platform local",
        )
    return "kubernetes" if reachable(None, None) else "local"


def choose_load_place(asked: str, platform: str, *, unfinished: Operation | None = None) -> str:
    """Return where the load client runs: ``job``, a Job in the cluster, or ``local``, the machine of the command. By
    default as in an ``unfinished`` rollout, else a Job in a cluster, whose requests take the path of the service's
    clients.

    An unfinished rollback measures nothing and records no load client. In a cluster it gets the client of Jobs, which
    removes the Job that the undone rollout left.

    Raises:
        InputError: a Job is asked for where there is no cluster.
    """
    if asked == "job" and platform != "kubernetes":
        raise InputError(
            "there is no cluster to run a Job in", field="MPCTL_LOAD", hint="set it to local"
        )
    if asked != "auto":
        return asked
    if unfinished is not None and unfinished.plan.kind is Kind.ROLLOUT:
        return unfinished.plan.load
    return "job" if platform == "kubernetes" else "local"


READY_S = 600.0  # an engine that loads some tens of GB and compiles; a cluster's own measure may be longer


class SystemClock:
    """The machine's clock when the command began, and the time since then: setting the clock meanwhile neither ends a
    wait nor prolongs it."""

    def __init__(self) -> None:
        self._began, self._booted = datetime.now(UTC), _since_boot()

    def now(self) -> datetime:
        """Now, in UTC."""
        return self._began + timedelta(seconds=_since_boot() - self._booted)

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


def _since_boot() -> float:
    """Seconds, also those in which the machine slept where the system counts them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def who() -> str:
    """``user@host`` of whoever runs the command; ``uid-N@host`` where the user has no name, as in many containers."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # KeyError up to Python 3.12
        user = f"uid-{os.getuid()}"
    return f"{user}@{socket.gethostname()}"


@dataclass(frozen=True)
class EngineCounters:
    """Counters by engine; ``failed``: why an engine could not be read; ``wanted``: engines that serve."""

    engines: Mapping[str, Counters]
    failed: Mapping[str, str]
    wanted: int

    @property
    def prefix_hit_share(self) -> float | None:
        """Share of the prompts' tokens that the prefix cache held, 0..1; None where nobody counted any."""
        asked = sum(counters.prefix_queries or 0.0 for counters in self.engines.values())
        held = sum(counters.prefix_hits or 0.0 for counters in self.engines.values())
        return held / asked if asked else None


class ServiceNotFound(InputError):
    """There is no such service where it was looked for."""


Edit = Callable[[Service], Service]


class Source(ABC):
    """A service that can be read and edited: a running one, or a manifest in a file."""

    name: str
    namespace: str
    asks_hub = True  # a hub may be contacted
    stages = True  # a draft has to be staged into a pod
    shares_files = False  # the engine reads the files that mpctl reads

    @property
    @abstractmethod
    def paths(self) -> str:
        """The paths of checkpoints that can be read from here, as text."""

    @abstractmethod
    def service(self) -> Service:
        """The service as a value."""

    @abstractmethod
    def text(self) -> str:
        """The manifest."""

    @abstractmethod
    def with_speculation(self, config: Json | None, edit: Edit | None = None) -> str:
        """The manifest with another speculative setting, as it will read once it is written; ``edit`` changes its
        storage first."""

    @abstractmethod
    def engine_version(self, service: Service) -> str | None:
        """The engine's version or image; None when unknown."""

    def running_release(self) -> str | None:
        """The release that the serving engine answers; None where none is asked."""
        return None

    def release(self, service: Service) -> str | None:
        """The engine's version or image: where its tag names no release, as the serving engine or the manifest says."""

        def stated() -> Iterator[str]:
            yield self.running_release() or ""
            yield from service.stated_releases()

        return engine_release(self.engine_version(service), stated())

    @abstractmethod
    def target_of(self, service: Service) -> str | None:
        """The model that the engine loads, as a path or repository; None when unknown."""

    def folder(self, name: str | None) -> Path | None:
        """The folder of a checkpoint on this machine; None where its files cannot be read from here."""
        return None

    def model_facts(self, name: str | None) -> ModelFacts | None:
        """The facts of a checkpoint that can be read from here."""
        folder = self.folder(name)
        return None if folder is None else read_model(folder)

    def engine_log(self) -> str | None:
        """The start of the serving engine's log; None where it cannot be read."""
        return None

    def kserve_version(self) -> str | None:
        """KServe's release; None where it is unknown."""
        return None

    def gpu(self) -> str | None:
        """The GPU that the engine runs on, by the table's name; None where it is unknown or not in the table."""
        return None

    def path_findings(self) -> tuple[Finding, ...]:
        """Warnings of the path to the engine: routes that cut answers, pods that lose requests when they stop."""
        return ()


class Session(Source, commands.OnService):
    """A service and all that works on it."""

    console: Console
    platform: Platform
    store: Store
    load_place: str | None = None  # None: that of the unfinished rollout
    scope = (
        "rollout"  # the purpose of a load client in the cluster; each purpose has its own client
    )

    @property
    def title(self) -> str:
        """The service as messages name it."""
        return f"service {self.namespace}/{self.name}"

    @property
    def place(self) -> str:
        """Describe the place of the service, for a confirmation."""
        return "this machine"

    def warn_of_owner(self, *, force: bool) -> None:
        """Warn when another writer manages the service's manifest and ``force`` overrides that.

        Raises:
            Refused: another writer does; the hint says how to make the change there.
        """

    def text(self) -> str:
        """The live manifest."""
        return self.platform.read().text

    def engine_identity(self, service: Service) -> dict[str, str]:
        """Return what decides the engine's answers besides speculation."""
        return engine_identity(service, self.engine_version(service), target_name_of(service))

    def ask(
        self, asks: Sequence[Ask], *, salt: str = "", alternatives: int = 0, turn: int = 0
    ) -> tuple[Answer, ...]:
        """Ask the service as its users do, one request after the other.

        Raises:
            MpctlError: no engine serves.
        """
        from mpctl.platform import answers

        endpoint = self.platform.address(turn)
        if endpoint is None:
            raise MpctlError(f"{self.title}: no engine serves")
        return answers.ask(endpoint, asks, concurrency=1, salt=salt, alternatives=alternatives)

    def close(self) -> None:
        """End connections that :meth:`ask` or an operation opened."""

    @abstractmethod
    def counters(self) -> EngineCounters:
        """Read the counters of the engines that serve; what cannot be read is named and never guessed."""

    def holder(self) -> str | None:
        """The operator that holds the service's lock, as text; None without one."""
        return self.store.holder()

    @abstractmethod
    def status(self) -> Status:
        """The service as it is, without changing anything."""

    def describe(
        self,
        text: str,
        spec: str,
        *,
        url: str,
        routed: str | None,
        arms: tuple[ArmState, ...],
        problems: tuple[str, ...],
        supervised: bool = True,
    ) -> Status:
        """The status of the live manifest ``text``, with what the history says of it."""
        revisions, entries, holder = self.store.revisions(), self.store.entries(), self.holder()
        operation = unfinished_operation(entries)
        problems = (*arm_problems(arms), *problems)
        if holder is None:  # while an operator writes, the two were not read at one moment
            if operation is not None:
                resume, rollback = self.command("resume"), self.command("rollback")
                problems = (
                    *problems,
                    f"{operation.id} was interrupted: {resume} continues it, {rollback} undoes it",
                )
            problems = (*problems, *lost_history(entries, revisions))
        return Status(
            namespace=self.namespace,
            name=self.name,
            spec=spec,
            revision=next((r.number for r in reversed(revisions) if r.text == text), None),
            url=url,
            routed=routed,
            arms=arms,
            operation=operation,
            holder=holder,
            supervised=supervised,
            problems=problems,
        )

    @contextmanager
    def context(self, *, interrupted: Cancelled | None = None) -> Iterator[Context]:
        """The context of an operation; its load client ends with the block.

        Raises:
            Cancelled: Ctrl-C was pressed; ``interrupted``, or what is unfinished and how to continue.
        """
        platform, meter = self._open()
        with interruptible(self.console, lambda: interrupted or self.interrupted()):
            try:
                yield Context(
                    platform,
                    self.store,
                    meter,
                    SystemClock(),
                    self.console,
                    who(),
                    service=self.name,
                    namespace=self.namespace,
                )
            finally:
                if leftover := meter.close():
                    self.console.warn(leftover)
                self.close()

    @abstractmethod
    def _open(self) -> tuple[Platform, HttpMeter]:
        """Return the platform that an operation acts on, and what measures its engines."""

    def absence(self) -> InputError | None:
        """Why the service is not found, with what creates it again; None when it is there."""
        return None

    @property
    def clock(self) -> Clock:
        """The machine's clock."""
        return SystemClock()

    def start_s(self) -> float | None:
        """Start time of an engine on this platform; None if unknown."""
        return None

    def start_time(self) -> str:
        """Describe an engine's start time on this platform, as a clause; empty if unknown."""
        seconds = self.start_s()
        return "" if seconds is None else f"; an engine start takes about {seconds:.0f} s here"

    def ready_timeout_s(self, asked: float | None) -> float:
        """Return the timeout of an engine's readiness: ``asked``, else a value for the service."""
        return READY_S if asked is None else asked

    def interrupted(self) -> Cancelled:
        """The error after Ctrl-C: what is unfinished, and how to continue."""
        entries = self.store.entries()
        operation = unfinished_operation(entries)
        if operation is None and (retirement := unfinished_retirement(entries)) is not None:
            hint = f"run '{self.command('retire')}' to continue it"
            return Cancelled(
                f"interrupted; {retirement.id} of {self.title} is unfinished", hint=hint
            )
        if operation is None:
            return Cancelled(f"interrupted; {self.title} has no unfinished operation")
        step = f" at step {operation.begun}" if operation.begun else ""
        return Cancelled(
            f"interrupted{step}; {operation.id} of {self.title} is unfinished{_left_behind(operation)}",
            hint=f"run '{self.command('resume')}' to continue it or '{self.command('rollback')}' to undo it",
        )


def _left_behind(operation: Operation) -> str:
    """Name what an interrupted rollout left running, as a clause; empty where that is nothing new."""
    plan = operation.plan
    if plan.kind is not Kind.ROLLOUT:
        return ""
    if "promote" in operation.done or "switch" in operation.done:
        return f": the service runs {plan.spec_text}"
    if "start" in operation.done or operation.begun == "start":
        return f": the service runs {plan.baseline_text}, its candidate runs side by side"
    return f": the service runs {plan.baseline_text}"


def choose(
    services: list[tuple[str, str]],
    name: str | None,
    *,
    where: str,
    none: str,
    elsewhere: Callable[[str], Sequence[str]] = lambda name: (),
) -> tuple[str, str]:
    """Choose the (namespace, name) of a service. ``none``: the hint when there is no service at all; ``elsewhere``:
    other namespaces that have one of a name.

    Raises:
        ServiceNotFound: no such service.
        InputError: several services match; the message lists them.
    """
    if name is None:
        if len(services) == 1:
            return services[0]
        listing = ", ".join(f"{ns}/{n}" for ns, n in services)
        if not services:
            raise ServiceNotFound(f"no service is up{where}", hint=none)
        raise InputError(f"several services{where}: {listing}", hint="name one of them")
    matching = [(ns, n) for ns, n in services if n == name]
    if len(matching) > 1:
        spaces = ", ".join(ns for ns, _ in matching)
        raise InputError(
            f"service {name} exists in several namespaces: {spaces}",
            hint="choose a namespace with -n",
        )
    if not matching:
        if "/" in name:
            raise ServiceNotFound(
                f"service {name}: not found{where}", hint=_no_service(services, name, elsewhere)
            )
        if others := elsewhere(name):
            raise ServiceNotFound(
                f"service {name}: not found{where}; one of that name is in namespace {', '.join(others)}",
                hint=f"add -n {others[0]}",
            )
        near = nearest(name, [n for _, n in services])
        hint = (
            f"did you mean {near}"
            if near
            else f"run '{commands.line('status', '-A')}' to list services; {none}"
        )
        raise ServiceNotFound(f"service {name}: not found{where}", hint=hint)
    return matching[0]


def _no_service(
    services: list[tuple[str, str]], text: str, elsewhere: Callable[[str], Sequence[str]]
) -> str:
    """The hint for a name with a slash, which no service has: ``text`` is NAMESPACE/SERVICE, or a model's name."""
    namespace, _, name = text.partition("/")
    if (namespace, name) in services or namespace in elsewhere(name):
        return f"name it {name}, and add -n {namespace}"
    plan = commands.line("plan", text, "--spec", "all", "--gpu", "L4", "--traffic", "chat")
    return f"a model without a service is planned by {plan}"


@contextmanager
def interruptible(console: Console, explain: Callable[[], Cancelled]) -> Iterator[None]:
    """Turn Ctrl-C in the block into the error that ``explain`` returns.

    Raises:
        Cancelled: Ctrl-C was pressed.
    """
    with console.stoppable():
        try:
            yield
        except KeyboardInterrupt:
            raise explain() from None
