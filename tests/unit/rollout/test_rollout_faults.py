"""Faults that come from outside in the middle of a rollout: nothing is lost, the end is reported as it is, and one
command leads out. Real processes and a real API server are in tests/local and tests/cluster."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from fake_api import FakeApi
from world import BASELINE_TEXT, FASTER, MemoryWorld, plan

from mpctl.app.session.base import SystemClock
from mpctl.errors import MpctlError
from mpctl.platform.kubernetes.api.kinds import CONTROLLER_REVISION
from mpctl.platform.kubernetes.object_store import KubernetesStore
from mpctl.rollout import runner
from mpctl.rollout.ledger import Entry, Event, read_ledger
from mpctl.rollout.operation import Ending
from mpctl.rollout.plan import Strategy
from mpctl.rollout.ports import Arm

BASELINE = Arm(BASELINE_TEXT).id
both = pytest.mark.parametrize("strategy", Strategy)


def rollout(memory, strategy):
    return runner.run(memory.context, runner.open_plan(memory.context, plan(strategy)))


def at_block(memory, number, fault):
    """Let the fault happen before the block with this number."""
    blocks = []

    def watch(where):
        if where == "before run":
            blocks.append(where)
            if len(blocks) == number:
                fault()

    memory.watch = watch


@both
@pytest.mark.parametrize("number", [1, 2, 5])
def test_a_node_that_is_drained_while_measuring_ends_with_the_baseline(strategy, number):
    """The engine that is measured goes; whatever started it starts it again, with counters of its own."""
    memory = MemoryWorld(FASTER)

    def drain():
        for arm, engine in list(memory.disk.engines.items()):
            memory.disk.engines[arm] = replace(
                engine, counters=type(engine.counters)(generation_tokens=0.0)
            )
        raise MpctlError("no answer from the engine: its pod was evicted")

    at_block(memory, number, drain)
    done = rollout(memory, strategy)
    assert done.ending is Ending.FAILED
    assert "its pod was evicted" in done.detail
    assert memory.disk.text == BASELINE_TEXT
    assert list(memory.disk.engines) == [BASELINE]
    assert memory.endings() == ["failed", "rolled back"]


@both
def test_counters_that_go_backwards_are_named_and_decide_nothing(strategy):
    memory = MemoryWorld(FASTER)
    real, reads = memory.context.meter.counters, []

    def counters(endpoint):
        reads.append(endpoint)
        found = real(endpoint)
        backwards = len(reads) % 2 == 0
        return replace(found, generation_tokens=-1.0) if backwards else found

    memory.context.meter.counters = counters
    done = rollout(memory, strategy)
    assert done.ending is not Ending.PROMOTED
    assert "generation_tokens" in done.detail or "counter" in done.detail, done.detail
    assert memory.disk.text == BASELINE_TEXT
    assert list(memory.disk.engines) == [BASELINE]


@pytest.mark.parametrize(
    "jump", [timedelta(days=1), timedelta(days=-1)], ids=["forward", "backward"]
)
def test_a_clock_that_is_set_ends_no_wait_and_prolongs_none(monkeypatch, jump):
    class Set(datetime):
        moved = timedelta()

        @classmethod
        def now(cls, tz=None):
            return datetime(2026, 1, 1, tzinfo=UTC) + cls.moved

    seconds = [100.0]
    monkeypatch.setattr("mpctl.app.session.base.datetime", Set)
    monkeypatch.setattr("time.clock_gettime", lambda _clock: seconds[0])
    clock = SystemClock()
    began = clock.now()
    Set.moved, seconds[0] = jump, 105.0
    assert clock.now() - began == timedelta(seconds=5)


def newer(memory):
    """What a newer mpctl appends: a format that this one does not know."""
    last = memory.disk.ledger[-1]
    entry = Entry.after(
        last,
        at=memory.context.clock.now(),
        operation="rollout-9",
        event=Event.OPENED,
        who="new@there",
    )
    return {**entry.to_record(), "format": entry.format + 1}


def test_a_ledger_that_a_newer_mpctl_continued_is_refused_by_name_on_both_platforms():
    memory = MemoryWorld(FASTER)
    assert rollout(memory, Strategy.SIDE_BY_SIDE).ending is Ending.PROMOTED
    lines = [entry.to_line() for entry in memory.disk.ledger]
    text = "\n".join([*lines, json.dumps(newer(memory))]) + "\n"
    with pytest.raises(MpctlError, match=rf"ledger.jsonl:{len(lines) + 1}: .*newer mpctl"):
        read_ledger(text, where="ledger.jsonl")
    api = FakeApi()
    store = KubernetesStore(api, "chat", "svc", "old@here")
    for entry in memory.disk.ledger:
        store.append(entry)
    number = len(lines) + 1
    labels = {
        "mpctl.dev/service": "svc",
        "mpctl.dev/part": "ledger",
        "app.kubernetes.io/managed-by": "mpctl",
    }
    metadata = {"name": f"mpctl-svc.ledger-{number}", "labels": labels}
    api.create(
        CONTROLLER_REVISION, {"metadata": metadata, "revision": number, "data": newer(memory)}
    )
    with pytest.raises(MpctlError, match=rf"mpctl-svc.ledger-{number}: .*newer mpctl"):
        store.entries()
