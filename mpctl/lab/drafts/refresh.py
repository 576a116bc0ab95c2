"""Train a stale draft anew: an operation of the ledger that changes nothing that serves.

The service's lease is held only while an entry is written, so others may work on the service meanwhile. The trainer
finds a run by its name and its uid, and so does an operation that was killed after any entry: nothing is trained twice.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from mpctl.app.planned_workload import prompts_of
from mpctl.app.session.base import Session
from mpctl.errors import Conflict, InputError, Refused, Tampered
from mpctl.lab.drafts.card import Card, Target
from mpctl.lab.drafts.made import served_target
from mpctl.lab.drafts.order import Split, TrainingOrder, TrainingPhase, TrainingStatus, next_name
from mpctl.lab.drafts.requests import DraftTrainRequest
from mpctl.lab.drafts.training import HeadTrainer, ServiceTraining, new_order, require_licences
from mpctl.lab.drafts.training import open_training as open_service_training
from mpctl.rollout.journal import Journal
from mpctl.rollout.operation import (
    Ending,
    Operation,
    StepResult,
    unfinished_operation,
    unfinished_refresh,
)
from mpctl.rollout.plan import Kind, Plan, Strategy
from mpctl.rollout.restore import live_spec
from mpctl.rollout.revision import Manifest
from mpctl.rollout.steps.baseline import record_revision
from mpctl.watch.refresh import RefreshPolicy

RESERVE, TRAIN, CARD = "reserve", "train", "card"  # steps of the ledger, in order


class Training(Protocol):
    """Makes orders for one stale draft of one service, and has them run."""

    @property
    def trainer(self) -> HeadTrainer:
        """The trainer that runs the orders."""

    @property
    def gpu_hours(self) -> float:
        """GPU hours that one order may take."""

    def order(self, name: str, salt: str) -> tuple[TrainingOrder, Split]:
        """Return an order with its prompts.

        Raises:
            InputError: the prompts or the draft cannot be used.
        """

    def target(self) -> Target:
        """Return the target that serves now."""

    def draft(self, name: str) -> str:
        """Return the ``--draft`` of a head that was trained."""

    def close(self) -> None:
        """End connections to the runs."""


@dataclass(frozen=True)
class PolicyTraining:
    """Trains the draft that a plan promoted as a policy says, where its service runs."""

    session: Session
    request: DraftTrainRequest
    k: int | None
    service: ServiceTraining

    @property
    def trainer(self) -> HeadTrainer:
        """The trainer of the service's orders."""
        return self.service.trainer

    @property
    def gpu_hours(self) -> float:
        """Hours until the deadline: a training has one GPU at least, and its card says what it took."""
        return self.request.deadline_s / 3600.0

    def order(self, name: str, salt: str) -> tuple[TrainingOrder, Split]:
        """Return the order with the settings of the stale draft, whatever serves now."""
        order, split = new_order(self.session, self.request, name, salt)
        require_licences(self.session, self.request, order)
        return self.service.complete(replace(order, k=self.k or order.k)), split

    def target(self) -> Target:
        """Return the target, with the digest of its weights where they lie on this machine."""
        return served_target(self.session, self.session.service())

    def draft(self, name: str) -> str:
        """Return where its weights lie."""
        return self.service.trainer.weights(name)

    def close(self) -> None:
        """End port-forwards."""
        self.service.trainer.close()


def open_training(session: Session, policy: RefreshPolicy, promotion: Plan) -> Training | None:
    """Return what trains the draft of a plan; None where the policy names no trainer."""
    spec = promotion.spec
    if not policy.trainer or spec is None:
        return None
    request = DraftTrainRequest(
        method=spec.method,
        prompts=prompts_of(policy.prompts),
        start=spec.draft,
        command=policy.trainer,
        image=policy.trainer_image,
        steps=policy.steps,
        deadline_s=policy.deadline_s,
        queue=policy.queue,
        storage_class=policy.storage_class,
        accepted=policy.accepted,
    )
    return PolicyTraining(session, request, spec.k, open_service_training(session, request))


@dataclass(frozen=True)
class Reserved(StepResult):
    """The order's name, the salt of its prompts' digests and one digest over those, numbers of prompts, and the GPU
    hours it may take."""

    name: str
    salt: str
    prompts: str
    training: int
    holdout: int
    gpu_hours: float
    deadline_s: float


@dataclass(frozen=True)
class Submitted(StepResult):
    """The run of the order."""

    uid: str


@dataclass(frozen=True)
class Carded(StepResult):
    """A head that was trained: its digest, the GPU hours it took, and tokens per step of old and new head on the
    hold-out."""

    head_digest: str
    gpu_hours: float
    new: float | None = None
    old: float | None = None


def propose(session: Session, training: Training, *, draft: str, cause: str, by: str) -> Operation:
    """Open a refresh of ``draft``; one that is unfinished is returned as it is.

    Raises:
        Conflict: another operation is unfinished, or another operator works on the service.
    """
    with session.store.lease("refresh"), session.context() as context:
        entries = session.store.entries()
        if (unfinished := unfinished_refresh(entries)) is not None:
            return unfinished
        if (other := unfinished_operation(entries)) is not None:
            raise Conflict(f"{other.id} of {session.title} is unfinished")
        journal = Journal(context)
        operation_id = f"refresh-{len(journal.operations()) + 1}"
        spec = live_spec(session.platform)
        live = Manifest.of(session.platform.read().text)
        live = record_revision(context, live, operation_id, why="as found", spec=spec)
        plan = Plan(
            kind=Kind.REFRESH,
            strategy=Strategy.IN_PLACE,
            baseline=live,
            goal=live,
            spec=spec,
            baseline_spec=spec,
            why=cause,
            draft=draft,
            target_model=training.target().model,
            by=by,
        )
        return journal.open(operation_id, plan, then=RESERVE)


def advance(session: Session, training: Training) -> Operation | None:
    """Carry the unfinished refresh on as far as it goes without waiting for the trainer; None where there is none.

    Raises:
        Conflict: another operator works on the service.
        MpctlError: the trainer could not be asked; the same call again continues.
    """
    operation = unfinished_refresh(session.store.entries())
    while operation is not None and operation.ending is None:
        try:
            write = _STEPS[operation.begun](session, training, operation)
        except (InputError, Refused, Conflict) as error:
            write = _refuse(session, operation, error.message)
        if write is None:
            return operation
        operation = _written(session, operation, write)
    return operation


_Write = Callable[[Journal, Operation], Operation]


def _written(session: Session, operation: Operation, write: _Write) -> Operation:
    """Write an entry, unless another command has written it meanwhile."""
    with session.store.lease("refresh"), session.context() as context:
        journal = Journal(context)
        now = journal.operation(operation.id)
        return write(journal, now) if (now.begun, now.ending) == (operation.begun, None) else now


def _reserve(session: Session, training: Training, operation: Operation) -> _Write:
    salt = secrets.token_hex(8)
    name = next_name(session.name, [order.name for order in training.trainer.orders()])
    order, split = training.order(name, salt)
    counts = len(split.training), len(split.holdout)
    reserved = Reserved(
        name, salt, _digest(order), *counts, training.gpu_hours, order.limits.deadline_s
    )
    return lambda journal, now: journal.done(now, RESERVE, reserved, then=TRAIN)


def _train(session: Session, training: Training, operation: Operation) -> _Write:
    reserved = reserved_of(operation)
    if any(
        order.name == reserved.name and order.salt != reserved.salt
        for order in training.trainer.orders()
    ):
        raise Refused(f"another training took the name {reserved.name}")
    order, split = training.order(reserved.name, reserved.salt)
    if _digest(order) != reserved.prompts:
        training.trainer.purge(
            reserved.name
        )  # an earlier command may have died behind its submission
        raise Refused("the prompts changed before they were sent")
    session.console.step(TRAIN, f"{reserved.training} prompts train {reserved.name}")
    submitted = Submitted(training.trainer.submit(order, split))
    return lambda journal, now: journal.done(now, TRAIN, submitted, then=CARD)


def _card(session: Session, training: Training, operation: Operation) -> _Write | None:
    uid, trainer = uid_of(operation), training.trainer
    status = poll(operation, training)
    if not is_due(operation, status, session.clock.now()):
        return None
    if status is None or status.phase is not TrainingPhase.DONE:
        trainer.cancel(uid)
        trainer.purge(reserved_of(operation).name)
        state = "the run is gone" if status is None else f"{status.phase.value}: {status.message}"
        waited = status is not None and status.phase is TrainingPhase.PENDING
        return _refuse(session, operation, f"{'no capacity' if waited else 'not trained'}: {state}")
    card, live = trainer.card(uid), training.target()
    if (card.name, card.salt) != (reserved_of(operation).name, reserved_of(operation).salt):
        raise Refused(
            f"the card of {card.name} is not that of the order that {operation.id} recorded"
        )
    if difference := card.target.difference(live):
        return _refuse(session, operation, f"overtaken: the head was trained for {difference}")
    holdout = card.holdout
    new = None if holdout is None else holdout.new.tokens_per_step.value
    old = None if holdout is None or holdout.old is None else holdout.old.tokens_per_step.value
    carded = Carded(card.head_digest, card.trained.gpu_hours, new, old)

    def write(journal: Journal, now: Operation) -> Operation:
        now = journal.done(now, CARD, carded, with_next=True)
        if not card.better():
            return journal.close(now.id, Ending.REFUSED, f"no better: {_figures(card)}")
        return journal.close(now.id, Ending.OFFERED, f"{card.name}: {_figures(card)}")

    return write


_STEPS: dict[str, Callable[[Session, Training, Operation], _Write | None]] = {
    RESERVE: _reserve,
    TRAIN: _train,
    CARD: _card,
}


def _figures(card: Card) -> str:
    holdout = card.holdout
    if holdout is None or holdout.old is None or holdout.difference is None:
        return "the hold-out was not measured"
    new, old, difference = (
        holdout.new.tokens_per_step,
        holdout.old.tokens_per_step,
        holdout.difference,
    )
    return (
        f"tokens per step {new.value:.2f}, the old head's {old.value:.2f}, difference "
        f"{difference.value:+.2f} ({difference.low:+.2f} to {difference.high:+.2f}) on {holdout.prompts} prompts"
    )


def _refuse(session: Session, operation: Operation, reason: str) -> _Write:
    session.console.note(f"{operation.id} ends: {reason}")
    return lambda journal, now: journal.close(now.id, Ending.REFUSED, reason)


def poll(operation: Operation, training: Training) -> TrainingStatus | None:
    """Return the state of a run. Prompts are stored nowhere: a run that still waits for them gets them again, as far
    as the files still hold the same."""
    uid, reserved = uid_of(operation), reserved_of(operation)
    status = training.trainer.status(uid)
    if status is None or status.phase not in (TrainingPhase.PENDING, TrainingPhase.COLLECTING):
        return status
    order, split = training.order(reserved.name, reserved.salt)
    if _digest(order) == reserved.prompts:
        try:
            training.trainer.submit(order, split)
        except Conflict as error:
            return TrainingStatus(TrainingPhase.FAILED, error.message, uid)
    return training.trainer.status(uid)


def _digest(order: TrainingOrder) -> str:
    return hashlib.sha256(
        json.dumps([order.training, order.holdout, order.prompts]).encode()
    ).hexdigest()


def trained_order(training: Training, operation: Operation) -> TrainingOrder:
    """Return the order of a refresh as the ledger names it.

    Raises:
        Tampered: it is gone, or was changed.
    """
    reserved = reserved_of(operation)
    for order in training.trainer.orders():
        if (order.name, order.salt, _digest(order)) == (
            reserved.name,
            reserved.salt,
            reserved.prompts,
        ):
            return order
    raise Tampered(
        f"the order of {reserved.name} is missing, or is not the one that {operation.id} recorded"
    )


def is_due(operation: Operation, status: TrainingStatus | None, now: datetime) -> bool:
    """Return whether a refresh can go on: the run is over or gone, or its deadline has passed."""
    late = (now - datetime.fromisoformat(operation.opened_at)).total_seconds() > reserved_of(
        operation
    ).deadline_s
    return status is None or status.over or late


def reserved_of(operation: Operation) -> Reserved:
    """The order of a refresh that is past its first step."""
    reserved = operation.result(RESERVE, Reserved)
    assert reserved is not None
    return reserved


def uid_of(operation: Operation) -> str:
    """The run of a refresh that was submitted."""
    submitted = operation.result(TRAIN, Submitted)
    assert submitted is not None
    return submitted.uid
