"""The service's own port, on loopback: every new request goes where the route points, those under way stay."""

from __future__ import annotations

import asyncio
import gc
import socket
from contextlib import asynccontextmanager

import pytest

from mpctl.local.supervisor import RequestRouter

TIMEOUT_S = 10.0


class Arm:
    """Answers with its name, the path and the body, and closes where the request says so. ``/wait``: in two parts, the
    second when ``go`` is set."""

    def __init__(self, name):
        self.name = name
        self.open = 0
        self.go = asyncio.Event()
        self.heads = []

    async def start(self):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def _serve(self, reader, writer):
        self.open += 1
        going = True
        while going and (head := await self._head(reader)):
            self.heads.append(head)
            path, fields = head.split()[1], head.lower()
            length = (
                int(fields.partition("content-length:")[2].split()[0])
                if "content-length:" in fields
                else 0
            )
            body = await reader.readexactly(length)
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + f"{self.name} {path}".encode() + body)
            if path == "/wait":
                waiting = [asyncio.create_task(self.go.wait()), asyncio.create_task(reader.read())]
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in waiting:
                    task.cancel()
                writer.write(b" end")
            going = "connection: close" not in fields
        writer.close()
        self.open -= 1

    @staticmethod
    async def _head(reader):
        try:
            return (await reader.readuntil(b"\r\n\r\n")).decode()
        except asyncio.IncompleteReadError:
            return ""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Service:
    """A router with two arms behind it; ``route`` is what its target function answers."""

    def __init__(self):
        self.port = free_port()
        self.route = None
        self.router = RequestRouter(self.port, lambda: self.route)

    async def connect(self):
        return await asyncio.open_connection("127.0.0.1", self.port)


@asynccontextmanager
async def running():
    service = Service()
    service.blue, service.green = await Arm("blue").start(), await Arm("green").start()
    service.route = service.blue.port
    await service.router.ensure()
    assert service.router.error == ""
    try:
        yield service
    finally:
        await service.router.close()
        service.blue.server.close()
        service.green.server.close()


async def settled():
    """Until every connection's two ends are done with; a handler that hangs fails by the timeout."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)


def request(path, *fields, body=""):
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *fields, "", body]
    return "\r\n".join(lines).encode()


async def ask(connection, path, *fields, body=""):
    """The whole answer's body; the connection is closed after it."""
    reader, writer = connection
    writer.write(request(path, *fields, body=body))
    return (await reader.read()).partition(b"\r\n\r\n")[2].decode()


async def end(connection):
    connection[1].close()
    await connection[1].wait_closed()


def run(scenario):
    async def limited():
        async with asyncio.timeout(TIMEOUT_S), running() as service:
            await scenario(service)
            await settled()

    asyncio.run(limited())
    gc.collect()  # a connection that was not closed warns here, and warnings are errors


def test_bytes_go_through_in_both_directions():
    async def scenario(service):
        large = "x" * 50_000
        connection = await service.connect()
        assert await ask(connection, "/one", body=large) == f"blue /one{large}"
        await end(connection)

    run(scenario)


def test_a_switch_of_the_route_leaves_requests_alone_that_are_under_way():
    async def scenario(service):
        old = await service.connect()
        task = asyncio.create_task(ask(old, "/wait"))
        while not service.blue.heads:
            await asyncio.sleep(0)
        service.route = service.green.port
        new = await service.connect()
        assert await ask(new, "/after") == "green /after"
        assert service.router.open(service.blue.port) == 1
        service.blue.go.set()
        assert await task == "blue /wait end"
        await settled_requests(service)
        await end(old)
        await end(new)

    run(scenario)


async def settled_requests(service):
    while service.router.open(service.blue.port):
        await asyncio.sleep(0)


def test_a_kept_connection_does_not_stay_with_an_arm_that_stops():
    """An arm is stopped when it has answered what it was sent: a client's next request must go to the other one."""

    async def scenario(service):
        connection = await service.connect()
        assert await ask(connection, "/x", "Connection: keep-alive", "Keep-Alive: 5") == "blue /x"
        (head,) = service.blue.heads
        assert "Connection: close" in head and "eep-" not in head and "Host: x" in head
        await end(connection)

    run(scenario)


def test_an_idle_connection_follows_the_route_when_its_request_comes():
    async def scenario(service):
        connection = await service.connect()
        service.route = service.green.port
        assert await ask(connection, "/x") == "green /x"
        await end(connection)

    run(scenario)


def test_a_request_for_another_protocol_is_passed_on_as_it_is():
    async def scenario(service):
        reader, writer = await service.connect()
        writer.write(request("/ws", "Connection: Upgrade", "Upgrade: websocket"))
        assert (await reader.readuntil(b"/ws")).endswith(b"blue /ws")
        assert (
            "Connection: Upgrade" in service.blue.heads[0] and "close" not in service.blue.heads[0]
        )
        await end((reader, writer))

    run(scenario)


def test_the_end_of_one_direction_is_passed_on_and_the_other_goes_on():
    async def scenario(service):
        reader, writer = await service.connect()
        writer.write(request("/last"))
        writer.write_eof()
        assert (await reader.read()).endswith(b"blue /last")
        await end((reader, writer))

    run(scenario)


def test_connections_do_not_pile_up():
    async def scenario(service):
        for _ in range(20):
            connection = await service.connect()
            assert await ask(connection, "/x") == "blue /x"
            await end(connection)
        await settled()
        assert service.blue.open == service.router.open(service.blue.port) == 0

    run(scenario)


def test_a_client_that_goes_away_ends_the_engines_side_too():
    """Also when garbage is collected just then: nothing but the router holds the connection to the engine."""

    async def scenario(service):
        for number in range(2):
            _, writer = await service.connect()
            writer.write(request("/wait"))
            while len(service.blue.heads) == number:
                await asyncio.sleep(0)
            writer.transport.abort()
            for _ in range(3):
                await asyncio.sleep(0)
                gc.collect(1)
        await settled()
        assert service.blue.open == 0

    run(scenario)


@pytest.mark.parametrize("route", ["none", "dead"])
def test_without_an_arm_the_connection_is_closed_and_the_service_stays(route):
    async def scenario(service):
        service.route = None if route == "none" else free_port()
        reader, writer = await service.connect()
        writer.write(request("/x"))
        assert await reader.read() == b""
        await end((reader, writer))
        service.route = service.green.port
        connection = await service.connect()
        assert await ask(connection, "/back") == "green /back"
        await end(connection)

    run(scenario)


def test_a_taken_port_is_named_and_tried_again():
    async def scenario(service):
        other = RequestRouter(service.port, lambda: service.green.port)
        await other.ensure()
        assert other.error.startswith(f"port {service.port}: ")
        await service.router.close()
        await other.ensure()
        assert other.error == ""
        connection = await service.connect()
        assert await ask(connection, "/mine") == "green /mine"
        await end(connection)
        await other.close()

    run(scenario)


def test_ensure_and_close_may_be_repeated():
    async def scenario(service):
        await service.router.ensure()
        await service.router.close()
        await service.router.close()
        with pytest.raises(OSError, match=r"Connect call failed|refused"):
            await service.connect()
        await service.router.ensure()
        connection = await service.connect()
        assert await ask(connection, "/x") == "blue /x"
        await end(connection)

    run(scenario)
