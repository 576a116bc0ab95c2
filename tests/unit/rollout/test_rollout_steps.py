"""Waiting for an arm."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from mpctl.errors import MpctlError
from mpctl.rollout.ledger import Entry, Event
from mpctl.rollout.plan import RollbackPlan
from mpctl.rollout.ports import Arm, ArmState, Endpoint, Phase
from mpctl.rollout.revision import Manifest, Revision
from mpctl.rollout.steps.candidate import await_ready
from mpctl.rollout.steps.promote import record_restored

ARM = Arm("text")


class Rolling:
    """An arm of several engines; ``at`` are the seconds at which one more is ready."""

    def __init__(self, *at):
        self.at = at
        self.seconds = 0.0

    def now(self):
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def sleep(self, seconds):
        self.seconds += 10

    def state(self, arm):
        ready = sum(self.seconds >= at for at in self.at)
        if ready < len(self.at):
            return ArmState(
                arm.id, Phase.STARTING, message=f"{ready} of {len(self.at)}", pods_ready=ready
            )
        return ArmState(
            arm.id, Phase.READY, Endpoint("http://x", "m"), matches=True, pods_ready=ready
        )

    def context(self):
        quiet = SimpleNamespace(update=lambda _: None)
        engines = SimpleNamespace(state=self.state, describe_failure=lambda _: "its last words")
        return SimpleNamespace(
            clock=self, engines=engines, progress=quiet, meter=SimpleNamespace(complete=id)
        )


def test_the_time_is_for_each_engine_of_an_arm():
    assert await_ready(Rolling(90, 180, 270).context(), ARM, 100).phase is Phase.READY


def test_an_engine_that_takes_longer_than_its_time_ends_the_wait():
    rolling = Rolling(90, 300)
    with pytest.raises(MpctlError, match="not ready within 100 s: 1 of 2"):
        await_ready(rolling.context(), ARM, 100)
    assert rolling.seconds < 210


def test_the_time_of_an_engine_begins_when_the_old_one_has_finished_its_requests():
    rolling = Rolling(1890)
    whole = rolling.state
    rolling.state = lambda arm: replace(whole(arm), draining=rolling.seconds < 1800)
    assert await_ready(rolling.context(), ARM, 100).phase is Phase.READY
    never = Rolling(1990)
    never.state = lambda arm: replace(
        whole(arm), phase=Phase.STARTING, draining=never.seconds < 1800
    )
    with pytest.raises(MpctlError, match="not ready within 100 s"):
        await_ready(never.context(), ARM, 100)


@pytest.mark.parametrize(
    ("there", "named", "number"),
    [((), (), 1), ((1,), (1,), 2), ((2,), (1, 2), 3), ((1,), (1, 2), 3)],
)
def test_a_lost_revision_keeps_its_number(there, named, number):
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    entries = []
    for kept in named:
        last, data = entries[-1] if entries else None, {"revision": kept}
        entries.append(
            Entry.after(
                last, at=moment, operation="o", event=Event.DONE, who="x", step="record", data=data
            )
        )
    revisions = [Revision(n, f"text {n}", "2026-01-01", "x", "as found", None, "o") for n in there]
    world = SimpleNamespace(
        store=SimpleNamespace(
            revisions=lambda: revisions, entries=lambda: entries, add_revision=revisions.append
        ),
        platform=SimpleNamespace(
            read=lambda: SimpleNamespace(text="new"),
            added_fields=lambda arm, live: (),
            configs=lambda: (),
        ),
        clock=Rolling(),
        who="x",
    )
    plan = SimpleNamespace(goal=Manifest.of("new"), spec=None, arm=ARM, rollback=RollbackPlan())
    assert record_restored(world, SimpleNamespace(id="rollback-2", plan=plan)).revision == number
    assert revisions[-1].number == number
