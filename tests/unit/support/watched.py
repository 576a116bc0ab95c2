"""Services in memory that were promoted behind the gate, with the counters that a test of the watch wants."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from datetime import timedelta
from functools import cache

from session import MemorySession

from mpctl.app.operate import rollout
from mpctl.app.requests import MeasurementRequest, RolloutRequest, SpeculationRequest
from mpctl.app.session.base import EngineCounters
from mpctl.app.watch.watcher import Watcher
from mpctl.errors import MpctlError
from mpctl.experiment.answers import Answer
from mpctl.experiment.counters import Counters
from mpctl.rollout.operation import Ending
from mpctl.watch.watch_policy import WatchPolicy

QUICK = MeasurementRequest(requests=5, rounds=6)
ASKED = RolloutRequest(SpeculationRequest("ngram"), QUICK)
ACTS = WatchPolicy(fall_back=True, confirm_s=0.0, cool_down_s=600.0)
GOOD, BAD = 1.0, 0.0
TOKENS = (5, 6, 7, 8, 9, 10, 11, 12)  # of every answer, as in a measurement


class Here(Executor):
    """Runs at once, in this thread; a Crash ends the test's command. It reads as :class:`Readers` do, and in time."""

    deadline_s = 0.0

    def submit(self, call, /, *arguments):
        done = Future()
        try:
            done.set_result(call(*arguments))
        except Exception as error:  # noqa: BLE001 - as a thread's
            done.set_exception(error)
        return done

    def read(self, what, work, sessions):
        return {(session.namespace, session.name): work(session) for session in sessions}

    def read_anew(self, work, session):
        return work(session)

    def close(self):
        pass


class Engine:
    """Counters of a service whose drafts are ``share`` of the measured ones, of which it ``accepts`` a share;
    ``speculates``: exports them at all."""

    def __init__(self):
        self.share, self.speculates, self.generated, self.drafts, self.why = (
            GOOD,
            True,
            0.0,
            0.0,
            "",
        )
        self.accepts, self.accepted = 1.0, 0.0
        self.wrong, self.poisoned, self.asked, self.odd = False, False, [], 0

    def read(self):
        if self.why:
            raise MpctlError(self.why)
        self.generated += 10_000.0
        drafts = 5_000.0 * self.share
        self.drafts += drafts
        self.accepted += self.accepts * drafts
        spec = {
            "drafts": self.drafts,
            "draft_tokens": 2 * self.drafts,
            "accepted": self.accepted,
            "per_position": (self.accepted,),
        }
        queue = {"queue_seconds": 0.0, "queue_count": self.generated / 10}
        counters = Counters(
            self.generated, started=1.0, **queue, **(spec if self.speculates else {})
        )
        return EngineCounters({"engine": counters}, {}, 1)

    def answer(self, salt, alternatives):
        """Eight tokens that are far from every tie; other ones where the engine is wrong, or its cache, or for the next
        ``odd`` requests."""
        self.asked.append((bool(salt), alternatives))
        self.odd -= 1
        wrong = self.wrong or (self.poisoned and not salt) or self.odd >= 0
        tokens = (99, *TOKENS[1:]) if wrong else TOKENS
        rows = tuple({token: 0.0, 1: -12.0} for token in tokens) if alternatives else ()
        return Answer((1, 2), tokens, "text", finish="stop", alternatives=rows)


class Service(MemorySession):
    def __init__(self, *, name="svc", engine=None, **more):
        super().__init__(**more)
        self.name, self.engine = name, engine or Engine()

    def counters(self):
        return self.engine.read()

    def ask(self, asks, *, salt="", alternatives=0, turn=0):
        return tuple(self.engine.answer(salt, alternatives) for _ in asks)

    def later(self):
        """Another command on the same service, at the same time of day."""
        other = Service(name=self.name, engine=self.engine, disk=self.memory.disk)
        other.memory.context.clock._now = self.memory.context.clock.now()
        return other


@cache
def disk_after_promotion():
    session = MemorySession()
    assert rollout.run(session, ASKED).operation.ending is Ending.PROMOTED
    return session.memory.disk


def promoted(**more):
    session = Service(disk=disk_after_promotion().copy(), **more)
    session.memory.context.clock.sleep(3600.0)
    return session


def watch(*sessions, policy=ACTS, readers=None):
    """A watch and its events; every round takes an interval of the services' clock."""
    events = []
    clock = sessions[0].memory.context.clock

    def now():
        return clock.now().timestamp()

    watcher = Watcher(
        policy, lambda: sessions, lambda s: s, events.append, monotonic=now, now=now, actors=Here()
    )
    watcher.readers = readers or Here()
    return watcher, events


def rounds(watcher, count=1):
    for _ in range(count):
        for watched in watcher.watched.values():
            clock = watched.session.memory.context.clock
            clock._now += timedelta(seconds=watcher.policy.interval_s)
        watcher.round()
