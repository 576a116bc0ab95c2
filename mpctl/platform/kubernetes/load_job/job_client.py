"""The load client in the cluster: ``vllm bench serve`` in a Job of the engine's own image, in one pod or several.

The load goes from the Job's pods to the arm's own pod, by its address: a Service may lead to several pods, whose
counters could not be told apart. Every block has a name, made of the operation, the block and the engine's address. A
pod keeps the blocks that it sent: a command that continues a killed one finds a block running or finished and does not
send it again, also those whose records died with the killed command.

Pod i of N sends every N-th request of the same ordered list, with its part of the concurrency or of the arrival rate: N
independent Poisson arrivals of rate R/N are one of rate R. A start barrier releases them together: every pod reports
that its client is about to send, with the time of its clock, and gets a moment some tenths of a second ahead in the
same clock. Percentiles are never merged; they follow from the merged samples. A block is whole or lost: without one
pod, the others' samples are of another load.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from mpctl.errors import MpctlError, NotPermitted
from mpctl.experiment.calibration import Pace
from mpctl.experiment.counters import Counters
from mpctl.platform.kubernetes.load_job.job_pods import LOAD_LOCAL_HINT, LoadPods
from mpctl.platform.load import PacedServer, bench_arguments, limit_s
from mpctl.rollout.ports import BlockLost, Endpoint, LoadOrder, SentBlock

MOST_APART_S = 0.25  # of the pods' starts; a block of seconds would begin with a part of its load

# Lists of the bench client's result with one item per request. Whatever else it computes is of one pod's requests.
_SAMPLES = ("ttfts", "itls", "output_lens", "generated_texts", "errors", "queue_times", "input_lens", "token_ids")


@dataclass(frozen=True)
class ShardAnswer:
    """A pod's answer. ``began_s``: when its first request was due, by the clock of the command; ``waited_s``: part of
    the result's duration that the client spent at the start barrier."""

    result: dict[str, Any]
    began_s: float
    waited_s: float

    @property
    def duration_s(self) -> float:
        """Time from the start to the last answer."""
        return float(self.result.get("duration") or 0.0) - self.waited_s

    @property
    def ended_s(self) -> float:
        """Time of the last complete answer, by the clock of the command."""
        return self.began_s + self.duration_s


def split(order: LoadOrder, pods: int) -> tuple[LoadOrder, ...]:
    """Divide a block among at most ``pods`` pods: no pod is without a prompt or a request in flight."""
    cell = order.cell
    count = max(1, min(pods, len(order.prompts), cell.concurrency))
    base, remainder = divmod(cell.concurrency, count)
    rate = None if cell.rate is None else cell.rate / count
    cells = (replace(cell, concurrency=base + (i < remainder), rate=rate) for i in range(count))
    return tuple(replace(order, prompts=order.prompts[i::count], cell=part) for i, part in enumerate(cells))


def merge(answers: Sequence[ShardAnswer]) -> dict[str, Any]:
    """Return the result of the whole block: the samples in the order of the requests, and the time from the first
    start to the last answer.

    Raises:
        ValueError: the shards are not those of one list, or they did not start together.
    """
    begins = [answer.began_s for answer in answers]
    spread = max(begins) - min(begins)
    if spread > MOST_APART_S:
        raise ValueError(f"the pods started {spread:.2f} s apart, more than {MOST_APART_S:g} s")
    results = [answer.result for answer in answers]
    names = [name for name in _SAMPLES if all(isinstance(result.get(name), list) for result in results)]
    return {
        "date": min(str(result.get("date")) for result in results),
        "duration": max(answer.ended_s for answer in answers) - min(begins),
        "load_pods": len(answers),
        "started_apart_s": spread,
        **{name: _interleaved([result[name] for result in results]) for name in names},
    }


def _interleaved(lists: Sequence[Sequence[Any]]) -> list[Any]:
    total, count = sum(map(len, lists)), len(lists)
    if [len(shard) for shard in lists] != [len(range(i, total, count)) for i in range(count)]:
        raise ValueError(f"the pods report {[len(shard) for shard in lists]} requests, which is no list in turns")
    return [lists[i % count][i // count] for i in range(total)]


_DATA, _RESULT = PurePosixPath("prompts.jsonl"), PurePosixPath("result.json")
_WAIT_S = 20.0  # of one question after a block
_LEAD_S, _LEAD_OF_A_POD_S = 0.5, 0.2  # from the first start signal to the start: every pod has its signal by then
_PACED = "http://paced.invalid"  # the server of known timing, which every pod has at a port of its own


class JobClient:
    """Implements ``mpctl.platform.load.LoadClient``. Close it to remove the Job, also one that an earlier
    command left."""

    def __init__(self, pods: LoadPods) -> None:
        self._pods = pods
        self._paced_ports: list[str] = []

    def prepare(self) -> None:
        """Make the Job, so that it starts while engines do.

        Raises:
            NotPermitted: that is not allowed. Whatever else is wrong with it is said when it is needed.
        """
        try:
            self._pods.ensure_job()
        except NotPermitted:
            raise
        except MpctlError:
            return

    def close(self) -> str:
        """Delete the Job with its pods; return why it remains, empty when it does not."""
        return self._pods.close()

    def send(self, endpoint: Endpoint, order: LoadOrder, counters: Callable[[], Counters] | None) -> SentBlock:
        """Send a block from the Job's pods; one of the same key to the same engine is read again. The counters are read
        in a pod, right around the block. Where a pod is lost the Job is deleted."""
        from secrets import token_hex

        address = endpoint.inside or endpoint.base_url
        name = hashlib.sha256(f"{order.key}\n{address}".encode()).hexdigest()[:20] if order.key else token_hex(10)
        self._pods.wait_until_ready()
        shards = split(order, self._pods.count)
        blocks = []
        for index, shard in enumerate(shards):
            target = f"http://127.0.0.1:{self._paced_ports[index]}" if address == _PACED else address
            engine = Endpoint(target, endpoint.model, endpoint.tokenizer)
            blocks.append(
                {
                    "arguments": bench_arguments(engine, _DATA, _RESULT, shard),
                    "prompts": list(shard.prompts),
                    "token": endpoint.token,
                    "metrics": None if counters is None else f"{target}/metrics",
                    "held": len(shards) > 1,
                }
            )
        try:
            return self._sent(name, blocks, limit_s(order), counted=counters is not None)
        except BlockLost:
            self._pods.close()  # no pod may go on with its part of the load
            raise

    def _sent(self, name: str, blocks: Sequence[dict[str, Any]], limit: float, *, counted: bool) -> SentBlock:
        path = f"/blocks/{name}"
        for index, block in enumerate(blocks):
            status, _ = self._pods.ask(index, "POST", path, block)
            if status == 409:
                raise BlockLost(f"{self._pods.title}: a pod has other requests under this block's name")
        offsets = self._release(name, len(blocks)) if len(blocks) > 1 else [0.0]
        answers = [self._wait(index, path, block, limit) for index, block in enumerate(blocks)]
        first = last = answers[0]
        result = first["result"]
        if len(answers) > 1:
            shards = [
                ShardAnswer(answer["result"], answer["began"] - ahead, answer["waited"])
                for answer, ahead in zip(answers, offsets, strict=True)
            ]
            try:
                result = merge(shards)
            except ValueError as error:
                raise BlockLost(f"{self._pods.title}: {error}") from error
            # Every pod reads the counters before the barrier. Only the last one reads them after the last answer.
            last = answers[max(range(len(shards)), key=lambda i: shards[i].ended_s)]
        if not counted:
            return SentBlock(result, Counters(), Counters())
        return SentBlock(result, Counters.parse(first["before"]), Counters.parse(last["after"]))

    def _release(self, name: str, count: int) -> list[float]:
        """Wait until every pod is at the barrier and give all the same moment to start; return by how much each pod's
        clock is ahead of this command's.

        Raises:
            BlockLost: some pods had started without the others, because an earlier command was killed in between.
        """
        states = [self._barrier(index, name) for index in range(count)]
        offsets = [self._clock(index) for index in range(count)]
        started = [state["started"] for state in states]
        if any(started):
            if not all(started):
                raise BlockLost(f"{self._pods.title}: a part of the block had started without the others")
            return offsets
        start = time.monotonic() + _LEAD_S + _LEAD_OF_A_POD_S * count
        for index, offset in enumerate(offsets):
            self._pods.ask(index, "POST", f"/start/{name}", {"at": start + offset})
        return offsets

    def _barrier(self, index: int, name: str) -> dict[str, Any]:
        """The state of a pod that is at the barrier or beyond it. Its own limit ends a pod that never gets there."""
        while True:
            status, state = self._pods.ask(index, "GET", f"/start/{name}?wait={_WAIT_S:.0f}")
            if status == 404:
                raise self._forgotten()
            if "error" in state:
                raise self._failed(index, state["error"])
            if status == 200:
                return dict(state)

    def _clock(self, index: int) -> float:
        before = time.monotonic()
        _, answer = self._pods.ask(index, "GET", "/clock")
        return float(answer["clock"]) - (before + time.monotonic()) / 2

    def _forgotten(self) -> BlockLost:
        return BlockLost(f"{self._pods.title}: a pod does not know its part of the block any more")

    def _failed(self, index: int, why: str) -> MpctlError:
        return MpctlError(
            f"vllm bench serve in {self._pods.title} failed: {why}",
            hint="\n".join(filter(None, (self._pods.log_tail(index), LOAD_LOCAL_HINT))),
        )

    def _wait(self, index: int, path: str, block: dict[str, Any], limit: float) -> dict[str, Any]:
        """Wait for a block's end; a question without an answer is asked again. Nothing is sent twice, because the pod
        knows the block's name."""
        waited = 0.0
        while waited <= limit:
            status, answer = self._pods.ask(index, "GET", f"{path}?wait={_WAIT_S:.0f}")
            if status == 200 and "error" in answer:
                raise self._failed(index, answer["error"])
            if status == 200:
                return dict(answer)
            if status == 404:  # the process in the pod is another one
                if block["held"]:
                    raise self._forgotten()
                self._pods.ask(index, "POST", path, block)
            waited += _WAIT_S
        self._pods.close()  # it hangs; the next block gets a new one
        raise MpctlError(f"{self._pods.title} did not finish a block in {limit:.0f} s", hint=LOAD_LOCAL_HINT)

    @contextmanager
    def paced(self, pace: Pace) -> Iterator[PacedServer]:
        """A process beside the client, in every pod."""
        self._pods.wait_until_ready()
        every = range(self._pods.count)
        self._paced_ports = [
            str(self._pods.ask(index, "POST", "/paced", dict(pace.__dict__))[1].get("port")) for index in every
        ]
        if not all(port.isdecimal() for port in self._paced_ports):
            raise MpctlError(f"the server of known timing in {self._pods.title} did not start", hint=LOAD_LOCAL_HINT)
        try:
            yield PacedServer(Endpoint(_PACED, "paced", tokenizer=""), self._truth, self._pods.count)
        finally:
            with suppress(MpctlError):
                for index in every:
                    self._pods.ask(index, "DELETE", "/paced")

    def _truth(self) -> list[dict[str, float]]:
        per_pod = [self._pods.ask(index, "GET", "/paced")[1] for index in range(self._pods.count)]
        return [record for records in per_pod if isinstance(records, list) for record in records]
