"""Client of an API server: dicts in, dicts out, every refusal an mpctl error.

Retries: a read is repeated with growing pauses while the server is unreachable or answers 5xx; any request is repeated
after 429, which says that nothing happened. A write without an answer, or with a 5xx, is not repeated here:
:class:`OutcomeUnknown` is raised, and the caller reads again and decides.

Writes request strict field validation, so a misspelt field is an error. The field manager is ``mpctl``.

A service's objects that were read within the last second are not read again, unless this client wrote anything since or
a watch ended: the steps of one command ask for the same objects. A write still names the version that was read, so the
server refuses it when another client was faster.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlencode

import urllib3

from mpctl import commands
from mpctl.errors import InputError, MpctlError
from mpctl.json_fields import list_at, mapping_at, value_at
from mpctl.json_types import Json, JsonView
from mpctl.platform.kubernetes.api.kinds import (
    CONFIG_MAP,
    CONTROLLER_REVISION,
    DEPLOYMENT,
    HPA,
    HTTP_ROUTE,
    INFERENCE_SERVICE,
    LEADER_WORKER_SET,
    LEASE,
    LLM_CONFIG,
    LLM_INFERENCE_SERVICE,
    POD,
    SCALED_OBJECT,
    STATEFUL_SET,
    VLLM_RUNTIME,
    ObjectKind,
)
from mpctl.platform.kubernetes.api.replies import (
    Call,
    NoResponse,
    OutcomeUnknown,
    Response,
    Unreachable,
    error_of,
    json_object,
    retry_after,
    status_of,
)

if TYPE_CHECKING:
    import urllib3
    from kubernetes.client import Configuration

    from mpctl.platform.kubernetes.api.connection import ClusterConnection

MANAGER = "mpctl"
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_RECENT_S = 0.9  # less than any pause between two polls
_PAGE = 500  # objects per list request, as kubectl
_PAUSES_S = (
    0.2,
    0.5,
    1.0,
    2.0,
    4.0,
)  # between tries; about 8 s in all, a restart of one API server behind a balancer
_TIMEOUT_S = 30.0
_SILENT_S = 2.0  # without a word about a first answer that does not come
_LOG_BYTES = str(2**20)  # a line may be of any length
_LOG_LINES = "50"
_OPTIONS = {"fieldManager": MANAGER, "fieldValidation": "Strict"}
_WATCH_GRACE_S = 5.0  # the server ends a watch by itself; later than that it is gone
_WATCH_BYTES = 2**16
# What the steps of one command read again and again.
_RECENT_KINDS = frozenset(
    (
        INFERENCE_SERVICE,
        LLM_INFERENCE_SERVICE,
        LLM_CONFIG,
        DEPLOYMENT,
        STATEFUL_SET,
        POD,
        HPA,
        SCALED_OBJECT,
    )
)
_OWN_RECORDS = frozenset(
    (LEASE, CONTROLLER_REVISION, CONFIG_MAP)
)  # writing them changes nothing that serves
# What users' requests depend on.
_SERVING = frozenset(
    (
        INFERENCE_SERVICE,
        LLM_INFERENCE_SERVICE,
        LEADER_WORKER_SET,
        VLLM_RUNTIME,
        DEPLOYMENT,
        HPA,
        SCALED_OBJECT,
        HTTP_ROUTE,
    )
)
_LONGEST_WAIT_S = 60.0  # a server that asks for more is reported instead


class CannotWatch(Exception):
    """A watch is not possible now; whoever waits reads instead."""


class RecentReads:
    """Keeps answers for RECENT_S and no longer, so that a watch of many services does not hold what it once read."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[float, Response]] = {}
        self.is_held = False  # answers count however old they are

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Answer from what was just read, and read everything else once."""
        now, answers = time.monotonic(), self._kept.items()
        self._kept = {key: read for key, read in list(answers) if now - read[0] < _RECENT_S}
        self.is_held = True
        try:
            yield
        finally:
            self.is_held = False

    def read(self, key: str, ask: Callable[[], Response]) -> Response:
        """Return the recent answer to ``key``, or ask."""
        begun, answers = time.monotonic(), self._kept
        recent = answers.get(key)
        if recent is not None and (self.is_held or begun - recent[0] < _RECENT_S):
            return recent[1]
        answer = ask()
        expired = [name for name, (at, _) in list(answers.items()) if begun - at >= _RECENT_S]
        for name in () if self.is_held else expired:
            answers.pop(name, None)
        answers[key] = (
            begun,
            answer,
        )  # in the mapping that was current before: one who forgot meanwhile has replaced it
        return answer

    def forget(self) -> None:
        """Read everything again: something may have changed."""
        self._kept = {}


class Client:
    """An API server as one user. Safe to use from several threads.

    ``namespace``: of the context. ``reads`` and ``writes`` count requests sent, for tests and the debug log. ``guard``
    is called before every write but a Lease's own and dry runs, and raises when the service is no longer ours to
    change. ``tell`` shows what is waited for. ``written``: while it is a list, the writes of what serves with their
    answers, None where none came.
    """

    listing = False  # whether it answers from lists, see ListingClient

    def __init__(
        self,
        connection: ClusterConnection,
        *,
        as_user: str | None = None,
        timeout_s: float = _TIMEOUT_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        from kubernetes.client.rest import RESTClientObject

        if timeout_s <= 0:
            raise InputError("must be more than 0 s", field="MPCTL_REQUEST_TIMEOUT")
        self.namespace = connection.namespace
        self.context = connection.context
        self.configuration: Configuration = connection.configuration
        self.reads = self.writes = 0
        self._pool = RESTClientObject(connection.configuration).pool_manager
        self._impersonate = [("Impersonate-User", as_user)] if as_user else []
        self._timeout_s = timeout_s
        self._sleep = sleep
        self._lock = threading.Lock()
        self._recent: RecentReads = RecentReads()
        self.guard: Callable[[], None] | None = None
        self.tell: Callable[[str], None] = lambda _: None
        self._heard = False
        self.written: list[tuple[Call, Json | None]] | None = None

    # Reading

    def get(self, kind: ObjectKind, name: str, namespace: str | None = None) -> Json | None:
        """Return one object; None when it, or its kind, is not found.

        Raises:
            NotPermitted, Unreachable: see the module.
        """
        answer = self._read(Call("get", kind, namespace, name), kind.path(namespace, name), {})
        return None if answer.code == 404 else json_object(answer.body)

    def require(self, kind: ObjectKind, name: str, namespace: str | None = None) -> Json:
        """Return one object.

        Raises:
            InputError: not found.
        """
        call = Call("get", kind, namespace, name)
        answer = self._read(call, kind.path(namespace, name), {})
        if answer.code == 404:
            raise error_of(404, answer.body, call)
        return json_object(answer.body)

    def list(
        self, kind: ObjectKind, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> list[Json] | None:
        """Return all objects with their ``kind`` and ``apiVersion``; None when the server does not know the kind.

        ``namespace`` None: of all namespaces. ``labels``, ``fields``: selectors as kubectl takes them.
        """
        call = Call("list", kind, namespace)
        query = {"labelSelector": labels, "fieldSelector": fields, "limit": str(_PAGE)}
        objects: list[Json] = []
        while True:
            answer = self._read(call, kind.path(namespace), {k: v for k, v in query.items() if v})
            if answer.code == 404:
                return None
            page = json_object(answer.body)
            items = [item for item in list_at(page, "items") if isinstance(item, Mapping)]
            objects += [
                {"apiVersion": kind.api_version, "kind": kind.name, **item} for item in items
            ]
            query["continue"] = str(value_at(page, "metadata", "continue") or "")
            if not query["continue"]:
                return objects

    def changed(
        self, kind: ObjectKind, name: str, namespace: str, version: str, timeout_s: float
    ) -> bool:
        """Wait by a watch until an object is no longer as it was read at ``version``; return whether it may have
        changed. False: it has not within ``timeout_s``.

        Raises:
            CannotWatch: the right is missing, the version is too old, or the server does not answer; reading it tells.
        """
        query = {
            "watch": "1",
            "fieldSelector": f"metadata.name={name}",
            "resourceVersion": version,
            "timeoutSeconds": str(max(1, round(timeout_s))),
        }
        response = self._stream(kind.path(namespace), query, timeout_s + _WATCH_GRACE_S)
        try:
            if response.status != 200:
                raise CannotWatch(f"answer {response.status}")
            return any(chunk.strip() for chunk in response.stream(_WATCH_BYTES))
        except urllib3.exceptions.HTTPError as error:
            raise CannotWatch(str(error)) from error
        finally:
            self.forget_reads()
            response.close()  # the answer is not read to its end, so its connection cannot be used again

    def one_reading(self) -> AbstractContextManager[None]:
        """Read each object and list once until the block ends, so that what is read belongs together."""
        return self._recent.hold()

    def raw(self, path: str) -> str | None:
        """Return the text at a path such as ``/version``; None on 404."""
        answer = self._read(
            Call("get", ObjectKind("", "", "path", path, namespaced=False), None, path), path, {}
        )
        return None if answer.code == 404 else answer.body.decode(errors="replace")

    def version(self) -> Json:
        """Return the server's ``/version``."""
        return json_object(self.raw("/version") or "{}")

    def log(self, name: str, namespace: str, *, container: str = "", previous: bool = False) -> str:
        """Return the last lines of a container's log; empty without one."""
        call = Call("get", POD, namespace, name, "log")
        query = {
            "tailLines": _LOG_LINES,
            "limitBytes": _LOG_BYTES,
            "container": container,
            "previous": "true" if previous else "",
        }
        answer = self._send(
            "GET", POD.path(namespace, name, "log"), {k: v for k, v in query.items() if v}, None, ""
        )
        if isinstance(answer, NoResponse) or answer.code in (400, 404) or answer.code >= 500:
            return ""  # 400: the container has not started
        if answer.code >= 300:
            raise error_of(answer.code, answer.body, call)
        return answer.body.decode(errors="replace")

    # Writing

    def create(self, kind: ObjectKind, body: Json, *, dry_run: bool = False) -> Json:
        """Create an object; metadata names it. ``dry_run``: only return it as it would be stored.

        Raises:
            AlreadyExists: an object of that name exists.
            OutcomeUnknown: no answer.
        """
        call = _call("create", kind, body)
        query = {**_OPTIONS, "dryRun": "All"} if dry_run else _OPTIONS
        return self._write(call, "POST", kind.path(call.namespace), query, body, "application/json")

    def replace(self, kind: ObjectKind, body: Json, *, dry_run: bool = False) -> Json:
        """Write the whole object. ``metadata.resourceVersion`` and ``metadata.uid`` must be those that were read, which
        protects foreign changes and other objects of the same name.

        Raises:
            Stale: it changed since.
            OutcomeUnknown: no answer.
        """
        metadata = mapping_at(body, "metadata")
        if not metadata.get("resourceVersion") or not metadata.get("uid"):
            raise ValueError("a replace needs the resourceVersion and uid that were read")
        call = _call("update", kind, body)
        path = kind.path(call.namespace, call.name)
        query = {**_OPTIONS, "dryRun": "All"} if dry_run else _OPTIONS
        return self._write(call, "PUT", path, query, body, "application/json")

    def apply(
        self, kind: ObjectKind, body: Json, *, force: bool = False, subresource: str | None = None
    ) -> Json:
        """Server-side apply as ``mpctl``. The same body again changes nothing, so an unknown outcome is repeated.

        Raises:
            Stale: another manager owns a field; the message names both.
        """
        call = _call("patch", kind, body)
        query = {**_OPTIONS, "force": "true" if force else "false"}
        body = {"apiVersion": kind.api_version, "kind": kind.name, **body}
        path = kind.path(call.namespace, call.name, subresource)
        return self._retry_unknown(lambda: self._write(call, "PATCH", path, query, body, _APPLY))

    def merge(self, kind: ObjectKind, name: str, namespace: str | None, patch: Json) -> Json:
        """JSON merge patch; put ``metadata.resourceVersion`` into the patch for a precondition.

        Raises:
            Stale: it changed since.
            OutcomeUnknown: no answer.
        """
        call = Call("patch", kind, namespace, name)
        return self._write(call, "PATCH", kind.path(namespace, name), _OPTIONS, patch, _MERGE)

    def delete(
        self,
        kind: ObjectKind,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        version: str | None = None,
        foreground: bool = False,
        dry_run: bool = False,
    ) -> None:
        """Delete an object, if it exists. With ``uid`` only that very object, with ``version`` only as it was read.

        Raises:
            Stale: the object has another uid or version.
        """
        call = Call("delete", kind, namespace, name)
        required = {"uid": uid, "resourceVersion": version}
        body: Json = {
            "propagationPolicy": "Foreground" if foreground else "Background",
            "preconditions": {
                field: value for field, value in required.items() if value is not None
            },
            # With a body the API server does not look for it in the query.
            "dryRun": ["All"] if dry_run else [],
        }
        query = {"dryRun": "All"} if dry_run else {}
        self._retry_unknown(
            lambda: self._write(
                call, "DELETE", kind.path(namespace, name), query, body, "application/json"
            )
        )

    # Requests

    def _read(self, call: Call, path: str, query: Mapping[str, str]) -> Response:
        if call.kind not in _RECENT_KINDS and not self._recent.is_held:
            return self._read_now(call, path, query)
        return self._recent.read(
            f"{path}?{urlencode(query)}", lambda: self._read_now(call, path, query)
        )

    def forget_reads(self) -> None:
        """Read everything again: something may have changed."""
        self._recent.forget()

    def _read_now(self, call: Call, path: str, query: Mapping[str, str]) -> Response:
        for pause in (*_PAUSES_S, None):
            answer = self._send("GET", path, query, None, "")
            if isinstance(answer, Response) and answer.code < 500 and answer.code != 429:
                if answer.code >= 300 and answer.code != 404:
                    raise error_of(answer.code, answer.body, call)
                return answer
            if pause is not None:
                self._sleep(self._delay_s(answer, pause, call))
        raise self._unreachable(answer, call)

    def _write(
        self,
        call: Call,
        method: Method,
        path: str,
        query: Mapping[str, str],
        body: Json,
        content_type: str,
    ) -> Json:
        is_dry_run = "dryRun" in query
        for pause in (*_PAUSES_S, None):
            if self.guard is not None and call.kind is not LEASE and not is_dry_run:
                self.guard()  # before every try: a server that asks for a pause may ask for one longer than a lease
            answer = self._send(method, path, query, body, content_type)
            done = isinstance(answer, Response) and answer.code < 300
            if call.kind not in _OWN_RECORDS and not (done and is_dry_run):
                self.forget_reads()
            if call.kind in _SERVING and not is_dry_run:
                self._remember(call, answer)
            if isinstance(answer, NoResponse) or answer.code >= 500:
                reason = "no answer" if isinstance(answer, NoResponse) else f"answer {answer.code}"
                raise OutcomeUnknown(
                    f"{call.target}: {reason} to {call.verb}; the outcome is unknown",
                    hint="run the same command again: it reads the object and resumes",
                )
            if answer.code == 404 and method == "DELETE":  # gone, maybe by an earlier try
                return {}
            if answer.code != 429:
                if answer.code >= 300:
                    raise error_of(answer.code, answer.body, call)
                return json_object(answer.body)
            if pause is not None:
                self._sleep(self._delay_s(answer, pause, call))
        raise self._unreachable(answer, call)

    def _remember(self, call: Call, answer: Response | NoResponse) -> None:
        """Keep a write that was done, or may have been."""
        if self.written is None:
            return
        if isinstance(answer, NoResponse) or answer.code >= 500:
            self.written.append((call, None))
        elif answer.code < 300:
            self.written.append((call, json_object(answer.body)))

    def _retry_unknown(self, write: Callable[[], Json]) -> Json:
        for pause in _PAUSES_S:
            try:
                return write()
            except OutcomeUnknown:
                self._sleep(pause)
        return write()

    def _send(
        self,
        method: Method,
        path: str,
        query: Mapping[str, str],
        body: Json | None,
        content_type: str,
    ) -> Response | NoResponse:
        """A request.

        Raises:
            MpctlError: it can never be answered: the server's address or its certificates cannot be used.
        """
        headers = self._headers()
        if content_type:
            headers["Content-Type"] = content_type
        url = self.configuration.host + path + (f"?{urlencode(query)}" if query else "")
        with self._lock:
            self.reads += method == "GET"
            self.writes += method != "GET"
        try:
            with self._patience():
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
                f"{self.configuration.host}: {error}",
                hint="check the certificate authority in the kubeconfig",
            ) from error
        except urllib3.exceptions.LocationValueError as error:
            raise InputError(
                f"{self.configuration.host!r} is not the address of an API server: {error}"
            ) from error
        except urllib3.exceptions.HTTPError as error:
            return NoResponse(_no_answer_reason(error, self._timeout_s))
        self._heard = True
        return Response(response.status, response.headers, response.data)

    @contextmanager
    def _patience(self) -> Iterator[None]:
        """Say what is waited for where the first answer of the server takes long; it hangs, or nothing is there."""
        if self._heard:
            yield
            return
        text = f"waiting for the API server {self.configuration.host} (request {self.reads + self.writes})"
        timer = threading.Timer(_SILENT_S, self.tell, (text,))
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _stream(
        self, path: str, query: Mapping[str, str], timeout_s: float
    ) -> urllib3.BaseHTTPResponse:
        """A request whose answer arrives in pieces.

        Raises:
            CannotWatch: there is no answer.
        """
        with self._lock:
            self.reads += 1
        try:
            return self._pool.request(
                "GET",
                f"{self.configuration.host}{path}?{urlencode(query)}",
                headers=self._headers(),
                timeout=urllib3.Timeout(connect=self._timeout_s, read=timeout_s),
                retries=False,
                preload_content=False,
            )
        except urllib3.exceptions.HTTPError as error:
            raise CannotWatch(str(error)) from error

    def _headers(self) -> urllib3.HTTPHeaderDict:
        refresh: Callable[[Configuration], None] | None = self.configuration.refresh_api_key_hook
        if refresh is not None:
            refresh(self.configuration)  # a credential plugin's token that ran out
        headers = urllib3.HTTPHeaderDict(
            {
                "Accept": "application/json, */*",
                "Accept-Encoding": "gzip",  # the server compresses long lists
                "User-Agent": MANAGER,
                **self.authorization(),
            }
        )
        for name, value in self._impersonate:
            headers.add(name, value)
        return headers

    def authorization(self) -> dict[str, str]:
        """The Authorization header, empty with client certificates."""
        settings: JsonView = self.configuration.auth_settings()
        return {item["key"]: item["value"] for item in settings.values() if item["value"]}

    def header_lines(self) -> tuple[str, ...]:
        """Return authentication headers as lines, for streams of other libraries."""
        headers = [*self.authorization().items(), *self._impersonate]
        return tuple(f"{name}: {value}" for name, value in headers)

    def _delay_s(self, answer: Response | NoResponse, pause: float, call: Call) -> float:
        if isinstance(answer, NoResponse):
            return pause
        requested_s = retry_after(answer.headers, otherwise=pause)
        if requested_s > _LONGEST_WAIT_S:
            raise Unreachable(
                f"{call.target}: the API server asks to wait {requested_s:.0f} s",
                hint="retry after that time",
            )
        return max(requested_s, pause) if answer.code == 429 else requested_s

    def _unreachable(self, answer: Response | NoResponse, call: Call) -> Unreachable:
        if isinstance(answer, NoResponse):
            reason = f"does not answer ({answer.why})"
        else:
            reason = f"answers {answer.code}: {status_of(answer.body).get('message')}"
        return Unreachable(
            f"{call.target}: the API server {self.configuration.host} {reason}",
            hint=f"check '{commands.kubectl('get', '--raw', '/readyz')}', then run the same command again",
        )

    def close(self) -> None:
        """Close idle connections."""
        self._pool.clear()


def _call(verb: str, kind: ObjectKind, body: Json) -> Call:
    metadata = body["metadata"]
    return Call(verb, kind, metadata.get("namespace"), metadata.get("name"))


def _no_answer_reason(error: Exception, timeout_s: float) -> str:
    """Return why no answer came, as the system says it."""
    cause = error.__cause__
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror.lower()
    if isinstance(error, urllib3.exceptions.TimeoutError):
        return f"timeout after {timeout_s:g} s"
    return str(error)
