"""A container's probes, asked as a kubelet does over HTTP and TCP."""

from __future__ import annotations

import asyncio

import aiohttp

from .behave import Unit


class Probes:
    """A container's readiness and liveness. Without a readiness probe it is ready while it runs."""

    def __init__(self, unit: Unit, address: str) -> None:
        self._unit, self._address = unit, address
        self._failed = 0

    async def ask(self) -> tuple[bool, bool]:
        """(ready, alive)."""
        spec = self._unit.spec
        if not self._unit.ready and "startupProbe" in spec and not await self._try(spec["startupProbe"]):
            return False, True
        ready = await self._try(spec["readinessProbe"]) if "readinessProbe" in spec else True
        if "livenessProbe" in spec and self._unit.up:
            self._failed = 0 if await self._try(spec["livenessProbe"]) else self._failed + 1
        return ready, self._failed < spec.get("livenessProbe", {}).get("failureThreshold", 3)

    async def _try(self, probe: dict) -> bool:
        limit = max(5.0, float(probe.get("timeoutSeconds", 1)))
        where = probe.get("httpGet") or probe.get("tcpSocket")
        if where is None:
            return True
        port = self._port(where["port"])
        try:
            async with asyncio.timeout(limit):
                if "tcpSocket" in probe:
                    _, writer = await asyncio.open_connection(self._address, port)
                    writer.close()
                    await writer.wait_closed()
                    return True
                async with aiohttp.ClientSession() as session:
                    url = f"http://{self._address}:{port}{where.get('path', '/')}"
                    async with session.get(url, allow_redirects=False) as answer:
                        return 200 <= answer.status < 400
        except (OSError, aiohttp.ClientError, TimeoutError):
            return False

    def _port(self, port: int | str) -> int:
        if isinstance(port, int):
            return port
        return next(p["containerPort"] for p in self._unit.spec.get("ports", ()) if p.get("name") == port)
