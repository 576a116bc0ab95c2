"""The shipped rules, in a real Prometheus that scrapes a real vLLM under load.

One run, four stretches: idle, a closed loop with more clients than slots, a stuck queue (slots held by very long
generations), idle again. The truth is ``queue_time_ms``, which the engine reports in each response, as the load
generator collected it over the same minute that the rule looked at.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import httpx
import pytest

from .real_servers import SLOTS, engine, engine_python
from .real_servers import prometheus as prometheus_server

pytestmark = [pytest.mark.engine, pytest.mark.timeout(540)]

CLIENTS = SLOTS + 6
WINDOW = 60.0
LOAD = 45.0
STEP = 10.0  # how often the rule group is evaluated


class Client:
    """Asks for completions and keeps (when it ended, how long it queued) of each."""

    def __init__(self, base: str) -> None:
        self.http = httpx.AsyncClient(base_url=base, timeout=300, limits=httpx.Limits(max_connections=64))
        self.waits: list[tuple[float, float]] = []

    async def complete(self, tokens: int) -> None:
        body = {"model": "tiny", "prompt": "queue", "max_tokens": tokens, "ignore_eos": True, "temperature": 0}
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


async def value(base: str, name: str) -> tuple[float, float]:
    """The last recorded value of a rule and the time of its evaluation."""
    async with httpx.AsyncClient(base_url=base) as http:
        found = []
        for query in (name, f"timestamp({name})"):
            result = (await http.get("/api/v1/query", params={"query": query})).json()["data"]["result"]
            found.append(float(result[0]["value"][1]) if result else float("nan"))
    return found[0], found[1]


async def stop(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def story(target: str, base: str) -> dict[str, list[float]]:
    client, seen = Client(target), {}
    await client.complete(8)
    await asyncio.sleep(STEP + 3)
    seen["idle"] = [(await value(base, "queue_wait_ms"))[0]]

    client.waits.clear()
    load = [asyncio.create_task(client.loop(256)) for _ in range(CLIENTS)]
    await asyncio.sleep(LOAD)
    seen["loaded"], seen["truth"] = [], []
    for _ in range(3):  # a scrape that came late on a busy machine must not decide
        await asyncio.sleep(STEP)
        rule, at = await value(base, "queue_wait_ms")
        seen["loaded"].append(rule)
        seen["truth"].append(client.mean_wait(at))
    seen["halves"] = [(await value(base, f"queue_wait_ms:{half}"))[0] for half in ("finished", "queued")]
    await stop(load)

    held = [asyncio.create_task(client.complete(130000)) for _ in range(SLOTS)]
    await asyncio.sleep(2)
    stuck = [asyncio.create_task(client.complete(8)) for _ in range(CLIENTS - SLOTS)]
    seen["stuck"], seen["stuck, finished half"] = [], []
    await asyncio.sleep(2 * STEP)
    for _ in range(3):
        await asyncio.sleep(STEP)
        seen["stuck"].append((await value(base, "queue_wait_ms"))[0])
        seen["stuck, finished half"].append((await value(base, "queue_wait_ms:finished"))[0])
    assert not any(task.done() for task in held), "the long requests ended: nothing was stuck"
    await stop(stuck + held)

    await asyncio.sleep(2 * STEP + 2)  # the last request finished a window ago
    seen["idle again"] = [(await value(base, "queue_wait_ms"))[0]]
    await client.http.aclose()
    return seen


def test_the_rule_tells_the_wait_that_requests_had(prometheus: str, rules_file: Path, tmp_path: Path) -> None:
    engine_python()
    with engine(tmp_path) as target, prometheus_server(prometheus, rules_file, target, tmp_path) as base:
        seen = asyncio.run(story(target, base))
    for what, values in seen.items():
        sys.stdout.write(f"{what:<22}" + "".join(f"{number:12.1f}" for number in values) + "\n")
    assert seen["idle"] == [0.0]
    assert min(seen["truth"]) > 20, "the load made no queue"
    apart = sorted(abs(rule / truth - 1) for rule, truth in zip(seen["loaded"], seen["truth"], strict=True))
    assert apart[1] <= 0.10, "the rule is not the wait that requests had"
    rule = max(seen["loaded"])
    most = 60_000.0 * (CLIENTS - SLOTS)  # the rule counts no fewer than one admission a minute
    rising = [value for value in seen["stuck"] if value < most]
    assert rising == sorted(set(rising)), "the rule does not rise while the queue is stuck"
    assert seen["stuck"] == rising + [most] * (len(seen["stuck"]) - len(rising))
    assert seen["stuck"][-1] > 2 * max(rule, seen["stuck, finished half"][-1]), "the histogram alone would have done"
    assert seen["idle again"] == [0.0]
