"""Heads that were trained, as drafts of a change: where ``made:NAME`` lies, and what its card forbids."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from mpctl import commands
from mpctl.app.session.base import Source
from mpctl.errors import InputError, MpctlError
from mpctl.experiment.prompt_files import Prompt
from mpctl.lab.drafts.card import CARD_FILE, Card, Target, card_of
from mpctl.lab.drafts.heads import heads_of
from mpctl.lab.in_engine.heads import weights_digest
from mpctl.manifest import Service
from mpctl.methods import Finding
from mpctl.platform.checkpoints import Directory, read_json
from mpctl.records import restored

_SOURCE = "the head's card"


def made_weights(source: Source, head: str) -> str:
    """Return the weights of the head behind ``--draft made:NAME``.

    Raises:
        InputError: there is no such head, or its training is not finished; the message lists those that are.
    """
    heads = heads_of(source)
    if heads is None:
        raise InputError(
            f"made:{head}: heads are trained for running services alone",
            field="--draft",
            hint="name the service instead of a file, or the folder of the head",
        )
    with closing(heads):
        trained = [card.name for card in heads.cards()]
        if head in trained:
            return heads.weights(head)
        begun = head in (order.name for order in heads.orders())
    listing = commands.line("drafts", "list", source.name, namespace=source.namespace)
    raise InputError(
        f"the training of {head} has no card yet"
        if begun
        else f"{head!r} is no head of {source.name}",
        field="--draft",
        hint=f"trained heads: {', '.join(trained) or 'none'}; '{listing}' shows them all",
    )


def findings_of_card(
    source: Source, draft: str | None, service: Service, prompts: Sequence[Prompt]
) -> tuple[Finding, ...]:
    """Return what the card of a draft says against its target and the prompts; nothing where it has none.

    Raises:
        InputError: the card next to the weights cannot be used; its file is named.
    """
    card = find_card(source, draft)
    return () if card is None else card_findings(card, served_target(source, service), prompts)


def find_card(source: Source, draft: str | None) -> Card | None:
    """Return the card of a draft: of a head trained for the service, or beside the weights in a folder of this machine.

    Raises:
        InputError: the card beside the weights cannot be used; its file is named.
    """
    folder = source.folder(draft)
    if folder is not None and card_file(folder).is_file():
        return _read_card(card_file(folder))
    heads = heads_of(source) if draft and "/drafts/" in draft else None
    if heads is None:
        return None
    with closing(heads):
        return next((card for card in heads.cards() if heads.weights(card.name) == draft), None)


def card_file(weights: Path) -> Path:
    """Return where the card of a head lies: beside its weights, or beside their folder ``head``."""
    return (weights.parent if weights.name == "head" else weights) / CARD_FILE


def _read_card(path: Path) -> Card:
    try:
        return restored(path, card_of, read_json(Directory(path.parent), path.name) or {}, hint="")
    except (ValueError, MpctlError) as error:
        raise InputError(
            f"this is no card of a head: {error}",
            file=str(path),
            hint="take it away to go without its checks",
        ) from error


def served_target(source: Source, service: Service) -> Target:
    """Return the model that the engine loads; with the digest of its weights where they lie on this machine."""
    model = source.target_of(service) or ""
    folder = source.folder(model)
    revision = str(service.command.get("revision") or "")
    return Target(model, revision, "" if folder is None else weights_digest(folder))


def card_findings(card: Card, served: Target, prompts: Sequence[Prompt]) -> tuple[Finding, ...]:
    """Return what the card of a head says against the target that serves and against the prompts of a measurement."""
    findings = []
    if difference := card.target.difference(served):
        findings.append(
            Finding(
                "stale-card",
                "refuse",
                f"{card.name} was trained for another target: {difference}",
                _SOURCE,
                f"train a head for the model that serves: {commands.line('drafts', 'train')}",
            )
        )
    if known := card.trained_on(prompts):
        findings.append(
            Finding(
                "trained-on-these-prompts",
                "refuse",
                f"{card.name} was trained on {known} of the measurement's {len(prompts)} prompts, "
                "so its acceptance on them says nothing of other traffic",
                _SOURCE,
                "measure on prompts that are newer than its training, or on a built-in set",
            )
        )
    return tuple(findings)
