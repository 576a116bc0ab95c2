"""The phases of an operation in users' words: which steps belong to each, and the time that it takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from mpctl.rollout.operation import Ending, Operation
from mpctl.rollout.plan import Kind
from mpctl.rollout.ports import PhaseProgress, PhaseState

_STEPS = {
    "engines": ("record", "pin", "release", "start-copy", "start", "switch", "ready-copy", "ready"),
    "answers": ("answers-baseline", "match", "answers"),
    "rounds": ("measure-baseline", "measure-candidate", "measure", "stop-copy", "judge"),
    "bake": ("bake", "retire-baked"),
}
_NOT_RESTORED = (Ending.PROMOTED, Ending.RESTARTED)
_AS_PLANNED = (*_NOT_RESTORED, Ending.REJECTED, Ending.UNDECIDED, Ending.ROLLED_BACK)
_RECENT = 5  # earlier operations whose times are expected again


def phase_of(step: str, kind: Kind) -> str:
    """Return the phase of a step. Without a step, after a verdict that does not promote, the service is restored; all
    of a rollback is."""
    if kind is Kind.ROLLBACK or not step:
        return "restoration"
    if step.startswith(("mirror", "shift-")):
        return "users"
    return next((phase for phase, steps in _STEPS.items() if step in steps), "promotion")


def phase_seconds(operation: Operation) -> dict[str, float]:
    """Return the seconds that an operation has spent in each phase, in the order of the phases."""
    seconds: dict[str, float] = {}
    for step, spent in operation.seconds.items():
        if not step and operation.ending in _NOT_RESTORED:
            continue  # between its last two entries
        phase = phase_of(step, operation.plan.kind)
        seconds[phase] = seconds.get(phase, 0.0) + spent
    return seconds


def expected_seconds(earlier: Iterable[Operation], kind: Kind) -> dict[str, float]:
    """Return the median seconds of each phase in the last operations of a kind that ended with a result; a phase that
    none of them had is absent."""
    finished = [op for op in earlier if op.plan.kind is kind and op.ending in _AS_PLANNED]
    recent = [phase_seconds(op) for op in finished[-_RECENT:]]
    names = dict.fromkeys(name for seconds in recent for name in seconds)
    return {name: median(seconds[name] for seconds in recent if name in seconds) for name in names}


def phases_of(
    operation: Operation, steps: Sequence[str], expected: Mapping[str, float]
) -> tuple[PhaseProgress, ...]:
    """Return the phases of an operation. ``steps``: all of it, by name; ``expected``: seconds by phase."""
    kind, spent = operation.plan.kind, phase_seconds(operation)
    pending = {phase_of(step, kind) for step in steps if step not in operation.done}
    current = phase_of(operation.begun, kind) if operation.begun else ""
    acts = PhaseState.FAILED if operation.failure else PhaseState.RUNNING
    states = dict.fromkeys(pending, PhaseState.WAITING) | {current: acts}
    return tuple(
        PhaseProgress(
            name, states.get(name, PhaseState.DONE), spent.get(name, 0.0), expected.get(name)
        )
        for name in dict.fromkeys(phase_of(step, kind) for step in steps)
    )
