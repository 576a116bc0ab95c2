"""Start a service of this machine from its manifest."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from mpctl import commands
from mpctl.app.console import Console
from mpctl.app.files import read_file
from mpctl.app.requests import LocalUpRequest
from mpctl.app.session.local import LocalSession, open_local
from mpctl.app.session.place import Place
from mpctl.errors import Cancelled, InputError, MpctlError
from mpctl.manifest import Service, load_one
from mpctl.platform.local.desired import Process
from mpctl.platform.local.engine import check_model, notes, python_of
from mpctl.platform.local.platform import check_port
from mpctl.platform.local.processes import identify
from mpctl.rollout.ports import Arm
from mpctl.rollout.steps.ready import await_ready

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
    existed = session.platform.exists()
    if request.port and not existed:
        check_port(request.port)  # before anything of the service is written
    with session.store.lease("local up"):
        desired = session.platform.create(
            manifest.text, port=request.port, cwd=str(manifest.directory), python=python, lifeline=lifeline
        )
        for note in () if existed else notes(manifest.service):
            console.note(f"note: {note}")
        if request.wait:
            _await_ready(session, manifest.text, request.ready_timeout_s, remove_on_failure=not existed)
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


def _await_ready(session: LocalSession, manifest: str, timeout_s: float, *, remove_on_failure: bool) -> None:
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
