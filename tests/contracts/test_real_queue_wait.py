"""The shipped rules, in a real Prometheus that scrapes a real vLLM under load.

One run, four stretches: idle, a closed loop with more clients than slots, a stuck queue (slots held by very long
generations), idle again. The truth is ``queue_time_ms``, which the engine reports in each response, as the load
generator collected it over the same minute that the rule looked at.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from .real_servers import SLOTS, engine, engine_python
from .real_servers import prometheus as prometheus_server

pytestmark = [pytest.mark.engine, pytest.mark.nightly, pytest.mark.timeout(900)]

CLIENTS = SLOTS + 6
WINDOW = 60.0
LOAD = 45.0
PATIENCE = 120.0
EVALUATED = "timestamp(queue_wait_ms)"


class Client:
    """Asks for completions and keeps (when it ended, how long it queued) of each."""

    def __init__(self, base: str) -> None:
        self.http = httpx.AsyncClient(
            base_url=base, timeout=300, limits=httpx.Limits(max_connections=64)
        )
        self.waits: list[tuple[float, float]] = []

    async def complete(self, tokens: int) -> None:
        body = {
            "model": "tiny",
            "prompt": "queue",
            "max_tokens": tokens,
            "ignore_eos": True,
            "temperature": 0,
        }
        answer = await self.http.post("/v1/completions", json=body)
        answer.raise_for_status()
        self.waits.append((time.time(), answer.json()["metrics"]["queue_time_ms"]))

    async def loop(self, tokens: int) -> None:
        while True:
            await self.complete(tokens)

    def mean_wait(self, end: float) -> float:
        seen = [wait for at, wait in self.waits if end - WINDOW < at <= end]
        assert len(seen) >= 30, f"only {len(seen)} requests: too few to compare"
        return sum(seen) / len(seen)


async def asked(base: str, query: str) -> float:
    """The value of a query that has one series; NaN while it has none."""
    async with httpx.AsyncClient(base_url=base, timeout=60) as http:
        result = (await http.get("/api/v1/query", params={"query": query})).json()["data"]["result"]
    return float(result[0]["value"][1]) if result else math.nan


async def evaluated(
    base: str, good: Callable[[float], bool] = lambda _: True
) -> tuple[float, float]:
    """The next evaluation of ``queue_wait_ms`` that is ``good``, or the last one seen: its value and its time.

    A busy machine scrapes and answers late, which must not decide: what is looked for is waited for.
    """
    deadline, before = time.monotonic() + PATIENCE, await asked(base, EVALUATED)
    while True:
        await asyncio.sleep(1)
        at, found, after = [
            await asked(base, query) for query in (EVALUATED, "queue_wait_ms", EVALUATED)
        ]
        of_one_evaluation = at == after != before
        if time.monotonic() > deadline or (of_one_evaluation and good(found)):
            return found, at


async def stop(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def story(target: str, base: str) -> dict[str, list[float]]:
    client, entries = Client(target), {}
    await client.complete(8)
    entries["idle"] = [(await evaluated(base))[0]]

    client.waits.clear()
    load = [asyncio.create_task(client.loop(256)) for _ in range(CLIENTS)]
    await asyncio.sleep(LOAD)
    entries["loaded"], entries["truth"] = [], []
    for _ in range(3):  # one scrape that came late must not decide
        rule, at = await evaluated(base)
        entries["loaded"].append(rule)
        entries["truth"].append(client.mean_wait(at))
    await stop(load)

    tasks = [asyncio.create_task(client.complete(130000)) for _ in range(SLOTS)]
    await asyncio.sleep(2)
    stuck = [asyncio.create_task(client.complete(8)) for _ in range(CLIENTS - SLOTS)]
    entries["stuck"], entries["stuck, finished half"] = [], []
    while len(entries["stuck"]) < 2:
        entries["stuck"].append(
            (await evaluated(base, lambda wait: wait > 2 * max(entries["loaded"])))[0]
        )
        entries["stuck, finished half"].append(await asked(base, "queue_wait_ms:finished"))
    assert not any(task.done() for task in tasks), "the long requests ended: nothing was stuck"
    await stop(stuck + tasks)

    entries["idle again"] = [(await evaluated(base, lambda wait: wait == 0))[0]]
    await client.http.aclose()
    return entries


def test_the_recorded_queue_wait_is_the_wait_of_the_requests(
    prometheus: str, rules_file: Path, tmp_path: Path
) -> None:
    engine_python()
    with (
        engine(tmp_path) as target,
        prometheus_server(prometheus, rules_file, target, tmp_path) as base,
    ):
        result = asyncio.run(story(target, base))
    for what, values in result.items():
        sys.stdout.write(f"{what:<22}" + "".join(f"{number:12.1f}" for number in values) + "\n")
    assert result["idle"] == [0.0]
    assert min(result["truth"]) > 20, "the load made no queue"
    distances = sorted(
        abs(rule / truth - 1) for rule, truth in zip(result["loaded"], result["truth"], strict=True)
    )
    assert distances[1] <= 0.10, "the rule is not the wait that requests had"
    rule = max(result["loaded"])
    most = 60_000.0 * (CLIENTS - SLOTS)  # the rule counts no fewer than one admission a minute
    rising = [value for value in result["stuck"] if value < most]
    assert rising == sorted(set(rising)), "the rule does not rise while the queue is stuck"
    assert result["stuck"] == rising + [most] * (len(result["stuck"]) - len(rising))
    assert result["stuck"][-1] > 2 * max(rule, result["stuck, finished half"][-1]), (
        "the histogram alone would have done"
    )
    assert result["idle again"] == [0.0]
