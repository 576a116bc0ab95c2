"""The engine that ``mpctl bench --spec`` runs side by side with a service."""

from contextlib import nullcontext
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from console import RecordingConsole

from mpctl import commands
from mpctl.app.bench.arms import open_side_by_side, running
from mpctl.app.bench_requests import BenchRequest
from mpctl.app.requests import SpeculationRequest
from mpctl.errors import Conflict
from mpctl.rollout.ports import Arm, ArmState, Endpoint, Phase, RetainedBaseline

RETAINED = RetainedBaseline("arm-old", "2026-01-01T00:00:00Z", "users", 1, 1)
READY = ArmState("arm-new", Phase.READY, endpoint=Endpoint("http://arm", "m"), matches=True)


class Platform:
    """One service; ``retained``: the retained baseline that each reading returns, one after the other."""

    def __init__(self, *retained, runs=False):
        self.retained, self.acted, self.running = list(retained), [], runs

    def retained_baseline(self):
        return self.retained.pop(0)

    def state(self, arm):
        return READY if self.running else ArmState(arm.id, Phase.ABSENT)

    def start(self, arm):
        self.acted.append("start")
        self.running = True

    def stop(self, arm):
        self.acted.append("stop")
        self.running = False


def session(platform, records=None):
    fields = {} if records is None else records
    store = SimpleNamespace(
        lease=lambda purpose: nullcontext(),
        entries=lambda: (),
        load=lambda operation, name: fields.get(name),
        save=lambda operation, name, record: fields.update({name: record}),
    )
    return SimpleNamespace(
        title="service ns/demo",
        name="demo",
        platform=platform,
        store=store,
        console=RecordingConsole(),
        command=lambda verb: commands.line(verb, "demo", namespace="ns"),
    )


def test_a_retained_baseline_is_a_conflict_before_anything_is_read_or_started():
    with pytest.raises(
        Conflict, match="service ns/demo has a retained baseline for an instant rollback"
    ) as caught:
        open_side_by_side(
            session(Platform(RETAINED)), None, BenchRequest(), SpeculationRequest("ngram")
        )
    assert caught.value.hint == "'mpctl retire demo -n ns' deletes it"


def started(platform, records=None):
    meter = SimpleNamespace(prepare=lambda: None, complete=lambda endpoint: None)
    clock = SimpleNamespace(now=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    context = SimpleNamespace(platform=platform, engines=platform, meter=meter, clock=clock)
    return running(session(platform, records), context, Arm("new"), 10.0)


def test_a_baseline_that_was_retained_since_the_first_check_stays():
    platform = Platform(RETAINED)
    with pytest.raises(Conflict, match="has a retained baseline"), started(platform):
        pass
    assert platform.acted == []


def test_the_engine_is_started_and_stopped():
    platform, records = Platform(None), {}
    with started(platform, records):
        assert platform.acted == ["start"]
        assert records == {f"started-{Arm('new').id}": {"running": True}}, (
            "recorded before it starts"
        )
    assert platform.acted == ["start", "stop"]
    assert records == {f"started-{Arm('new').id}": {"running": False}}


def test_an_engine_that_ran_before_is_not_stopped():
    platform = Platform(None, runs=True)
    with started(platform):
        pass
    assert platform.acted == ["start"]


def test_an_engine_that_a_killed_command_left_is_stopped():
    platform = Platform(None, runs=True)
    with started(platform, {f"started-{Arm('new').id}": {"running": True}}):
        pass
    assert platform.acted == ["start", "stop"]
