"""Keeps the engines of one service as ``desired.json`` says, and survives the command that asked for them.

``python -m mpctl.local.supervisor DIRECTORY`` runs until the service is taken down. It holds
``supervisor.lock`` for its lifetime, so there is never a second one; a new one adopts engines that an earlier one
left running. An engine that was ready once is started again when it ends, with a growing pause; one that never became
ready is left failed, with its exit code.

It serves the service's own port, too: each request is forwarded to the arm that the route names when it arrives. A
connection carries one request: it is sent on with ``Connection: close``, and lives and dies with the arm that it was
sent to. So a switch of the route breaks no request that is under way, and no client keeps a connection to an arm that
stops: :meth:`Router.open` counts exactly what that arm has still to answer. A process of another user that listens on
the arm's port gets no request.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from mpctl.errors import MpctlError
from mpctl.local.desired import (
    DESIRED,
    OBSERVED,
    Desired,
    DesiredArm,
    Observed,
    ObservedArm,
    Process,
    read_desired,
    read_observed,
)
from mpctl.local.engine import (
    DRAIN_S,
    drain_s,
    engine_command,
    engine_environment,
    read_service,
)
from mpctl.local.logs import log_path, start_phase
from mpctl.local.processes import alive, identify, marked, stop_group, tagged
from mpctl.platform.http import METRICS_BYTES
from mpctl.platform.port_owner import listener_of, require_this_user
from mpctl.platform.state_files import (
    state_root,
    try_lock,
    write_json,
)

_CHUNK = 1 << 16


class RequestRouter:
    """Listens on loopback; ``target`` returns the port to forward a new request to, or None to refuse it."""

    def __init__(self, port: int, target: Callable[[], int | None]) -> None:
        self._port = port
        self._target = target
        self._server: asyncio.Server | None = None
        # The loop holds tasks weakly: one whose client has gone could be collected before it has ended its other side.
        self._serving: set[asyncio.Task[None] | None] = set()
        self._open: Counter[int] = Counter()
        self.error = ""

    def open(self, port: int) -> int:
        """Return the number of requests that were forwarded to a port and are not answered yet."""
        return self._open[port]

    async def ensure(self) -> None:
        """Listen, if not yet. ``error`` says why not."""
        if self._server is not None:
            return
        try:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
            self.error = ""
        except OSError as error:
            self.error = f"port {self._port}: {error.strerror or error}"

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        me = asyncio.current_task()
        self._serving.add(me)
        try:
            head = await _read_head(reader)
            port = self._target() if head is not None else None
            if head is None or port is None:
                return
            self._open[port] += 1
            try:
                await _forward(head, reader, writer, port)
            finally:
                self._open[port] -= 1
        except OSError:
            return  # the arm does not run: the client sees a closed connection, as with a Service without endpoints
        finally:
            writer.close()
            self._serving.discard(me)


async def _read_head(reader: asyncio.StreamReader) -> bytes | None:
    """Read the head of a request, to be closed after its answer; empty where it is too long, None without any."""
    try:
        return _closing(await reader.readuntil(b"\r\n\r\n"))
    except asyncio.LimitOverrunError:
        return b""
    except asyncio.IncompleteReadError as error:
        return error.partial or None


def _closing(head: bytes) -> bytes:
    """The head with ``Connection: close``; one that asks for another protocol stays as it is."""
    first, *fields = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    names = [field.partition(b":")[0].strip().lower() for field in fields]
    if b"upgrade" in names:
        return head
    others = [
        field
        for name, field in zip(names, fields, strict=True)
        if name not in (b"connection", b"keep-alive")
    ]
    return b"\r\n".join([first, *others, b"Connection: close", b"", b""])


async def _forward(
    head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int
) -> None:
    """Send a request to a port, and its answer back."""
    listener = require_this_user(port)
    upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", port)
    sending = None
    try:
        require_this_user(port, listener)
        upstream_writer.write(head)
        sending = asyncio.create_task(_pump(reader, upstream_writer))
        await _pump(upstream_reader, writer)
    finally:
        if sending is not None:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        upstream_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    with suppress(OSError):
        if writer.can_write_eof():
            writer.write_eof()


TICK_S = 0.25
_SOCKETS_FIT = 70  # characters of a directory: a socket's path has at most 107, its name in vLLM 36
MAX_PAUSE_S = 60.0


class Supervisor:
    """A service's engines. :meth:`tick` is one round: read what should be, make it so, report."""

    def __init__(self, directory: Path, me: Process) -> None:
        self._directory = directory
        self._arms = _found_running(directory)
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._not_before: dict[str, float] = {}
        self._ports: dict[str, int] = {}
        self._drain_s: dict[str, float] = {}
        self._drained_by: dict[
            str, float
        ] = {}  # monotonic time of each arm that finishes its requests
        self._me = me
        self._desired: Desired | None = None
        self._router: RequestRouter | None = None
        self._written: Observed | None = None

    async def run(self) -> None:
        """Tick until the service is down or its lifeline is gone."""
        going = True
        while going:
            try:
                going = await self.tick()
                await asyncio.sleep(TICK_S)
            except Exception:  # noqa: BLE001 - the service's port must outlive a full disk or a damaged file
                traceback.print_exc()
                await asyncio.sleep(1.0)
        if self._router:
            await self._router.close()

    async def tick(self) -> bool:
        """A round; False when there is nothing left to keep."""
        self._desired = desired = read_desired(self._directory)
        if desired is not None and desired.lifeline and alive(desired.lifeline) is None:
            (self._directory / DESIRED).unlink(
                missing_ok=True
            )  # without its lifeline the service is down
            desired = None
        if desired is None:
            await self._stop_all()
            return False
        if self._router is None:
            self._router = RequestRouter(desired.port, self._route)
        await self._router.ensure()
        for arm_id in [a for a in self._arms if a not in desired.arms]:
            if await self._drained(arm_id):
                await self._stop(arm_id)
            self._report()
        for arm_id, arm in desired.arms.items():
            if self._ports.get(arm_id) != arm.port:
                self._ports[arm_id], self._drain_s[arm_id] = arm.port, _drain_s(arm, desired.name)
        for arm_id, arm in desired.arms.items():
            self._arms[arm_id] = await self._reconcile(arm_id, arm, desired)
        self._report()
        return True

    def _route(self) -> int | None:
        desired = self._desired
        if desired is None or desired.route not in desired.arms:
            return None
        return desired.arms[desired.route].port

    async def _reconcile(self, arm_id: str, arm: DesiredArm, desired: Desired) -> ObservedArm:
        observed = self._arms.get(arm_id)
        if observed is None:
            return self._launch(arm_id, arm, desired, restarts=0)
        if alive(observed.process) is not None:
            if observed.phase == "Ready":
                return observed
            if await asyncio.to_thread(_healthy, arm.port):
                return replace(observed, phase="Ready", message="")
            return replace(
                observed, message=_foreign_listener(arm.port) or start_phase(self._log(arm_id))
            )
        code = self._exit_code(arm_id)
        if observed.phase in ("Starting", "Ready") and observed.process is not None:
            await asyncio.to_thread(
                stop_group, observed.process
            )  # children that a dead leader left behind
        if observed.phase == "Starting" and not observed.restarts:
            return replace(
                observed, phase="Failed", process=None, exit_code=code, message=_ended(code)
            )
        if observed.phase in ("Starting", "Ready"):  # it was ready once
            pause = min(MAX_PAUSE_S, 2.0 ** min(observed.restarts, 6))
            self._not_before[arm_id] = time.monotonic() + pause
            return replace(
                observed, phase="Restarting", process=None, exit_code=code, message=_ended(code)
            )
        if observed.phase == "Restarting" and time.monotonic() >= self._not_before.get(arm_id, 0.0):
            return self._launch(arm_id, arm, desired, restarts=observed.restarts + 1)
        return observed

    def _launch(
        self, arm_id: str, arm: DesiredArm, desired: Desired, *, restarts: int
    ) -> ObservedArm:
        try:
            service = read_service(arm.manifest, desired.name)
            command = engine_command(desired.python, service, arm.port)
            tag = f"{desired.namespace}/{desired.name}/{arm_id}"
            environment = marked(
                engine_environment(service, fault=arm.fault), str(state_root()), tag
            )
        except MpctlError as error:
            return ObservedArm("Failed", None, error.message, restarts=restarts)
        log = self._log(arm_id)
        log.parent.mkdir(exist_ok=True, mode=0o700)
        temporary = log.with_suffix("")
        if len(str(temporary)) < _SOCKETS_FIT:
            temporary.mkdir(exist_ok=True)
            environment |= {
                "TMPDIR": str(temporary),
                "TORCHINDUCTOR_CACHE_DIR": str(state_root() / "inductor"),
            }
        # Written first: a supervisor that dies between the start and the report would leave an engine nobody knows of.
        self._arms[arm_id] = ObservedArm("Starting", None, "starting", restarts=restarts)
        self._report()
        with log.open(
            "ab" if restarts else "wb"
        ) as output:  # an earlier start's errors are not this one's
            try:
                child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=desired.cwd,
                    env=environment,
                    start_new_session=True,
                )
            except OSError as error:
                return ObservedArm("Failed", None, f"cannot be started: {error}", restarts=restarts)
        self._children[arm_id] = child
        return ObservedArm("Starting", identify(child.pid), "starting", restarts=restarts)

    def _exit_code(self, arm_id: str) -> int | None:
        child = self._children.pop(arm_id, None)
        return child.wait() if child is not None else None

    async def _drained(self, arm_id: str) -> bool:
        """Return whether an arm that gets no new requests has answered those it had, or its time for them is over."""
        observed, port = self._arms[arm_id], self._ports.get(arm_id)
        if observed.phase != "Ready" or port is None:
            return True
        end = self._drained_by.setdefault(
            arm_id, time.monotonic() + self._drain_s.get(arm_id, DRAIN_S)
        )
        requests = self._router.open(port) if self._router else 0
        if time.monotonic() > end or not (requests or await asyncio.to_thread(_busy, port)):
            return True
        self._arms[arm_id] = replace(observed, message="finishes its requests before it is stopped")
        return False

    async def _stop(self, arm_id: str) -> None:
        observed = self._arms.pop(arm_id)
        self._drained_by.pop(arm_id, None)
        await asyncio.to_thread(stop_group, observed.process)
        child = self._children.pop(arm_id, None)
        if child is not None:
            await asyncio.to_thread(child.wait)
        shutil.rmtree(self._log(arm_id).with_suffix(""), ignore_errors=True)

    async def _stop_all(self) -> None:
        await asyncio.gather(*(self._stop(arm_id) for arm_id in list(self._arms)))
        self._report()

    def _report(self) -> None:
        observed = Observed(self._me, dict(self._arms), self._router.error if self._router else "")
        path = self._directory / OBSERVED
        if (
            observed != self._written or not path.exists()
        ):  # one that was damaged is removed by hand
            write_json(path, observed.to_record())
            self._written = observed

    def _log(self, arm_id: str) -> Path:
        return log_path(self._directory, arm_id)


def _drain_s(arm: DesiredArm, name: str) -> float:
    try:
        return drain_s(read_service(arm.manifest, name))
    except MpctlError:
        return DRAIN_S  # its start reports why


def _found_running(directory: Path) -> dict[str, ObservedArm]:
    """Return the arms that an earlier supervisor reported, and engines that it started but could not report."""
    before = read_observed(directory)
    # What was about to start is started again, unless the tag below finds it running.
    arms = {
        k: v
        for k, v in (before.arms if before else {}).items()
        if v.process or v.phase != "Starting"
    }
    mine = f"{directory.parent.name}/{directory.name}/"
    for tag, process in tagged(str(state_root())):
        arm_id = tag.removeprefix(mine)
        recorded = arms.get(arm_id)
        if tag.startswith(mine) and (recorded is None or alive(recorded.process) is None):
            arms[arm_id] = ObservedArm("Starting", identify(process.pid), "found running")
    return arms


def _ended(code: int | None) -> str:
    if code is None:
        return "the engine process ended"
    if code < 0:
        return f"the engine was ended by {signal.Signals(-code).name}"
    return f"the engine exited with code {code}"


_DIRECT = urllib.request.build_opener(
    urllib.request.ProxyHandler({})
)  # whatever proxy the environment names


def _foreign_listener(port: int) -> str:
    listener = listener_of(port)
    if listener is None or listener[0] == os.geteuid():
        return ""
    return f"port {port}, which this engine was to listen on, is taken by another user (uid {listener[0]})"


def _healthy(port: int) -> bool:
    return _get(port, "/health") is not None


def _busy(port: int) -> bool:
    """Return whether the engine has requests, running or waiting."""
    lines = (_get(port, "/metrics") or "").splitlines()
    gauges = ("vllm:num_requests_running", "vllm:num_requests_waiting{")
    return any(float(line.rpartition(" ")[2]) > 0 for line in lines if line.startswith(gauges))


def _get(port: int, path: str) -> str | None:
    """The answer of an engine of this user; whoever else listens there has nothing to say."""
    try:
        listener = require_this_user(port)
        with _DIRECT.open(f"http://127.0.0.1:{port}{path}", timeout=2.0) as answer:
            content: bytes = answer.read(METRICS_BYTES)
        require_this_user(port, listener)
        return content.decode() if answer.status == 200 else None
    except (OSError, http.client.HTTPException):
        return None


def main() -> int:
    """Run the supervisor of the directory given; 0 also when another one is already there."""
    directory = Path(sys.argv[1])
    lock = try_lock(directory / "supervisor.lock")
    for _ in range(3):  # whoever looks for a supervisor holds the lock for a moment, too
        if lock is not None:
            break
        time.sleep(0.05)
        lock = try_lock(directory / "supervisor.lock")
    if lock is None:
        return 0
    me = identify(os.getpid())
    assert me is not None
    # A terminal that closes or a Ctrl-C in it is not meant for us; SIGTERM ends this process and leaves the engines
    # to the next.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        asyncio.run(Supervisor(directory, me).run())
    except MpctlError as error:
        sys.stderr.write(f"supervisor: {error.message}\n")
        return error.exit_code
    finally:
        os.close(lock)
    return 0


if __name__ == "__main__":
    sys.exit(main())
