"""The kubelets' HTTPS door, to which the API server sends logs and port-forwards: one server on every node's address.

Logs: follow, previous, tailLines, limitBytes; timestamps are left out. Port-forward: the websocket form
(``v4.channel.k8s.io``), which clients such as Python's use; kubectl's own form is SPDY and is refused. Exec is not
modelled.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from aiohttp import WSMsgType, web

from .nodes import KUBELET_PORT, Nodes
from .pod import Pod
from .pods import Pods
from .processes import Slot

FORWARD_PROTOCOL = "v4.channel.k8s.io"


class Kubelet:
    """The kubelets of all nodes of a cluster."""

    def __init__(self, pods: Pods, slot: Slot, nodes: Nodes) -> None:
        self._pods, self._slot, self._nodes = pods, slot, nodes
        self._context: ssl.SSLContext | None = None
        self._runner: web.AppRunner | None = None
        self._bound: set[str] = set()
        nodes.added = self._bind

    def tls(self, context: ssl.SSLContext) -> None:
        """The certificate to serve with."""
        self._context = context

    async def start(self) -> None:
        """Listen on the addresses of all nodes; those added later are listened on too."""
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        app.router.add_route("*", "/portForward/{namespace}/{pod}", self._forward)
        app.router.add_route("*", "/portForward/{namespace}/{pod}/{uid}", self._forward)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        for name in self._nodes.numbers:
            await self._bind(name)

    async def stop(self) -> None:
        """Close all doors."""
        if self._runner:
            await self._runner.cleanup()

    async def _bind(self, node: str) -> None:
        address = self._nodes.address(node)
        if self._runner and address not in self._bound:
            self._bound.add(address)
            site = web.TCPSite(self._runner, address, KUBELET_PORT, ssl_context=self._context)
            await site.start()

    def _pod(self, request: web.Request) -> Pod:
        pod = self._pods.named(request.match_info["namespace"], request.match_info["pod"])
        if pod is None:
            raise web.HTTPNotFound(text=f"pod {request.match_info['pod']} does not run here")
        return pod

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        pod = self._pod(request)
        container = request.match_info["container"]
        unit = pod.unit(container)
        path = pod.log(container, previous=request.query.get("previous") == "true")
        if unit is None:
            raise web.HTTPNotFound(text=f'container "{container}" in pod "{pod.name}" is not known')
        if not path.exists():
            if unit.process is None and unit.state and "waiting" in unit.state:
                reason = unit.state["waiting"]["reason"]
                raise web.HTTPBadRequest(
                    text=f'container "{container}" in pod "{pod.name}" is waiting to start: {reason}'
                )
            return web.Response(text="")
        answer = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await answer.prepare(request)
        text = await asyncio.to_thread(_tail, path, request.query.get("tailLines"))
        limit = int(request.query.get("limitBytes", "0"))
        await answer.write(text[:limit] if limit else text)
        if request.query.get("follow") == "true":
            await self._follow(pod, container, path, answer)
        await answer.write_eof()
        return answer

    async def _follow(
        self, pod: Pod, container: str, path: Path, answer: web.StreamResponse
    ) -> None:
        with path.open("rb") as file:
            file.seek(0, 2)
            ended = False
            while True:
                chunk = file.read()
                if chunk:
                    await answer.write(chunk)
                elif ended:
                    return
                unit = pod.unit(container)
                ended = unit is None or unit.process is None or unit.process.returncode is not None
                await asyncio.sleep(0.05)

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        pod = self._pod(request)
        socket = web.WebSocketResponse(protocols=[FORWARD_PROTOCOL], max_msg_size=0)
        if not socket.can_prepare(request).ok:
            raise web.HTTPNotImplemented(text="this kubelet forwards ports over websockets only")
        ports = [
            int(p)
            for value in request.query.getall("ports", []) + request.query.getall("port", [])
            for p in value.split(",")
        ]
        await socket.prepare(request)
        writers: list[asyncio.StreamWriter | None] = []
        pumps = []
        for index, port in enumerate(ports):
            for channel in (2 * index, 2 * index + 1):
                await socket.send_bytes(bytes([channel]) + port.to_bytes(2, "little"))
            try:
                reader, writer = await asyncio.open_connection(pod.real_address, port)
            except OSError as error:
                text = f"an error occurred forwarding to port {port} of pod {pod.name}: {error.strerror}"
                await socket.send_bytes(bytes([2 * index + 1]) + text.encode())
                writers.append(None)
                continue
            writers.append(writer)
            pumps.append(asyncio.create_task(_pump(reader, socket, 2 * index)))
        closer = asyncio.create_task(_close_after(pumps, socket))
        async for message in socket:
            if message.type != WSMsgType.BINARY or not message.data:
                continue
            writer_of = (
                writers[message.data[0] // 2] if message.data[0] // 2 < len(writers) else None
            )
            if writer_of and not message.data[0] % 2:
                writer_of.write(message.data[1:])
                await writer_of.drain()
        for open_writer in writers:
            if open_writer:
                open_writer.close()
        for task in [*pumps, closer]:
            task.cancel()
        await asyncio.gather(*pumps, closer, return_exceptions=True)
        return socket


async def _pump(reader: asyncio.StreamReader, socket: web.WebSocketResponse, channel: int) -> None:
    while data := await reader.read(65536):
        await socket.send_bytes(bytes([channel]) + data)


async def _close_after(pumps: list[asyncio.Task[None]], socket: web.WebSocketResponse) -> None:
    """When every forwarded connection was closed by the container, so is the stream, as a kubelet does."""
    await asyncio.gather(*pumps, return_exceptions=True)
    await socket.close()


def _tail(path: Path, lines: str | None) -> bytes:
    content = path.read_bytes()
    if lines is None:
        return content
    return b"".join(content.splitlines(keepends=True)[-int(lines) :]) if int(lines) else b""
