"""``mpctl drafts plan``, ``train``, ``list``, ``card`` and ``purge``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mpctl import commands
from mpctl.cli.command import ASKS, FILE, OUTPUT, command, service_argument
from mpctl.cli.context import CliContext
from mpctl.cli.printer import columns
from mpctl.errors import InputError, Refused
from mpctl.formatting import estimate
from mpctl.json_types import Json
from mpctl.lab.drafts.requests import DraftCardRequest, DraftPlanRequest, DraftTrainRequest

if TYPE_CHECKING:
    from mpctl.app.session.base import Session
    from mpctl.lab.drafts.card import Card, HeadFigures
    from mpctl.lab.drafts.training import HeadTrainer, MadeHead
    from mpctl.lab.drafts.training_plan import TrainingPlan


@command("plan", service_argument(), FILE, DraftPlanRequest, OUTPUT)
def plan(
    context: CliContext, /, name: str | None, file: str | None, request: DraftPlanRequest
) -> None:
    """Predict what training a head costs and brings: free methods first, then prompts, GPU hours, disk and gain.

    \b
    Examples:
      mpctl drafts plan qwen --prompts traffic.jsonl --transcripts answers.jsonl
      mpctl drafts plan -f service.yaml --spec eagle3 --prompts traffic.jsonl --gpu L4

    Changes nothing. Exits with code 9 where training is not worth it, with the figures.
    """
    from mpctl.lab.drafts.training_plan import plan_training

    planned = plan_training(context.open_source(name, file), request)
    context.emit(
        "TrainingPlan",
        record=planned.to_record,
        names=lambda: [planned.service],
        table=lambda _wide: _plan_text(planned),
    )
    if planned.refusals:
        raise Refused(f"{planned.service}: training is not worth it: {'; '.join(planned.refusals)}")


def _plan_text(planned: TrainingPlan) -> str:
    gain, cost = planned.gain, planned.cost
    free = [f"{name} {tokens:.2f}" for name, tokens in gain.free.items()]
    rows = [
        ["free methods", f"{', '.join(free)} tokens per step, replayed" if free else "unknown"],
        ["training prompts", f"{gain.conversations} conversations, the oldest 80 %"],
        ["tokens per step now", _tokens(gain.now)],
        ["of a good head", _tokens(gain.reference)],
        ["predicted after training", _tokens(gain.refreshed)],
    ]
    if cost is not None:
        rows.append(
            [
                "GPU hours",
                f"{cost.gpu_hours:.2f} on one {planned.gpu}, right within a factor of two",
            ]
        )
        rows.append(["disk", f"{cost.disk_gib:.1f} GiB until the head is trained"])
    return "\n".join([columns(rows), *(f"unknown: {text}" for text in planned.missing)])


def _tokens(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}"


@command("train", service_argument(), DraftTrainRequest, *ASKS, OUTPUT)
def train(context: CliContext, /, name: str | None, request: DraftTrainRequest) -> None:
    """Train a head from your own prompts: print a Job with its claim, or run it.

    \b
    Examples:
      mpctl drafts train qwen --prompts traffic.jsonl --trainer "$TRAIN" --trainer-image IMAGE
      mpctl drafts train qwen --prompts traffic.jsonl --trainer "$TRAIN" --trainer-image IMAGE --apply
      mpctl drafts train qwen --prompts traffic.jsonl ... --queue gpus --apply

    The target answers the prompts again, the trainer learns its hidden states, and the newest fifth of the prompts
    compares old and new head. Without --apply nothing is changed. Ctrl-C detaches; the same command continues.
    """
    from mpctl.lab.drafts import training

    session = context.open_session(name)
    trained = training.train(session, request)
    if trained.card is None:
        import yaml

        context.emit(
            "TrainingJob",
            record=lambda: {"items": list(trained.documents)},
            names=lambda: [document["metadata"]["name"] for document in trained.documents],
            table=lambda _wide: str(
                yaml.safe_dump_all(trained.documents, sort_keys=False)
            ).rstrip(),
        )
        context.terminal.note(
            f"nothing was changed; --apply creates them and sends the prompts of {trained.name}"
        )
        return
    card = trained.card
    heads = training.made_heads(session, training.open_trainer(session))
    context.emit(
        "HeadList",
        record=lambda: {
            "items": [_head_record(head) for head in heads if head.order.name == card.name]
        },
        names=lambda: [card.name],
        table=lambda _wide: _card_text(card),
    )
    if card.better():
        context.terminal.next_command(
            session.command("rollout", "--spec", card.method, "--draft", f"made:{card.name}")
        )
    else:
        context.terminal.note(
            f"{card.name} is no better than the head it started from; no engine was started"
        )


def _card_text(card: Card) -> str:
    holdout = card.holdout
    rows = [["head", card.name], ["method", card.method], ["target", card.target.model]]
    if holdout is not None:
        rows.append(["hold-out", f"{holdout.prompts} prompts"])
        rows.append(["new head", _figures(holdout.new)])
        rows.append(["old head", _figures(holdout.old)])
        if holdout.difference is not None:
            rows.append(["difference", estimate(holdout.difference, "")])
    return columns(rows)


def _figures(figures: HeadFigures | None) -> str:
    if figures is None:
        return "-"
    return f"{estimate(figures.tokens_per_step, '')} tokens per step"


@command("list", service_argument(), OUTPUT)
def list_(context: CliContext, /, name: str | None) -> None:
    """List the heads trained for a service: state, hold-out of old and new head, how its rollout ended.

    \b
    Examples:
      mpctl drafts list qwen
      mpctl drafts list qwen -o json           with the cards
    """
    from mpctl.lab.drafts import training

    session = context.open_session(name)
    heads = training.made_heads(session, training.open_trainer(session))
    context.emit(
        "HeadList",
        record=lambda: {"items": [_head_record(head) for head in heads]},
        names=lambda: [head.order.name for head in heads],
        table=lambda _wide: columns([_HEADS, *map(_head_row, heads)]) if heads else "",
    )
    if not heads:
        context.terminal.note(f"no head was trained for {session.title}")


_HEADS = ["HEAD", "METHOD", "STATE", "PROMPTS", "OLD", "NEW", "BETTER", "ROLLOUT"]


def _head_row(head: MadeHead) -> list[str]:
    holdout = head.card.holdout if head.card is not None else None
    old = holdout.old if holdout is not None else None
    return [
        head.order.name,
        head.order.method,
        head.state,
        str(len(head.order.training)),
        "-" if old is None else f"{old.tokens_per_step.value:.2f}",
        "-" if holdout is None else f"{holdout.new.tokens_per_step.value:.2f}",
        "-" if head.card is None else "yes" if head.card.better() else "no",
        head.verdict or "-",
    ]


def _head_record(head: MadeHead) -> Json:
    return {
        "name": head.order.name,
        "method": head.order.method,
        "state": head.state,
        "message": head.status.message if head.status is not None else "",
        "trainingPrompts": len(head.order.training),
        "serving": head.serves,
        "rollout": head.verdict,
        "card": head.card.to_record() if head.card is not None else None,
    }


@command("card", click.Argument(["head"], metavar="HEAD"), DraftCardRequest)
def card(context: CliContext, /, head: str, request: DraftCardRequest) -> None:
    """Write a card beside the weights of a head that another tool trained.

    \b
    Example:
      mpctl drafts card ./head --target Qwen/Qwen3-8B --made-with 'SpecForge 0.2' --prompts training.jsonl

    With it the preflight refuses the head for another target, and for a measurement on prompts it was trained on.
    """
    from mpctl.lab.drafts.training import write_card

    context.terminal.note(f"{write_card(head, request)} written")


@command("purge", click.Argument(["head"], metavar="HEAD"), *ASKS)
def purge(context: CliContext, /, head: str) -> None:
    """Delete a head: prompts and transcripts, card and weights, and a training that runs.

    \b
    Example:
      mpctl drafts purge qwen-7

    A head that a revision names stays, because a rollback may need it.
    """
    from mpctl.lab.drafts import training

    service, dash, _ = head.rpartition("-")
    if not dash:
        raise InputError(
            f"{head!r} is no name of a head", hint=f"{commands.line('drafts', 'list')} lists them"
        )
    session: Session = context.open_session(service, gone=True)
    trainer: HeadTrainer = training.open_trainer(session)
    training.purge(session, trainer, head)
    context.terminal.note(f"{head} is deleted")
