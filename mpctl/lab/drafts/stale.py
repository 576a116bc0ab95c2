"""Facts about a draft that went stale, from the ledger and the trainer.

As with a fallback nothing is stored: which draft is in question, what was measured and trained since, and whether a new
head waits for its gate follows from the operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing, nullcontext
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from mpctl.app.inspect.history import measured_ratios
from mpctl.app.planned_workload import read_traffic
from mpctl.app.session.base import Session
from mpctl.app.watch.ledger_facts import WATCH, RefreshFacts, Trainings
from mpctl.errors import MpctlError
from mpctl.lab.drafts.refresh import (
    CARD,
    RESERVE,
    Carded,
    Reserved,
    Training,
    is_due,
    open_training,
    poll,
)
from mpctl.methods import METHODS
from mpctl.rollout.operation import Ending, Operation
from mpctl.rollout.plan import Kind
from mpctl.watch.assessment import Signal
from mpctl.watch.refresh import DAY_S, WEEK_S, RefreshPolicy, StaleDraft

_STALE = (Signal.WORSE_DRAFT, Signal.STEP_TO_ZERO)  # findings that a new head ends
_GATES = 2  # of one head: an undecided one is measured once more


def read_refresh(
    session: Session, policy: RefreshPolicy, every: Sequence[Operation], trainings: Trainings | None
) -> RefreshFacts | None:
    """Read what is known of the draft of a service; None where no draft with weights is in question."""
    refreshes = [op for op in every if op.plan.kind is Kind.REFRESH]
    unfinished = next((op for op in refreshes if op.ending is None), None)
    change = _change_in_question(every)
    promotion = None if change is None else _promotion_of(every, change)
    if unfinished is not None:  # it goes on, whatever serves by now
        began_with = (
            op
            for op in reversed(every)
            if op.plan.draft == unfinished.plan.draft and op.plan.workload
        )
        promotion = next(began_with, promotion)
    if promotion is None:
        return None
    change = change or promotion
    fell_back = change.ending is Ending.ROLLED_BACK
    training, now = (
        (trainings or open_training)(session, policy, promotion.plan),
        session.clock.now(),
    )
    since = every[every.index(promotion) + 1 :]
    tried = [op for op in refreshes if op in since and op.plan.draft == promotion.plan.draft]
    measured = [
        op
        for op in every[every.index(change) + 1 :]
        if op.plan.kind is Kind.ROLLOUT and op.ending is not None
    ]
    stale = StaleDraft(
        promotion.plan.draft,
        change.plan.why.removeprefix(f"{WATCH}: ") if fell_back else "",
        prompts=sum(_count(name, file) for name, file in policy.prompts.items()),
        unmeasured=_unmeasured(policy, every, measured),
        gain=_gain(promotion, measured),
        attempts=len(tried),
        trained_at=max(map(_seconds, refreshes), default=None),
        spent_gpu_hours=sum(
            _gpu_hours(op) for op in refreshes if now.timestamp() - _seconds(op) < WEEK_S
        ),
        needed_gpu_hours=None if training is None else training.gpu_hours,
    )
    with nullcontext() if training is None else closing(training):
        due = (
            f"{unfinished.id} goes on"
            if unfinished is not None and _is_due(unfinished, training, now)
            else ""
        )
    offered = _offered(tried, since, now)
    if offered is not None:
        due = f"{offered.id} offers {offered.detail}"
    return RefreshFacts(
        promotion.plan,
        fell_back,
        stale,
        unfinished.id if unfinished is not None else "",
        due,
        offered,
    )


def _change_in_question(every: Sequence[Operation]) -> Operation | None:
    """Return the promotion of the draft that serves, or the watch's fallback from one that went stale, whatever free
    methods the watch promoted since; None where a person put something else there."""
    for op in reversed(every):
        if op.ending is Ending.PROMOTED and op.plan.kind is Kind.ROLLOUT:
            if op.plan.draft:
                return op
            if op.plan.by != WATCH:
                return None
        elif op.ending is Ending.ROLLED_BACK and not op.plan.rollback.automatic:
            stale = any(op.plan.why.startswith(f"{WATCH}: {signal.value}:") for signal in _STALE)
            return op if op.plan.by == WATCH and stale else None
    return None


def _promotion_of(every: Sequence[Operation], change: Operation) -> Operation | None:
    """Return the promotion of the draft that a change replaced, or of its own."""
    digest = (
        change.plan.baseline.digest
        if change.plan.kind is Kind.ROLLBACK
        else change.plan.goal.digest
    )
    promoted = [
        op
        for op in every
        if op.ending is Ending.PROMOTED and op.plan.goal.digest == digest and op.plan.draft
    ]
    return promoted[-1] if promoted else None


def _unmeasured(
    policy: RefreshPolicy, every: Sequence[Operation], measured: Iterable[Operation]
) -> tuple[str, ...]:
    names = {op.plan.spec.method for op in measured if op.plan.spec is not None}
    changed = [op for op in every if op.ending in (Ending.PROMOTED, Ending.ROLLED_BACK)]
    serving = changed[-1].plan.spec if changed else None
    return tuple(
        n
        for n in policy.free_methods
        if n not in names and (serving is None or serving.method != n)
    )


def _gain(promotion: Operation, measured: Iterable[Operation]) -> float | None:
    """Predict the throughput of a fresh head over what serves now, less 1: at best it is what it was when it was
    promoted, over the gain of a free method that was promoted since."""
    head = _throughput(promotion)
    free = [
        op
        for op in measured
        if op.ending is Ending.PROMOTED and op.plan.spec and _is_free(op.plan.spec.method)
    ]
    now = _throughput(free[-1]) if free else 1.0
    return None if head is None or now is None else head / now - 1.0


def _is_free(method: str) -> bool:
    return METHODS[method].is_lookup


def _throughput(operation: Operation) -> float | None:
    return next(
        (max(ratio.value) for ratio in measured_ratios(operation) if ratio.rule == "throughput"),
        None,
    )


def _gpu_hours(operation: Operation) -> float:
    carded, reserved = operation.result(CARD, Carded), operation.result(RESERVE, Reserved)
    if carded is not None:
        return carded.gpu_hours
    return 0.0 if reserved is None else reserved.gpu_hours


def _is_due(operation: Operation, training: Training | None, now: datetime) -> bool:
    if training is None:
        return False
    try:
        return operation.begun != CARD or is_due(operation, poll(operation, training), now)
    except MpctlError:
        return (
            True  # the action fails with it and is reported; what else the ledger says is as true
        )


def _offered(
    tried: Sequence[Operation], since: Iterable[Operation], now: datetime
) -> Operation | None:
    """Return the refresh whose head waits for its gate. It waits a day at most: what refuses the rollout by then, such
    as a preflight check, will not go away."""
    last = tried[-1] if tried else None
    if (
        last is None
        or last.ending is not Ending.OFFERED
        or now.timestamp() - _seconds(last, closed=True) > DAY_S
    ):
        return None
    gates = [op for op in since if op.plan.cause == last.id]
    again = not gates or (len(gates) < _GATES and gates[-1].ending is Ending.UNDECIDED)
    return last if again else None


def _seconds(operation: Operation, *, closed: bool = False) -> float:
    return datetime.fromisoformat(
        operation.closed_at if closed else operation.opened_at
    ).timestamp()


def _count(name: str, file: str) -> int:
    """Number of prompts of a file; 0 where it cannot be read."""
    try:
        facts = Path(file).stat()
    except OSError:
        return len(read_traffic(name).prompts) if name == file else 0
    return _counted(name, file, facts.st_mtime_ns, facts.st_size)


@lru_cache(maxsize=256)
def _counted(name: str, file: str, changed_ns: int, size: int) -> int:
    try:
        return len(read_traffic(f"{name}={file}").prompts)
    except MpctlError:
        return 0
