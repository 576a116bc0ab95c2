"""What ``mpctl bench --spec`` may start beside a service."""

from contextlib import nullcontext
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from mpctl.cli.bench.targets import _beside, _started
from mpctl.errors import Conflict
from mpctl.rollout.ports import Arm, ArmState, Endpoint, Phase, RetainedBaseline

KEPT = RetainedBaseline("arm-old", "2026-01-01T00:00:00Z", "users", 1, 1)
READY = ArmState("arm-new", Phase.READY, endpoint=Endpoint("http://arm", "m", ""), matches=True)


class Platform:
    """One service; ``kept``: what each look finds beside it, one after the other."""

    def __init__(self, *kept):
        self.looks, self.acted, self.running = list(kept), [], False

    def retained_baseline(self):
        return self.looks.pop(0)

    def state(self, arm):
        return READY if self.running else ArmState(arm.id, Phase.ABSENT)

    def start(self, arm):
        self.acted.append("start")
        self.running = True

    def stop(self, arm):
        self.acted.append("stop")
        self.running = False


def session(platform):
    records = {}
    store = SimpleNamespace(
        lease=lambda purpose: nullcontext(),
        entries=lambda: (),
        load=lambda operation, name: records.get(name),
        save=lambda operation, name, record: records.update({name: record}),
    )
    terminal = SimpleNamespace(step=lambda name, detail: None)
    return SimpleNamespace(title="service ns/demo", name="demo", platform=platform, store=store, console=terminal)


def test_a_kept_engine_stays_and_nothing_is_read_or_started():
    with pytest.raises(Conflict, match="arm-old is kept beside service ns/demo") as told:
        _beside(session(Platform(KEPT)), None, {})
    assert told.value.hint == "mpctl retire demo lets it go"


def started(platform):
    meter = SimpleNamespace(prepare=lambda: None, complete=lambda endpoint: None)
    clock = SimpleNamespace(now=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    world = SimpleNamespace(platform=platform, meter=meter, clock=clock)
    return _started(session(platform), world, Arm("new"), 10.0)


def test_one_that_a_rollout_kept_since_we_looked_stays_too():
    platform = Platform(KEPT)
    with pytest.raises(Conflict, match="is kept beside"), started(platform):
        pass
    assert platform.acted == []


def test_with_nothing_kept_the_engine_is_started_and_stopped():
    platform = Platform(None)
    with started(platform):
        assert platform.acted == ["start"]
    assert platform.acted == ["start", "stop"]
