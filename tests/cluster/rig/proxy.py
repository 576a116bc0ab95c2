"""A reverse proxy in front of the API server that injects faults and remembers every request.

A kubeconfig from :meth:`Proxy.kubeconfig` leads here. Users stay who they are: the proxy vouches for the certificate it
was shown with the front-proxy certificate, a token is passed on. Faults match verb, resource, name and the n-th such
request, and are: answer 409, 429 (with Retry-After), 500, 503; ``timeout``: forward, then cut the connection without an
answer, so that a write is done and nobody told; ``refuse``: cut without forwarding; ``drop``: cut in the middle of the
answer, of a watch or a port-forward after some events or messages; or any coroutine to run before the request is
forwarded, such as stealing a Lease, or ``late``, when the server has done it and the client does not know.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import WSMsgType, web

if TYPE_CHECKING:
    from .certificates import Pair
    from .cluster import Cluster

PORT = 6445
HOP = {
    "host",
    "connection",
    "transfer-encoding",
    "keep-alive",
    "upgrade",
    "content-length",
    "accept-encoding",
}
_PATH = re.compile(
    r"^/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/))?/(?P<resource>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>.+))?$"
)
_TEXTS = {
    409: "Conflict",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    403: "Forbidden",
}


@dataclass(frozen=True)
class Call:
    """One request as the API server's authorizer sees it."""

    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    user: str
    at: float
    path: str
    agent: str = ""
    status: int = 0

    @property
    def write(self) -> bool:
        """Whether it would change something."""
        return self.verb in ("create", "update", "patch", "delete", "deletecollection")


@dataclass
class Fault:
    """What to do to the ``nth`` matching request and the ``times - 1`` after it, or with ``every`` to each that many
    requests later.

    ``verb``: one of Kubernetes' or ``"write"`` or ``"read"`` or ``"*"``; ``resource``: plural, with ``/status`` and the
    like for a subresource, or ``"*"``. ``action``: an HTTP status, ``timeout``, ``refuse``, ``drop`` or a coroutine
    function. ``after``: events that a dropped watch, or messages that a dropped port-forward, may still deliver; any
    other answer is dropped half-way. ``fired`` counts.
    """

    action: int | str | Callable[[Call], Awaitable[None]]
    verb: str = "write"
    resource: str = "*"
    name: str | None = None
    nth: int = 1
    times: int = 1
    every: int = 0
    retry_after_s: int = 1
    after: int = 0
    late: bool = False
    user: str | None = None
    matching: int = 0
    fired: int = 0

    def meets(self, call: Call) -> bool:
        """Whether it is this request's turn; counts it."""
        kinds = {"*": True, "write": call.write, "read": not call.write}
        resource = call.resource + (f"/{call.subresource}" if call.subresource else "")
        fits = (
            kinds.get(self.verb, call.verb == self.verb)
            and self.resource in ("*", resource)
            and self.name in (None, call.name)
            and self.user in (None, call.user)
        )
        if not fits:
            return False
        self.matching += 1
        later = self.matching - self.nth
        if later >= 0 and (later % self.every == 0 if self.every else later < self.times):
            self.fired += 1
            return True
        return False


@dataclass
class Proxy:
    """The proxy of a cluster. ``calls``: every request since the last :meth:`clear`, oldest first."""

    cluster: Cluster
    calls: list[Call] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    _runner: web.AppRunner | None = None
    _vouched: aiohttp.ClientSession | None = None
    _bare: aiohttp.ClientSession | None = None

    @property
    def url(self) -> str:
        """The proxy's address."""
        return f"https://{self.cluster.slot.host}:{PORT}"

    def kubeconfig(self, user: Pair, path: Path, *, namespace: str = "default") -> Path:
        """A kubeconfig file that leads through the proxy."""
        return self.cluster.kubeconfig_for(user, path, namespace=namespace, server=self.url)

    def add(self, action: int | str | Callable[[Call], Awaitable[None]], **what: Any) -> Fault:
        """Arrange for a :class:`Fault`."""
        fault = Fault(action, **what)
        self.faults.append(fault)
        return fault

    def clear(self) -> None:
        """No faults, nothing remembered."""
        self.faults.clear()
        self.calls.clear()

    def rules(self) -> set[tuple[str, str, str]]:
        """(verb, API group, resource or resource/subresource) of every remembered request: what a Role must allow."""
        rules = (
            (c.verb, c.group, c.resource + (f"/{c.subresource}" if c.subresource else ""))
            for c in self.calls
            if c.resource
        )
        return set(rules)

    async def start(self) -> None:
        """Listen."""
        cluster = self.cluster
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=30)

        def session(context: Any) -> aiohttp.ClientSession:
            connector = aiohttp.TCPConnector(ssl=context, limit=0)
            return aiohttp.ClientSession(
                connector=connector, timeout=timeout, auto_decompress=False
            )

        import ssl

        self._vouched = session(cluster.client_context(cluster.front_client))
        self._bare = session(ssl.create_default_context(cafile=str(cluster.authority.bundle)))
        app = web.Application(client_max_size=2**28)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=1, handler_cancellation=True
        )
        await self._runner.setup()
        serving = cluster.authority.sign("proxy", "proxy", addresses=[cluster.slot.host])
        context = cluster.server_context(serving, ask=True)
        await web.TCPSite(self._runner, cluster.slot.host, PORT, ssl_context=context).start()

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner:
            if self._runner.server:
                for handler in list(self._runner.server.connections):
                    if handler.transport:
                        handler.transport.abort()  # a peer that is gone never answers the end of TLS
            await self._runner.cleanup()
        for session in (self._vouched, self._bare):
            if session:
                await session.close()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        user, groups = _user(request)
        call = _call(request, user)
        count = len(self.calls)
        self.calls.append(call)
        headers = {
            k: v
            for k, v in request.headers.items()
            if k.lower() not in HOP and not k.lower().startswith("x-remote-")
        }
        pairs = list(headers.items())
        if user:
            pairs += [("X-Remote-User", user), *(("X-Remote-Group", g) for g in groups)]
        session = self._vouched if user else self._bare
        assert session is not None
        cut, fate = False, None
        for fault in self.faults:
            if fault.meets(call):
                fate = fault
                break
        if fate is not None:
            if isinstance(fate.action, int):
                await request.read()
                self._answered(count, fate.action)
                return _refusal(fate, call)
            if fate.action == "refuse":
                await request.read()
                return _cut(request)
            cut = fate.action == "timeout"
            await _act(fate, call, late=False)
        dropped = fate is not None and fate.action == "drop"
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._upgrade(
                request, session, pairs, most=fate.after if fate and dropped else None
            )
        body = await request.read()
        url = self.cluster.server + request.raw_path
        async with session.request(
            request.method,
            _exact(url),
            data=body or None,
            headers=_multi(pairs),
            allow_redirects=False,
        ) as answer:
            self._answered(count, answer.status)
            await _act(fate, call, late=True)
            if cut:
                await answer.read()
                return _cut(request)
            passed_on = {k: v for k, v in answer.headers.items() if k.lower() not in HOP}
            response = web.StreamResponse(status=answer.status, headers=passed_on)
            await response.prepare(request)
            if dropped and call.verb != "watch":
                whole = await answer.read()
                await response.write(whole[: len(whole) // 2])
                return _cut(request)
            remaining_events = fate.after if fate is not None and dropped else None
            if remaining_events == 0:
                return _cut(request)
            with suppress(ConnectionResetError):  # the client has seen enough of its watch
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                    if remaining_events is not None:
                        remaining_events -= chunk.count(b"\n")
                        if remaining_events <= 0:
                            return _cut(request)
                await response.write_eof()
            return response

    def _answered(self, place: int, status: int) -> None:
        from dataclasses import replace

        if place < len(self.calls):  # cleared meanwhile
            self.calls[place] = replace(self.calls[place], status=status)

    async def _upgrade(
        self,
        request: web.Request,
        session: aiohttp.ClientSession,
        pairs: list[tuple[str, str]],
        *,
        most: int | None = None,
    ) -> web.StreamResponse:
        """``most``: messages from behind until the connection is cut, None for no limit."""
        wanted = [
            p.strip()
            for p in request.headers.get("Sec-WebSocket-Protocol", "").split(",")
            if p.strip()
        ]
        forwarded = [(k, v) for k, v in pairs if not k.lower().startswith("sec-websocket")]
        url = _exact(self.cluster.server + request.raw_path)
        try:
            async with session.ws_connect(
                url, protocols=wanted, headers=_multi(forwarded), max_msg_size=0
            ) as behind:
                front = web.WebSocketResponse(
                    protocols=[behind.protocol] if behind.protocol else [], max_msg_size=0
                )
                await front.prepare(request)
                pumps = {
                    asyncio.create_task(_copy(front, behind)),
                    asyncio.create_task(_copy(behind, front, most)),
                }
                _, running = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)
                if most is not None:
                    _cut(request)
                    return front
                await front.close()
                return front
        except aiohttp.WSServerHandshakeError as error:
            return web.Response(status=error.status, text=error.message)


async def _act(fault: Fault | None, call: Call, *, late: bool) -> None:
    """Run the coroutine of a fault that has one, in its moment."""
    if fault is not None and fault.late is late and callable(fault.action):
        await fault.action(call)


async def _copy(source: Any, target: Any, most: int | None = None) -> None:
    if most == 0:
        return
    async for message in source:
        if message.type == WSMsgType.BINARY:
            await target.send_bytes(message.data)
        elif message.type == WSMsgType.TEXT:
            await target.send_str(message.data)
        if most is not None:
            most -= 1
            if most == 0:
                return


def _user(request: web.Request) -> tuple[str | None, list[str]]:
    """Name and groups of the certificate that the client showed."""
    transport = request.transport
    shown = transport.get_extra_info("peercert") if transport else None
    fields = [pair for part in (shown or {}).get("subject", ()) for pair in part]
    name = next((v for k, v in fields if k == "commonName"), None)
    groups = [v for k, v in fields if k == "organizationName"]
    return name, [*groups, "system:authenticated"]


def _call(request: web.Request, user: str | None) -> Call:
    match = _PATH.match(request.path)
    parts = {k: v or "" for k, v in match.groupdict().items()} if match else {}
    verb = {
        "GET": "get",
        "HEAD": "get",
        "POST": "create",
        "PUT": "update",
        "PATCH": "patch",
        "DELETE": "delete",
    }.get(request.method, request.method.lower())
    if match and not parts["name"]:
        verb = {"get": "list", "delete": "deletecollection"}.get(verb, verb)
    if request.query.get("watch") in ("true", "1"):
        verb = "watch"
    return Call(
        verb=verb,
        group=parts.get("group", ""),
        resource=parts.get("resource", ""),
        subresource=parts.get("sub", ""),
        namespace=parts.get("namespace", ""),
        name=parts.get("name", ""),
        user=user or "",
        at=time.monotonic(),
        path=request.path_qs,
        agent=request.headers.get("User-Agent", ""),
    )


def _refusal(fault: Fault, call: Call) -> web.Response:
    assert isinstance(fault.action, int)
    reason = _TEXTS.get(fault.action, "Unknown")
    text = f"injected: {reason} on {call.verb} {call.resource} {call.name}".rstrip()
    headers = {"Retry-After": str(fault.retry_after_s)} if fault.action in (429, 503) else {}
    details = (
        {"retryAfterSeconds": fault.retry_after_s}
        if headers
        else {"name": call.name, "kind": call.resource}
    )
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": text, "reason": reason,
              "details": details, "code": fault.action, "metadata": {}}  # fmt: skip
    return web.Response(
        status=fault.action,
        body=json.dumps(status).encode(),
        content_type="application/json",
        headers=headers,
    )


def _cut(request: web.Request) -> web.StreamResponse:
    """End the connection without another byte."""
    transport = request.transport
    if transport is not None:
        with suppress(Exception):
            transport.abort()
    return web.Response(status=499)


def _exact(url: str) -> Any:
    from yarl import URL

    return URL(url, encoded=True)


def _multi(pairs: list[tuple[str, str]]) -> Any:
    from multidict import CIMultiDict

    return CIMultiDict(pairs)
