"""Dying at every boundary of a rollout, and of its way back: the same command goes on, or rollback restores.

Exhaustive over boundaries, strategies and outcomes, in memory (``world.py`` says what that leaves out). The same with
real processes and SIGKILL is in ``tests/local/test_killed.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import pytest
from world import (
    BASELINE_TEXT,
    BROKEN,
    CANDIDATE_TEXT,
    FASTER,
    SLOWER,
    Behaviour,
    Crash,
    MemoryWorld,
    plan,
)

from mpctl.errors import InputError
from mpctl.experiment.users import Placement
from mpctl.rollout import runner
from mpctl.rollout.decide import Act, decide_rollout
from mpctl.rollout.plan import Plan, Strategy
from mpctl.rollout.ports import Arm, Phase

BASELINE, CANDIDATE = Arm(BASELINE_TEXT).id, Arm(CANDIDATE_TEXT).id


@dataclass(frozen=True, eq=False)
class Story:
    """A rollout and how it ends when nobody dies."""

    name: str
    plan: Plan
    behaviours: dict[str, Behaviour]
    ending: str
    engines: tuple[str, ...]


def stories() -> list[Story]:
    found = []
    for strategy in Strategy:
        found += [
            Story(f"{strategy}: promoted", plan(strategy), FASTER, "promoted", (CANDIDATE,)),
            Story(f"{strategy}: rejected", plan(strategy), SLOWER, "rejected", (BASELINE,)),
            Story(f"{strategy}: engine fails", plan(strategy), BROKEN, "failed", (BASELINE,)),
        ]
    for placement in (Placement.PAIR, Placement.TURNS):
        placed = plan(Strategy.SIDE_BY_SIDE, placement=placement)
        found += [
            Story(f"{placement}: promoted", placed, FASTER, "promoted", (CANDIDATE,)),
            Story(f"{placement}: rejected", placed, SLOWER, "rejected", (BASELINE,)),
            Story(f"{placement}: engine fails", placed, BROKEN, "failed", (BASELINE,)),
        ]
    actual_plan = plan(Strategy.SIDE_BY_SIDE, keep_baseline=True)
    return [
        *found,
        Story(
            "side-by-side: promoted, baseline kept",
            actual_plan,
            FASTER,
            "promoted",
            (BASELINE, CANDIDATE),
        ),
    ]


STORIES = stories()
each_story = pytest.mark.parametrize("story", STORIES, ids=[s.name for s in STORIES])


def rollout(memory: MemoryWorld, story: Story) -> None:
    """What ``mpctl rollout`` does after it has read its options."""
    decision = decide_rollout(story.plan, memory.live(), memory.unfinished())
    if decision.act is Act.OPEN:
        runner.run(memory.context, runner.open_plan(memory.context, decision.plan))
    elif decision.act is Act.RESUME:
        runner.run(memory.context, decision.operation)


def rollback(memory: MemoryWorld) -> None:
    """What ``mpctl rollback`` does after it has read its options."""
    decision = memory.decide_back()
    if decision.act is not Act.ALREADY:
        operation = decision.operation or runner.open_plan(memory.context, decision.plan)
        runner.run(memory.context, operation)


def guard(memory: MemoryWorld, story: Story) -> MemoryWorld:
    """Watch what must hold at every moment, not only at the end."""

    def watch(where: str) -> None:
        disk = memory.disk
        assert disk.text in (BASELINE_TEXT, CANDIDATE_TEXT)
        changed = disk.text != BASELINE_TEXT or set(disk.engines) != {BASELINE}
        assert not changed or disk.revisions[0].text == BASELINE_TEXT, (
            f"{where}: changed before it was recorded"
        )
        if story.plan.strategy is Strategy.SIDE_BY_SIDE:
            serving = disk.engines.get(disk.routed)
            assert serving is not None, f"{where}: nothing serves"
            assert serving.phase is Phase.READY, f"{where}: nothing serves"

    memory.watch = watch
    return memory


def until_crash(
    memory: MemoryWorld, story: Story, act: Callable[[MemoryWorld], None], boundary: int
) -> MemoryWorld | None:
    """``act`` on a copy, dying at ``boundary``: what is left, or None when it ended before."""
    victim = guard(memory.again(), story)
    victim.die_at(boundary)
    try:
        act(victim)
    except Crash:
        return victim
    return None


@cache
def crashed_rollouts(story: Story) -> tuple[MemoryWorld, ...]:
    """What is left of a rollout that died, for every boundary it passes."""
    items: list[MemoryWorld] = []
    while (
        left := until_crash(
            MemoryWorld(story.behaviours), story, lambda m: rollout(m, story), len(items) + 1
        )
    ) is not None:
        items.append(left)
    return tuple(items)


def states_passed(
    memory: MemoryWorld, story: Story, act: Callable[[MemoryWorld], None]
) -> list[MemoryWorld]:
    """What a death would leave at every boundary of ``act``: the disk as it is there."""
    passing = guard(memory.again(), story)
    inner = passing.watch
    found: list[MemoryWorld] = []

    def watch(where: str) -> None:
        inner(where)
        found.append(passing.again())

    passing.watch = watch
    act(passing)
    return found


def standing(memory: MemoryWorld) -> tuple[object, ...]:
    """What a user can see of a service at rest."""
    disk = memory.disk
    engines = {i: e.phase for i, e in disk.engines.items()}
    return disk.text, disk.routed, engines, memory.live_revisions()


def distinct(
    found: Iterable[MemoryWorld], told: Callable[[MemoryWorld], object]
) -> list[MemoryWorld]:
    """One of each: a new command knows the disk alone, so what left the same disk has the same future."""
    entries: dict[object, MemoryWorld] = {}
    for memory in found:
        disk = memory.disk
        engines = tuple((i, e.phase, min(e.polls, 1)) for i, e in sorted(disk.engines.items()))
        entries.setdefault(
            (engines, disk.text, disk.routed, len(disk.revisions), told(memory)), memory
        )
    return list(entries.values())


def by_ledger(memory: MemoryWorld) -> object:
    """What a rollback goes by; measurements are none of its business."""
    return tuple((e.operation, e.event, e.step) for e in memory.disk.ledger)


def by_ledger_and_records(memory: MemoryWorld) -> object:
    """What a rollout goes by."""
    return by_ledger(memory), len(memory.disk.records)


def by_what_is_undone(memory: MemoryWorld) -> object:
    """Of a rollout a rollback asks only whether it was recorded, judged and ended; of a rollback, everything."""
    rows = []
    for op in memory.operations():
        went = [
            name for name in op.done if op.plan.rollback.automatic or name in ("record", "judge")
        ]
        rows.append(
            (
                op.id,
                op.ending,
                op.failure,
                tuple(went),
                op.begun if op.plan.rollback.automatic else "",
            )
        )
    return tuple(rows)


def assert_at_rest(memory: MemoryWorld) -> None:
    assert memory.unfinished() is None
    assert None not in memory.endings()
    assert all(b.previous == a.digest for a, b in pairwise(memory.disk.ledger))
    assert [r.number for r in memory.disk.revisions] == list(
        range(1, len(memory.disk.revisions) + 1)
    )


def assert_restored(memory: MemoryWorld, before: MemoryWorld) -> None:
    disk = memory.disk
    assert disk.text == BASELINE_TEXT
    assert disk.routed == BASELINE
    assert {i: e.phase for i, e in disk.engines.items()} == {BASELINE: Phase.READY}
    assert disk.revisions[: len(before.disk.revisions)] == before.disk.revisions
    assert memory.live_revisions()[-1:] in ([], [BASELINE_TEXT])
    assert disk.ledger[: len(before.disk.ledger)] == before.disk.ledger
    assert_at_rest(memory)


def finish(crashed: MemoryWorld, story: Story, act: Callable[[MemoryWorld], None]) -> MemoryWorld:
    """A new command on what was left."""
    memory = guard(crashed.again(), story)
    act(memory)
    return memory


def way_back(memory: MemoryWorld) -> None:
    """``mpctl rollback``, which refuses only where there is nothing to take back."""
    try:
        rollback(memory)
    except InputError:
        assert memory.unfinished() is None
        assert standing(memory)[:3] == (BASELINE_TEXT, BASELINE, {BASELINE: Phase.READY})


@each_story
def test_undisturbed_it_ends_as_the_gate_says(story):
    memory = guard(MemoryWorld(story.behaviours), story)
    rollout(memory, story)
    promoted = story.ending == "promoted"
    texts = [BASELINE_TEXT, CANDIDATE_TEXT] if promoted else [BASELINE_TEXT]
    routed = CANDIDATE if promoted else BASELINE
    assert standing(memory) == (texts[-1], routed, dict.fromkeys(story.engines, Phase.READY), texts)
    assert memory.endings() == [story.ending] + ([] if promoted else ["rolled back"])
    assert_at_rest(memory)


@each_story
def test_died_anywhere_and_run_again_it_ends_the_same(story):
    undisturbed = MemoryWorld(story.behaviours)
    rollout(undisturbed, story)
    actual_crashed_rollouts = crashed_rollouts(story)
    for crashed in distinct(actual_crashed_rollouts, by_ledger_and_records):
        memory = finish(crashed, story, lambda memory: rollout(memory, story))
        where = f"died {crashed.trail[-1]} (boundary {len(crashed.trail)})"
        assert standing(memory) == standing(undisturbed), where
        finished = [
            op.ending.value for op in memory.operations() if op.plan.kind.value == "rollout"
        ]
        # A rollout that had just ended may be judged once more; it may not end otherwise.
        assert set(finished) == {story.ending}, where
        assert len(finished) == 1 or crashed.unfinished() is None, where
        assert_at_rest(memory)
        memory.check_ledger()
    appended = sum(where == "after append" for where in undisturbed.trail)
    assert len(actual_crashed_rollouts) == len(undisturbed.trail) > 2 * appended, (
        f"{len(actual_crashed_rollouts)} scenarios, {appended} ledger entries"
    )


@each_story
def test_died_anywhere_and_rolled_back_it_is_as_before(story):
    actual_crashed_rollouts = crashed_rollouts(story)
    nothing_to_do = 0
    scenarios = distinct(actual_crashed_rollouts, by_ledger)
    for crashed in scenarios:
        memory = finish(crashed, story, way_back)
        if memory.disk.ledger == crashed.disk.ledger:
            nothing_to_do += 1
        else:
            assert_restored(memory, crashed)
            memory.check_ledger()
    # While its two revisions are recorded before the first entry, and where a rejected rollout had already come back.
    assert nothing_to_do <= 4, (
        f"{nothing_to_do} of {len(scenarios)} scenarios had nothing to take back"
    )


@each_story
def test_died_anywhere_and_again_on_the_way_back_it_still_comes_back(story):
    actual_crashed_rollouts = crashed_rollouts(story)
    scenarios = 0
    for crashed in distinct(actual_crashed_rollouts, by_what_is_undone):
        for twice in distinct(states_passed(crashed, story, way_back), by_ledger):
            if (
                twice.unfinished() is not None
            ):  # else the first way back had not begun, or had ended
                assert_restored(finish(twice, story, rollback), crashed)
                scenarios += 1
    assert scenarios > 30, f"{scenarios} scenarios"


@pytest.mark.parametrize(
    "story", [s for s in STORIES if s.ending == "promoted"], ids=lambda s: s.name
)
def test_a_rollback_of_a_finished_rollout_that_dies_anywhere_goes_on(story):
    promoted = MemoryWorld(story.behaviours)
    rollout(promoted, story)
    boundary = 0
    while (left := until_crash(promoted, story, rollback, boundary + 1)) is not None:
        boundary += 1
        if left.endings()[-1] != "rolled back":
            left = finish(left, story, rollback)
        assert_restored(left, promoted)
        assert [r.text for r in left.disk.revisions] == [
            BASELINE_TEXT,
            CANDIDATE_TEXT,
            BASELINE_TEXT,
        ]
    assert boundary > 15, f"{boundary} scenarios"


@each_story
def test_dying_after_every_second_entry_of_every_attempt_it_still_gets_there(story):
    undisturbed = MemoryWorld(story.behaviours)
    rollout(undisturbed, story)
    memory = MemoryWorld(story.behaviours)
    attempts = 0
    while attempts == 0 or memory.unfinished() is not None:
        attempts += 1
        assert attempts < 60
        memory = dying_after_entries(memory, story, 2)
    assert standing(memory) == standing(undisturbed)
    assert attempts > 2
    assert_at_rest(memory)


def dying_after_entries(memory: MemoryWorld, story: Story, count: int) -> MemoryWorld:
    victim = guard(memory.again(), story)
    inner = victim.watch

    def watch(where: str) -> None:
        inner(where)
        if victim.trail.count("after append") == count:
            raise Crash(where)

    victim.watch = watch
    with suppress(Crash):
        rollout(victim, story)
    return victim
