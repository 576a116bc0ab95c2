"""A command as a process whose every request to the API server is numbered, and meets a fault at one of them.

A crash is raised out of the transport and unwinds the command. As after SIGKILL, nothing that the unwinding tries to
write gets through: every further request of the process crashes, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import httpx
import kubernetes.client.rest

from mpctl.platform import transport
from mpctl.platform.kubernetes import lease
from mpctl.platform.kubernetes.api.port_forward import Forwards, ForwardTarget
from mpctl.platform.kubernetes.load_job.job_manifest import PORT
from tests.sweep.api_server import ApiServer, Refusal, Request
from tests.sweep.engines import Pods


class Fault(StrEnum):
    """What happens at one call."""

    CRASH_BEFORE = "crash before"
    CRASH_AFTER = "crash after"
    STALE = "stale read"
    MISSED = "missed event"
    CONFLICT = "conflict"


class Crash(BaseException):
    """The process ends here. No handler of the product may catch it."""


@dataclass(frozen=True)
class Call:
    """A request. ``faults``: those that it can meet; a stale read only where it would show something else."""

    text: str  # the verb and the kind
    faults: tuple[Fault, ...]


_CRASHES = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER)


class Answer:
    """An answer as urllib3 gives it."""

    def __init__(self, status: int, data: bytes):
        self.status, self.data, self.headers = status, data, {}

    def stream(self, _size: int) -> Iterator[bytes]:
        yield self.data

    def close(self) -> None:
        pass


class Process:
    """``at``: number of the call that meets ``fault``, from 1 on; 0: none does. ``name``: as its Lease shows it."""

    def __init__(
        self, server: ApiServer, pods: Pods, name: str, at: int = 0, fault: Fault | None = None
    ):
        self._server, self._pods = server, pods
        self.name, self._at, self._fault = f"sweep {name}", at, fault
        self.calls: list[Call] = []
        self.dead = False

    def request(
        self,
        method: str,
        url: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str],
        **_: Any,
    ) -> Any:
        """A request of the client, in the place of urllib3's."""
        request = Request.of(method, url, body, headers.get("Content-Type", ""))
        faults = list(_CRASHES)
        if request.watches:
            faults.append(Fault.MISSED)
        elif request.writes:
            faults.append(Fault.CONFLICT)
        elif self._server.differs_when_stale(request):
            faults.append(Fault.STALE)
        with self._met(str(request), tuple(faults)) as fault:
            if request.watches:
                return Answer(200, self._server.changed(request, missed=fault is Fault.MISSED))
            if fault is Fault.CONFLICT:
                refusal = Refusal(409, "Conflict", "the object has been modified", request.name)
                return Answer(409, json.dumps(refusal.status()).encode())
            status, record = self._server.answer(request, stale=fault is Fault.STALE)
            return Answer(
                status, record.encode() if isinstance(record, str) else json.dumps(record).encode()
            )

    def forwarded(self, request: httpx.Request) -> httpx.Response:
        """A request to a pod through a port-forward, which is a call to the API server, too."""
        what = "load agent" if request.url.port == PORT else "engine"
        with self._met(f"port-forward to the {what}: {request.method}", _CRASHES):
            return self._pods.answer(request)

    @contextmanager
    def _met(self, text: str, faults: tuple[Fault, ...]) -> Iterator[Fault | None]:
        if self.dead:
            raise Crash(text)
        self.calls.append(Call(text, faults))
        fault = self._fault if len(self.calls) == self._at else None
        if fault is Fault.CRASH_BEFORE:
            self._die(text)
        yield fault
        if fault is Fault.CRASH_AFTER:
            self._die(text)

    def _die(self, text: str) -> None:
        self.dead = True
        raise Crash(text)


class Current:
    """The process that runs now; what libraries ask goes to it."""

    def __init__(self) -> None:
        self.process: Process | None = None

    def request(self, *arguments: Any, **options: Any) -> Any:
        """A pool's request."""
        assert self.process is not None
        return self.process.request(*arguments, **options)

    def _forwarded(self, request: httpx.Request) -> httpx.Response:
        assert self.process is not None
        return self.process.forwarded(request)

    def clear(self) -> None:
        """Close idle connections: there are none."""

    @property
    def pool_manager(self) -> Current:
        """The pool of a REST client."""
        return self

    def install(self) -> None:
        """Lead every request of mpctl here, and let no thread renew a Lease: a renewal that is due comes with the next
        write."""
        kubernetes.client.rest.RESTClientObject = lambda _configuration: self
        transport.limited_transport = lambda *_arguments: httpx.MockTransport(self._forwarded)
        Forwards.target = lambda _self, pod, port, **_: ForwardTarget(f"http://{pod}:{port}")
        lease.Lease._beat = lambda *_: None
        lease.this_process = lambda: self.process.name
        lease.process_is_gone = lambda text: text.startswith("sweep") and text != self.process.name
