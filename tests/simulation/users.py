"""Simulated pods under users' load: the experiment behind the judgement of users' requests (mpctl.gate.users_traffic).

All running requests of a pod advance one step together; a step takes ``fixed_ms + each_ms * requests``; a prompt stops
decoding while it is read; at most 64 run at once, first come, first served. Users come as a Poisson stream with bursts
(2.2 times as many for a minute, half as many in between); answers and prompts are log-normal. Pods differ by a constant
and drift. Readings every five seconds go through mpctl's own code, from counters to the verdict.

Left out: prefix caches, preemption, users who wait for an answer before they ask again, whole tokens. Every figure of
an engine is assumed, none is measured.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from mpctl.experiment.counters import Counters
from mpctl.experiment.users import ArmsReading, TrafficWindow, UsersTraffic, WindowCutter, between
from mpctl.gate.policy import Policy
from mpctl.gate.rule import Outcome
from mpctl.gate.rules.users import is_hopeless, judge_traffic
from mpctl.gate.users_traffic import LOOKS, READ_S, HarmWatch, ramp

SLOTS, PROMPT_MS, WINDOW_S = 64, 0.02, 60.0
JUDGED_S = 900.0  # at the last share of a ramp
POLICY = Policy()


@dataclass(frozen=True)
class Engine:
    """``tokens`` per step on average; ``spread``: of its logarithm between requests."""

    fixed_ms: float = 8.0
    each_ms: float = 0.12
    tokens: float = 1.0
    spread: float = 0.0


PLAIN = Engine()
SPECULATING = Engine(8.0 * 1.12, 0.12 * 2, 2.0, 0.3)
CROSSOVER = Engine(8.0 * 1.12, 0.12 * 8, 2.0, 0.3)
PlacementWishes = tuple[float, float, float]  # when, tokens of the prompt, tokens of the answer


def users(rng: random.Random, rate: float, seconds: float) -> list[PlacementWishes]:
    """Requests of ``rate`` per second on average."""
    rows: list[PlacementWishes] = []
    now, busy = 0.0, rng.random() < 0.3
    while now < seconds:
        end = now + rng.expovariate(1 / (60.0 if busy else 140.0))
        factor = 2.2 if busy else 0.49
        while (now := now + rng.expovariate(rate * factor)) < min(end, seconds):
            answer = min(max(rng.lognormvariate(math.log(150), 1.0), 2.0), 4096.0)
            rows.append((now, rng.lognormvariate(math.log(500), 1.0), answer))
        now, busy = end, not busy
    return rows


@dataclass(frozen=True)
class Served:
    """The answers of one pod in the order of their ends, and the requests in it over time."""

    ended: np.ndarray
    tpot: np.ndarray
    ttft: np.ndarray
    length: np.ndarray
    latency: np.ndarray
    arrived: np.ndarray
    admitted: np.ndarray

    def counters(self, at: float) -> Counters:
        """What the engine's /metrics would say."""
        done = int(np.searchsorted(self.ended, at, side="right"))
        admitted = int(np.searchsorted(self.admitted, at, side="right"))
        return Counters(
            generation_tokens=float(self.length[done]),
            tpot_seconds=float(self.tpot[done]),
            tpot_count=float(done),
            ttft_seconds=float(self.ttft[done]),
            ttft_count=float(done),
            running=float(admitted - done),
            waiting=float(np.searchsorted(self.arrived, at, side="right") - admitted),
            latency_seconds=float(self.latency[done]),
            latency_count=float(done),
        )


def serve(
    asked: Iterable[PlacementWishes], engine: Engine, rng: random.Random, speeds: Sequence[float]
) -> Served:
    """Answer ``asked`` on one pod; ``speeds``: of the pod in each minute, 1 as a rule."""
    waiting: deque[PlacementWishes] = deque()
    running: list[tuple[float, int]] = []
    begun: list[tuple[float, float, float]] = []  # arrival, first token, tokens
    admitted: list[float] = []
    ends: list[tuple[float, float, float, float, float]] = []
    now = steps = frozen = 0.0

    def admit(request: PlacementWishes) -> None:
        nonlocal frozen
        arrived, prompt, answer = request
        frozen = max(frozen, now) + PROMPT_MS / 1000 * prompt
        per_step = (
            engine.tokens * math.exp(rng.gauss(0, engine.spread))
            if engine.spread
            else engine.tokens
        )
        begun.append((arrived, frozen, answer))
        admitted.append(now)
        heapq.heappush(running, (steps + answer / per_step, len(begun) - 1))

    def advance(until: float) -> None:
        """Decode until then; requests that end meanwhile leave, and those that wait come in."""
        nonlocal now, steps
        while running:
            speed = speeds[min(int(now / WINDOW_S), len(speeds) - 1)]
            step_s = (engine.fixed_ms + engine.each_ms * len(running)) / 1000 / speed
            start = max(now, frozen)
            end = start + max(running[0][0] - steps, 0.0) * step_s
            if end > until:
                if start < until:
                    steps += (until - start) / step_s
                break
            steps, now = running[0][0], end
            arrived, first, answer = begun[heapq.heappop(running)[1]]
            ends.append(
                (now, (now - first) / max(answer - 1, 1.0), first - arrived, answer, now - arrived)
            )
            if waiting:
                admit(waiting.popleft())
        now = until

    arrivals = list(asked)
    for request in arrivals:
        advance(request[0])
        if len(running) < SLOTS:
            admit(request)
        else:
            waiting.append(request)
    advance(now + 600)
    columns = np.array(ends) if ends else np.zeros((0, 5))
    sums = [np.concatenate(([0.0], np.cumsum(columns[:, i]))) for i in range(1, 5)]
    tpot, ttft, length, latency = sums
    return Served(
        columns[:, 0],
        tpot,
        ttft,
        length,
        latency,
        np.array([a[0] for a in arrivals]),
        np.array(admitted),
    )


def pod_speeds(rng: random.Random, minutes: int, constant: float, drift: float) -> list[float]:
    """A constant difference and one that drifts (0.8 from minute to minute), both as standard deviations."""
    own, now, speeds = (
        rng.gauss(0, constant) if constant else 0.0,
        rng.gauss(0, drift) if drift else 0.0,
        [],
    )
    for _ in range(minutes):
        speeds.append(math.exp(own + now))
        now = 0.8 * now + rng.gauss(0, drift * 0.6) if drift else 0.0
    return speeds


@dataclass(frozen=True)
class Case:
    """``rate`` of users' requests per second and baseline pod; ``copies``: the candidate is mirrored to instead of
    serving its share; ``constant`` and ``drift``: how pods of one manifest differ."""

    candidate: Engine = PLAIN
    rate: float = 1.0
    pods: int = 1
    copies: bool = False
    constant: float = 0.03
    drift: float = 0.0

    @property
    def total(self) -> float:
        """Users' requests per second: each pod of the split has ``rate``, so do the baseline's alone in a mirror."""
        return self.rate * (self.pods if self.copies else self.pods + 1)

    def arms(
        self, seed: int, seconds: float, share: Callable[[float], float]
    ) -> tuple[list[Served], Served]:
        """The baseline's pods and the candidate; ``share`` of the requests that the candidate gets at a time."""
        rng = random.Random(seed)
        actual_users = users(rng, self.total, seconds)
        lots: list[list[PlacementWishes]] = [[] for _ in range(self.pods)]
        ours: list[PlacementWishes] = []
        for request in actual_users:
            chosen = rng.random() < share(request[0])
            if chosen:
                ours.append(request)
            if self.copies or not chosen:
                rng.choice(lots).append(request)
        minutes = int(seconds / WINDOW_S) + 1

        def pod(of: list[PlacementWishes], engine: Engine) -> Served:
            return serve(of, engine, rng, pod_speeds(rng, minutes, self.constant, self.drift))

        return [pod(lot, PLAIN) for lot in lots], pod(ours, self.candidate)


@lru_cache(maxsize=64)
def at_speed(speed: float, rate: float, engine: Engine = SPECULATING) -> Engine:
    """The engine with the tokens per step at which its users see ``speed`` times the baseline's pace at equal load."""
    low, high = 0.3, 8.0
    for _ in range(12):
        middle = math.sqrt(low * high)
        case = Case(replace(engine, tokens=middle), rate, constant=0.0)
        (base,), cand = case.arms(7, 2400.0, lambda _: 0.5)
        seen = (base.tpot[-1] / len(base.ended)) / (cand.tpot[-1] / max(len(cand.ended), 1))
        low, high = (middle, high) if seen < speed else (low, middle)
    return replace(engine, tokens=math.sqrt(low * high))


def reading(at: float, base: Sequence[Served], cand: Served) -> ArmsReading:
    return ArmsReading(
        at,
        {f"pod-{i}": pod.counters(at) for i, pod in enumerate(base)},
        {"candidate": cand.counters(at)},
    )


@dataclass(frozen=True)
class Judged:
    """``requests`` on the candidate and ``seconds`` until the verdict."""

    outcome: Outcome
    requests: int
    seconds: float


def judged(case: Case, seed: int, policy: Policy = POLICY, planned: int = LOOKS) -> Judged:
    """Judge one simulated measurement at equal load per pod, window by window, as a rollout does."""
    length = max(policy.traffic_window_s, policy.traffic_window_requests / case.rate * 1.5)
    share = 1 / case.pods if case.copies else 1 / (case.pods + 1)
    base, cand = case.arms(seed, 90 + length * (planned + 2), lambda _: share)
    cutter = WindowCutter(policy.traffic_window_s, policy.traffic_window_requests, begins_at=60.0)
    windows: list[TrafficWindow] = []
    now, end, outcome = 0.0, 90 + length * (planned + 2), Outcome.UNDECIDED
    while now < end and len(windows) < planned:
        now += READ_S
        window = cutter.add(reading(now, base, cand))
        if window is None:
            continue
        windows.append(window)
        traffic = UsersTraffic(tuple(windows), planned, case.copies)
        outcome = verdict(traffic, policy)
        if outcome is not Outcome.UNDECIDED or is_hopeless(traffic, policy):
            break
    return Judged(outcome, int(sum(w.candidate.tpot_count or 0 for w in windows)), now)


def verdict(traffic: UsersTraffic, policy: Policy) -> Outcome:
    """The gate's, of these rules alone."""
    outcomes = {rule.outcome for rule in judge_traffic(traffic, policy)}
    if Outcome.FAIL in outcomes:
        return Outcome.REJECT
    return Outcome.PROMOTE if outcomes <= {Outcome.PASS, Outcome.SKIP} else Outcome.UNDECIDED


@dataclass(frozen=True)
class Harmed:
    """``slowed``: users' requests that went to the candidate until it was stopped; ``share``: in percent, at that time;
    None where it never was."""

    slowed: int
    share: int | None
    seconds: float


def harmed(case: Case, seed: int, policy: Policy = POLICY, *, limit_s: float = 5400.0) -> Harmed:
    """The ramp of a split: each share holds for 20 requests on the candidate and at least a minute, the last one for
    15 minutes."""
    shares = ramp(case.pods, case.total, 100 // (case.pods + 1))
    until, now, plan = 0.0, 0.0, []
    for share in shares:
        until = now + max(60.0, 20 / (case.total * share / 100))
        plan.append((until, share))
        now = until
    end = min(now + JUDGED_S, limit_s)

    def share_at(at: float) -> int:
        return next((share for until, share in plan if at < until), shares[-1])

    base, cand = case.arms(seed, end, lambda at: share_at(at) / 100)
    before, at, step = reading(0.0, base, cand), 0.0, shares[0]
    watch = HarmWatch(policy, steps=len(shares))
    while at < end:
        at += READ_S
        if (now_at := share_at(at - READ_S / 2)) != step:
            watch.begin_step()
            step = now_at
        after = reading(at, base, cand)
        if watch.add(between(before, after), after):
            return Harmed(int(np.searchsorted(cand.arrived, at)), step, at)
        before = after
    return Harmed(int(np.searchsorted(cand.arrived, at)), None, at)
