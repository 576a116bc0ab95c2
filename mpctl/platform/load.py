"""The load client on any platform, and the arguments of ``vllm bench serve`` for a block.

Faults of the bench client that are met here (vLLM 0.32; docs/how-to/bench.md has the whole list): the custom data set
applies the chat template although the chat endpoint does so again (``--skip-chat-template``); its own readiness probe
sends the first prompt once more than counted (``--ready-check-timeout-sec 0``; its warm-ups repeat that one prompt, so
ours are prompts of their own); it shuffles (``--disable-shuffle``); without a tokenizer it asks for one token
(``--extra-body`` sets the limit, and the salt that keeps the prefix cache of an earlier measurement out of this one).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Protocol

from mpctl.experiment.calibration import Pace
from mpctl.experiment.counters import Counters
from mpctl.rollout.ports import Endpoint, LoadOrder, SentBlock

ENGINE_SIDE = Path(__file__).parent / "local" / "in_engine"
WORKER = ENGINE_SIDE / "bench.py"
PACED = ENGINE_SIDE / "paced.py"
_LEAST_S = 600.0
_SLOWEST_TOKEN_S = 0.5  # a large model on a busy CPU; only an engine that hangs takes longer


@dataclass(frozen=True)
class PacedServer:
    """A server of known timing that a client can reach."""

    endpoint: Endpoint
    truth: Callable[[], list[dict[str, float]]]  # reads what it did: one record per request
    pods: int = 1  # of a client that has several, each with a server of its own


class LoadClient(Protocol):
    """Sends blocks, wherever it runs."""

    def prepare(self) -> None:
        """Begin to load the client, which takes as long as starting an engine."""

    def close(self) -> str:
        """End the client; return what of it remains, empty when nothing does."""

    def send(self, endpoint: Endpoint, order: LoadOrder, counters: Callable[[], Counters] | None) -> SentBlock:
        """Send a block. ``counters`` reads the engine's; None: they are not wanted.

        Raises:
            BlockLost: a part of the client was lost meanwhile.
            MpctlError: there is no client, it failed, or it does not answer.
            CounterError: the engine's counters cannot be read.
        """

    def paced(self, pace: Pace) -> AbstractContextManager[PacedServer]:
        """A server of known timing beside the client.

        Raises:
            MpctlError: it did not start or does not answer.
        """


def limit_s(order: LoadOrder) -> float:
    """Return the time limit of a block in seconds, from its work and its arrival rate."""
    count, cell = len(order.prompts), order.cell
    arrivals = count / cell.rate if cell.rate else 0.0
    return _LEAST_S + count * order.max_tokens * _SLOWEST_TOKEN_S / cell.concurrency + arrivals


def bench_arguments(endpoint: Endpoint, data: PurePath, result: PurePath, order: LoadOrder) -> list[str]:
    """Return the arguments of ``vllm bench serve``, on this machine as in a pod. ``data``, ``result``: files where it
    runs.

    The seed, which decides when requests of an open loop arrive, follows from the prompts: both arms see the same
    arrivals, every round others.
    """
    seed = int(hashlib.sha256("\0".join(order.prompts).encode()).hexdigest()[:8], 16)
    options = {
        "backend": "openai-chat",
        "endpoint": "/v1/chat/completions",
        "base-url": endpoint.base_url,
        "model": endpoint.model,
        "dataset-name": "custom",
        "dataset-path": str(data),
        "custom-output-len": str(order.max_tokens),
        "num-prompts": str(len(order.prompts)),
        "max-concurrency": str(order.cell.concurrency),
        "temperature": str(order.cell.temperature),
        "ready-check-timeout-sec": "0",
        "result-dir": str(result.parent),
        "result-filename": result.name,
        "percentile-metrics": "ttft,tpot,itl,e2el",
        "seed": str(seed),
    }
    if order.cell.rate is not None:
        options["request-rate"] = str(order.cell.rate)
    switches = ["--disable-shuffle", "--skip-chat-template", "--save-result", "--save-detailed", "--disable-tqdm"]
    extra: dict[str, object] = {"cache_salt": order.salt} if order.salt else {}
    if order.token_ids:
        extra["return_token_ids"] = True
    if endpoint.tokenizer:
        options["tokenizer"] = endpoint.tokenizer
    else:
        extra["max_completion_tokens"] = order.max_tokens
        switches.append("--skip-tokenizer-init")
    if extra:
        options["extra-body"] = json.dumps(extra)
    return [f"--{name}={value}" for name, value in options.items()] + switches
