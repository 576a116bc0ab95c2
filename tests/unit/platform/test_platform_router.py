"""The service's own port, on loopback: every new connection goes where the route points, open ones stay."""

from __future__ import annotations

import asyncio
import gc
import socket
from contextlib import asynccontextmanager

import pytest

from mpctl.platform.local.router import Router

TIMEOUT_S = 10.0


class Arm:
    """Answers every line with its name in front."""

    def __init__(self, name):
        self.name = name
        self.open = 0

    async def start(self):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def _serve(self, reader, writer):
        self.open += 1
        while line := await reader.readline():
            writer.write(self.name.encode() + b" " + line)
        writer.write(b"bye\n")  # after the client's half of the connection has ended
        writer.close()
        self.open -= 1


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Service:
    """A router with two arms behind it; ``route`` is what its target function answers."""

    def __init__(self):
        self.port = free_port()
        self.route = None
        self.router = Router(self.port, lambda: self.route)

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


async def ask(connection, text):
    reader, writer = connection
    writer.write(text.encode() + b"\n")
    return (await reader.readline()).decode().strip()


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
        connection = await service.connect()
        assert await ask(connection, "one") == "blue one"
        large = "x" * 50_000
        assert await ask(connection, large) == f"blue {large}"
        await end(connection)

    run(scenario)


def test_a_switch_of_the_route_leaves_open_connections_alone():
    async def scenario(service):
        old = await service.connect()
        assert await ask(old, "before") == "blue before"
        service.route = service.green.port
        new = await service.connect()
        assert await ask(new, "after") == "green after"
        assert await ask(old, "still") == "blue still"
        service.route = service.blue.port
        assert await ask(new, "still") == "green still"
        await end(old)
        await end(new)

    run(scenario)


def test_the_end_of_one_direction_is_passed_on_and_the_other_goes_on():
    async def scenario(service):
        reader, writer = await service.connect()
        writer.write(b"last\n")
        writer.write_eof()
        assert await reader.read() == b"blue last\nbye\n"
        await end((reader, writer))

    run(scenario)


def test_connections_do_not_pile_up():
    async def scenario(service):
        for _ in range(20):
            connection = await service.connect()
            assert await ask(connection, "x") == "blue x"
            await end(connection)
        await settled()
        assert service.blue.open == 0

    run(scenario)


def test_a_client_that_goes_away_ends_the_engines_side_too():
    """Also when garbage is collected just then: nothing but the router holds the connection to the engine."""

    async def scenario(service):
        for _ in range(2):
            connection = await service.connect()
            assert await ask(connection, "x") == "blue x"
            connection[1].transport.abort()
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
        assert await reader.read() == b""
        await end((reader, writer))
        service.route = service.green.port
        connection = await service.connect()
        assert await ask(connection, "back") == "green back"
        await end(connection)

    run(scenario)


def test_a_taken_port_is_named_and_tried_again():
    async def scenario(service):
        other = Router(service.port, lambda: service.green.port)
        await other.ensure()
        assert other.error.startswith(f"port {service.port}: ")
        await service.router.close()
        await other.ensure()
        assert other.error == ""
        connection = await service.connect()
        assert await ask(connection, "mine") == "green mine"
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
        assert await ask(connection, "x") == "blue x"
        await end(connection)

    run(scenario)
