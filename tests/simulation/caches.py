"""Simulated services for CacheLost: what a prefix cache holds of users' prompts, with traffic that changes.

Agents send long conversations, of which all but a few hundred tokens were sent before; chats send short prompts that
share a system prompt. Load and the agents' share follow the day, mixes last, and from time to time the traffic changes
at once: another share of agents, longer or shorter prompts, more or fewer new tokens. At the peak some kept tokens are
evicted. Nothing of that is a loss. A loss takes up to so many kept tokens from every request.

The judgement is that of ``mpctl.watch.cache`` for many services at once, with arrays. Where both differ this module is
wrong: the product's function judges some of the services, too. Left out: kinds of traffic with prompts of one length
and other hits, which no counter tells apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from mpctl.experiment.counters import CacheUse, Window
from mpctl.watch import cache, detect
from mpctl.watch.cache import CacheWatch
from mpctl.watch.watch_policy import WatchPolicy

from .many import _limit, _Noise

Array = NDArray[np.float64]
AGENT, CHAT, SYSTEM = 6000.0, 700.0, 200.0  # tokens of prompts, and of the chats' system prompt
NEW = 450.0  # tokens of an agent's prompt that were never sent


@dataclass(frozen=True)
class Truth:
    """``agents``: their share of the requests, ``swing``: how far it moves in a day; ``lasting``: deviation of
    the logarithm of a mix's lengths, over ``memory`` windows; ``changes``: of the traffic, in a month; ``evicted``:
    most of the kept tokens at the peak; ``peak``: requests per second at noon; ``restarts``: chance per window."""

    agents: float | Array = 0.5
    swing: float | Array = 0.2
    lasting: float | Array = 0.1
    memory: float | Array = 12.0
    changes: float | Array = 0.0
    evicted: float | Array = 0.0
    peak: float | Array = 2.0
    restarts: float | Array = 1e-5

    @classmethod
    def of_each(cls, kinds: Sequence[Truth], each: int) -> Truth:
        """``each`` services of every kind, in this order."""
        return cls(
            **{f.name: np.repeat([getattr(k, f.name) for k in kinds], each) for f in fields(cls)}
        )


@dataclass
class Found:
    """``first``: the window in which each service's first alarm began, -1 without; ``alarms``: of each;
    ``known``: share of the comparisons that could be made; ``compared``: services that the product judged as well;
    ``different``: those with another result."""

    first: NDArray[np.int64]
    alarms: NDArray[np.int64]
    known: Array
    compared: int = 0
    different: int = 0
    product: dict[int, CacheWatch] = field(default_factory=dict)


def found_in_many(
    truth: Truth,
    policy: WatchPolicy,
    services: int,
    windows: int,
    seed: int,
    *,
    lost: float = 0.0,
    at: int = 0,
    compare: Sequence[int] = (),
) -> Found:
    """Judge services; ``lost``: tokens of every request that are forgotten from window ``at`` on."""
    traffic = _Traffic(truth, services, np.random.default_rng(seed), policy.interval_s)
    judge = _Many(policy, traffic.before, services)
    product = {n: CacheWatch(warm_at=cache.COLD_S) for n in compare}
    firsts = dict.fromkeys(compare, -1)
    zero = np.zeros(services)
    found = Found(np.full(services, -1), zero.astype(int), zero, product=product)
    pooled, known = zero, zero
    for number in range(windows):
        now = number * policy.interval_s
        requests, asked, held, again = traffic.window(number, lost if number >= at else 0.0)
        new, compared, alike = judge.after(requests, asked, held, again, now)
        found.alarms = found.alarms + new
        found.first = np.where(new & (found.first < 0) & (number >= at), number, found.first)
        pooled, known = pooled + compared, known + alike
        for n, now_judged in list(product.items()):
            watch = now_judged
            if again[n]:
                watch = CacheWatch(
                    watch.pool, watch.loss, watch.kept, watch.text, now + cache.COLD_S
                )
            if requests[n]:
                use = Window(
                    ttft_count=float(requests[n]),
                    prefix_queries=float(asked[n]),
                    prefix_hits=float(held[n]),
                )
                watch = watch.after(policy, traffic.uses[n], use, now)
            if watch.loss.alarm and firsts[n] < 0 and number >= at:
                firsts[n] = number
            product[n] = watch
    found.known = known / np.maximum(pooled, 1)
    found.compared = len(product)
    found.different = sum(firsts[n] != found.first[n] for n in product)
    return found


class _Traffic:
    """Users of every service."""

    def __init__(
        self, truth: Truth, services: int, rng: np.random.Generator, interval_s: float
    ) -> None:
        self._truth, self._rng, self._interval_s, self._count = truth, rng, interval_s, services
        self._phase, self._mix = rng.random(services), np.zeros(services)
        self._share = np.ones(services) * truth.agents
        self._length, self._new = np.ones(services), np.full(services, NEW)
        self._filled_at = np.full(services, -math.inf)
        agents = self._share * AGENT + (1 - self._share) * CHAT
        kept = self._share * (AGENT - NEW) + (1 - self._share) * SYSTEM
        kept *= 1.0 - truth.evicted / 2
        self.before = (agents, kept)
        self.uses = [
            CacheUse(1000.0, 1000.0 * float(a), 1000.0 * float(k))
            for a, k in zip(agents, kept, strict=True)
        ]

    def window(self, number: int, lost: float) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
        """Requests, tokens of their prompts, and those kept; which engines started anew."""
        truth, rng, count = self._truth, self._rng, self._count
        at = number * self._interval_s
        change = rng.random(count) < truth.changes * self._interval_s / (30 * 86400.0)
        if change.any():
            self._share = np.where(change, rng.random(count), self._share)
            self._length = np.where(change, np.exp(rng.uniform(-0.9, 0.9, count)), self._length)
            self._new = np.where(change, NEW * np.exp(rng.uniform(-0.5, 0.5, count)), self._new)
        again = rng.random(count) < truth.restarts
        self._filled_at = np.where(again, at + 300.0, self._filled_at)
        keep = np.exp(-1.0 / np.asarray(truth.memory))
        fresh = truth.lasting * np.sqrt(1.0 - keep * keep)
        self._mix = keep * self._mix + rng.normal(0.0, fresh, count)
        day = 0.5 - 0.5 * np.cos(2.0 * math.pi * (at / 86400.0 + self._phase))
        share = np.clip(self._share + truth.swing * (day - 0.5) + self._mix, 0.0, 1.0)
        rate = truth.peak * (0.05 + 0.95 * day) * self._interval_s
        agents, chats = rng.poisson(rate * share), rng.poisson(rate * (1.0 - share))
        mean = AGENT * self._length * np.exp(self._mix)
        prompts = agents * mean * self._about(agents, 0.6)
        new = np.minimum(agents * self._new * self._about(agents, 1.3), prompts)
        short = chats * CHAT * self._about(chats, 0.6)
        kept = (prompts - new) * (1.0 - truth.evicted * day)
        kept = np.maximum(kept - lost * agents, 0.0)
        shared = np.maximum(np.minimum(chats * SYSTEM, short) - lost * chats, 0.0)
        held = np.where(at < self._filled_at, 0.0, kept + shared)
        return (agents + chats).astype(float), prompts + short, held, again

    def _about(self, counts: NDArray[np.int64], deviation: float) -> Array:
        """The factor of a mean of so many lengths."""
        noise = self._rng.normal(0.0, 1.0, self._count) * deviation / np.sqrt(np.maximum(counts, 1))
        return np.maximum(1.0 + noise, 0.2)


class _Many:
    """``mpctl.watch.cache.CacheWatch`` of every service."""

    def __init__(self, policy: WatchPolicy, before: tuple[Array, Array], count: int) -> None:
        self.policy, self.before = policy, before
        self.pool = np.zeros((3, count))
        self.total, self.alarm = np.zeros(count), np.zeros(count, bool)
        self.noise, self.warm_at = _Noise(count), np.full(count, cache.COLD_S)

    def after(
        self, requests: Array, asked: Array, held: Array, again: NDArray[np.bool_], now: float
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which alarms began, which services were compared, and which of them had like traffic."""
        self.warm_at = np.where(again, now + cache.COLD_S, self.warm_at)
        seen = requests > 0
        cold = seen & (now < self.warm_at)
        self.pool = np.where(seen & ~cold, self.pool + np.stack((requests, asked, held)), self.pool)
        full = seen & ~cold & (self.pool[0] >= cache.POOLED)
        number = np.maximum(self.pool[0], 1.0)
        length, kept = self.pool[1] / number, self.pool[2] / number
        prompt, cached = self.before
        outside = full & ((length > 2.0 * prompt) | (length < prompt / 2.0))
        judged = full & ~outside
        allowance = detect.ALLOWED * self.policy.cache_loss
        wanted = cached - np.maximum(prompt - length, 0.0)
        lost = np.maximum((wanted - (prompt - cached) - kept) / np.maximum(length, 1.0), -allowance)
        limit = _limit(
            self.noise,
            allowance,
            cache.SELDOM * self.policy.run_length,
            detect.LASTS * (self.policy.cache_loss - allowance),
        )
        total = np.maximum(self.total + np.minimum(lost - allowance, detect.ONE * limit), 0.0)
        total = np.minimum(total, detect.CAP * limit)
        alarm = (total >= limit) | (self.alarm & (total > 0))
        self.noise.learn(lost, judged & (total <= limit / 2))
        unknown = cold | outside
        new = judged & alarm & ~self.alarm
        self.total = np.where(judged, total, np.where(unknown, 0.0, self.total))
        self.alarm = np.where(judged, alarm, self.alarm & ~unknown)
        self.pool = np.where(full | unknown, 0.0, self.pool)
        return new, full, judged
