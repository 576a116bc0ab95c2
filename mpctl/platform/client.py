"""The load client in this process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from urllib.parse import urlsplit

from mpctl.errors import MpctlError
from mpctl.experiment.block import LoadResult
from mpctl.experiment.calibration import Pace
from mpctl.experiment.counters import Counters
from mpctl.platform import http
from mpctl.platform.load import PACED, PacedServer, block_of, limit_s
from mpctl.platform.port_owner import require_this_user
from mpctl.platform.stream import LoadTarget, send_block
from mpctl.rollout.ports import Endpoint, LoadOrder, SentBlock


class StreamClient:
    """Implements ``mpctl.platform.load.LoadClient`` in this process: nothing to load, nothing to end."""

    def prepare(self) -> None:
        pass

    def close(self) -> str:
        return ""

    def send(
        self, endpoint: Endpoint, order: LoadOrder, counters: Callable[[], Counters] | None
    ) -> SentBlock:
        before = counters() if counters else Counters()
        result = self.run(endpoint, order)
        return SentBlock(result, before, counters() if counters else Counters())

    def run(self, endpoint: Endpoint, order: LoadOrder) -> LoadResult:
        """Send a block and return its times.

        Raises:
            MpctlError: it took longer than any engine that answers.
        """
        port = urlsplit(endpoint.base_url).port
        target = LoadTarget(endpoint.base_url, endpoint.token, endpoint.socket)
        if endpoint.same_user and port is not None:
            target = LoadTarget(
                endpoint.base_url, endpoint.token, check=partial(require_this_user, port)
            )
        sending = send_block(target, **block_of(order, endpoint.model))
        try:
            return LoadResult.read(asyncio.run(asyncio.wait_for(sending, limit_s(order))))
        except TimeoutError as error:
            raise MpctlError(
                f"a block was not answered in {limit_s(order):.0f} s", hint="read the engine's log"
            ) from error

    @contextmanager
    def paced(self, pace: Pace) -> Iterator[PacedServer]:
        def truth() -> list[dict[str, float]]:
            try:
                times = http.get(f"{endpoint.base_url}/truth").json()
            except (http.NoAnswer, ValueError) as error:
                raise MpctlError(f"the server of known timing: {error}") from error
            return times if isinstance(times, list) else []

        command = [sys.executable, str(PACED), pace.to_line()]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/"
        ) as server:
            assert server.stdout is not None
            assert server.stdin is not None
            try:
                port = server.stdout.readline().strip()
                if not port.isdecimal():
                    raise MpctlError("the server of known timing did not start")
                endpoint = Endpoint(f"http://127.0.0.1:{port}", "paced")
                yield PacedServer(endpoint, truth)
            finally:
                server.stdin.close()
