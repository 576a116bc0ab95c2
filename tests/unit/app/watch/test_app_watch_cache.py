"""A lost prefix cache on a promoted service in memory: from its condition to the fallback."""

from __future__ import annotations

from dataclasses import replace

from session import MANIFEST
from watched import ACTS, Engine, promoted, rounds, watch

from mpctl.app.session.base import EngineCounters
from mpctl.app.watch import exposition
from mpctl.experiment.counters import CacheUse
from mpctl.rollout.plan import Kind
from mpctl.watch.assessment import Signal
from mpctl.watch.reference import RECORD, MeanFigure, Reference
from mpctl.watch.watch_policy import WatchPolicy


class Caching(Engine):
    """An engine that has ``held`` of the 2,300 tokens of each prompt from its cache, with 50 requests in a reading."""

    def __init__(self):
        super().__init__()
        self.held, self.requests, self.hits = 2100.0, 0.0, 0.0

    def read(self):
        (counters,) = super().read().engines.values()
        self.requests += 50.0
        self.hits += 50.0 * self.held
        counted = {"prefix_queries": 2300.0 * self.requests, "prefix_hits": self.hits}
        counters = replace(counters, queue_count=self.requests, **counted)
        return EngineCounters({"engine": counters}, {}, 1)


def service(policy):
    cache = CacheUse(1000.0, 2_300_000.0, 2_100_000.0)
    session = promoted(engine=Caching())
    reference = Reference.from_record(session.store.load("rollout-1", RECORD))
    session.store.save_all("rollout-1", {RECORD: replace(reference, cache=cache).to_record()})
    watcher, events = watch(session, policy=policy)
    rounds(watcher, 60)
    (watched,) = watcher.watched.values()
    return session, watcher, events, watched


def condition(watched):
    return {c["type"]: c for c in exposition.conditions(watched)}["CacheKept"]


def test_a_lost_cache_is_an_event_a_condition_a_metric_and_a_fallback():
    session, watcher, events, watched = service(ACTS)
    assert (condition(watched)["status"], events) == ("True", [])
    session.engine.held = 452.0
    rounds(watcher, 10)
    assert [e.reason for e in events][:2] == ["CacheLost", "FellBack"]
    assert "speculation forgets 1,648 of 2,100 cached tokens a request" in events[0].text
    assert (events[0].finding, events[0].reference) == (True, "rollout-1")
    assert session.memory.disk.text == MANIFEST
    assert session.memory.operations()[-1].plan.kind is Kind.ROLLBACK


def test_without_a_policy_it_is_only_reported():
    session, watcher, events, watched = service(WatchPolicy())
    session.engine.held = 0.0
    rounds(watcher, 10)
    assert [e.reason for e in events] == ["CacheLost"]
    assert events[0].command == "mpctl rollback svc -n chat"
    assert (condition(watched)["status"], condition(watched)["reason"]) == ("False", "CacheLost")
    assert 'signal="CacheLost"' in exposition.metrics(watcher)
    assert session.memory.disk.text != MANIFEST


def test_traffic_that_the_watch_knows_to_differ_is_not_compared():
    session, watcher, events, watched = service(WatchPolicy())
    reference = watched.facts.reference
    bands = tuple(replace(band, tokens_per_step=MeanFigure(1.1)) for band in reference.bands)
    watched.facts = replace(watched.facts, reference=replace(reference, bands=bands))
    session.store.save_all("rollout-1", {RECORD: watched.facts.reference.to_record()})
    session.engine.held = 0.0  # while no text was ever foreseen so well: answers may loop
    rounds(watcher, 30)
    assert [e.reason for e in events] == ["TrafficChanged"]
    assert watched.assessment.signal is Signal.HEALTHY
    assert condition(watched)["status"] == "Unknown"
    assert condition(watched)["message"] == "other traffic than the gate measured"
