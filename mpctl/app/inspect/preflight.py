"""Check a change without making it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mpctl.app.change import Change, prepare
from mpctl.app.change.source import Source
from mpctl.app.requests import PreflightRequest
from mpctl.estimate.memory import Estimate
from mpctl.methods import engine_opinion
from mpctl.methods.validate import Opinion


@dataclass(frozen=True)
class Preflight:
    """A checked change. ``opinion``: of the installed vLLM, where it was asked."""

    name: str
    namespace: str
    change: Change
    opinion: Opinion | None = None

    def to_record(self) -> dict[str, Any]:
        """A JSON object."""
        change, staging = self.change, self.change.staging
        return {
            "service": "/".join(filter(None, (self.namespace, self.name))),
            "speculation": change.spec.config(),
            "findings": [dict(f.__dict__) for f in change.findings],
            "unchecked": list(change.checked.unchecked),
            "draft": change.selection.draft,
            "draftReason": change.selection.reason,
            "match": [dict(c.__dict__) for c in change.checked.checks],
            "staging": {"mode": staging.mode, "path": staging.path} if staging else None,
            "kvPoolTokens": _pool(change.checked.memory),
            "engine": dict(self.opinion.__dict__) if self.opinion else None,
        }


def run(source: Source, request: PreflightRequest) -> Preflight:
    """Prepare the change and collect what speaks against it.

    Raises:
        InputError: the request or the manifest cannot be used.
    """
    change = prepare(source, request.speculation)
    opinion = engine_opinion(change.spec.config() or {}) if request.ask_engine else None
    return Preflight(source.name, source.namespace, change, opinion)


def _pool(memory: Estimate | None) -> dict[str, Any] | None:
    """The KV pool in tokens before and after, from the pessimistic to the optimistic end."""
    if memory is None:
        return None
    before, after = memory.before, memory.after
    return {"before": [before.low, before.high], "after": [after.low, after.high], "basis": memory.basis}
