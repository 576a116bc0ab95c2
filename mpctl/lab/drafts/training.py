"""Train a head for a service: print or create its objects, follow it, list the heads made here, delete one."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from typing import Any, Protocol

from mpctl import commands
from mpctl.app.session.base import Session, interruptible
from mpctl.app.session.cluster import ClusterSession
from mpctl.errors import Cancelled, Conflict, InputError, MpctlError, NotPermitted, Refused
from mpctl.experiment.prompt_files import Prompt
from mpctl.json_types import Json
from mpctl.lab.drafts.card import Card, Licences, StartHead, Target, prompt_digest
from mpctl.lab.drafts.heads import TrainedHeads, local_heads
from mpctl.lab.drafts.made import card_file
from mpctl.lab.drafts.order import (
    Images,
    Limits,
    Split,
    Trainer,
    TrainingOrder,
    TrainingPhase,
    TrainingStatus,
    digest_of,
    next_name,
    program_of,
)
from mpctl.lab.drafts.requests import DraftCardRequest, DraftTrainRequest
from mpctl.lab.drafts.training_plan import read_prompts, trained_method
from mpctl.lab.in_engine.heads import UNKNOWN, licence_of, weights_digest
from mpctl.lab.training_job.manifest import (
    JobForm,
    Volume,
    serving_image,
    stage_commands,
    training_objects,
)
from mpctl.lab.training_job.trainer import JobTrainer
from mpctl.methods import METHODS, Spec, from_config
from mpctl.rollout.operation import operations, withdrawn
from mpctl.rollout.plan import Kind
from mpctl.watch.refresh import UNKNOWN_LICENCE

_POLL_S = 5.0


class HeadTrainer(Trainer, TrainedHeads, Protocol):
    """A trainer that knows the heads of a service."""

    def uid_of(self, head: str) -> str | None:
        """Return the uid of a head's run; None without one."""

    def running(self) -> tuple[str, ...]:
        """Describe each training that is not over."""


@dataclass(frozen=True)
class MadeHead:
    """A head that was trained here, or is being trained. ``status`` None where nothing runs any more; ``verdict``: how
    its last rollout ended; ``withdrawn``: it was rolled back after a refresh promoted it, and the watch arms it no
    more."""

    order: TrainingOrder
    card: Card | None
    status: TrainingStatus | None
    serves: bool
    verdict: str | None
    withdrawn: bool = False

    @property
    def state(self) -> str:
        """Phase of the training, or what became of it."""
        if self.card is not None:
            return "serving" if self.serves else "withdrawn" if self.withdrawn else "trained"
        return str(self.status.phase) if self.status is not None else "not submitted"

    @property
    def unfinished(self) -> bool:
        """Return whether its training can be continued."""
        return self.card is None and (
            self.status is None or self.status.phase is not TrainingPhase.FAILED
        )


def made_heads(session: Session, trainer: HeadTrainer) -> tuple[MadeHead, ...]:
    """Return the heads that were trained for a service, the oldest first."""
    cards = {card.name: card for card in trainer.cards()}
    orders, live = trainer.orders(), session.platform.live_text() or ""
    every = operations(session.store.entries()) if orders else ()
    never = withdrawn(every)
    heads = []
    for order in orders:
        uid = None if order.name in cards else trainer.uid_of(order.name)
        named = [
            op
            for op in every
            if op.plan.kind is Kind.ROLLOUT and names_head(op.plan.draft, order.name)
        ]
        ending = named[-1].ending if named else None
        heads.append(
            MadeHead(
                order,
                cards.get(order.name),
                None if uid is None else trainer.status(uid),
                names_head(live, order.name),
                ending.value if ending is not None else None,
                any(op.plan.goal.digest in never for op in named),
            )
        )
    return tuple(heads)


def names_head(text: str, head: str) -> bool:
    """Return whether a manifest names a head's folder."""
    return re.search(rf"drafts/{re.escape(head)}/head(?![\w-])", text) is not None


def require_purgeable(session: Session, head: str) -> None:
    """Refuse to delete a head that a revision names: a rollback could not restore it.

    Raises:
        Refused: a revision, or the live manifest, names it.
    """
    named = [
        str(revision.number)
        for revision in session.store.revisions()
        if names_head(revision.text, head)
    ]
    if named or names_head(session.platform.live_text() or "", head):
        where = f"revision {', '.join(named)}" if named else "the live manifest"
        raise Refused(
            f"{head} is named by {where} of {session.title}; the prompts it was trained on are deleted already",
            hint=f"{session.command('history')} lists the revisions",
        )


def purge(session: Session, trainer: HeadTrainer, head: str) -> None:
    """Delete the data, the card and the weights of a head.

    Raises:
        InputError: there is no such head.
        Refused: a revision names it.
        Cancelled: the user declined.
    """
    names = [order.name for order in trainer.orders()]
    if (
        head not in names and trainer.uid_of(head) is None
    ):  # a run whose order was replaced is deleted, too
        raise InputError(
            f"{head}: no head of {session.title}",
            hint=f"heads made here: {', '.join(names) or 'none'}",
        )
    require_purgeable(session, head)
    session.console.confirm(
        f"the prompts, the card and the weights of {head} are deleted\nContinue ({session.place})?"
    )
    trainer.purge(head)


def prepare_order(
    session: Session,
    training: ServiceTraining,
    request: DraftTrainRequest,
    heads: Sequence[MadeHead],
) -> tuple[TrainingOrder, Split]:
    """Return the order to train, which continues the unfinished one of the service if there is one; and its prompts.

    Raises:
        InputError: the request cannot be used.
        Conflict: an unfinished order is not what the request asks for.
    """
    unfinished = next((head.order for head in reversed(heads) if head.unfinished), None)
    if unfinished is None:
        name, salt = next_name(session.name, [head.order.name for head in heads]), token_hex(16)
    else:
        name, salt = unfinished.name, unfinished.salt
    order, split = new_order(session, request, name, salt)
    order = training.complete(order)
    if unfinished is not None and order != unfinished:
        raise Conflict(
            f"the training of {name} is unfinished and has {_differences(unfinished, order)}",
            hint=f"repeat the command with its settings, or {_purge_command(session, unfinished)} deletes it",
        )
    return order, split


def _differences(stored: TrainingOrder, asked: TrainingOrder) -> str:
    """Describe how a stored order differs from what was asked for; prompts are named alone."""
    if (stored.prompts, stored.training) != (asked.prompts, asked.training):
        return "other prompts"
    first, second = stored.to_record(), asked.to_record()
    return ", ".join(
        f"the {name} {_shown(first[name])}, not {_shown(second[name])}"
        for name in first
        if first[name] != second[name]
    )


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def new_order(
    session: Session, request: DraftTrainRequest, name: str, salt: str
) -> tuple[TrainingOrder, Split]:
    """Return an order of a name with its prompts.

    Raises:
        InputError: the request cannot be used.
    """
    split = Split.of(read_prompts(request.prompts), salt)
    config: Json | None = session.service().speculation()
    spec = from_config(config)
    method = trained_method(request.method, spec)
    start = request.start or (spec.draft if spec.method == method else None)
    model = session.target_of(session.service())
    if model is None:
        raise InputError(
            f"{session.title}: the target's path is unknown",
            hint="name it in the engine's arguments",
        )
    settings: Json = {
        "method": METHODS[method].engine_method,
        **dict(METHODS[method].defaults),
    }
    k = settings.pop("num_speculative_tokens", 3)
    command = tuple(shlex.split(request.command or ""))
    order = TrainingOrder(
        name=name,
        service=session.name,
        method=method,
        target=Target(model, str(session.service().command.get("revision") or "")),
        salt=salt,
        training=digests_of(split.training, salt),
        holdout=digests_of(split.holdout, salt),
        prompts=digest_of(split, salt),
        command=command,
        k=(spec.k if spec.method == method else None) or k,
        speculation=settings,
        start=StartHead(start, "") if start else None,
        limits=Limits(request.disk_gib, request.deadline_s, request.steps, request.answer_tokens),
        images=Images(trainer=request.image or ""),
        made_with=program_of(command),
    )
    return order, split


def _purge_command(session: Session, order: TrainingOrder) -> str:
    return commands.line("drafts", "purge", order.name, namespace=session.namespace)


def digests_of(prompts: Sequence[Prompt], salt: str) -> tuple[str, ...]:
    """The digests of prompts in their order."""
    return tuple(prompt_digest(prompt, salt) for prompt in prompts)


def follow(session: Session, trainer: HeadTrainer, order: TrainingOrder, uid: str) -> Card:
    """Follow a run until it is over; return its card.

    Raises:
        Cancelled: Ctrl-C detached; the run goes on.
        MpctlError: the run failed, or is gone.
    """
    shown: TrainingStatus | None = None

    def detached() -> Cancelled:
        return Cancelled(
            f"detached; the training of {order.name} continues",
            hint="run the same command to follow it again",
        )

    with interruptible(session.console, detached):
        while True:
            status = trainer.status(uid)
            if status is None:
                raise MpctlError(
                    f"the run of {order.name} was deleted",
                    hint="run the same command to start it again",
                )
            if status != shown:
                detail = f", {status.message}" if status.message else ""
                session.console.step("train", f"{order.name}: {status.phase}{detail}")
                shown = status
            if status.phase is TrainingPhase.DONE:
                return trainer.card(uid)
            if status.over:
                trainer.orders()  # warns of the order's ConfigMap where it was replaced
                raise MpctlError(
                    f"the training of {order.name} failed: {status.message}",
                    hint=f"{_purge_command(session, order)} deletes its data",
                )
            session.clock.sleep(_POLL_S)


def write_card(head: str, request: DraftCardRequest) -> Path:
    """Write the card of a head that another tool trained, beside its weights; return its file.

    Raises:
        InputError: the folder holds no weights or has a card, or the request cannot be used.
    """
    weights = Path(head).expanduser().absolute()
    file, digest = card_file(weights), weights_digest(weights)
    if not digest:
        raise InputError(
            f"{head} holds no *.safetensors",
            field="HEAD",
            hint="name the folder of the head's weights",
        )
    if file.exists():
        raise InputError(f"{file} exists", field="HEAD", hint="take it away to write another one")
    if not request.target:
        raise InputError("names the model that the head was trained for", field="--target")
    target = Path(request.target).expanduser()
    prompts = read_prompts(request.prompts) if request.prompts else ()
    salt = token_hex(16)
    card = Card(
        file.parent.name,
        trained_method(
            request.method, Spec(next(name for name, row in METHODS.items() if row.head_layers))
        ),
        Target(request.target, request.revision, weights_digest(target)),
        digest,
        salt=salt,
        training_digests=digests_of(prompts, salt),
        licences=Licences(licence_of(str(target))),
        made_with=request.made_with,
    )
    file.write_text(json.dumps(card.to_record(), indent=2) + "\n", encoding="utf-8")
    return file


@dataclass(frozen=True)
class TrainingResult:
    """``documents`` that were printed, or the ``card`` of the head that was trained."""

    name: str
    documents: tuple[Json, ...] = ()
    card: Card | None = None


def train(session: Session, request: DraftTrainRequest) -> TrainingResult:
    """Return the objects that train a head; with ``apply`` create them after a question, and follow the run.

    Raises:
        InputError: the request cannot be used.
        Conflict: an unfinished order is not what the request asks for.
        Cancelled: the user declined, or Ctrl-C detached.
    """
    training = open_training(session, request)
    heads = made_heads(session, training.trainer)
    order, prompts = prepare_order(session, training, request, heads)
    if not order.command:
        raise InputError(
            "names the command of the training stage",
            field="--trainer",
            hint="docs/how-to/refresh-a-draft.md has one",
        )
    if not request.apply:
        if unknown := _unknown_licences(session, order):
            session.console.warn(unknown)
        return TrainingResult(order.name, training.objects(order))
    began = any(head.order.name == order.name and head.status is not None for head in heads)
    if not began:
        require_licences(session, request, order)
        session.console.confirm(
            f"{order.name}: {training.runner} trains a {order.method} head on {len(order.training)} prompts, within "
            f"{order.limits.deadline_s / 3600:.1f} h and {order.limits.disk_gib:.0f} GiB of transcripts\n"
            f"trainer{f' in {order.images.trainer}' if order.images.trainer else ''}: {shlex.join(order.command)}\n"
            f"Continue ({session.place})?"
        )
    try:
        uid = training.trainer.submit(order, prompts)
        return TrainingResult(order.name, card=follow(session, training.trainer, order, uid))
    finally:
        training.trainer.close()


def require_licences(session: Session, request: DraftTrainRequest, order: TrainingOrder) -> None:
    """Refuse to train a head that derives from weights without a known licence, unless the request accepts that.

    Raises:
        InputError: the request accepts a finding that does not exist.
        Refused: a licence is unknown.
    """
    if wrong := sorted(set(request.accepted) - {UNKNOWN_LICENCE}):
        raise InputError(
            f"unknown finding: {', '.join(wrong)}",
            field="--accept",
            hint=f"known: {UNKNOWN_LICENCE}",
        )
    unknown = _unknown_licences(session, order)
    if unknown and UNKNOWN_LICENCE not in request.accepted:
        raise Refused(
            unknown, hint=f"--accept {UNKNOWN_LICENCE}, once you know that you may train on them"
        )


def _unknown_licences(session: Session, order: TrainingOrder) -> str:
    """Describe the weights that the head derives from and whose README.md, as far as it is on this machine, names no
    licence; empty where all do."""
    origins = {
        "target": order.target.model,
        **({"start head": order.start.head} if order.start else {}),
    }
    unknown = [
        f"the {role} {name}"
        for role, name in origins.items()
        if (folder := session.folder(name)) is None or licence_of(str(folder)) == UNKNOWN
    ]
    return (
        f"[{UNKNOWN_LICENCE}] the licence is unknown of {' and of '.join(unknown)}"
        if unknown
        else ""
    )


def running_trainings(sessions: Sequence[Session]) -> tuple[str, ...]:
    """Describe the trainings of a service that are not over; none where the caller may not read Jobs, or of several
    services, each of which would be asked for."""
    for session in sessions if len(sessions) == 1 else ():
        if isinstance(session, ClusterSession):
            with suppress(NotPermitted):
                return open_cluster_training(session).trainer.running()
    return ()


def open_trainer(session: Session) -> HeadTrainer:
    """Return what knows the heads of a service."""
    return open_training(session).trainer


@dataclass(frozen=True)
class ServiceTraining:
    """The trainer of a service with the objects of an order; ``runner``: what trains, in words."""

    trainer: HeadTrainer
    objects: Callable[[TrainingOrder], tuple[Json, ...]]
    complete: Callable[[TrainingOrder], TrainingOrder]
    runner: str = "a Job"


def open_training(session: Session, request: DraftTrainRequest | None = None) -> ServiceTraining:
    """Return the trainer of a service; ``request``: the settings of a run, None to read or delete alone."""
    if isinstance(session, ClusterSession):
        return open_cluster_training(session, request)
    trainer = local_heads(session)
    if trainer is None:
        raise InputError(
            "heads are trained for services of a cluster or of this machine", field="--platform"
        )
    return ServiceTraining(
        trainer,
        lambda order: (order.to_record(),),
        lambda order: order,
        "this machine",
    )


def open_cluster_training(
    session: ClusterSession, request: DraftTrainRequest | None = None
) -> ServiceTraining:
    """Return the trainer of a service in a cluster; ``request``: the Job's settings, None to read or delete alone."""
    asked = request or DraftTrainRequest()

    def pod() -> Any:
        pods = session.platform.workload().pods
        if not pods:
            raise MpctlError(f"{session.title} has no pod that the training Job could be like")
        return pods[0]

    def complete(order: TrainingOrder) -> TrainingOrder:
        engine = order.images.engine or serving_image(pod())
        return replace(order, images=Images(engine, order.images.trainer or engine))

    def objects(order: TrainingOrder) -> tuple[Json, ...]:
        volume = Volume(order.limits.disk_gib + _HEADS_GIB, asked.storage_class, asked.shared)
        form = JobForm(volume, stage_commands(order), asked.queue)
        return training_objects(order, form, pod(), session.namespace)

    trainer = JobTrainer(
        session.client, session.namespace, session.name, objects, session.console.warn
    )
    return ServiceTraining(trainer, lambda order: (*objects(order), *trainer.seal(order)), complete)


_HEADS_GIB = 10.0  # on the claim besides the transcripts: checkpoints of a head
