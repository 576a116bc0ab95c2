"""The heads that were trained for a service, where it runs."""

from __future__ import annotations

from typing import Any, Protocol

from mpctl import annex
from mpctl.app.session.base import Source
from mpctl.app.session.cluster import ClusterSession
from mpctl.lab.drafts.card import Card
from mpctl.lab.drafts.order import TrainingOrder
from mpctl.lab.training_job.trainer import JobTrainer


class TrainedHeads(Protocol):
    """The heads that were trained for a service."""

    def orders(self) -> tuple[TrainingOrder, ...]:
        """Return every order, the oldest number first."""

    def cards(self) -> tuple[Card, ...]:
        """Return the cards that were recorded."""

    def weights(self, head: str) -> str:
        """Return where the weights of a head lie, as ``--draft`` takes it."""

    def close(self) -> None:
        """Close connections."""


def heads_of(source: Source) -> TrainedHeads | None:
    """The heads of a service; None where none can be trained."""
    if isinstance(source, ClusterSession):
        return JobTrainer(
            source.client, source.namespace, source.name, lambda _order: (), source.console.warn
        )
    trained: TrainedHeads | None = local_heads(source)
    return trained


def local_heads(source: Source) -> Any:
    """The heads of a service on this machine; None for a service elsewhere."""
    local = annex.find("local-heads")
    return local(source) if local else None
