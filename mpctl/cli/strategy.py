"""Which way a rollout goes, chosen from what fits and explained before it is confirmed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mpctl.errors import InputError, Refused
from mpctl.rollout.operation import Kind, Operation, Plan, Strategy

if TYPE_CHECKING:
    from mpctl.cli.session import Session

AUTO = "auto"


def first_choice(options: dict[str, Any], unfinished: Operation | None) -> dict[str, Any]:
    """``options`` with a strategy: the one asked for, else that of the unfinished rollout, else side-by-side."""
    if options["strategy"] != AUTO:
        return options
    going = unfinished.plan if unfinished is not None and unfinished.plan.kind is Kind.ROLLOUT else None
    chosen = going.strategy if going is not None else Strategy.SIDE_BY_SIDE
    down = going.downtime if going is not None else options["accept_downtime"]
    return {**options, "strategy": chosen.value, "accept_downtime": down}


def fitting(session: Session, plan: Plan, asked: str) -> tuple[Plan, tuple[str, ...]]:
    """The plan in a way that fits, and notes on it.

    Raises:
        InputError: something is asked that a cluster cannot do.
        Refused: nothing fits; with the reason and the alternatives.
    """
    if plan.keep_baseline and session.platform.rolls:
        raise InputError(
            "the old engine cannot be kept in a cluster: KServe replaces the pods of the one service",
            field="--keep-baseline",
            hint="leave it out; a rollback takes one engine start",
        )
    beside = plan.strategy is Strategy.SIDE_BY_SIDE
    try:
        # Downtime is only taken where nothing else fits.
        notes = session.platform.check(plan.arm, beside=beside, downtime=plan.downtime and not beside)
    except Refused as refused:
        if not (asked == AUTO and plan.downtime and session.platform.rolls):
            raise
        plan = replace(plan, strategy=Strategy.IN_PLACE)
        return plan, (
            f"{refused.message}; so it is changed in place",
            *session.platform.check(plan.arm, beside=False, downtime=True),
        )
    return (replace(plan, downtime=False) if beside else plan), notes


def describe_place(session: Session, plan: Plan) -> str:
    """Where the candidate runs, what that means for the service, and how long an engine takes to start."""
    beside = plan.strategy is Strategy.SIDE_BY_SIDE
    if not session.platform.rolls:
        return (
            "beside the serving engine, no downtime"
            if beside
            else "in the place of the serving engine, which is down while the other starts"
        )
    if beside:
        place = "as a second InferenceService of one pod, no downtime; promoted, every pod is replaced by a ready one"
    elif plan.downtime:
        place = "in the place of the serving pod, which goes first: the service is down while an engine starts"
    else:
        place = "in the place of the serving pods, each going when a new one is ready, no downtime"
    return place + session.start_time()


def describe_back(session: Session, plan: Plan) -> str:
    """How long the way back takes."""
    if plan.keep_baseline:
        return "at once, the old engine is kept"
    return "as long as one engine start" + (" for each pod" if session.platform.rolls else "")
