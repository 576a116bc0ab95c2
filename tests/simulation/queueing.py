"""Simulated vLLM-like pods under a changing load, scaled by a metric: behind scripts/figures/autoscaling-table.md.

Each pod has a fixed number of slots (``--max-num-seqs``) and its own first-in-first-out queue; requests come as a
Poisson stream and go to a random ready pod, as behind a Service, and stay there. Service times are log-normal. Pods
are scraped every 10 s; the metrics are computed from those scrapes in the way the Prometheus rules do, so they are
as late and as blind as in production. The autoscaler is `tests.simulation.hpa`. Everything follows from the seed.

Not modelled: batching that slows decoding, prefill, preemption, failures, nodes that have to be added first.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from tests.simulation.hpa import Behavior, History, Limits, Policy, desired_replicas

SCRAPE_S, SYNC_S, WINDOW_S = 10.0, 15.0, 60.0


@dataclass(frozen=True)
class Workload:
    """``mean_s`` seconds in a slot, on average; ``spread`` is the log-normal's sigma."""

    name: str
    mean_s: float
    spread: float = 0.6
    slots: int = 16


@dataclass(frozen=True)
class Scenario:
    workload: Workload
    pods: int = 2
    utilisation: float = 0.6
    factor: float = 3.0
    step_at_s: float = 900.0
    step_for_s: float = 2700.0
    length_s: float = 5400.0
    start_s: float = 150.0
    slo_ms: float = 8000.0
    maximum: int = 8
    minimum: int | None = None
    settle_s: float = 0.0
    """What is counted begins here: a constant load is judged after its start."""
    swing_s: float | None = None
    """Period of a load that swings between the base and *factor* times the base, in place of the step."""
    burst_s: tuple[float, float] | None = None
    """Length and period of bursts of *factor* times the base, in place of the step."""

    @property
    def base_rate(self) -> float:
        return self.utilisation * self.pods * self.workload.slots / self.workload.mean_s

    def rate(self, now: float) -> float:
        if self.swing_s:
            high = (1 - math.cos(2 * math.pi * now / self.swing_s)) / 2
            return self.base_rate * (1 + high * (self.factor - 1))
        if self.burst_s:
            length, period = self.burst_s
            return self.base_rate * (self.factor if now % period >= period - length else 1.0)
        raised = self.step_at_s <= now < self.step_at_s + self.step_for_s
        return self.base_rate * (self.factor if raised else 1.0)

    @property
    def pods_needed(self) -> int:
        return math.ceil(self.base_rate * self.factor * self.workload.mean_s / self.workload.slots)


@dataclass
class Pod:
    born: float
    ready: float
    slots: int
    waiting: deque[float] = field(default_factory=deque)
    running: int = 0
    leaving: bool = False
    gone: float | None = None
    finished: int = 0
    finished_wait_s: float = 0.0
    admitted: int = 0
    # (time, waiting, finished, finished_wait_s, admitted, running) of the scrapes in the window
    scrapes: deque[tuple[float, int, int, float, int, int]] = field(default_factory=deque)

    def scrape(self, now: float) -> None:
        self.scrapes.append(
            (
                now,
                len(self.waiting),
                self.finished,
                self.finished_wait_s,
                self.admitted,
                self.running,
            )
        )
        while self.scrapes[0][0] < now - WINDOW_S:
            self.scrapes.popleft()

    @property
    def recent(self) -> list[tuple[float, int, int, float, int, int]]:
        """The scrapes of a Prometheus window, which leaves its oldest end out."""
        return [scrape for scrape in self.scrapes if scrape[0] > self.scrapes[-1][0] - WINDOW_S]


Metric = Callable[[Pod], float]


def queue_wait_ms(pod: Pod) -> float:
    """The recording rule of manifests/monitoring/prometheusrule-queue-wait.yaml over the same scrapes."""
    first, last = pod.scrapes[0], pod.scrapes[-1]
    finished, wait_s = last[2] - first[2], last[3] - first[3]
    rate = (last[4] - first[4]) / max(last[0] - first[0], SCRAPE_S)
    standing = min(scrape[1] for scrape in pod.recent)
    return 1000 * max(wait_s / finished if finished else 0.0, standing / max(rate, 1 / WINDOW_S))


def busy_ratio(pod: Pod) -> float:
    """engine_busy_ratio of the same file: running and waiting requests a slot, as a mean over a minute. The KV cache
    is not modelled."""
    return sum(scrape[1] + scrape[5] for scrape in pod.recent) / len(pod.recent) / pod.slots


def requests_waiting(pod: Pod) -> float:
    return float(pod.scrapes[-1][1])


def running_and_waiting(pod: Pod) -> float:
    """What recipes for KEDA and GKE scale on: the requests in a pod at its last scrape."""
    return float(pod.scrapes[-1][1] + pod.scrapes[-1][5])


def cpu_percent(pod: Pod) -> float:
    """Of two requested cores: an engine core that spins while anything runs, and 10 % of a core around it.

    The engine works on the GPU; its CPU use says that there is work, not how much (assumed, not measured)."""
    busy = sum(1 for scrape in pod.scrapes if scrape[5]) / len(pod.scrapes)
    return 100 * (0.1 + busy) / 2


@dataclass(frozen=True)
class Autoscaler:
    """``busy`` and ``hold``: targets of engine_busy_ratio and of engine_hold_ratio, None without them."""

    name: str
    metric: Metric
    target: float
    behavior: Behavior = field(default_factory=Behavior)
    busy: float | None = None
    hold: float | None = None

    def others(self, pods: list[Pod]) -> list[tuple[list[float | None], float]]:
        """Values of the further metrics, a pod without a scrape has none, and their targets."""
        ratios = [busy_ratio(pod) if pod.scrapes else None for pod in pods]
        items = [] if self.busy is None else [(ratios, self.busy)]
        actual_ratios = [ratio for ratio in ratios if ratio is not None]
        if self.hold is not None and actual_ratios:
            smallest = min(sum(actual_ratios) / len(actual_ratios), self.hold)
            items.append(([None if ratio is None else smallest for ratio in ratios], self.hold))
        return items


@dataclass(frozen=True)
class Result:
    """Times are seconds after the step, None for never; shares are of the requests that arrived during the run."""

    ordered_s: float | None
    enough_s: float | None
    over_slo: float
    requests: int
    gpu_hours: float
    most_pods: int
    scale_downs: int
    mean_pods: float


class Run:
    """One simulated run; `result` is the only thing to call."""

    def __init__(self, scenario: Scenario, autoscaler: Autoscaler, seed: int) -> None:
        self.scenario, self.autoscaler = scenario, autoscaler
        self.random = random.Random(seed)
        self.order = count()
        self.events: list[tuple[float, int, Callable[[float], None]]] = []
        self.pods = [Pod(0.0, 0.0, scenario.workload.slots) for _ in range(scenario.pods)]
        self.all_pods = list(self.pods)
        self.history = History()
        self.requests = self.late = self.scale_downs = 0
        self.ordered_s: float | None = None
        self.enough_s: float | None = None

    def at(self, when: float, what: Callable[[float], None]) -> None:
        if when <= self.scenario.length_s:
            heapq.heappush(self.events, (when, next(self.order), what))

    def result(self) -> Result:
        self.at(0.0, self.arrive)
        self.at(SCRAPE_S, self.scrape)
        self.at(SYNC_S, self.sync)
        while self.events:
            now, _, what = heapq.heappop(self.events)
            what(now)
        end = self.scenario.length_s
        for pod in self.all_pods:
            self.late += sum(
                1 for arrived in pod.waiting if 1000 * (end - arrived) > self.scenario.slo_ms
            )
        lives = [(pod.born, end if pod.gone is None else pod.gone) for pod in self.all_pods]
        seconds = sum(gone - born for born, gone in lives)
        settled = sum(max(0.0, gone - max(born, self.scenario.settle_s)) for born, gone in lives)
        most = max(
            sum(1 for p in self.all_pods if p.born <= q.born < (p.gone or end + 1))
            for q in self.all_pods
        )
        return Result(
            self.ordered_s,
            self.enough_s,
            self.late / max(self.requests, 1),
            self.requests,
            seconds / 3600,
            most,
            self.scale_downs,
            settled / (end - self.scenario.settle_s),
        )

    def arrive(self, now: float) -> None:
        self.requests += now >= self.scenario.settle_s
        ready = [pod for pod in self.pods if pod.ready <= now]
        pod = self.random.choice(ready)
        pod.waiting.append(now)
        self.admit(pod, now)
        self.at(now + self.random.expovariate(self.scenario.rate(now)), self.arrive)

    def admit(self, pod: Pod, now: float) -> None:
        work = self.scenario.workload
        while pod.waiting and pod.running < pod.slots:
            waited = now - pod.waiting.popleft()
            pod.running += 1
            pod.admitted += 1
            if now - waited >= self.scenario.settle_s:
                self.late += 1000 * waited > self.scenario.slo_ms
            service = self.random.lognormvariate(
                math.log(work.mean_s) - work.spread**2 / 2, work.spread
            )
            self.at(
                now + service, lambda then, pod=pod, waited=waited: self.finish(pod, waited, then)
            )  # type: ignore[misc]

    def finish(self, pod: Pod, waited: float, now: float) -> None:
        pod.running -= 1
        pod.finished += 1
        pod.finished_wait_s += waited
        self.admit(pod, now)
        if pod.leaving and not pod.running:
            pod.gone = now

    def scrape(self, now: float) -> None:
        for pod in self.pods:
            if pod.ready <= now:
                pod.scrape(now)
        self.at(now + SCRAPE_S, self.scrape)

    def sync(self, now: float) -> None:
        values = [self.autoscaler.metric(pod) if pod.scrapes else None for pod in self.pods]
        limits = Limits(
            self.autoscaler.target,
            self.scenario.minimum or self.scenario.pods,
            self.scenario.maximum,
            self.autoscaler.behavior,
        )
        others = self.autoscaler.others(self.pods)
        wanted, self.history = desired_replicas(now, values, limits, self.history, others)
        if now >= self.scenario.settle_s and wanted < len(self.pods):
            self.scale_downs += 1
        since = now - self.scenario.step_at_s
        if since >= 0 and wanted > len(self.pods) and self.ordered_s is None:
            self.ordered_s = since
        for _ in range(wanted - len(self.pods)):
            pod = Pod(now, now + self.scenario.start_s, self.scenario.workload.slots)
            self.pods.append(pod)
            self.all_pods.append(pod)
        for _ in range(len(self.pods) - wanted):
            self.leave(self.pods.pop(), now)
        if since >= 0 and self.enough_s is None:
            ready = sum(1 for pod in self.pods if pod.ready <= now)
            self.enough_s = since if ready >= self.scenario.pods_needed else None
        self.at(now + SYNC_S, self.sync)

    def leave(self, pod: Pod, now: float) -> None:
        """A pod that is told to stop takes nothing new and finishes what it has."""
        pod.leaving = True
        if not pod.running:
            pod.gone = now


# Kubernetes' own defaults, and so KEDA's: no stabilisation upwards, the larger of 100 % and 4 pods each 15 s; 300 s
# downwards.
DEFAULT = Behavior(
    0, (Policy(15, percent=100), Policy(15, pods=4)), 300, (Policy(15, percent=100),)
)

AUTOSCALERS = (
    Autoscaler("cpu 80 %", cpu_percent, 80.0),
    Autoscaler("num_requests_waiting 5", requests_waiting, 5.0),
    Autoscaler("queue_wait_ms 1400", queue_wait_ms, 1400.0),
    Autoscaler("as shipped", queue_wait_ms, 1400.0, busy=0.85, hold=0.6),
)
# serving.services[].autoscaling for few, long requests: a queued request of 40 s in one of 16 slots is a wait of 2.5 s.
LONG_REQUESTS = Autoscaler(
    "wait_ms 2500, busy 0.75, hold 0.5", queue_wait_ms, 2500.0, busy=0.75, hold=0.5
)
# For fewest pods: the requests that run and wait, alone. A pod goes when the others would be at most 74 % full then.
FEWEST = Autoscaler(
    "wait_ms 600000, busy 0.75, hold 0.74", queue_wait_ms, 600_000.0, busy=0.75, hold=0.74
)
# What others use: 13 of 16 slots, with KEDA's default windows and with those of this repository.
RIVALS = (
    Autoscaler("running + waiting 13, KEDA's windows", running_and_waiting, 13.0, DEFAULT),
    Autoscaler("running + waiting 13, our windows", running_and_waiting, 13.0),
)

WORKLOADS = (Workload("chat, 5 s", 5.0), Workload("documents, 40 s", 40.0))
