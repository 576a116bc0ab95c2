"""Answers of the API server: objects, conditions, and refusals as mpctl errors. Pure.

Callers act on three classes: an object that exists already, a stale version, and a write with an unknown outcome.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mpctl import bounded, commands
from mpctl.errors import Conflict, InputError, MpctlError, NotPermitted, Refused
from mpctl.json_types import Json, JsonView
from mpctl.platform.kubernetes.api.kinds import ObjectKind


class AlreadyExists(Conflict):
    """An object of that name exists."""


class Stale(Conflict):
    """The object changed since it was read, or another manager owns a field."""


class Unreachable(MpctlError):
    """The API server does not answer, or answers 5xx, through all retries."""


class OutcomeUnknown(MpctlError):
    """A write got no answer: it may or may not have happened. The caller reads again and decides."""


@dataclass(frozen=True)
class Response:
    """Response of the server."""

    code: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class NoResponse:
    """No response; ``why`` for messages."""

    why: str


@dataclass(frozen=True)
class Call:
    """A request, for messages. ``verb`` is RBAC's: get, list, create, update, patch, delete."""

    verb: str
    kind: ObjectKind
    namespace: str | None = None
    name: str | None = None
    subresource: str | None = None

    @property
    def target(self) -> str:
        """``InferenceService ns/name`` as messages name it."""
        where = "/".join(part for part in (self.namespace, self.name) if part)
        kind = self.kind.name if self.name else f"{self.kind.name}s in"
        if not self.name and self.namespace is None:
            kind = f"{self.kind.name}s"
        return " ".join(part for part in (kind, where) if part)

    @property
    def permission(self) -> str:
        """``update inferenceservices.serving.kserve.io in namespace ns``."""
        resource = self.kind.resource + (f"/{self.subresource}" if self.subresource else "")
        where = f" in namespace {self.namespace}" if self.namespace and self.kind.namespaced else ""
        return f"{self.verb} {resource}{where}"


def status_of(body: bytes | str) -> Json:
    """Return the ``Status`` of an answer; for another answer, one with its text as the message."""
    text = body.decode(errors="replace") if isinstance(body, bytes) else body
    try:
        record = bounded.loads(text)
    except ValueError:
        return {"message": text.strip()[:300]}
    return record if isinstance(record, dict) else {"message": text.strip()[:300]}


def error_of(code: int, body: bytes | str, call: Call) -> MpctlError:
    """Return the error for a refusal."""
    status = status_of(body)
    message = str(status.get("message") or f"HTTP {code}")
    reason = str(status.get("reason") or "")
    match code:
        case 401:
            return NotPermitted(
                f"not authenticated to {call.permission}: {message}",
                hint=f"log in again; run '{commands.kubectl('auth', 'whoami')}' to see the current user",
            )
        case 403 | 422 if "ValidatingAdmissionPolicy" in message and "denied request" in message:
            return NotPermitted(
                f"{call.target} was refused by an admission policy: {message}",
                hint="ask whoever owns that policy; the same command again continues once it is changed",
            )
        case 403:
            return _forbidden(message, call)
        case 404:
            return _not_found(status, message, call)
        case 409 if reason == "AlreadyExists":
            return AlreadyExists(f"{call.target} already exists")
        case 409:
            return Stale(
                *_conflict(status, call), hint="run the command again; nothing was overwritten"
            )
        case 400 | 422:
            causes = (
                f"{c.get('field')}: {c.get('message')}"
                for c in _cause_list(status)
                if c.get("field")
            )
            return InputError(f"{call.target} was refused: {'; '.join(causes) or message}")
    return MpctlError(f"{call.target}: the API server answered {code} to {call.verb}: {message}")


def undefined(kind: ObjectKind) -> str:
    """That the cluster does not know a kind, as messages say it."""
    return (
        f"the cluster does not know the kind {kind.name}; without its definition {kind.resource} no {kind.name} "
        f"exists there"
    )


def _not_found(status: JsonView, message: str, call: Call) -> MpctlError:
    """A 404 about an object names it; that about a path which the server does not serve names none."""
    details = status.get("details")
    if isinstance(details, Mapping) and details.get("name"):
        return InputError(f"{call.target} not found", hint=message)
    return MpctlError(
        f"{call.target}: {undefined(call.kind)}",
        hint="install the definition again, then run the same command again",
    )


def _forbidden(message: str, call: Call) -> MpctlError:
    """403 is the answer of admission, too: of webhooks, and of a namespace that ends."""
    if "admission webhook" in message:
        match = re.match(
            r'admission webhook "([^"]+)" denied the request: (.*)', message, re.DOTALL
        )
        reason = f"{match[2].strip()} ({match[1]})" if match else message
        return InputError(f"{call.target} was refused by an admission webhook: {reason}")
    if "exceeded quota" in message:
        return Refused(
            f"{call.target} was refused by a quota: {message}",
            hint="ask for a larger quota, or free what it counts; then run the same command again",
        )
    if "because it is being terminated" in message:
        return MpctlError(
            f"namespace {call.namespace} is being deleted: {call.target} cannot be written",
            hint="nothing is left to restore there; create the service in another namespace",
        )
    return NotPermitted(
        f"not allowed to {call.permission}: {message}",
        hint=f"run '{commands.line('rbac', namespace=call.namespace)}' to print the required roles",
    )


def _conflict(status: JsonView, call: Call) -> tuple[str]:
    """Server-side apply names manager and field of each conflict in ``details.causes``."""
    causes = [c for c in _cause_list(status) if c.get("reason") == "FieldManagerConflict"]
    if not causes:
        return (f"{call.target} was changed meanwhile: {status.get('message')}",)
    owned = []
    for cause in causes:
        manager = re.search(r'conflict with "([^"]+)"', str(cause.get("message")))
        owned.append(
            f"{cause.get('field')} belongs to {manager[1] if manager else cause.get('message')}"
        )
    return (f"{call.target}: {'; '.join(owned)}",)


def _cause_list(status: JsonView) -> list[JsonView]:
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, Mapping) else None
    return [c for c in causes if isinstance(c, Mapping)] if isinstance(causes, list) else []


def retry_after(headers: Mapping[str, str], *, otherwise: float) -> float:
    """Seconds the server asks to wait, else ``otherwise``. API servers never send the date form of RFC 9110."""
    text = next((value for key, value in headers.items() if key.lower() == "retry-after"), "")
    try:
        return max(0.0, float(text))
    except ValueError:
        return otherwise


def json_object(body: bytes | str) -> Json:
    """Parse an answer as an object.

    Raises:
        MpctlError: not a JSON object, for example the page of a proxy.
    """
    try:
        record = bounded.loads(body)
    except ValueError as error:
        raise MpctlError(
            f"the API server's answer is not JSON: {body[:200]!r}",
            hint="check the server's address in the kubeconfig: a proxy or a login page may answer",
        ) from error
    if not isinstance(record, dict):
        raise MpctlError(f"the API server's answer is not an object: {body[:200]!r}")
    return record
