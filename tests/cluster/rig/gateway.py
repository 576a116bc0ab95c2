"""The network between pods, as one HTTP proxy, and the data plane of the Gateway.

A pod's ``http_proxy`` is :attr:`Gateway.proxy_url`: ``http://NAME.NAMESPACE.svc.cluster.local`` and pod addresses lead
through it to the pods' processes. Requests to :attr:`Gateway.url` with a ``Host`` are routed by the HTTPRoutes that
name the gateway: host names, path prefixes, weights, mirrored requests, header changes and ``timeouts.request``, whose
seconds pass ``faster`` times as fast; what a route says beyond that is ignored. A request past its timeout gets 504, or
a broken stream where its answer has begun. Unlike Envoy, a route without one has no limit. Endpoints are dropped
``lag_s`` after the API server has said so, as by proxies that learn of it late. Routes and the Gateway get their
status, as a controller's would.

Weights and shares of mirrors are kept exactly, by smooth weighted round robin: of a hundred requests at weight 1 of
100, one goes there. A copy is sent beside its request, and its answer is read and dropped.
"""

from __future__ import annotations

import asyncio
import datetime
import itertools
from collections import Counter
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

from mpctl.methods.preflight.drain import duration_s

from .api import Api, ApiError
from .pods import Pods
from .processes import Slot, real

GATEWAY, GATEWAY_NAMESPACE, CLASS = "kserve-ingress-gateway", "kserve", "rig"
CONTROLLER = "rig.mpctl.dev/gateway"
# As Envoy Gateway's report of the conformance tests lists them; sorted, as the API wants it.
FEATURES = (
    "Gateway",
    "HTTPRoute",
    "HTTPRouteRequestMirror",
    "HTTPRouteRequestMultipleMirrors",
    "HTTPRouteRequestPercentageMirror",
)
HOP = {
    "host",
    "connection",
    "transfer-encoding",
    "keep-alive",
    "proxy-connection",
    "te",
    "upgrade",
    "content-length",
}


class Gateway:
    """One cluster's network. ``routed`` counts requests per (namespace, service)."""

    def __init__(self, api: Api, slot: Slot, pods: Pods) -> None:
        self._api, self._slot, self._pods = api, slot, pods
        self._routes: dict[str, dict] = {}
        self._services: dict[tuple[str, str], dict] = {}
        self._slices: dict[str, dict] = {}
        self._credit: dict[tuple[str, int], list[float]] = {}
        self._turn = itertools.count()
        self.faster, self.lag_s = 1.0, 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self._copies: set[asyncio.Task[None]] = set()
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self.routed: Counter[tuple[str, str]] = Counter()
        self.mirrored: Counter[tuple[str, str]] = Counter()

    @property
    def url(self) -> str:
        """The gateway's address."""
        return f"http://{self._slot.host}:8088"

    @property
    def proxy_url(self) -> str:
        """What pods send their requests through."""
        return f"http://{self._slot.host}:3128"

    async def start(self) -> None:
        """Create the GatewayClass and the Gateway, watch routes and endpoints, listen."""
        self._session = aiohttp.ClientSession(
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            trust_env=False,
        )
        with suppress(ApiError):
            await self._api.apply(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": GATEWAY_NAMESPACE}}
            )
        await self._when_served(self._objects)
        app = web.Application(client_max_size=2**30)
        app.router.add_route("*", "/{path:.*}", self._serve)
        # Two doors, one application: a proxied request carries an absolute URL.
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        for port in (8088, 3128):
            await web.TCPSite(self._runner, self._slot.host, port).start()
        self._tasks = [
            asyncio.create_task(self._watch_routes()),
            asyncio.create_task(self._watch("services")),
            asyncio.create_task(self._watch("endpointslices")),
        ]

    async def stop(self) -> None:
        """Stop listening and watching."""
        tasks = [*self._tasks, *self._copies]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._runner:
            await self._runner.cleanup()
        if self._session:
            await self._session.close()

    async def _when_served(self, work: Any) -> None:
        for _ in range(600):
            try:
                await work()
            except ApiError as error:
                if error.status != 404:
                    raise
                await asyncio.sleep(0.1)
            else:
                return
        raise TimeoutError("Gateway API's definitions are not served")

    async def _objects(self) -> None:
        group = "gateway.networking.k8s.io/v1"
        await self._api.apply(
            {
                "apiVersion": group,
                "kind": "GatewayClass",
                "metadata": {"name": CLASS},
                "spec": {"controllerName": CONTROLLER},
            }
        )
        listed = {"status": {"supportedFeatures": [{"name": name} for name in FEATURES]}}
        await self._api.patch("gatewayclasses", CLASS, listed, subresource="status")
        listener = {
            "name": "http",
            "port": 80,
            "protocol": "HTTP",
            "allowedRoutes": {"namespaces": {"from": "All"}},
        }
        gateway = await self._api.apply(
            {
                "apiVersion": group,
                "kind": "Gateway",
                "metadata": {"name": GATEWAY, "namespace": GATEWAY_NAMESPACE},
                "spec": {"gatewayClassName": CLASS, "listeners": [listener]},
            }
        )
        generation = gateway["metadata"]["generation"]
        conditions = [_condition(kind, generation) for kind in ("Accepted", "Programmed")]
        status = {
            "addresses": [{"type": "IPAddress", "value": self._slot.host}],
            "conditions": conditions,
            "listeners": [
                {"name": "http", "attachedRoutes": 0, "conditions": conditions,
                 "supportedKinds": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute"}]}
            ],
        }  # fmt: skip
        await self._api.patch(
            "gateways", GATEWAY, {"status": status}, GATEWAY_NAMESPACE, subresource="status"
        )

    async def _watch(self, kind: str) -> None:
        async for event, record in self._api.watch(kind):
            meta = record["metadata"]
            if kind == "services":
                self._keep(self._services, (meta["namespace"], meta["name"]), event, record)
            else:
                change = self._slices, meta["uid"], event, record
                if self.lag_s:
                    asyncio.get_running_loop().call_later(self.lag_s, self._keep, *change)
                else:
                    self._keep(*change)

    @staticmethod
    def _keep(known: dict, key: Any, event: str, record: dict) -> None:
        if event == "DELETED":
            known.pop(key, None)
        else:
            known[key] = record

    async def _watch_routes(self) -> None:
        async for event, route in self._api.watch("gateway.networking.k8s.io/httproutes"):
            self._keep(self._routes, route["metadata"]["uid"], event, route)
            if event != "DELETED" and self._ours(route):
                await self._acknowledge(route)

    def _ours(self, route: dict) -> bool:
        namespace = route["metadata"]["namespace"]
        parents = route["spec"].get("parentRefs", ())
        return any(
            p["name"] == GATEWAY and p.get("namespace", namespace) == GATEWAY_NAMESPACE
            for p in parents
        )

    async def _acknowledge(self, route: dict) -> None:
        meta = route["metadata"]
        parents = [
            {
                "parentRef": parent,
                "controllerName": CONTROLLER,
                "conditions": [
                    _condition("Accepted", meta["generation"]),
                    _condition("ResolvedRefs", meta["generation"]),
                ],
            }
            for parent in route["spec"].get("parentRefs", ())
        ]
        generations = [
            c.get("observedGeneration")
            for p in route.get("status", {}).get("parents", ())
            for c in p["conditions"]
        ]
        if generations and all(g == meta["generation"] for g in generations):
            return
        with suppress(ApiError):  # deleted meanwhile, or changed: the next event comes
            await self._api.patch(
                "gateway.networking.k8s.io/httproutes",
                meta["name"],
                {"status": {"parents": parents}},
                meta["namespace"],
                subresource="status",
            )

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        raw = request.raw_path if hasattr(request, "raw_path") else str(request.rel_url)
        url = urlsplit(raw if "://" in raw else f"http://{request.host}{raw}")
        host = (url.hostname or "").lower()
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        body = await request.read()
        headers = {k: v for k, v in request.headers.items() if k.lower() not in HOP}
        direct = await self._direct(host, url.port or 80)
        if direct:
            return await self._send(request, direct, path, headers, body)
        match = self._match(host, url.path)
        if match is None:
            return web.Response(status=404, text=f"no route for {host}{path}")
        route, rule, index = match
        for place_of, extra in enumerate(rule.get("filters", ())):
            if extra["type"] == "RequestHeaderModifier":
                change = extra["requestHeaderModifier"]
                headers |= {
                    h["name"]: h["value"] for h in [*change.get("set", ()), *change.get("add", ())]
                }
            if extra["type"] == "RequestMirror":
                text = f"{route['metadata']['uid']}/{place_of}"
                if self._copied(text, index, extra["requestMirror"]):
                    backend = extra["requestMirror"]["backendRef"]
                    copy = asyncio.create_task(
                        self._mirror(route, backend, request.method, path, headers, body)
                    )
                    self._copies.add(copy)
                    copy.add_done_callback(self._copies.discard)
        backend = self._choose(route["metadata"]["uid"], index, rule.get("backendRefs", ()))
        if backend is None:
            return web.Response(status=500, text="the route has no backend with a weight")
        namespace = backend.get("namespace", route["metadata"]["namespace"])
        target = self._endpoint(namespace, backend["name"], backend["port"])
        self.routed[namespace, backend["name"]] += 1
        if target is None:
            return web.Response(
                status=503, text=f"no endpoint is ready for service {namespace}/{backend['name']}"
            )
        limit_s = duration_s(rule.get("timeouts", {}).get("request", "0s")) / self.faster
        return await self._send(request, target, path, headers, body, limit_s)

    async def _direct(self, host: str, port: int) -> str | None:
        """A Service's or a pod's own address."""
        if host.startswith(f"100.{self._slot.number}.") or host.startswith("127."):
            return f"{real(host)}:{port}" if host != self._slot.host else None
        words = host.removesuffix(".").split(".")
        if len(words) >= 3 and words[2] == "svc":
            return self._endpoint(words[1], words[0], port) or "127.0.0.1:1"
        service = next(
            (k for k, s in self._services.items() if s["spec"].get("clusterIP") == host), None
        )
        return self._endpoint(service[0], service[1], port) if service else None

    def _endpoint(self, namespace: str, service: str, port: int) -> str | None:
        """A ready endpoint of a Service's port, in turn."""
        record = self._services.get((namespace, service))
        if record is None:
            return None
        spec = record["spec"]
        if spec.get("type") == "ExternalName":
            words = spec["externalName"].split(".")
            return (
                self._endpoint(words[1], words[0], port)
                if len(words) > 2 and words[2] == "svc"
                else None
            )
        names = [p.get("name", "") for p in spec.get("ports", ()) if p["port"] == port]
        if not names:
            return None
        places = []
        for listed in self._slices.values():
            if listed["metadata"]["namespace"] != namespace:
                continue
            if listed["metadata"].get("labels", {}).get("kubernetes.io/service-name") != service:
                continue
            number = next(
                (p["port"] for p in listed.get("ports") or () if p.get("name", "") == names[0]),
                None,
            )
            ready = [
                e
                for e in listed.get("endpoints") or ()
                if number and e.get("conditions", {}).get("ready")
            ]
            places += [f"{real(endpoint['addresses'][0])}:{number}" for endpoint in ready]
        return sorted(places)[next(self._turn) % len(places)] if places else None

    def _match(self, host: str, path: str) -> tuple[dict, dict, int] | None:
        """The most specific rule: the longest path, the oldest route."""
        best: tuple[tuple[int, int], dict, dict, int] | None = None
        for route in sorted(
            self._routes.values(), key=lambda r: r["metadata"]["creationTimestamp"]
        ):
            if not self._ours(route) or not _host_matches(host, route["spec"].get("hostnames", ())):
                continue
            for index, rule in enumerate(route["spec"].get("rules", ())):
                for match in rule.get("matches") or [
                    {"path": {"type": "PathPrefix", "value": "/"}}
                ]:
                    score = _path_score(
                        path, match.get("path", {"type": "PathPrefix", "value": "/"})
                    )
                    if score and (best is None or score > best[0]):
                        best = score, route, rule, index
        return best[1:] if best else None

    def _copied(self, place: str, index: int, mirror: dict) -> bool:
        """Whether this request is one of the share that is copied; exact, as with weights."""
        share = mirror.get("fraction") or {"numerator": mirror.get("percent", 100)}
        numerator, denominator = float(share["numerator"]), float(share.get("denominator", 100))
        chosen = self._choose(
            place, index, [{"name": "", "weight": numerator}, {"weight": denominator - numerator}]
        )
        return chosen is not None and "name" in chosen

    def _choose(self, uid: str, index: int, backends: Any) -> dict | None:
        weights = [float(b.get("weight", 1)) for b in backends]
        if not sum(weights):
            return None
        credit = self._credit.setdefault((uid, index), [])
        if len(credit) != len(weights):
            credit[:] = [0.0] * len(weights)
        for place, weight in enumerate(weights):
            credit[place] += weight
        chosen = max(range(len(weights)), key=lambda place: (weights[place] > 0, credit[place]))
        credit[chosen] -= sum(weights)
        return dict(backends[chosen])

    async def _mirror(
        self, route: dict, backend: dict, method: str, path: str, headers: dict, body: bytes
    ) -> None:
        namespace = backend.get("namespace", route["metadata"]["namespace"])
        target = self._endpoint(namespace, backend["name"], backend["port"])
        self.mirrored[namespace, backend["name"]] += 1
        if target and self._session:
            with suppress(aiohttp.ClientError, OSError):
                async with self._session.request(
                    method, f"http://{target}{path}", data=body, headers=headers
                ) as answer:
                    await answer.read()

    async def _send(
        self,
        request: web.Request,
        target: str,
        path: str,
        headers: dict,
        body: bytes,
        limit_s: float = 0.0,
    ) -> web.StreamResponse:
        assert self._session is not None
        response = None
        try:
            async with (
                asyncio.timeout(limit_s or None),
                self._session.request(
                    request.method,
                    f"http://{target}{path}",
                    data=body or None,
                    headers=headers,
                    allow_redirects=False,
                ) as answer,
            ):
                passed_on = {k: v for k, v in answer.headers.items() if k.lower() not in HOP}
                response = web.StreamResponse(status=answer.status, headers=passed_on)
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
                return response
        except TimeoutError:
            if response is None:
                return web.Response(status=504, text="upstream request timeout")
            if request.transport:
                request.transport.abort()
            return response
        except (
            aiohttp.ClientConnectorError,
            ConnectionResetError,
            aiohttp.ServerDisconnectedError,
        ) as error:
            return web.Response(status=503, text=f"upstream connect error: {error}")


def _host_matches(host: str, names: Any) -> bool:
    return not names or any(
        host == n or (n.startswith("*.") and host.endswith(n[1:]))
        for n in (str(name).lower() for name in names)
    )


def _path_score(path: str, match: dict) -> tuple[int, int] | None:
    import re

    value, kind = match.get("value", "/"), match.get("type", "PathPrefix")
    if kind == "Exact":
        return (2, len(value)) if path == value else None
    if kind == "RegularExpression":
        return (1, len(value)) if re.fullmatch(value, path) or re.match(value, path) else None
    stem = value.rstrip("/")
    return (1, len(stem)) if path == stem or path.startswith(stem + "/") else None


def _condition(kind: str, generation: int) -> dict[str, Any]:
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "type": kind,
        "status": "True",
        "reason": kind,
        "message": "",
        "observedGeneration": generation,
        "lastTransitionTime": now,
    }
