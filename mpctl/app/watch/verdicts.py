"""The verdict of a service's last rollout, for pipelines that ask the watch over HTTP.

It is read from the ledger when it is asked for, so that a watch that does not lead answers alike; an answer is kept for
seconds, so that no requester loads the API server.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

from mpctl import bounded
from mpctl.app.session.base import Session
from mpctl.errors import MpctlError
from mpctl.experiment.run import API_VERSION
from mpctl.rollout.operation import Ending, last_change, operations
from mpctl.rollout.plan import Kind

_FLAGGER = "/v1/flagger"
_PATH = re.compile(r"/v1/services/(?:([^/]+)/)?([^/]+)/verdict")
_KEPT_S = 5.0
_VERDICTS = {Ending.PROMOTED: "promote", Ending.REJECTED: "refuse"}
_NONE = {"verdict": "none", "serves": False}

Answer = tuple[int, dict[str, Any]]


class VerdictPages:
    """``sessions``: opens the services of the watch."""

    def __init__(self, sessions: Callable[[], Sequence[Session]], monotonic: Callable[[], float]) -> None:
        self._sessions, self._monotonic = sessions, monotonic
        self._lock = threading.Lock()
        self._answers: dict[tuple[str, str], tuple[float, Answer]] = {}

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
        with self._lock:
            read_at, answer = self._answers.get((namespace, name), (None, None))
            now = self._monotonic()
            if read_at is None or answer is None or now - read_at > _KEPT_S:
                answer = self._read(namespace, name)
                self._answers = {key: old for key, old in self._answers.items() if now - old[0] <= _KEPT_S}
                self._answers[namespace, name] = now, answer
            return answer

    def _read(self, namespace: str, name: str) -> Answer:
        try:
            matches = [s for s in self._sessions() if s.name == name and namespace in ("", s.namespace)]
            if len(matches) == 1:
                return 200, verdict_record(matches[0])
        except MpctlError as error:
            return 503, {"error": error.message}
        if matches:
            return 409, {"error": f"namespace of {name} needed: {', '.join(sorted(s.namespace for s in matches))}"}
        return 404, {"error": f"service {name} not found among those watched"}


def verdict_record(session: Session) -> dict[str, Any]:
    """Return the verdict of a service's last rollout: ``verdict`` is promote, refuse, undecided (which an unfinished or
    failed rollout is, too), or none without a rollout; ``serves``: its candidate is the service now.

    Raises:
        MpctlError: the ledger cannot be read.
    """
    entries = session.store.entries()
    rollouts = [op for op in operations(entries) if op.plan.kind is Kind.ROLLOUT and op.plan.workload]
    head = {"apiVersion": API_VERSION, "kind": "Verdict", "namespace": session.namespace, "service": session.name}
    if not rollouts:
        return {**head, **_NONE}
    newest, last = rollouts[-1], last_change(entries)
    return {
        **head,
        "operation": newest.id,
        "verdict": _VERDICTS.get(newest.ending, "undecided") if newest.ending else "undecided",
        "serves": newest.ending is Ending.PROMOTED and last is not None and last.id == newest.id,
        "speculation": newest.plan.spec_text,
        "baseline": newest.plan.baseline_text,
        "openedAt": newest.opened_at,
        "closedAt": newest.closed_at or None,
        "planDigest": newest.plan.digest(),
    }


def _service_of(hook: bytes) -> tuple[str, str]:
    """Namespace and name of the service that a webhook of Flagger is about: its canary's, unless ``metadata.service``
    names another. Empty where the body is no such webhook."""
    try:
        body = bounded.loads(hook)
        return str(body.get("namespace") or ""), str((body.get("metadata") or {}).get("service") or body["name"])
    except (ValueError, KeyError, AttributeError, TypeError):
        return "", ""
