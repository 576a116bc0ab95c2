"""A port of this machine that another user listens on: supervisor, router and the users of a drill send it nothing."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from squatter import answering, needs_root, squatting

from mpctl.local import supervisor
from mpctl.local.engines import free_ports
from mpctl.local.supervisor import RequestRouter
from scripts.drills.users import Users


def free_port():
    return next(iter(free_ports(1)))


@needs_root
def test_no_request_of_the_router_and_no_health_check_reaches_another_user(tmp_path):
    port = free_port()
    with squatting(port, tmp_path / "log") as squatter:
        assert supervisor._healthy(port) is False
        assert supervisor._busy(port) is False
        assert asyncio.run(through_the_router(port)) == b""
        drill = Users(f"http://127.0.0.1:{port}", "demo", "sk-key", clients=0, max_tokens=8)
        assert "another user" in drill.ask("prompt").error
        assert squatter.heard == ""


async def through_the_router(port):
    actual_free_port = free_port()
    router = RequestRouter(actual_free_port, lambda: port)
    await router.ensure()
    reader, writer = await asyncio.open_connection("127.0.0.1", actual_free_port)
    with suppress(OSError):
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nAuthorization: sk-key\r\n\r\n")
        await writer.drain()
    answer = b""
    with suppress(OSError):
        answer = await reader.read()
    writer.close()
    await router.close()
    return answer


@pytest.fixture
def engine():
    with answering() as port:
        yield port


def test_this_users_engine_is_healthy(engine):
    assert supervisor._healthy(engine)
