"""The heads that were trained for a service, where it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mpctl.app.session.base import Source
from mpctl.lab.drafts.card import Card
from mpctl.lab.drafts.order import TrainingOrder

if TYPE_CHECKING:
    from mpctl.app.session.local import LocalSession
    from mpctl.lab.drafts.local_trainer import LocalTrainer


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
    from mpctl.app.session.cluster import ClusterSession
    from mpctl.app.session.local import LocalSession

    if isinstance(source, ClusterSession):
        from mpctl.lab.training_job.trainer import JobTrainer

        return JobTrainer(
            source.client, source.namespace, source.name, lambda _order: (), source.console.warn
        )
    if isinstance(source, LocalSession):
        return local_heads(source)
    return None


def local_heads(session: LocalSession) -> LocalTrainer:
    """The heads in the state of a service on this machine."""
    from mpctl.lab.drafts.local_trainer import LocalTrainer
    from mpctl.platform.local.engine import python_of

    desired = session.platform.desired()
    return LocalTrainer(
        session.platform.directory, desired.python or python_of(None), Path(desired.cwd)
    )
