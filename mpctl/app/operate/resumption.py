"""Ask before an interrupted operation of another user is resumed."""

from __future__ import annotations

from mpctl.app.operate.preview import preview
from mpctl.app.session.base import Session, who
from mpctl.rollout.operation import Operation


def confirm_resume(session: Session, operation: Operation) -> None:
    """Note that ``operation`` is resumed. Unless the caller opened it, show what it changes and ask.

    Raises:
        Cancelled: the user declined.
        InputError: there is no terminal to ask on and no ``--yes``.
        Tampered: a manifest is not the one that the ledger names.
    """
    plan = operation.read(session.store.revisions()).plan
    session.console.note(f"resuming {operation.id}, opened {operation.opened_at} by {operation.who}")
    if operation.who == who() or session.live_text() is None:
        return
    diff = preview(session, plan, "").diff
    session.console.note(diff or "the live manifest is already as planned")
    session.console.confirm(
        f"{operation.who} opened {operation.id} ({plan.spec_text}; {plan.why})\nContinue ({session.place})?"
    )
