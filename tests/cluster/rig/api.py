"""A small Kubernetes client for the rig and its tests: raw objects as dictionaries, found by kind.

:class:`Api` is asynchronous and lives on the cluster's own loop; :class:`Client` is its blocking face for tests. mpctl
itself is never tested with it, only looked at with it.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import aiohttp
import yaml

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"


class ApiError(Exception):
    """The API server's refusal. ``status`` is the HTTP code, ``reason`` Kubernetes' own word."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status, self.reason, self.message = status, reason, message


@dataclass(frozen=True)
class Resource:
    """A kind that the server serves."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    def path(
        self, namespace: str | None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """The URL path of a collection, an object or its subresource."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        inner = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return "/".join(filter(None, [f"{root}{inner}/{self.plural}", name, subresource]))


class Api:
    """One user's view of one API server."""

    def __init__(self, server: str, context: ssl.SSLContext, *, token: str | None = None) -> None:
        self.server = server
        self._context = context
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._session: aiohttp.ClientSession | None = None
        self._resources: dict[str, Resource] = {}

    async def close(self) -> None:
        """Drop the connections."""
        if self._session:
            await self._session.close()

    def session(self) -> aiohttp.ClientSession:
        """The connections, opened when first used."""
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=self._context, limit=0)
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=30)
            self._session = aiohttp.ClientSession(
                connector=connector, timeout=timeout, headers=self._headers
            )
        return self._session

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content: str = "application/json",
        **query: str,
    ) -> Any:
        """One request; the decoded answer, or the text where it is none of JSON.

        Raises:
            ApiError: any status from 400 on.
        """
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": content, "Accept": query.pop("accept", "application/json, */*")}
        async with self.session().request(
            method, self.server + path, data=data, headers=headers, params=query
        ) as answer:
            text = await answer.text()
            if answer.status >= 400:
                raise _error(answer.status, text)
            return json.loads(text) if "json" in answer.headers.get("Content-Type", "") else text

    async def resource(self, kind: str) -> Resource:
        """What is meant by a kind, plural or short name, such as ``isvc``; ``group/kind`` where several have it.

        Raises:
            ApiError: the server serves no such kind.
        """
        if kind.lower() not in self._resources:
            await self._discover()
        if kind.lower() not in self._resources:
            raise ApiError(404, "NotFound", f"the server serves no {kind}")
        return self._resources[kind.lower()]

    async def _discover(self) -> None:
        for root in ("/apis", "/api"):  # the core group last: its names win
            for group in (await self.request("GET", root, accept=AGGREGATED))["items"]:
                name = group["metadata"].get("name", "")
                for version in reversed(group["versions"]):  # the preferred one last: it wins
                    for entry in version.get("resources", ()):
                        resource = Resource(
                            name,
                            version["version"],
                            entry["resource"],
                            entry["responseKind"]["kind"],
                            entry["scope"] == "Namespaced",
                        )
                        words = {
                            resource.plural,
                            resource.kind.lower(),
                            entry.get("singularResource", "").lower(),
                        }
                        for word in words | set(entry.get("shortNames") or ()):
                            self._resources[word] = resource
                            self._resources[f"{name}/{word}"] = resource

    async def of(self, document: dict) -> Resource:
        """The resource of an object."""
        group = document["apiVersion"].rpartition("/")[0]
        return await self.resource(f"{group}/{document['kind']}")

    async def get(self, kind: str, name: str, namespace: str | None = None) -> dict:
        """One object. Raises ApiError 404 when it is not there."""
        return await self.request("GET", (await self.resource(kind)).path(namespace, name))

    async def list(
        self, kind: str, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> list[dict]:
        """The objects of a kind, of one namespace or of all."""
        query = {k: v for k, v in (("labelSelector", labels), ("fieldSelector", fields)) if v}
        return (await self.request("GET", (await self.resource(kind)).path(namespace), **query))[
            "items"
        ]

    async def create(self, document: dict, namespace: str | None = None) -> dict:
        """Create an object; unknown fields are refused."""
        resource = await self.of(document)
        where = document["metadata"].get("namespace") or namespace
        return await self.request("POST", resource.path(where), document, fieldValidation="Strict")

    async def apply(
        self, document: dict, namespace: str | None = None, *, manager: str = "tests"
    ) -> dict:
        """Server-side apply by ``manager``, with force; unknown fields are refused."""
        resource = await self.of(document)
        meta = document["metadata"]
        path = resource.path(meta.get("namespace") or namespace, meta["name"])
        query = {"fieldManager": manager, "force": "true", "fieldValidation": "Strict"}
        return await self.request("PATCH", path, document, content=APPLY, **query)

    async def patch(
        self,
        kind: str,
        name: str,
        change: Any,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        content: str = MERGE,
    ) -> dict:
        """Change an object or its subresource; a list is taken as a JSON patch."""
        path = (await self.resource(kind)).path(namespace, name, subresource)
        return await self.request(
            "PATCH", path, change, content=JSON_PATCH if isinstance(change, list) else content
        )

    async def delete(
        self, kind: str, name: str, namespace: str | None = None, *, grace_s: int | None = None
    ) -> None:
        """Delete an object; one that is gone already is fine."""
        options = {"propagationPolicy": "Background"} | (
            {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        )
        try:
            await self.request("DELETE", (await self.resource(kind)).path(namespace, name), options)
        except ApiError as error:
            if error.status != 404:
                raise

    async def watch(
        self, kind: str, namespace: str | None = None, *, fields: str = ""
    ) -> AsyncIterator[tuple[str, dict]]:
        """(ADDED | MODIFIED | DELETED, object), beginning with what is there, for ever; survives a restarted server.

        What was deleted while no watch was open is reported as DELETED with its last known form.
        """
        entries: dict[str, dict] = {}
        query = {"fieldSelector": fields} if fields else {}
        while True:
            try:
                path = (await self.resource(kind)).path(namespace)
                listed = await self.request("GET", path, **query)
                now = {item["metadata"]["uid"]: item for item in listed["items"]}
                for uid in [uid for uid in entries if uid not in now]:
                    yield "DELETED", entries.pop(uid)
                for item in now.values():
                    yield "ADDED", item
                entries = now
                version = listed["metadata"]["resourceVersion"]
                options = {
                    **query,
                    "watch": "true",
                    "resourceVersion": version,
                    "allowWatchBookmarks": "true",
                }
                async with self.session().get(
                    self.server + path, params=options, read_bufsize=2**24
                ) as stream:
                    async for line in stream.content:
                        event = json.loads(line)
                        if event["type"] == "ERROR":
                            break
                        if event["type"] == "BOOKMARK":
                            continue
                        item = event["object"]
                        if event["type"] == "DELETED":
                            entries.pop(item["metadata"]["uid"], None)
                        else:
                            entries[item["metadata"]["uid"]] = item
                        yield event["type"], item
            except (TimeoutError, aiohttp.ClientError, ApiError):
                await asyncio.sleep(0.5)


class PatientApi(Api):
    """As kubelets and controllers ask: again for two minutes while the API server or its etcd is away or overloaded. A
    request whose answer was lost is sent twice."""

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content: str = "application/json",
        **query: str,
    ) -> Any:
        """See :meth:`Api.request`."""
        async with asyncio.timeout(120):
            while True:
                try:
                    return await super().request(method, path, body, content=content, **query)
                except ApiError as error:
                    if error.status < 500 and error.status != 429:
                        raise
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.2)


class Client:
    """The blocking face of an :class:`Api`."""

    def __init__(
        self, api: Api, run: Callable[[Coroutine[Any, Any, Any]], Any], namespace: str = "default"
    ) -> None:
        self.api, self._run, self.namespace = api, run, namespace

    def close(self) -> None:
        """Drop the connections of a client of one's own; the cluster closes its administrator's."""

        async def close() -> None:
            await self.api.close()
            await asyncio.sleep(
                0.25
            )  # aiohttp ends its TLS connections a moment later (its documentation says so)

        self._run(close())

    def within(self, namespace: str) -> Client:
        """The same with another namespace where none is said."""
        return Client(self.api, self._run, namespace)

    def get(self, kind: str, name: str, namespace: str | None = None) -> dict:
        """One object. Raises ApiError 404 when it is not there."""
        return self._run(self.api.get(kind, name, namespace or self.namespace))

    def find(self, kind: str, name: str, namespace: str | None = None) -> dict | None:
        """One object, or None."""
        try:
            return self.get(kind, name, namespace)
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    def list(self, kind: str, namespace: str | None = None, *, labels: str = "") -> list[dict]:
        """The objects of a kind in one namespace (``"*"``: in all)."""
        where = None if namespace == "*" else namespace or self.namespace
        return self._run(self.api.list(kind, where, labels=labels))

    def create(self, source: str | dict) -> dict:
        """Create what the YAML text or dictionary says (the last one is returned)."""
        return [self._run(self.api.create(d, self.namespace)) for d in documents(source)][-1]

    def apply(self, source: str | dict, *, manager: str = "tests") -> dict:
        """Server-side apply of what the YAML text or dictionary says (the last one is returned)."""
        return [
            self._run(self.api.apply(d, self.namespace, manager=manager)) for d in documents(source)
        ][-1]

    def patch(
        self,
        kind: str,
        name: str,
        change: Any,
        *,
        subresource: str | None = None,
        content: str = MERGE,
    ) -> dict:
        """Change an object; a list is taken as a JSON patch."""
        return self._run(
            self.api.patch(
                kind, name, change, self.namespace, subresource=subresource, content=content
            )
        )

    def delete(self, kind: str, name: str, *, grace_s: int | None = None) -> None:
        """Delete an object; one that is gone already is fine."""
        self._run(self.api.delete(kind, name, self.namespace, grace_s=grace_s))

    def request(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        """Any request."""
        return self._run(self.api.request(method, path, body, **query))

    def wait(self, what: str, look: Callable[[], Any], timeout_s: float = 180.0) -> Any:
        """The first true answer of ``look``; an ApiError 404 counts as not yet.

        Raises:
            AssertionError: there was none in time; the text has ``what`` and the state of the namespace.
        """
        end = time.monotonic() + timeout_s
        last: Any = None
        while time.monotonic() < end:
            try:
                last = look()
            except ApiError as error:
                if error.status != 404:
                    raise
                last = error
            else:
                if last:
                    return last
            time.sleep(0.1)
        raise AssertionError(
            f"{what}: not within {timeout_s:.0f} s; last seen: {last!r}\n{self.describe()}"
        )

    def describe(self) -> str:
        """Pods and the last events of the namespace, for a failed test."""
        lines = []
        for pod in self.list("pods"):
            status = pod.get("status", {})
            conditions = [
                f"{c['type']}={c['status']} {c.get('message', '')}"
                for c in status.get("conditions", ())
            ]
            lines.append(f"pod {pod['metadata']['name']} {status.get('phase')} {conditions}")
        for event in self.list("events")[-15:]:
            about = event["involvedObject"]
            lines.append(
                f"event {about.get('kind')}/{about.get('name')} {event.get('reason')}: {event.get('message')}"
            )
        return "\n".join(lines)


def documents(source: str | dict) -> list[dict]:
    """The objects of a YAML text, or the one given."""
    return [d for d in yaml.safe_load_all(source) if d] if isinstance(source, str) else [source]


def _error(status: int, text: str) -> ApiError:
    try:
        status_object = json.loads(text)
        return ApiError(status, status_object.get("reason", ""), status_object.get("message", text))
    except (ValueError, AttributeError):
        return ApiError(status, "", text[:500])
