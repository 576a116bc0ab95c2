"""What an API server's refusal means, as an error of ours. Pure: status code and body in, error out.

Three refusals are told apart by class because callers act on them: an object that exists already, a version that is
stale, and a write of which nobody knows whether it happened.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mpctl.errors import Conflict, InputError, MpctlError, NotPermitted
from mpctl.platform.kubernetes.api.kinds import Kind


class AlreadyExists(Conflict):
    """An object of that name is there already."""


class Stale(Conflict):
    """The object changed since it was read, or another manager owns a field."""


class Unreachable(MpctlError):
    """The API server does not answer, or answers with 5xx, for longer than we try."""


class OutcomeUnknown(MpctlError):
    """A write was sent and no answer came: it may or may not have happened. Whoever wrote reads again and decides."""


@dataclass(frozen=True)
class Call:
    """What was asked, for messages. ``verb`` is RBAC's: get, list, create, update, patch, delete."""

    verb: str
    kind: Kind
    namespace: str | None = None
    name: str | None = None
    subresource: str | None = None

    @property
    def target(self) -> str:
        """``InferenceService ns/name`` as messages name it."""
        where = "/".join(part for part in (self.namespace, self.name) if part)
        what = self.kind.name if self.name else f"{self.kind.name}s in"
        if not self.name and self.namespace is None:
            what = f"{self.kind.name}s"
        return " ".join(part for part in (what, where) if part)

    @property
    def permission(self) -> str:
        """``update inferenceservices.serving.kserve.io in namespace ns``."""
        resource = self.kind.resource + (f"/{self.subresource}" if self.subresource else "")
        where = f" in namespace {self.namespace}" if self.namespace and self.kind.namespaced else ""
        return f"{self.verb} {resource}{where}"


def status_of(body: bytes | str) -> dict[str, Any]:
    """The ``Status`` object of an answer; one with the text as its message when it is none."""
    text = body.decode(errors="replace") if isinstance(body, bytes) else body
    try:
        record = json.loads(text)
    except ValueError:
        return {"message": text.strip()[:300]}
    return record if isinstance(record, dict) else {"message": text.strip()[:300]}


def error_of(code: int, body: bytes | str, call: Call) -> MpctlError:
    """The error that a refusal stands for."""
    status = status_of(body)
    message = str(status.get("message") or f"HTTP {code}")
    reason = str(status.get("reason") or "")
    match code:
        case 401:
            return NotPermitted(
                f"the API server does not know who asks to {call.permission}: {message}",
                hint="log in again; kubectl auth whoami shows what it sees",
            )
        case 403 if _by_admission(status):
            return InputError(f"{call.target} was refused by an admission webhook: {_webhook_text(message)}")
        case 403:
            return NotPermitted(
                f"not allowed to {call.permission}: {message}",
                hint="mpctl rbac prints the roles that are needed",
            )
        case 404:
            return InputError(f"{call.target} is not there", hint=message)
        case 409 if reason == "AlreadyExists":
            return AlreadyExists(f"{call.target} exists already")
        case 409:
            return Stale(*_conflict(status, call), hint="read it again; nothing was overwritten")
        case 400 | 422:
            return InputError(f"{call.target} was refused: {_causes(status) or message}")
    return MpctlError(f"{call.target}: the API server answered {code} to {call.verb}: {message}")


def _by_admission(status: Mapping[str, Any]) -> bool:
    return "admission webhook" in str(status.get("message"))


def _webhook_text(message: str) -> str:
    match = re.match(r'admission webhook "([^"]+)" denied the request: (.*)', message, re.DOTALL)
    return f"{match[2].strip()} ({match[1]})" if match else message


def _conflict(status: Mapping[str, Any], call: Call) -> tuple[str]:
    """Server-side apply names manager and field of each conflict in ``details.causes``."""
    causes = [c for c in _cause_list(status) if c.get("reason") == "FieldManagerConflict"]
    if not causes:
        return (f"{call.target} was changed meanwhile: {status.get('message')}",)
    told = []
    for cause in causes:
        manager = re.search(r'conflict with "([^"]+)"', str(cause.get("message")))
        told.append(f"{cause.get('field')} belongs to {manager[1] if manager else cause.get('message')}")
    return (f"{call.target}: {'; '.join(told)}",)


def _causes(status: Mapping[str, Any]) -> str:
    return "; ".join(f"{c.get('field')}: {c.get('message')}" for c in _cause_list(status) if c.get("field"))


def _cause_list(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, Mapping) else None
    return [c for c in causes if isinstance(c, Mapping)] if isinstance(causes, list) else []


def retry_after(headers: Mapping[str, str], *, otherwise: float) -> float:
    """Seconds the server asks to wait; ``otherwise`` when it does not say (RFC 9110 also allows a date: not used by
    API servers)."""
    text = next((value for key, value in headers.items() if key.lower() == "retry-after"), "")
    try:
        return max(0.0, float(text))
    except ValueError:
        return otherwise
