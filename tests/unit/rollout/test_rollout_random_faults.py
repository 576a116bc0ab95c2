"""Faults drawn by seed, several in one story: kills, refused and unanswered writes, a lost lease, a command that is
stopped while another one ends its work. Rollouts, rollbacks and the watch's fallback, in memory (``world.py``).

The same on a real API server is in ``tests/cluster/test_faults_random.py``, with real processes in
``tests/local/test_random_faults.py``. ``--lane nightly`` draws other seeds.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from contextlib import suppress

import pytest
from test_rollout_crashes import (
    BASELINE,
    STORIES,
    assert_at_rest,
    guard,
    rollout,
    standing,
)
from watched import ACTS, BAD, promoted, watch
from watched import rounds as watch_rounds
from world import BASELINE_TEXT, Crash, MemoryWorld

from mpctl.app.watch.ledger_facts import read_facts
from mpctl.errors import Conflict, InputError, MpctlError
from mpctl.platform.kubernetes.api.replies import OutcomeUnknown
from mpctl.rollout import runner
from mpctl.rollout.decide import Act
from mpctl.rollout.ports import Phase

SEEDS = range(100)
NIGHTLY = range(2000)
FAULTS = ("kill", "refused", "unanswered", "stolen", "stopped")
# Of an entry that was written without an answer the store itself finds out, which this world has no store for.
ANSWERED = ("append", "save", "add_revision")


class Fault:
    """What happens at one boundary of a command; ``other`` ends the work of a command that is stopped there."""

    def __init__(self, draw, memory, other, most=120):
        self.kind, self.at = draw.choice(FAULTS), draw.randrange(1, most)
        self.memory, self.other, self.met, self.lost = memory, other, False, False
        self._inner, self._count = memory.watch, 0
        memory.watch = self.watch

    def watch(self, where):
        if self.lost:  # whoever lost the lease is refused every write
            if where.startswith("before "):
                raise Conflict("the lease is held by another")
            return
        self._inner(where)
        self._count += 1
        if self.met or self._count < self.at:
            return
        acts = where.startswith("before "), where.startswith("after ")
        if self.kind == "kill":
            self.met = True
            raise Crash(where)
        if self.kind == "refused" and acts[0]:
            self.met = True
            raise MpctlError("answer 409, 429 or 500: nothing was done")
        if self.kind == "unanswered" and acts[1] and where.split()[-1] not in ANSWERED:
            self.met = True
            raise OutcomeUnknown("no answer")
        if self.kind in ("stolen", "stopped") and acts[0]:
            self.met = self.lost = True
            if self.kind == "stopped":
                self.other()
            raise Conflict("the lease is held by another")


def take_back(memory):
    """``mpctl rollback``, also where there is nothing to take back, or nothing any more."""
    with suppress(InputError):
        decision = memory.decide_back()
        if decision.act is not Act.ALREADY:
            runner.run(
                memory.context,
                decision.operation or runner.open_plan(memory.context, decision.plan),
            )


def on_the_same_disk(memory):
    return MemoryWorld(memory.behaviours, memory.disk, memory.prompts)


def disturbed(draw, memory, act, met):
    """A command with one fault; whatever it fails with, the next one finds what it left."""
    fault = Fault(draw, memory, lambda: take_back(on_the_same_disk(memory)))
    try:
        act(memory)
    except (Crash, MpctlError) as error:
        assert not isinstance(error, AssertionError)
    met[fault.kind] += fault.met


def story_of(seed, met):
    """A rollout and two more commands, each with a fault, then a rollback without one."""
    draw = random.Random(seed)
    story = draw.choice(STORIES)
    memory = guard(MemoryWorld(story.behaviours), story)
    disturbed(draw, memory, lambda m: rollout(m, story), met)
    for _ in range(2):
        ledger = list(memory.disk.ledger)
        memory = on_the_same_disk(memory)
        act = draw.choice([lambda m: rollout(m, story), take_back])
        disturbed(draw, memory, act, met)
        assert memory.disk.ledger[: len(ledger)] == ledger, "an entry is lost"
    last = on_the_same_disk(memory)
    take_back(last)
    assert standing(last)[:3] == (BASELINE_TEXT, BASELINE, {BASELINE: Phase.READY}), story.name
    assert_at_rest(last)
    last.check_ledger()


def fallback_of(seed, met):
    """A fallback of the watch, with three leaders that meet a fault each."""
    draw = random.Random(f"watch {seed}")
    session = promoted()
    plain = session.memory.disk.revisions[0].text
    for _ in range(3):
        fault = Fault(draw, session.memory, lambda: None, most=40)
        watcher, _ = watch(session)
        try:
            watch_rounds(watcher, 2)
            session.engine.share = BAD
            watch_rounds(watcher, 4)
        except (Crash, MpctlError):
            pass
        met[fault.kind] += fault.met
        session = session.later()
    session.engine.share = BAD if session.memory.disk.text != plain else 1.0
    watcher, _ = watch(session)
    watch_rounds(watcher, 2)
    session.engine.share = BAD
    for _ in range(40):  # an hour: after what failed it pauses
        watch_rounds(watcher, 1)
        session.memory.context.clock.sleep(120.0)
        if session.memory.disk.text == plain and session.memory.unfinished() is None:
            break
    assert session.memory.disk.text == plain
    assert session.memory.unfinished() is None
    assert len(session.memory.disk.engines) == 1
    assert len(read_facts(session, ACTS).fallbacks) >= 1
    session.memory.check_ledger()


def test_random_faults_lose_no_entry_and_leave_no_engine():
    met = Counter()
    for seed in SEEDS:
        try:
            story_of(seed, met)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert min(met[kind] for kind in FAULTS) > 5, met
    assert met.total() > 100, met


def test_random_faults_in_a_fallback_of_the_watch_end_with_the_baseline():
    met = Counter()
    for seed in range(30):
        try:
            fallback_of(seed, met)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert min(met[kind] for kind in FAULTS) > 0, met


@pytest.mark.nightly
def test_random_faults_of_a_seed_that_no_other_run_tries():
    first = int(os.environ.get("MPCTL_FAULTS_SEED", random.randrange(10**9)))
    met = Counter()
    for seed in range(first, first + len(NIGHTLY)):
        try:
            story_of(seed, met)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
