"""The load client on any platform, and the requests of a block."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mpctl.experiment.calibration import Pace
from mpctl.experiment.counters import Counters
from mpctl.experiment.prompt_files import body_of, text_of
from mpctl.json_types import Json
from mpctl.rollout.ports import Endpoint, LoadOrder, SentBlock

STREAM = Path(__file__).parent / "stream.py"
PACED = Path(__file__).parent / "in_engine" / "paced.py"
_LEAST_S = 600.0
_SLOWEST_TOKEN_S = 0.5  # a large model on a busy CPU; only an engine that hangs takes longer


@dataclass(frozen=True)
class PacedServer:
    """A server of known timing that a client can reach."""

    endpoint: Endpoint
    truth: Callable[[], list[dict[str, float]]]  # reads what it did: one record per request


class LoadClient(Protocol):
    """Sends blocks, wherever it runs."""

    def prepare(self) -> None:
        """Start what the client needs, so that it is ready when the engines are."""

    def close(self) -> str:
        """End the client; return what of it remains, empty when nothing does."""

    def send(
        self, endpoint: Endpoint, order: LoadOrder, counters: Callable[[], Counters] | None
    ) -> SentBlock:
        """Send a block. ``counters`` reads the engine's; None: they are not wanted.

        Raises:
            BlockLost: the client was lost in the middle of the block.
            MpctlError: there is no client, it failed, or it does not answer.
            CounterError: the engine's counters cannot be read.
        """

    def paced(self, pace: Pace) -> AbstractContextManager[PacedServer]:
        """Run a server of known timing next to the client.

        Raises:
            MpctlError: it did not start or does not answer.
        """


def limit_s(order: LoadOrder) -> float:
    """Return the time limit of a block in seconds, from its work and its arrival rate."""
    count, cell = len(order.prompts), order.cell
    arrivals = count / cell.rate if cell.rate else 0.0
    return _LEAST_S + count * order.max_tokens * _SLOWEST_TOKEN_S / cell.concurrency + arrivals


def block_of(order: LoadOrder, model: str) -> Json:
    """Return the arguments of :func:`mpctl.platform.stream.send_block`, on this machine as in a pod.

    The seed, which decides when requests of an open loop arrive, follows from the prompts: both arms see the same
    arrivals, every round others.
    """
    seed = int(hashlib.sha256("\0".join(map(text_of, order.prompts)).encode()).hexdigest()[:8], 16)
    common: Json = {
        "model": model,
        "temperature": order.cell.temperature,
        "max_completion_tokens": order.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if order.token_ids:
        common["return_token_ids"] = True
    bodies = [{**common, **body_of(prompt)} for prompt in order.prompts]
    cell = order.cell
    return {
        "bodies": bodies,
        "concurrency": cell.concurrency,
        "rate": cell.rate,
        "seed": seed,
        "salt": order.salt,
    }
