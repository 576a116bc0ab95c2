"""A platform in memory that replaces serving engines by itself (as KServe does), with an autoscaler, a route of the
users', and one more arm beside the service. See ``world`` for what a boundary is.

Left out: gateways (a share of the route holds at once), pods (an arm is one engine), drains.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from world import SLOWER, Crash, Disk, Engine, MemoryPlatform, MemoryWorld

from mpctl.errors import Conflict
from mpctl.gate.rule import Outcome
from mpctl.gate.verdict import Verdict
from mpctl.rollout import runner, sequences
from mpctl.rollout.operation import NoResult
from mpctl.rollout.ports import Arm, ArmState, Live, Phase, RetainedBaseline
from mpctl.rollout.steps.measure import JudgementResult

FOUND = {"min": 1, "max": 5}


def held(replicas):
    return {"min": replicas, "max": replicas}


HELD = held(2)
SCALING = {"replicas": 2, "limits": FOUND}
ROUTE = {"name": "users", "spec": "as found"}
BESIDE = "beside"


@dataclass
class RollingDisk(Disk):
    """``pods``: what the autoscaler keeps there; ``share``: percent of the route that the arm beside gets; ``copied``:
    percent of the requests that it gets copies of; ``edited``: somebody else wrote the route; ``kept``: the arm beside
    is an old one that stays; ``sent``: routed shares, one after the other."""

    limits: dict = field(default_factory=lambda: dict(FOUND))
    pods: int = 2
    share: int = 0
    copied: int = 0
    edited: bool = False
    kept: bool = False
    sent: list = field(default_factory=list)

    def copy(self):
        return RollingDisk(
            **{k: v.copy() if hasattr(v, "copy") else v for k, v in self.__dict__.items()}
        )


class RollingPlatform(MemoryPlatform):
    """The live text has an engine of its own; an old one goes when the new one is seen ready."""

    replaces_pods_itself = True
    scaler = router = property(lambda self: self)

    @property
    def behaviours(self):
        return self._world.behaviours

    @property
    def disk(self):
        return self._world.disk

    def read(self):
        self._world.boundary("read")
        return Live("svc", "chat", self.disk.text, "v", Arm(self.disk.text).id)

    def promote(self, arm, *, expect, downtime=False, candidate_serves=False):
        disk = self.disk
        with self._world.acting("promote"):
            if disk.text == arm.manifest:
                return
            if disk.text not in {known.manifest for known in expect}:
                raise Conflict("service chat/svc was changed by somebody else meanwhile")
            if not candidate_serves:
                self._remove_beside()
            for other in [i for i in disk.engines if i not in (disk.routed, BESIDE)]:
                del disk.engines[other]  # of a change that was taken back before it was ready
            self._world.boundary("amid promote")
            disk.text = arm.manifest
            self._start(arm)

    def replace(self, arm, *, expect, downtime):
        self.promote(arm, expect=expect, downtime=downtime)

    def start(self, arm):
        with self._world.acting("start"):
            if self.disk.text != arm.manifest:
                self._start_beside(arm, kept=False)

    def start_retained(self, arm, route):
        assert route == ROUTE
        with self._world.acting("start_retained"):
            self._start_beside(arm, kept=True)

    def retained_baseline(self):
        beside = self.disk.engines.get(BESIDE)
        if beside is None or not self.disk.kept:
            return None
        ready = int(beside.phase is Phase.READY)
        return RetainedBaseline(Arm(beside.manifest).id, "2026-01-01T00:00:00Z", "users", ready, 1)

    def state(self, arm):
        self._world.boundary("state")
        disk = self.disk
        if arm.manifest != disk.text:
            beside = disk.engines.get(BESIDE)
            if beside is None or beside.manifest != arm.manifest:
                return ArmState(arm.id, Phase.ABSENT)
            self._world.users_ask()
            return self._state(arm.id, BESIDE)
        state = self._state(arm.id, arm.id)
        if state.phase is Phase.READY and disk.routed != arm.id:
            disk.engines.pop(disk.routed, None)
            disk.routed = arm.id
        return state

    def stop_all_except(self, arm):
        with self._world.acting("stop_all_except"):
            disk = self.disk
            beside = disk.engines.get(BESIDE)
            if beside is not None and (
                beside.manifest != arm.manifest or disk.text == arm.manifest
            ):
                self._remove_beside()

    def stop(self, arm):
        with self._world.acting("stop"):
            beside = self.disk.engines.get(BESIDE)
            if beside is not None and beside.manifest == arm.manifest:
                self._remove_beside()

    def scaling(self):
        return {"replicas": self.disk.pods, "limits": dict(self.disk.limits)}

    def pin(self, scaling):
        with self._world.acting("pin"):
            if self.disk.limits == scaling["limits"]:
                self.disk.limits = held(scaling["replicas"])
                self.disk.pods = scaling["replicas"]

    def unpin(self, scaling):
        with self._world.acting("unpin"):
            if self.disk.limits not in (held(scaling["replicas"]), scaling["limits"]):
                return ("the autoscaler was changed meanwhile and is left as it is",)
            self.disk.limits = dict(scaling["limits"])
        return ()

    def shift(self, route, percent):
        assert route == ROUTE
        with self._world.acting("shift"):
            if self.disk.edited:
                raise Conflict("HTTPRoute users was changed by somebody meanwhile")
            self.disk.share, self.disk.copied = percent, 0
            self.disk.sent.append(percent)

    def require_shifted(self, route, percent):
        self._world.boundary("route")
        if self.disk.edited or self.disk.share != percent:
            raise Conflict("HTTPRoute users was changed by somebody meanwhile")

    def mirror(self, route, percent):
        assert route == ROUTE
        with self._world.acting("mirror"):
            if self.disk.edited:
                raise Conflict("HTTPRoute users was changed by somebody meanwhile")
            self.disk.copied = percent

    def require_mirrored(self, route, percent):
        self._world.boundary("route")
        if self.disk.edited or self.disk.copied != percent:
            raise Conflict("HTTPRoute users was changed by somebody meanwhile")

    def counters(self, arm):
        self._world.boundary("counters of pods")
        engine = self.disk.engines.get(arm.id)
        return {} if engine is None else {"pod-1": engine.counters}

    def unshift(self, route):
        assert route == ROUTE
        with self._world.acting("unshift"):
            if self.disk.edited and (self.disk.share or self.disk.copied):
                raise Conflict(
                    "HTTPRoute users was changed; it gives Service svc-candidate-predictor traffic"
                )
            if self.disk.edited:
                return ("HTTPRoute users was changed by somebody meanwhile; it is left as it is",)
            self.disk.share = self.disk.copied = 0
        return ()

    def _start_beside(self, arm, *, kept):
        disk = self.disk
        beside = disk.engines.get(BESIDE)
        same = beside is not None and beside.manifest == arm.manifest and disk.kept is kept
        if same and beside.phase is not Phase.FAILED:
            return
        self._remove_beside()
        self._world.boundary("amid start")
        disk.engines[BESIDE], disk.kept = Engine(arm.manifest), kept

    def _remove_beside(self):
        if BESIDE in self.disk.engines:
            if self.disk.share or self.disk.copied:
                raise Conflict("HTTPRoute users gives Service svc-candidate-predictor traffic")
            del self.disk.engines[BESIDE]
            self.disk.kept = False


def left_out(context, operation):
    return NoResult()


def leave_out_the_measurement(monkeypatch, **acts):
    """The gate says what the behaviours are made for. ``acts``: other steps that act otherwise, by their name."""

    def judged(context, operation):
        outcome = Outcome.REJECT if context.platform.behaviours is SLOWER else Outcome.PROMOTE
        return JudgementResult(Verdict(outcome, (), summary="as the test wants"))

    acts = {"measure": left_out, "judge": judged, **acts}

    def sequence(plan, *, replaces_pods):
        steps = sequences.sequence(plan, replaces_pods=replaces_pods)
        return tuple(
            replace(step, act=acts.get(step.name.partition("-")[0], step.act)) for step in steps
        )

    monkeypatch.setattr(runner, "sequence", sequence)


class RollingWorld(MemoryWorld):
    """``accepted`` of 100 draft tokens at the first position: what users' traffic gets out of the arm beside.
    ``falls_at``: the share at which that arm's engine ends. ``copy_ms``: its time per output token on users' requests
    and copies of them; the serving arm takes 10."""

    def __init__(self, behaviours, disk=None, *, accepted=80, falls_at=None, copy_ms=6):
        super().__init__(behaviours, disk or RollingDisk())
        self.accepted, self.falls_at, self.copy_ms = accepted, falls_at, copy_ms
        self.context = replace(self.context, platform=RollingPlatform(self))

    def again(self):
        fields = {"accepted": self.accepted, "falls_at": self.falls_at, "copy_ms": self.copy_ms}
        return RollingWorld(self.behaviours, self.disk.copy(), **fields)

    def users_ask(self):
        """A hundred steps of an engine that gets users' traffic, each with a draft of one token."""
        beside = self.disk.engines[BESIDE]
        if not (self.disk.share or self.disk.copied) or beside.phase is not Phase.READY:
            return
        if self.falls_at is not None and self.disk.share >= self.falls_at:
            self.disk.engines[BESIDE] = replace(beside, phase=Phase.FAILED)
            return
        old = beside.counters
        drafts, accepted = (old.drafts or 0) + 100, (old.accepted or 0) + self.accepted
        counters = replace(
            old,
            generation_tokens=(old.generation_tokens or 0) + 100 + self.accepted,
            drafts=drafts,
            draft_tokens=(old.draft_tokens or 0) + 100,
            accepted=accepted,
            per_position=(accepted,),
            **self.served(old, self.copy_ms),
        )
        self.disk.engines[BESIDE] = replace(beside, counters=counters)
        engine = self.disk.engines[self.disk.routed]
        grown = {
            "generation_tokens": (engine.counters.generation_tokens or 0) + 180,
            **self.served(engine.counters, 10),
        }
        self.disk.engines[self.disk.routed] = replace(
            engine, counters=replace(engine.counters, **grown)
        )

    def served(self, old, per_token_ms):
        """Ten requests more, each with this time per output token, and one that is aborted."""
        times = {
            "unfinished": (old.unfinished or 0) + 1,
            "tpot_count": (old.tpot_count or 0) + 10,
            "tpot_seconds": (old.tpot_seconds or 0) + 10 * per_token_ms / 1000,
        }
        if not self.disk.copied:
            return times
        first = {
            "ttft_count": (old.ttft_count or 0) + 10,
            "ttft_seconds": (old.ttft_seconds or 0) + 0.5,
        }
        return {**times, **first}


def guard(memory):
    """At every moment whoever gets traffic is there and ready; an arm with traffic that fell over is at least there."""

    def watch(where):
        disk = memory.disk
        if disk.share < 100:
            serving = disk.engines.get(disk.routed)
            assert serving is not None, f"{where}: nothing serves"
            assert serving.phase is Phase.READY, f"{where}: nothing serves"
        if disk.share and not disk.edited:
            beside = disk.engines.get(BESIDE)
            assert beside is not None, f"{where}: {disk.share} % of the traffic finds nobody"
            assert beside.phase is Phase.READY or memory.falls_at is not None, (
                f"{where}: it does not serve"
            )

    memory.watch = watch
    return memory


def crashes(behaviours, act, **world) -> Iterator[tuple[int, RollingWorld]]:
    """What is left after a death at every boundary of ``act``."""
    boundary = 0
    while True:
        boundary += 1
        memory = guard(RollingWorld(behaviours, **world))
        memory.die_at(boundary)
        try:
            act(memory)
        except Crash:
            yield boundary, memory
        else:
            return
