"""Preview of an operation, for ``--dry-run``."""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.app.change.change import unified
from mpctl.app.requests import DryRun
from mpctl.app.session.base import Session
from mpctl.errors import InputError
from mpctl.rollout.plan import Plan


@dataclass(frozen=True)
class Preview:
    """The plan, the change to the manifest, and what would happen as text."""

    plan: Plan
    diff: str
    explanation: str


def require_server(dry_run: DryRun, platform: str) -> None:
    """Refuse a dry run that the platform cannot make.

    Raises:
        InputError: a server is asked for where there is none.
    """
    if dry_run is DryRun.SERVER and platform == "local":
        raise InputError(
            "the local platform has no server to ask", field="--dry-run", hint="--dry-run=client makes the same checks"
        )


def preview(session: Session, plan: Plan, explanation: str) -> Preview:
    """Compare the live manifest with the plan's."""
    names = (f"{session.name} (live)", f"{session.name} ({plan.spec_text})")
    return Preview(plan, unified(session.platform.read().text, plan.goal.text, names), explanation)
