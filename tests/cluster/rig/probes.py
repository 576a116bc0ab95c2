"""A container's probes, asked as a kubelet does over HTTP and TCP."""

from __future__ import annotations

import asyncio

import aiohttp

from .behave import Unit


class Probes:
    """A container's readiness and liveness. Without a readiness probe it is ready while it runs."""

    def __init__(self, unit: Unit, address: str) -> None:
        self._unit, self._address = unit, address
        self._unready = self._failed = 0  # in a row

    async def ask(self) -> tuple[bool, bool]:
        """(ready, alive)."""
        spec = self._unit.spec
        if (
            not self._unit.ready
            and "startupProbe" in spec
            and not await self._try(spec["startupProbe"])
        ):
            return False, True
        ready = await self._try(spec["readinessProbe"]) if "readinessProbe" in spec else True
        self._unready = 0 if ready else self._unready + 1
        if "livenessProbe" in spec and self._unit.up:
            self._failed = 0 if await self._try(spec["livenessProbe"]) else self._failed + 1
        stays = self._unit.ready and self._unready < _threshold(spec, "readinessProbe")
        return ready or stays, self._failed < _threshold(spec, "livenessProbe")

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
                    url = f"{where.get('scheme', 'HTTP').lower()}://{self._address}:{port}{where.get('path', '/')}"
                    async with session.get(url, allow_redirects=False, ssl=False) as answer:
                        return 200 <= answer.status < 400
        except (OSError, aiohttp.ClientError, TimeoutError):
            return False

    def _port(self, port: int | str) -> int:
        if isinstance(port, int):
            return port
        return next(
            p["containerPort"] for p in self._unit.spec.get("ports", ()) if p.get("name") == port
        )


def _threshold(spec: dict, probe: str) -> int:
    """Failures in a row that count."""
    return spec.get(probe, {}).get("failureThreshold", 3)
