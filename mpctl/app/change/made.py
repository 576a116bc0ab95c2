"""Heads that were trained, as drafts of a change: where ``made:NAME`` lies."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from mpctl import commands
from mpctl.app.requests import SpeculationRequest
from mpctl.app.session.base import Source, TrainedHeads
from mpctl.errors import InputError

MADE = "made:"


def with_made_head(source: Source, request: SpeculationRequest) -> SpeculationRequest:
    """Return the request with the weights of the head behind ``--draft made:NAME``.

    Raises:
        InputError: there is no such head, or its training is not finished; the message lists those that are.
    """
    if request.draft is None or not request.draft.startswith(MADE):
        return request
    heads = source.heads()
    if heads is None:
        raise InputError(
            f"{request.draft}: heads are trained for running services alone",
            field="--draft",
            hint="name the service instead of a file, or the folder of the head",
        )
    with closing(heads):
        return replace(request, draft=_weights(source, heads, request.draft.removeprefix(MADE)))


def _weights(source: Source, heads: TrainedHeads, head: str) -> str:
    trained = [card.name for card in heads.cards()]
    if head in trained:
        return heads.weights(head)
    begun = head in (order.name for order in heads.orders())
    listing = commands.line("drafts", "list", source.name, namespace=source.namespace)
    raise InputError(
        f"the training of {head} has no card yet" if begun else f"{head!r} is no head of {source.name}",
        field="--draft",
        hint=f"trained heads: {', '.join(trained) or 'none'}; '{listing}' shows them all",
    )
