"""Needs of a rollout: GPUs, the staging mode of the draft, time and downtime."""

from __future__ import annotations

from mpctl.app.change import Change
from mpctl.app.change.source import Source
from mpctl.app.change.target import Target
from mpctl.app.plan.result import Needs
from mpctl.app.session.base import Session
from mpctl.estimate.facts import served_numbers


def needs_of(source: Source, change: Change, target: Target) -> Needs:
    """The needs of a side-by-side rollout, which is the default."""
    per_replica = served_numbers(target.service, target.checkpoint.facts).tensor_parallel
    plan = change.staging
    staging = "no second artifact" if plan is None else f"{plan.mode}: {plan.reason}"
    notes = ["side by side: the service goes on; a second engine runs while the gate measures"]
    if isinstance(source, Session):
        started = source.start_time().removeprefix("; ")
        notes += [started] if started else []
    notes.append("without free GPUs: --strategy in-place, with downtime of an engine start")
    return Needs(per_replica, staging, tuple(notes))
