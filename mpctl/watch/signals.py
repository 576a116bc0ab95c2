"""Signals: the one cause that the watch names for a service, with what it means and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile

from mpctl import commands


class Signal(StrEnum):
    """The state of a service's speculation."""

    HEALTHY = "Healthy"
    IDLE = "Idle"
    BLIND = "Blind"
    NO_REFERENCE = "NoReference"
    UNMEASURED_LOAD = "UnmeasuredLoad"
    WORSE_DRAFT = "WorseDraft"
    COSTLIER_STEP = "CostlierStep"
    PAST_CROSSOVER = "PastCrossover"
    NO_DRAFTS = "NoDrafts"
    NOT_SPECULATING = "NotSpeculating"
    STEP_TO_ZERO = "StepToZero"
    RESTARTING = "Restarting"
    FELL_BACK = "FellBack"


@dataclass(frozen=True)
class Meaning:
    """``finding``: something is wrong; ``text``: what it means; ``remedy``: verb and options of the command to run
    on the service."""

    finding: bool
    text: str
    remedy: tuple[str, ...] = ()


MEANINGS: dict[Signal, Meaning] = {
    Signal.HEALTHY: Meaning(False, "time per token and tokens per step are as the gate measured them"),
    Signal.IDLE: Meaning(False, "too few tokens were generated to judge"),
    Signal.BLIND: Meaning(False, "counters could not be read; nothing is judged and nothing is done", ("doctor",)),
    Signal.NO_REFERENCE: Meaning(
        False,
        "no measurement is recorded for the live revision",
        ("rollout", "--spec", "METHOD"),
    ),
    Signal.UNMEASURED_LOAD: Meaning(
        False,
        "more requests decode at once than the gate measured",
        ("bench", "--concurrency", "N"),
    ),
    Signal.WORSE_DRAFT: Meaning(
        True, "fewer drafted tokens are accepted: the traffic changed, or target or draft", ("rollback",)
    ),
    Signal.COSTLIER_STEP: Meaning(
        True,
        "a step takes longer with the same drafts: contention, a lost CUDA graph, another engine version",
        ("bench",),
    ),
    Signal.PAST_CROSSOVER: Meaning(
        True,
        "at this load the gate measured that speculation costs more than it gains",
        ("rollback",),
    ),
    Signal.NO_DRAFTS: Meaning(
        True,
        "the engine speculates and drafts nothing: no text repeats, or K is 0 at this load",
        ("status",),
    ),
    Signal.NOT_SPECULATING: Meaning(
        True,
        "the engine runs without speculation although the ledger says it was promoted",
        ("diff",),
    ),
    Signal.STEP_TO_ZERO: Meaning(
        True,
        "acceptance fell to zero at once: an engine fault that a restart ends",
        ("restart",),
    ),
    Signal.RESTARTING: Meaning(True, "engines restarted twice or more within 30 minutes", ("status",)),
    Signal.FELL_BACK: Meaning(
        True,
        "the watch replaced a speculation that no longer paid, and nobody has acknowledged it",
        ("watch", "acknowledge"),
    ),
}


def remedy_of(signal: Signal, namespace: str, service: str) -> str:
    """The command for a service; empty without one."""
    remedy = MEANINGS[signal].remedy
    if not remedy:
        return ""
    verb = tuple(takewhile(lambda word: not word.startswith("-"), remedy))
    subject = "" if verb == ("doctor",) else service
    return commands.line(*verb, subject, *remedy[len(verb) :], namespace=namespace)
