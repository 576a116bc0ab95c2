"""The verdict of each service's last rollout, for pipelines that ask the watch over HTTP.

Services, ledgers and live settings are read in the background, also while another watch leads, and a request is
answered from that reading alone: no requester causes an API request. An answer older than its bound is none.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from mpctl import bounded
from mpctl.app.session.base import Session
from mpctl.app.watch.events import reason_of
from mpctl.experiment.run import API_VERSION
from mpctl.json_fields import value_at
from mpctl.json_types import Json
from mpctl.methods import from_config
from mpctl.rollout.operation import Ending, last_change, operations
from mpctl.rollout.plan import Kind, Plan

_FLAGGER = "/v1/flagger"
_PATH = re.compile(r"/v1/services/(?:([^/]+)/)?([^/]+)/verdict")
_VERDICTS = {Ending.PROMOTED: "promote", Ending.REJECTED: "refuse"}
_NONE = {"verdict": "none", "serves": False}
_LIST_S = 60.0  # between two listings of the services
_READ_S, _READ_EACH_S = (
    10.0,
    0.25,
)  # between two readings of a service, at least; of many so much each
_OLDEST_S, _OLDEST_EACH_S = 60.0, 0.5  # age of an answer, at most
_TURN_S = 1.0

Key = tuple[str, str]
Answer = tuple[int, Json]


@dataclass
class _ServiceVerdict:
    """A service and its verdict as last read; ``tried_at``: the last reading, also one that failed."""

    session: Session
    tried_at: float | None = None
    read: tuple[float, Json] | None = None  # time and record, replaced together
    problem: str = ""  # that was reported


class VerdictPages:
    """``sessions`` opens the services; ``warn`` gets what cannot be read."""

    def __init__(
        self,
        sessions: Callable[[], Sequence[Session]],
        monotonic: Callable[[], float],
        warn: Callable[[str], None],
    ) -> None:
        self._sessions, self._monotonic, self._warn = sessions, monotonic, warn
        self._listed_at: float | None = None
        self._services: dict[Key, _ServiceVerdict] | None = (
            None  # replaced as a whole: requests read it in other threads
        )
        self._list_problem = ""

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read in the background."""
        stop = threading.Event()

        def read() -> None:
            while not stop.wait(_TURN_S):
                self.read_due()

        threading.Thread(target=read, name="verdicts", daemon=True).start()
        try:
            yield
        finally:
            stop.set()

    def read_due(self) -> None:
        """List the services and read those whose verdict gets old; a service that cannot be read stops no other."""
        if self._listed_at is None or self._monotonic() - self._listed_at >= _LIST_S:
            self._list()
        services = self._services or {}
        wait_s = max(_READ_S, _READ_EACH_S * len(services))
        for key, service in services.items():
            if service.tried_at is None or self._monotonic() - service.tried_at >= wait_s:
                self._read(key, service)

    def _list(self) -> None:
        self._listed_at = self._monotonic()
        try:
            sessions = {(session.namespace, session.name): session for session in self._sessions()}
        except Exception as error:  # noqa: BLE001  the services that were listed before stay
            problem = reason_of(error)
            if problem != self._list_problem:
                self._warn(f"verdicts: services cannot be listed: {problem}")
            self._list_problem = problem
            return
        self._list_problem, before = "", self._services or {}
        self._services = {
            key: before.get(key) or _ServiceVerdict(session) for key, session in sessions.items()
        }
        for key, service in self._services.items():
            service.session = sessions[key]

    def _read(self, key: Key, service: _ServiceVerdict) -> None:
        service.tried_at = self._monotonic()
        try:
            record = verdict_record(service.session)
        except Exception as error:  # noqa: BLE001  the last verdict holds until it is too old
            problem = reason_of(error)
            if problem != service.problem:
                self._warn(f"verdict of {'/'.join(key)} cannot be read: {problem}")
            service.problem = problem
            return
        service.read, service.problem = (service.tried_at, record), ""

    def page(self, path: str, sent: bytes | None) -> tuple[int, str] | None:
        """Answer ``GET /v1/services/[NAMESPACE/]NAME/verdict`` with JSON, and ``POST /v1/flagger`` with the body of
        Flagger's webhooks with 200 where the gate promoted what serves, else with 403. None: another path."""
        match = _PATH.fullmatch(path) if sent is None else None
        if match is not None:
            status, body = self._verdict(match[1] or "", match[2])
        elif path == _FLAGGER and sent is not None:
            status, body = self._verdict(*_service_of(sent))
            if status == 200 and not (body["verdict"] == "promote" and body["serves"]):
                status = 403
        else:
            return None
        return status, json.dumps(body) + "\n"

    def _verdict(self, namespace: str, name: str) -> Answer:
        """Answer from what was read. A wrong or ambiguous name learns of no service."""
        services = self._services
        if services is None:
            return 503, {"error": "no service was read yet"}
        matches = [
            service
            for key, service in services.items()
            if key[1] == name and namespace in ("", key[0])
        ]
        if len(matches) != 1:
            return 404, {
                "error": "no such service is watched; a name in several namespaces needs its namespace"
            }
        if (read := matches[0].read) is None:
            return 503, {"error": "the service was not read yet"}
        age_s = self._monotonic() - read[0]
        if age_s > max(_OLDEST_S, _OLDEST_EACH_S * len(services)):
            return 503, {"error": f"the service was last read {age_s:.0f} s ago"}
        return 200, {**read[1], "readSecondsAgo": round(age_s, 1)}


def verdict_record(session: Session) -> Json:
    """Return the verdict of a service's last rollout: ``verdict`` is promote, refuse, undecided (which an unfinished or
    failed rollout is, too), or none without a rollout; ``serves``: its candidate is the service now, by the ledger and
    by the speculative setting of the live service.

    Raises:
        MpctlError: the ledger or the service cannot be read.
    """
    entries = session.store.entries()
    rollouts = [
        op for op in operations(entries) if op.plan.kind is Kind.ROLLOUT and op.plan.workload
    ]
    head = {
        "apiVersion": API_VERSION,
        "kind": "Verdict",
        "namespace": session.namespace,
        "service": session.name,
    }
    if not rollouts:
        return {**head, **_NONE}
    newest, last = rollouts[-1], last_change(entries)
    promoted = newest.ending is Ending.PROMOTED and last is not None and last.id == newest.id
    return {
        **head,
        "operation": newest.id,
        "verdict": _VERDICTS.get(newest.ending, "undecided") if newest.ending else "undecided",
        "serves": promoted and _is_live(session, newest.plan),
        "speculation": newest.plan.spec_text,
        "baseline": newest.plan.baseline_text,
        "openedAt": newest.opened_at,
        "closedAt": newest.closed_at or None,
        "planDigest": newest.plan.digest(),
    }


def _is_live(session: Session, plan: Plan) -> bool:
    """Return whether the live service has the setting that the plan promoted."""
    config: Json | None = session.service().speculation()
    return plan.spec is not None and from_config(config) == plan.spec


def _service_of(hook: bytes) -> tuple[str, str]:
    """Namespace and name of the service that a webhook of Flagger is about: its canary's, unless ``metadata.service``
    names another. Empty where the body is no such webhook."""
    try:
        body = bounded.loads(hook)
        return str(body.get("namespace") or ""), str(
            value_at(body, "metadata", "service") or body["name"]
        )
    except (ValueError, KeyError, AttributeError, TypeError):
        return "", ""
