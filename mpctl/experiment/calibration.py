"""Measure the load client's own error against a server of known timing on the same machine.

The server records the time of each chunk; the difference is the client's (and the loopback's). A busy client receives
several chunks at once, so its median is right while its tail is not: an engine's p99 means nothing where the client's
error is of the same size.

The stream is one under speculation, with several tokens per chunk, which exposes a client that counts chunks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mpctl.errors import MpctlError
from mpctl.experiment.block import LoadResult
from mpctl.experiment.run import Calibration

_FILLED_S = 0.5


@dataclass(frozen=True)
class Pace:
    """Timing of the server: the first chunk after ``ttft_s``, then one every ``interval_s``; ``chunks`` in all with
    ``per_chunk`` tokens each."""

    ttft_s: float = 0.020
    interval_s: float = 0.005
    chunks: int = 5
    per_chunk: int = 4

    @property
    def tokens(self) -> int:
        """Output tokens of an answer."""
        return self.chunks * self.per_chunk

    @property
    def request_s(self) -> float:
        """Minimum time of one answer."""
        return self.ttft_s + (self.chunks - 1) * self.interval_s

    def to_line(self) -> str:
        """Return the argument of the server's process."""
        return json.dumps(self.__dict__)


def describe(calibration: Calibration) -> str:
    """Return the calibration in one sentence."""
    c = calibration
    return (
        f"the load client adds {c.p50_ms:.1f} ms at p50, {c.p99_ms:.1f} ms at p99 "
        f"({c.requests} requests, {c.concurrency} at once)"
    )


def saturation(calibration: Calibration | None, result: LoadResult) -> str:
    """Return why a block is more than the load client can read, empty if it is not."""
    chunks_per_s = result.chunks / result.duration_s
    if calibration is None or not calibration.limits(chunks_per_s):
        return ""
    return (
        f"the load client is saturated: {chunks_per_s:.0f} chunks per second arrive, and it reads "
        f"{calibration.chunks_per_s:.0f} at most; lower --concurrency or MPCTL_RATE"
    )


def requests_for(concurrency: int, pace: Pace) -> int:
    """Return the number of requests that fill about half a second: at most 400, but at least eight per request in
    flight."""
    return max(min(int(concurrency * _FILLED_S / pace.request_s), 400), 8 * concurrency)


def calibrate(
    result: LoadResult, truth: Sequence[Mapping[str, float]], pace: Pace, concurrency: int
) -> Calibration:
    """Compare the client's times with the server's: at each quantile the larger error of TTFT and whole time.

    ``truth``: one record per request the server answered, in any order, with ``number`` (which request it was),
    ``first_s`` and ``last_s`` from the moment the request had arrived to the moment its first and its last chunk were
    sent.

    Raises:
        MpctlError: requests failed or are missing, or the client counted other tokens than were sent.
    """
    requests = result.requests
    failed = [request.error for request in requests if request.error]
    if failed:
        raise MpctlError(f"{len(failed)} calibration requests failed; first: {failed[0]}")
    by_number = {int(t["number"]): t for t in truth}
    if not len(requests) == len(by_number) > 0:
        raise MpctlError(
            f"the load client reported {len(requests)} requests, the server answered {len(by_number)}"
        )
    wrong = sorted({request.tokens for request in requests} - {pace.tokens})
    if wrong:
        raise MpctlError(f"the load client counts {wrong[0]} tokens, the server sent {pace.tokens}")
    first: list[float] = []
    whole: list[float] = []
    for number, request in enumerate(requests):
        first.append(1000.0 * (request.ttft_s - by_number[number]["first_s"]))
        whole.append(
            1000.0 * (request.ttft_s + math.fsum(request.gaps_s) - by_number[number]["last_s"])
        )
    # Seconds in which a client without any work of its own would be done.
    shortest_s = math.ceil(len(first) / concurrency) * pace.request_s
    return Calibration(
        p50_ms=max(_quantile(first, 0.5), _quantile(whole, 0.5)),
        p99_ms=max(_quantile(first, 0.99), _quantile(whole, 0.99)),
        requests=len(first),
        concurrency=concurrency,
        slowdown=max(result.duration_s / shortest_s, 1.0),
        chunks_per_s=len(first) * pace.chunks / result.duration_s,
    )


def _quantile(errors: Sequence[float], level: float) -> float:
    """Return the smallest error that a share ``level`` does not exceed; never below zero."""
    ordered = sorted(errors)
    return max(ordered[math.ceil(level * len(ordered)) - 1], 0.0)
