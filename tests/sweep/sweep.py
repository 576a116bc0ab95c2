"""Every call of a cycle with every fault that it can meet, each in a process forked where its command begins."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mpctl.platform.kubernetes.api.kinds import JOB
from mpctl.platform.kubernetes.load_job.job_manifest import IDLE_S, TTL_S
from tests.sweep.clock import clock
from tests.sweep.cycle import CYCLE, DAY_S, Step, World, command, orphans
from tests.sweep.ledger_states import states_of
from tests.sweep.process import Call, Fault

NOTHING_TO_UNDO = 2  # the exit code of a rollback where nothing was begun


@dataclass(frozen=True)
class Case:
    """A fault at a call of a step, and what follows it: the same command again, or another one."""

    step: int
    at: int
    fault: Fault
    other: bool
    call: str = ""

    def __str__(self) -> str:
        step = CYCLE[self.step]
        way = " ".join(step.instead) if self.other else "the same command"
        return f"{step.name}, call {self.at} ({self.call}), {self.fault}, then {way}"


@dataclass
class Outcome:
    """What a case ended with. ``went_on``: the command ended well in spite of the fault; ``exact``: the manifest is the
    expected one, byte for byte; ``left``: what ends by a time limit, or is taken by the next command."""

    went_on: bool = False
    exact: bool = False
    orphans: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    states: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return self.exact and not self.orphans and not self.problems

    def wrong(self) -> list[str]:
        """What is wrong, in words."""
        return [
            *([] if self.exact else ["the manifest is another one"]),
            *self.orphans,
            *self.problems,
        ]


@dataclass
class Reference:
    """The cycle without a fault: calls and texts of each step."""

    calls: list[list[Call]] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    states: set[str] = field(default_factory=set)


def undisturbed(folder: Path) -> Reference:
    """Carry out the cycle."""
    world, reference = World(folder), Reference()
    world.prepare()
    for step in CYCLE:
        reference.before.append(world.text())
        process, code = world.process(step.act)
        wrong = settled(world)
        if code or wrong:
            raise RuntimeError(f"{step.name} ended with {code}: {wrong}\n{world.output}")
        reference.calls.append(process.calls)
        reference.after.append(world.text())
        reference.states |= states_of(world.server)
        clock.sleep(DAY_S)
    return reference


def settled(world: World) -> list[str]:
    """Let the controllers end their work; what is left."""
    world.controllers.settle()
    return orphans(world)


def cases(reference: Reference, every: int) -> Iterator[Case]:
    """Every fault at every call, or at each ``every``-th one."""
    number = 0
    for index, calls in enumerate(reference.calls):
        for at, call in enumerate(calls, start=1):
            number += 1
            if number % every:
                continue
            for place, fault in enumerate(call.faults):
                other = bool(CYCLE[index].instead) and (number // every + place) % 2 == 1
                yield Case(index, at, fault, other, call.text)


def outcome_of(world: World, case: Case, reference: Reference) -> Outcome:
    """Carry out a case in this process."""
    step: Step = CYCLE[case.step]
    outcome = Outcome()
    process, code = world.process(step.act, case.at, case.fault)
    if len(process.calls) < case.at or process.calls[case.at - 1].text != case.call:
        outcome.problems.append("the command made other calls than without the fault")
    outcome.went_on = code == 0
    said = world.output
    clock.sleep(60.0)
    expected = reference.after[case.step]
    if case.other:
        code = world.until_done(command(*step.instead))
        expected = reference.before[case.step] if step.undoes else expected
        if code == NOTHING_TO_UNDO and world.text() == expected:
            code = 0
    elif code:
        code = world.until_done(step.act)
    if code:
        outcome.problems.append(
            f"never succeeded: exit code {code}: {said[-600:]} / {world.output[-600:]}"
        )
    outcome.exact = world.text() == expected
    outcome.states = sorted(states_of(world.server))
    outcome.problems += _unreadable(world)
    if world.controllers.unserved:
        outcome.problems.append(f"no ready pod in {world.controllers.unserved} moments")
    world.controllers.settle()
    if world.server.of(JOB):
        outcome.left.append("a load Job")
        clock.sleep(IDLE_S + TTL_S)
        world.controllers.end_idle_jobs()
    outcome.left += world.leases()
    outcome.orphans = orphans(world)
    return outcome


def _unreadable(world: World) -> Iterator[str]:
    """What a later command would stumble over."""
    for words in (("history", "demo", "-o", "json"), ("status", "demo", "-o", "json")):
        _, code = world.process(command(*words))
        if code:
            yield f"{words[0]} ends with {code}: {world.output[-300:]}"
            continue
        record = json.loads(world.output)
        yield from (
            f"{item['id']} is not ended"
            for item in record.get("operations", ())
            if item["ending"] is None
        )
        if held := record.get("status", {}).get("heldBy"):
            yield f"the service is held by {held}"


def in_child(work: Any) -> tuple[int, int]:
    """Fork; the child writes the JSON of what ``work`` returns. The pipe's end and the process id."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child:
        os.close(writing)
        return reading, child
    os.close(reading)
    try:
        record = asdict(work())
    except BaseException:  # noqa: BLE001  the parent reports it
        record = asdict(Outcome(problems=[traceback.format_exc()[-1500:]]))
    with os.fdopen(writing, "w") as pipe:
        pipe.write(json.dumps(record))
    os._exit(0)


def result_of(reading: int, child: int) -> Outcome:
    """Wait for a child."""
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return (
        Outcome(**json.loads(text))
        if text
        else Outcome(problems=["its process ended without a result"])
    )


def swept(
    folder: Path, reference: Reference, chosen: list[Case], jobs: int
) -> Iterator[tuple[Case, Outcome]]:
    """Carry out the cases, ``jobs`` at a time, each from where its step begins."""
    world = World(folder)
    world.prepare()
    for index, step in enumerate(CYCLE):
        running: list[tuple[Case, tuple[int, int]]] = []
        for case in (case for case in chosen if case.step == index):
            if len(running) == jobs:
                done, child = running.pop(0)
                yield done, result_of(*child)
            running.append((case, in_child(lambda case=case: outcome_of(world, case, reference))))
        yield from ((case, result_of(*child)) for case, child in running)
        world.process(step.act)
        settled(world)
        clock.sleep(DAY_S)
