"""The thin edge to an API server: dicts in, dicts out, every refusal an error of ours.

What is sent twice and what is not: reads are repeated with growing pauses while the server is unreachable or
answers 5xx; anything is repeated after 429, which says that nothing happened. A write without an answer, or with a
5xx, is never repeated here: :class:`OutcomeUnknown` is raised, and whoever wrote reads again and decides.

Writes always ask for strict field validation, so that a misspelt field is an error and not lost. Our field manager
is ``mpctl``.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlencode

from mpctl.errors import InputError, MpctlError
from mpctl.platform.kubernetes.api.failure import Call, OutcomeUnknown, Unreachable, error_of, retry_after, status_of
from mpctl.platform.kubernetes.api.kinds import LEASE, POD, Kind

if TYPE_CHECKING:
    from kubernetes.client import Configuration

    from mpctl.platform.kubernetes.api.connection import Connection

MANAGER = "mpctl"
Json = dict[str, Any]
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_PAGE = 500  # objects per list request, as kubectl
_PAUSES_S = (0.2, 0.5, 1.0, 2.0, 4.0)  # between tries; about 8 s in all, a restart of one API server behind a balancer
_TIMEOUT_S = 30.0
_LONGEST_WAIT_S = 60.0  # a server that asks for more is reported instead


@dataclass(frozen=True)
class Answer:
    """What came back."""

    code: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class NoAnswer:
    """Nothing came back; ``why`` in words."""

    why: str


class Client:
    """One API server as one user. Safe to use from several threads.

    ``namespace``: of the context. ``reads`` and ``writes`` count requests sent, for tests and the debug log. ``guard``
    is called before every write but a Lease's own, and raises when the service is no longer ours to change.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        as_user: str | None = None,
        as_groups: tuple[str, ...] = (),
        timeout_s: float = _TIMEOUT_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        from kubernetes.client.rest import RESTClientObject

        if timeout_s <= 0:
            raise InputError("must be more than 0 s", field="--request-timeout")
        self.namespace = connection.namespace
        self.context = connection.context
        self.configuration: Configuration = connection.configuration
        self.reads = self.writes = 0
        self._pool = RESTClientObject(connection.configuration).pool_manager
        self._impersonate = [("Impersonate-User", as_user)] if as_user else []
        self._impersonate += [("Impersonate-Group", group) for group in as_groups]
        self._timeout_s = timeout_s
        self._sleep = sleep
        self._lock = threading.Lock()
        self.guard: Callable[[], None] | None = None

    # Reading

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Json | None:
        """One object, or None when it (or its whole kind) is not there.

        Raises:
            NotPermitted, Unreachable: see the module.
        """
        call = Call("get", kind, namespace, name)
        answer = self._read(call, kind.path(namespace, name), {})
        return None if answer.code == 404 else json_object(answer.body)

    def need(self, kind: Kind, name: str, namespace: str | None = None) -> Json:
        """One object.

        Raises:
            InputError: it is not there.
        """
        call = Call("get", kind, namespace, name)
        answer = self._read(call, kind.path(namespace, name), {})
        if answer.code == 404:
            raise error_of(404, answer.body, call)
        return json_object(answer.body)

    def list(
        self, kind: Kind, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> list[Json] | None:
        """All objects, with ``kind`` and ``apiVersion`` set on each; None when the server does not know the kind.

        ``namespace`` None: of all namespaces. ``labels``, ``fields``: selectors as kubectl takes them.
        """
        call = Call("list", kind, namespace)
        query = {"labelSelector": labels, "fieldSelector": fields, "limit": str(_PAGE)}
        found: list[Json] = []
        while True:
            answer = self._read(call, kind.path(namespace), {k: v for k, v in query.items() if v})
            if answer.code == 404:
                return None
            page = json_object(answer.body)
            found += [{"apiVersion": kind.api_version, "kind": kind.name, **item} for item in page.get("items") or []]
            query["continue"] = str((page.get("metadata") or {}).get("continue") or "")
            if not query["continue"]:
                return found

    def raw(self, path: str) -> str | None:
        """The text at a path such as ``/version``; None on 404."""
        call = Call("get", Kind("", "", "path", path, namespaced=False), None, path)
        answer = self._read(call, path, {})
        return None if answer.code == 404 else answer.body.decode(errors="replace")

    def version(self) -> Json:
        """What ``/version`` says."""
        return json_object(self.raw("/version") or "{}")

    def log(self, name: str, namespace: str, *, container: str = "", tail: int = 50, previous: bool = False) -> str:
        """The last lines of a container; empty when there is no log (yet)."""
        call = Call("get", POD, namespace, name, "log")
        query = {"tailLines": str(tail), "container": container, "previous": "true" if previous else ""}
        answer = self._once("GET", POD.path(namespace, name, "log"), {k: v for k, v in query.items() if v}, None, "")
        if isinstance(answer, NoAnswer) or answer.code in (400, 404) or answer.code >= 500:
            return ""  # 400: the container has not started
        if answer.code >= 300:
            raise error_of(answer.code, answer.body, call)
        return answer.body.decode(errors="replace")

    # Writing

    def create(self, kind: Kind, body: Json, *, dry_run: bool = False) -> Json:
        """Create an object; metadata names it.

        Raises:
            AlreadyExists: it is there.
            OutcomeUnknown: no answer.
        """
        call = _call("create", kind, body)
        return self._write(call, "POST", kind.path(call.namespace), _options(dry_run), body, "application/json")

    def replace(self, kind: Kind, body: Json, *, dry_run: bool = False) -> Json:
        """Write the whole object. ``metadata.resourceVersion`` and ``metadata.uid`` must be those that were read, so
        that neither another's change nor another object of the same name is overwritten.

        Raises:
            Stale: it changed since.
            OutcomeUnknown: no answer.
        """
        metadata = body.get("metadata") or {}
        if not metadata.get("resourceVersion") or not metadata.get("uid"):
            raise ValueError("a replace without resourceVersion and uid would overwrite what it has not seen")
        call = _call("update", kind, body)
        path = kind.path(call.namespace, call.name)
        return self._write(call, "PUT", path, _options(dry_run), body, "application/json")

    def apply(self, kind: Kind, body: Json, *, force: bool = False, dry_run: bool = False) -> Json:
        """Server-side apply as ``mpctl``. The same body again changes nothing, so an unknown outcome is repeated.

        Raises:
            Stale: another manager owns a field; the message names both.
        """
        call = _call("patch", kind, body)
        query = {**_options(dry_run), "force": "true" if force else "false"}
        body = {"apiVersion": kind.api_version, "kind": kind.name, **body}
        path = kind.path(call.namespace, call.name)
        return self._repeated(lambda: self._write(call, "PATCH", path, query, body, _APPLY))

    def merge(self, kind: Kind, name: str, namespace: str | None, patch: Json, *, dry_run: bool = False) -> Json:
        """JSON merge patch; put ``metadata.resourceVersion`` into the patch for a precondition.

        Raises:
            Stale: it changed since.
            OutcomeUnknown: no answer.
        """
        call = Call("patch", kind, namespace, name)
        return self._write(call, "PATCH", kind.path(namespace, name), _options(dry_run), patch, _MERGE)

    def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        foreground: bool = False,
        dry_run: bool = False,
    ) -> None:
        """Delete an object; one that is not there is deleted already. With ``uid`` only that very object.

        Raises:
            Stale: the object has another uid.
        """
        call = Call("delete", kind, namespace, name)
        body: Json = {"propagationPolicy": "Foreground" if foreground else "Background"}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        query = {"dryRun": "All"} if dry_run else {}
        # A delete that happened is answered with 404 the second time, so it can be repeated.
        self._repeated(
            lambda: self._write(
                call, "DELETE", kind.path(namespace, name), query, body, "application/json", gone_is_done=True
            )
        )

    # Requests

    def _read(self, call: Call, path: str, query: Mapping[str, str]) -> Answer:
        for pause in (*_PAUSES_S, None):
            answer = self._once("GET", path, query, None, "")
            if isinstance(answer, Answer) and answer.code < 500 and answer.code != 429:
                if answer.code >= 300 and answer.code != 404:
                    raise error_of(answer.code, answer.body, call)
                return answer
            if pause is not None:
                self._sleep(self._pause(answer, pause, call))
        raise self._unreachable(answer, call)

    def _write(
        self,
        call: Call,
        method: Method,
        path: str,
        query: Mapping[str, str],
        body: Json,
        content_type: str,
        *,
        gone_is_done: bool = False,
    ) -> Json:
        for pause in (*_PAUSES_S, None):
            if self.guard is not None and call.kind is not LEASE:
                self.guard()  # before every try: a server that asks for a pause may ask for one longer than a lease
            answer = self._once(method, path, query, body, content_type)
            if isinstance(answer, NoAnswer) or answer.code >= 500:
                said = "no answer came" if isinstance(answer, NoAnswer) else f"the API server answered {answer.code}"
                raise OutcomeUnknown(
                    f"{call.target}: {said} to {call.verb}; it may have happened",
                    hint="the same command again looks at what is there and goes on",
                )
            if answer.code == 404 and gone_is_done:
                return {}
            if answer.code != 429:
                if answer.code >= 300:
                    raise error_of(answer.code, answer.body, call)
                return json_object(answer.body)
            if pause is not None:
                self._sleep(self._pause(answer, pause, call))
        raise self._unreachable(answer, call)

    def _repeated(self, write: Callable[[], Json]) -> Json:
        for pause in _PAUSES_S:
            try:
                return write()
            except OutcomeUnknown:
                self._sleep(pause)
        return write()

    def _once(
        self, method: Method, path: str, query: Mapping[str, str], body: Json | None, content_type: str
    ) -> Answer | NoAnswer:
        """One request.

        Raises:
            MpctlError: it can never be answered: the server's address or its certificates cannot be used.
        """
        import urllib3

        refresh: Callable[[Configuration], None] | None = self.configuration.refresh_api_key_hook
        if refresh is not None:
            refresh(self.configuration)  # a credential plugin's token that ran out
        headers = urllib3.HTTPHeaderDict(
            {"Accept": "application/json, */*", "User-Agent": MANAGER, **self.authorization()}
        )
        for name, value in self._impersonate:
            headers.add(name, value)
        if content_type:
            headers["Content-Type"] = content_type
        url = self.configuration.host + path + (f"?{urlencode(query)}" if query else "")
        with self._lock:
            self.reads += method == "GET"
            self.writes += method != "GET"
        try:
            response = self._pool.request(
                method,
                url,
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                timeout=urllib3.Timeout(total=self._timeout_s),
                retries=False,
            )
        except urllib3.exceptions.SSLError as error:
            raise MpctlError(
                f"{self.configuration.host}: {error}", hint="the kubeconfig's certificate authority does not fit"
            ) from error
        except urllib3.exceptions.LocationValueError as error:
            raise InputError(f"{self.configuration.host!r} is no address of an API server: {error}") from error
        except urllib3.exceptions.HTTPError as error:
            return NoAnswer(_why(error, self._timeout_s))
        return Answer(response.status, response.headers, response.data)

    def authorization(self) -> dict[str, str]:
        """The Authorization header, empty with client certificates."""
        settings: Mapping[str, Any] = self.configuration.auth_settings()
        return {item["key"]: item["value"] for item in settings.values() if item["value"]}

    def header_lines(self) -> tuple[str, ...]:
        """Who asks, as header lines, for streams that other libraries open."""
        who = [*self.authorization().items(), *self._impersonate]
        return tuple(f"{name}: {value}" for name, value in who)

    def _pause(self, answer: Answer | NoAnswer, pause: float, call: Call) -> float:
        if isinstance(answer, NoAnswer):
            return pause
        asked = retry_after(answer.headers, otherwise=pause)
        if asked > _LONGEST_WAIT_S:
            raise Unreachable(f"{call.target}: the API server asks to wait {asked:.0f} s", hint="try again then")
        return max(asked, pause) if answer.code == 429 else asked

    def _unreachable(self, answer: Answer | NoAnswer, call: Call) -> Unreachable:
        if isinstance(answer, NoAnswer):
            said = f"does not answer ({answer.why})"
        else:
            said = f"answers {answer.code}: {status_of(answer.body).get('message')}"
        return Unreachable(
            f"{call.target}: the API server {self.configuration.host} {said}",
            hint="kubectl get --raw /readyz says more; the same command again goes on",
        )

    def close(self) -> None:
        """Close idle connections."""
        self._pool.clear()


def _options(dry_run: bool) -> dict[str, str]:
    options = {"fieldManager": MANAGER, "fieldValidation": "Strict"}
    return {**options, "dryRun": "All"} if dry_run else options


def _call(verb: str, kind: Kind, body: Json) -> Call:
    metadata = body["metadata"]
    return Call(verb, kind, metadata.get("namespace"), metadata.get("name"))


def _why(error: Exception, timeout_s: float) -> str:
    """Why no answer came: the system's words where it has some."""
    import urllib3

    cause = error.__cause__
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror.lower()
    if isinstance(error, urllib3.exceptions.TimeoutError):
        return f"nothing came within {timeout_s:g} s"
    return str(error)


def json_object(body: bytes | str) -> Json:
    """The object of an answer.

    Raises:
        MpctlError: it is none, as when a proxy or a login page answers.
    """
    try:
        record = json.loads(body)
    except ValueError as error:
        raise MpctlError(
            f"the API server answered what is not JSON: {body[:200]!r}",
            hint="see what stands at the server's address of the kubeconfig: a proxy or a login page may answer",
        ) from error
    if not isinstance(record, dict):
        raise MpctlError(f"the API server answered no object: {body[:200]!r}")
    return record


def conditions(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The conditions of an object's status."""
    status = record.get("status") or {}
    yield from status.get("conditions") or []


def condition(record: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """One condition by its type; empty when it is not there."""
    return next((c for c in conditions(record) if c.get("type") == kind), {})
