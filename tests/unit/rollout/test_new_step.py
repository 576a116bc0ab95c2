"""A step that is added to a rollout: its function and its row. It is recorded, resumed and shown as every other."""

from __future__ import annotations

from pathlib import Path

from package_copy import PackageCopy

SUPPORT = Path(__file__).parents[1] / "support"
STEP = '''"""Announce the promotion."""

from dataclasses import dataclass

from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation, StepResult


@dataclass(frozen=True)
class Announcement(StepResult):
    """The text that was announced."""

    text: str


def announce(context: Context, operation: Operation) -> Announcement:
    """Say that the candidate passed."""
    return Announcement(f"{operation.id} passed")
'''
ROW = """    yield True, Step("announce", announce, changes=False)
    yield again, Step("start-again", start)
"""
PROGRAM = f"""
import sys
sys.path.append({str(SUPPORT)!r})
from world import FASTER, Crash, MemoryWorld, plan
from mpctl.rollout import runner
from mpctl.rollout.plan import Strategy

texts, boundary = [], 0
while True:
    boundary += 1
    world = MemoryWorld(FASTER)
    world.die_at(boundary)
    try:
        runner.run(world.context, runner.open_plan(world.context, plan(Strategy.SIDE_BY_SIDE)))
        break
    except Crash:
        world = world.again()
        if world.unfinished() is not None:
            runner.run(world.context, world.unfinished())
            texts.append([entry.data["text"] for entry in world.disk.ledger if entry.step == "announce"])
steps = [entry.step for entry in world.disk.ledger]
ordered = steps.index("judge") < steps.index("announce") < steps.index("promote")
print(len(texts) > 10, all(text == ["rollout-1 passed"] for text in texts), ordered)
"""


def test_a_new_step_is_a_function_and_a_row(tmp_path):
    copy = PackageCopy(tmp_path)
    copy.add("rollout/steps/announce.py", STEP)
    copy.edit(
        "rollout/sequences.py",
        "from mpctl.rollout.steps.answers import",
        "from mpctl.rollout.steps.announce import announce\nfrom mpctl.rollout.steps.answers import",
    )
    copy.edit("rollout/sequences.py", '    yield again, Step("start-again", start)\n', ROW)
    assert copy.run(PROGRAM).split() == ["True", "True", "True"]
    assert copy.touched == {"rollout/steps/announce.py", "rollout/sequences.py"}
