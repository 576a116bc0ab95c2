"""Use cases of ``mpctl local``: services as processes of this machine."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from mpctl import commands
from mpctl.app.console import Console
from mpctl.app.files import read_file
from mpctl.app.session.base import Place
from mpctl.errors import Cancelled, Conflict, InputError, MpctlError
from mpctl.local.desired import Process
from mpctl.local.engine import check_model, notes, python_of
from mpctl.local.logs import log_path
from mpctl.local.platform import check_port
from mpctl.local.processes import Orphan, identify, stop_orphans
from mpctl.local.requests import LocalDownRequest, LocalLogsRequest, LocalUpRequest
from mpctl.local.session import LocalSession, local_sessions, open_local
from mpctl.manifest import Service, load_one, masked
from mpctl.rollout.operation import unfinished_operation
from mpctl.rollout.ports import Arm
from mpctl.rollout.steps.candidate import await_ready

_ADOPTION_S = 10.0


@dataclass(frozen=True, slots=True)
class LocalService:
    """A service that was started; ``existed``: it was up already, ``ready``: it was waited for."""

    namespace: str
    name: str
    title: str
    url: str
    existed: bool
    ready: bool


@dataclass(frozen=True, slots=True)
class _Manifest:
    text: str
    service: Service
    namespace: str
    directory: Path
    """Relative paths of the manifest start here."""


def up(place: Place, console: Console, request: LocalUpRequest) -> LocalService:
    """Start the service, or restore its lost processes as it was last written.

    Raises:
        InputError: the manifest, the model, the port or the process of ``--lifeline`` cannot be used.
        MpctlError: the engine did not become ready; a service that is new is removed again.
    """
    manifest = _read_manifest(place, console, request)
    check_model(manifest.service, manifest.directory)
    python, lifeline = python_of(request.vllm), _lifeline(request.lifeline_pid)
    session = LocalSession(manifest.namespace, manifest.service.name, console)
    existed = session.platform.live_text() is not None
    if request.port and not existed:
        check_port(request.port)  # before anything of the service is written
    with session.store.lease("local up"):
        desired = session.platform.create(
            manifest.text,
            port=request.port,
            cwd=str(manifest.directory),
            python=python,
            lifeline=lifeline,
        )
        for note in () if existed else notes(manifest.service):
            console.note(f"note: {note}")
        if request.wait:
            _await_ready(
                session, manifest.text, request.ready_timeout_s, remove_on_failure=not existed
            )
    url = f"http://127.0.0.1:{desired.port}/v1"
    return LocalService(session.namespace, session.name, session.title, url, existed, request.wait)


def _read_manifest(place: Place, console: Console, request: LocalUpRequest) -> _Manifest:
    if request.file is None:
        live = open_local(place, console, request.name)
        text, directory = live.platform.read().text, Path(live.platform.desired().cwd)
        return _Manifest(text, load_one(text, live.name, file="<live>"), live.namespace, directory)
    text = read_file(request.file, "the manifest")
    service = load_one(text, request.name, file=request.file)
    return _Manifest(text, service, place.namespace or service.namespace or "default", Path.cwd())


def _lifeline(pid: int | None) -> Process | None:
    if pid is None:
        return None
    process = identify(pid)
    if process is None:
        raise InputError(f"process {pid} not found", field="--lifeline")
    return process


def _await_ready(
    session: LocalSession, manifest: str, timeout_s: float, *, remove_on_failure: bool
) -> None:
    session.console.step("ready", f"waiting for {session.name}, at most {timeout_s:.0f} s")
    interrupted = Cancelled(
        f"interrupted; {session.title} continues to start",
        hint=f"'{session.command('status', '-w')}' watches it, "
        f"'{commands.line('local', 'down', session.name, namespace=session.namespace)}' stops it",
    )
    try:
        with session.context(interrupted=interrupted) as context:
            await_ready(context, Arm(manifest), timeout_s)
            _await_supervisor(session)
    except Cancelled:
        raise
    except MpctlError:
        if remove_on_failure:
            session.platform.remove()
        raise


def _await_supervisor(session: LocalSession) -> None:
    """Wait until the supervisor has opened the service's port: an adopted engine answers before that."""
    end = time.monotonic() + _ADOPTION_S
    while not session.platform.supervised() and time.monotonic() < end:
        time.sleep(0.1)


@dataclass(frozen=True, slots=True)
class Stopped:
    """Services and orphaned engines that were stopped, and the conflicts of services that were not."""

    titles: tuple[str, ...]
    orphans: tuple[Orphan, ...]
    conflicts: tuple[Conflict, ...]

    def require_all(self) -> None:
        """Raise unless every service was stopped.

        Raises:
            Conflict: a service has an unfinished operation.
        """
        if len(self.conflicts) == 1:
            raise self.conflicts[0]
        if self.conflicts:
            hints = dict.fromkeys(c.hint for c in self.conflicts if c.hint)
            raise Conflict("; ".join(c.message for c in self.conflicts), hint="; ".join(hints))


def down(place: Place, console: Console, request: LocalDownRequest) -> Stopped:
    """Stop the services asked for; a conflict of one does not keep the others running.

    Raises:
        InputError: the service is not found, or several are up and none is named.
    """
    titles, conflicts = [], []
    for session in _sessions(place, console, request):
        try:
            _stop(session, force=request.force)
        except Conflict as conflict:
            conflicts.append(conflict)
        else:
            titles.append(session.title)
    return Stopped(tuple(titles), stop_orphans() if request.orphans else (), tuple(conflicts))


def _sessions(place: Place, console: Console, request: LocalDownRequest) -> list[LocalSession]:
    if request.every:
        return local_sessions(place, console)
    if request.orphans and request.name is None:
        return []
    return [open_local(place, console, request.name)]


def _stop(session: LocalSession, *, force: bool) -> None:
    operation = None if force else unfinished_operation(session.store.entries())
    if operation is not None:
        raise Conflict(
            f"{operation.id} of {session.title} is unfinished",
            hint=f"'{session.command('rollback')}' reverts it, '{session.command('resume')}' continues it; or --force",
        )
    with session.store.lease("local down"):
        session.platform.remove()


def read_log(place: Place, console: Console, request: LocalLogsRequest) -> tuple[str, ...]:
    """Return the lines of the log of one arm, of the one that gets the traffic unless another is named.

    Raises:
        InputError: the arm has no log.
    """
    session = open_local(place, console, request.name)
    arm = request.arm or session.platform.desired().route
    path = log_path(session.platform.directory, arm)
    if not path.is_file():
        logs = ", ".join(sorted(p.stem for p in path.parent.glob("*.log"))) or "none"
        raise InputError(f"log of {arm} not found", hint=f"logs: {logs}")
    lines = masked(path.read_text(errors="replace")).splitlines()
    return tuple(lines if request.tail is None else lines[max(0, len(lines) - request.tail) :])
