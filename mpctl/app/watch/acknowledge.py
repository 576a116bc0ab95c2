"""Acknowledge a fallback of the watch, so that its signal ends."""

from __future__ import annotations

from mpctl.app.session.base import Session, SystemClock, who
from mpctl.app.watch.facts import ACKNOWLEDGED, read_facts
from mpctl.errors import InputError
from mpctl.watch.policy import WatchPolicy


def run(session: Session) -> str:
    """Record that somebody has seen the last fallback. Returns what was acknowledged, in words.

    Raises:
        InputError: the watch did not fall back, or the service has changed since.
        Conflict: somebody else works on the service.
    """
    fell_back = read_facts(session, WatchPolicy()).fell_back
    if fell_back is None:
        raise InputError(
            f"{session.title}: no fallback of the watch is in effect",
            hint=f"run '{session.command('history')}' to list what was done",
        )
    if fell_back.acknowledged:
        return f"{session.title}: {fell_back.operation} was acknowledged by {fell_back.acknowledged} before"
    with session.store.lease("acknowledge"):
        record = {"by": who(), "at": SystemClock().now().isoformat(timespec="seconds")}
        session.store.save(fell_back.operation, ACKNOWLEDGED, record)
    return f"{session.title}: acknowledged that it {fell_back.describe(session)}"
