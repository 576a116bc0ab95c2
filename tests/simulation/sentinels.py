"""A service's sentinels over time, sent and judged by the product's own functions; what an engine answers is drawn.

An answer is its settled tokens. Each is as near to a tie as a recorded one may be, and rounding shifts the gap to the
next token by a normal number of ``noise`` times the root of two.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from statistics import NormalDist

from mpctl.experiment.answers import Answer
from mpctl.gate.answer_tokens import FLOOR, settled_digest
from mpctl.watch.sentinel import Check, Guard, diagnose, first_check, repetitions
from mpctl.watch.watch_policy import WatchPolicy

TOKENS = 32
RIGHT = Answer((1,), tuple(range(TOKENS)), "right", finish="length")
WRONG = Answer((1,), (99, *range(1, TOKENS)), "wrong", finish="length")
SETTLED = settled_digest(RIGHT, TOKENS)


@dataclass(frozen=True)
class Life:
    """A service. ``requests_per_s`` of its users; ``noise`` in nats, of which ``known`` tells whether tau was measured;
    ``fails``: share of requests without an answer; ``fault``: share of the answers that are wrong from ``at`` on;
    ``poisoned``: those are answers from users' part of the prefix cache alone; ``always``: they are the same ones."""

    requests_per_s: float = 5.0
    noise: float = 0.1
    known: bool = True
    fails: float = 0.001
    fault: float = 0.0
    at: float = math.inf
    poisoned: bool = False
    always: bool = False

    @property
    def flips(self) -> float:
        """Probability that rounding changes an answer."""
        tau = max(FLOOR, 8 * self.noise) if self.known else FLOOR
        token = NormalDist().cdf(-2 * tau / (self.noise * math.sqrt(2)))
        return -math.expm1(TOKENS * math.log1p(-token))


@dataclass(frozen=True)
class Outcome:
    """``found_s``: seconds from the fault to the finding, None without one; ``sent``: requests of sentinels."""

    finding: Check | None
    found_s: float | None
    sent: int
    users: float


class _Engine:
    def __init__(self, life: Life, rng: random.Random) -> None:
        self._life, self._rng = life, rng
        self.hit = True

    def answer(self, now: float, *, salted: bool = False) -> Answer:
        life, chance = self._life, self._rng.random
        if chance() < life.fails:
            return Answer(error="HTTP 503")
        faulty = now >= life.at and (self.hit if life.always else chance() < life.fault)
        wrong = (faulty and not (life.poisoned and salted)) or chance() < life.flips
        return WRONG if wrong else RIGHT


def _asked(guard: Guard, engine: _Engine, answer: Answer, now: float) -> Guard:
    check, sent = first_check(SETTLED, answer), 1
    if check is Check.WRONG:
        count = repetitions(1)
        again = [engine.answer(now) for _ in range(count)]
        check = diagnose(SETTLED, again, [engine.answer(now, salted=True) for _ in range(count)])
        sent += 2 * count
    return guard.after(check, "", sent=sent, now=now)


def sound(life: Life, policy: WatchPolicy, seconds: float, seed: int) -> Outcome:
    """Send sentinels to a sound service whose users allow each of them. Right answers before the next one that is lost
    or changed by rounding are counted at once: they change no decision."""
    rng, guard, now = random.Random(seed), Guard(), 0.0
    engine, flips = _Engine(life, rng), life.flips
    happens = 1.0 - (1.0 - life.fails) * (1.0 - flips)
    while guard.finding is None:
        quiet = int(math.log(1.0 - rng.random()) / math.log1p(-happens))
        now += (quiet + 1) * policy.sentinel_s
        if now >= seconds:
            break
        lost = rng.random() * happens < life.fails
        guard = replace(guard, sent=guard.sent + quiet)
        guard = _asked(guard, engine, Answer(error="HTTP 503") if lost else WRONG, now)
    return Outcome(guard.finding, None, guard.sent, life.requests_per_s * min(now, seconds))


def live(life: Life, policy: WatchPolicy, seconds: float, seed: int) -> Outcome:
    """Send sentinels until the first finding, or the end. A round takes the policy's interval."""
    rng, guard = random.Random(seed), Guard()
    engine, users = _Engine(life, rng), 0.0
    now = rng.random() * policy.sentinel_s
    while now < seconds:
        now += policy.interval_s
        users += life.requests_per_s * policy.interval_s
        guard = guard.with_load(policy, life.requests_per_s * policy.interval_s)
        if not guard.due(policy, now):
            continue
        engine.hit = rng.random() < life.fault
        guard = _asked(guard, engine, engine.answer(now), now)
        if guard.finding is not None:
            return Outcome(
                guard.finding, now - life.at if now >= life.at else None, guard.sent, users
            )
    return Outcome(None, None, guard.sent, users)
