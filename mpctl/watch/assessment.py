"""Judge a service by one more reading: what its speculation does, and why it does less than the gate measured.

A signal is the one cause that the watch names, with what it means and what to do. Three figures from server counters
split every slow-down: the time per token is the step time over tokens per step. A lasting loss of speed is therefore a
worse draft or a costlier step, whichever part is larger. Whether speculation still pays is another question, with its
own test: tokens per step against the break-even, which load and contention leave alone because they slow both arms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import takewhile

from mpctl import commands, formatting
from mpctl.experiment.counters import Counters, Window
from mpctl.watch.cache import COLD_S, CacheWatch
from mpctl.watch.detect import ALLOWED, Detection, windows_to_detect
from mpctl.watch.reading import Reading, ServiceWindow, restarted, window_between
from mpctl.watch.reference import Expected, Figures, Reference
from mpctl.watch.watch_policy import WatchPolicy


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
    WRONG_ANSWERS = "WrongAnswers"
    POISONED_CACHE = "PoisonedCache"
    CACHE_LOST = "CacheLost"


@dataclass(frozen=True)
class Meaning:
    """``finding``: something is wrong; ``text``: what it means; ``remedy``: verb and options of the command to run
    on the service."""

    finding: bool
    text: str
    remedy: tuple[str, ...] = ()


MEANINGS: dict[Signal, Meaning] = {
    Signal.HEALTHY: Meaning(
        False, "time per token and tokens per step are as the gate measured them"
    ),
    Signal.IDLE: Meaning(False, "too few tokens were generated to judge"),
    Signal.BLIND: Meaning(
        False, "counters could not be read; nothing is judged and nothing is done", ("doctor",)
    ),
    Signal.NO_REFERENCE: Meaning(
        False, "no measurement is recorded for the live revision", ("rollout", "--spec", "METHOD")
    ),
    Signal.UNMEASURED_LOAD: Meaning(
        False,
        "more requests decode at once than the gate measured",
        ("bench", "--concurrency", "N"),
    ),
    Signal.WORSE_DRAFT: Meaning(
        True,
        "fewer drafted tokens are accepted: the traffic changed, or target or draft",
        ("rollback",),
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
        True, "acceptance fell to zero at once: an engine fault that a restart ends", ("restart",)
    ),
    Signal.RESTARTING: Meaning(
        True, "engines restarted twice or more within 30 minutes", ("status",)
    ),
    Signal.FELL_BACK: Meaning(
        True,
        "the watch replaced a speculation that no longer paid, and nobody has acknowledged it",
        ("watch", "acknowledge"),
    ),
    Signal.WRONG_ANSWERS: Meaning(
        True,
        "answers that are far from every tie are no longer those that were recorded",
        ("rollback",),
    ),
    Signal.POISONED_CACHE: Meaning(
        True,
        "answers are wrong from the prefix cache and right without it, until it is emptied",
        ("restart",),
    ),
    Signal.CACHE_LOST: Meaning(
        True,
        "the prefix cache holds less of users' prompts than before the promotion",
        ("rollback",),
    ),
}
ANSWERS = frozenset(
    {Signal.WRONG_ANSWERS, Signal.POISONED_CACHE}
)  # findings of sentinels, each confirmed already


def remedy_of(signal: Signal, namespace: str, service: str) -> str:
    """The command for a service; empty without one."""
    remedy = MEANINGS[signal].remedy
    if not remedy:
        return ""
    verb = tuple(takewhile(lambda part: not part.startswith("-"), remedy))
    subject = "" if verb == ("doctor",) else service
    return commands.line(*verb, subject, *remedy[len(verb) :], namespace=namespace)


LEAST_TOKENS = 200  # of a window that is judged
_PATIENCE = 8  # intervals that are pooled until a window has them
_GAP = 12  # intervals without a reading after which nothing is known of the time between
LEAST_DRAFTS = 50
ZERO = (
    0.02  # first-position acceptance that counts as none, as the upper confidence bound of a window
)
_ZERO_OF_MEASURED = 0.1  # and at most this share of the reference's
_Z = 1.645  # one-sided, 95 %
_OFF = 2  # readings in a row without the counters of speculation
_RESTARTS, _RESTART_S = 2, 1800.0
_PAYS = 0.05  # the gain, as a logarithm, that counts as paying
_UNTIMED = 1.05  # tokens per step that pay where no step times are known


@dataclass(frozen=True, slots=True)
class State:
    """State of a service between readings. ``base``: the reading that the next window starts from;
    ``gone``: the last counters of engines that it does not have."""

    base: Reading | None = None
    slower: Detection = Detection()  # noqa: RUF009
    fewer_tokens: float = 0.0
    costlier_steps: float = 0.0
    unpaid: Detection = Detection()  # noqa: RUF009
    cache: CacheWatch = CacheWatch()  # noqa: RUF009
    without_counters: int = 0
    restarts: tuple[float, ...] = ()
    gone: Mapping[str, Counters] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Assessment:
    """``pays``: None where it is unknown, or not certain yet. ``detects_in_s``: how long a loss of the policy's size
    would last before it is found, at this service's noise. ``requests``: of users in the window."""

    signal: Signal
    text: str
    pays: bool | None = None
    figures: Figures | None = None
    expected: Expected | None = None
    detects_in_s: float | None = None
    restarted: tuple[str, ...] = ()
    requests: float = 0.0

    @property
    def finding(self) -> bool:
        """True when something is wrong."""
        return MEANINGS[self.signal].finding


def assess(
    policy: WatchPolicy,
    reference: Reference | None,
    state: State,
    reading: Reading,
    *,
    speculates: bool,
) -> tuple[State, Assessment]:
    """Judge a service by one more reading. ``speculates``: whether the live revision has a speculation."""
    if state.base is None:
        cache = replace(state.cache, warm_at=reading.at + COLD_S)
        return replace(state, base=reading, cache=cache), Assessment(Signal.BLIND, "first reading")
    interval = window_between(state.base, reading, _GAP * policy.interval_s)
    counters = {**state.gone, **state.base.engines}
    if back := tuple(
        n
        for n in interval.started
        if n in state.gone and restarted(state.gone[n], reading.engines[n])
    ):
        interval = replace(interval, restarted=(*interval.restarted, *back))
    if interval.restarted or any(n not in state.gone for n in interval.started):
        state = replace(state, cache=replace(state.cache, warm_at=reading.at + COLD_S))
    if counters.keys() != reading.engines.keys():
        wanted = {name: counters[name] for name in reading.failed if name in counters}
        state = replace(state, gone=wanted)
    off = state.without_counters + 1 if speculates and interval.speculating is False else 0
    if off or state.without_counters or state.restarts or interval.restarted:
        recent = tuple(when for when in state.restarts if reading.at - when < _RESTART_S)
        state = replace(
            state,
            without_counters=off,
            restarts=(*recent, *(reading.at for _ in interval.restarted)),
        )
    state, assessment = _judged(policy, reference, state, reading, interval, speculates=speculates)
    requests = (
        interval.window.requests if interval.window is not None and state.base is reading else 0.0
    )
    return state, replace(assessment, restarted=interval.restarted, requests=requests)


def _judged(
    policy: WatchPolicy,
    reference: Reference | None,
    state: State,
    reading: Reading,
    interval: ServiceWindow,
    *,
    speculates: bool,
) -> tuple[State, Assessment]:
    if state.without_counters >= _OFF:
        return replace(state, base=reading), Assessment(
            Signal.NOT_SPECULATING, "no counters of speculation", pays=False
        )
    if len(state.restarts) >= _RESTARTS:
        count = f"{len(state.restarts)} restarts in 30 minutes"
        return replace(state, base=reading), Assessment(Signal.RESTARTING, count)
    if interval.window is None:
        return replace(state, base=reading), Assessment(Signal.BLIND, interval.blind)
    if interval.window.generation_tokens < LEAST_TOKENS:
        pooled = (
            interval.restarted
            or interval.started
            or interval.seconds >= policy.interval_s * _PATIENCE
        )
        next_state = replace(state, base=reading) if pooled else state
        return next_state, Assessment(
            Signal.IDLE,
            f"{interval.window.generation_tokens:.0f} tokens in {interval.seconds:.0f} s",
        )
    return _compared(
        policy, reference, replace(state, base=reading), interval, speculates=speculates
    )


def _compared(
    policy: WatchPolicy,
    reference: Reference | None,
    state: State,
    interval: ServiceWindow,
    *,
    speculates: bool,
) -> tuple[State, Assessment]:
    """Compare a whole window with the reference."""
    assert interval.window is not None
    figures = Figures.of(interval)
    if not speculates:
        return state, Assessment(Signal.HEALTHY, "no speculation was promoted", figures=figures)
    if reference is None:
        return state, Assessment(
            Signal.NO_REFERENCE, MEANINGS[Signal.NO_REFERENCE].text, figures=figures
        )
    expected = reference.expected(figures.batch or 1.0)
    if text := _zero(reference, expected, interval.window):
        return state, Assessment(Signal.STEP_TO_ZERO, text, False, figures, expected)
    if text := _no_drafts(expected, interval.window):
        return state, Assessment(Signal.NO_DRAFTS, text, None, figures, expected)
    if not expected.within:
        most = max(b.batch for b in reference.bands)
        text = f"{figures.batch:.1f} requests decode at once, measured were {most:.1f} at most"
        state = replace(state, cache=state.cache.unknown(MEANINGS[Signal.UNMEASURED_LOAD].text))
        return state, Assessment(Signal.UNMEASURED_LOAD, text, None, figures, expected)
    at = state.base.at if state.base is not None else 0.0
    state = replace(state, cache=state.cache.after(policy, reference.cache, interval.window, at))
    return _by_sums(policy, state, figures, expected)


def _zero(reference: Reference, expected: Expected, window: Window) -> str:
    """Why practically no draft is accepted any more, as with an engine fault; empty otherwise. A low acceptance that is
    not zero is the traffic's or the draft's: the sums find it. So do they where a lookup finds nothing acceptable,
    which happens whenever the traffic stops repeating."""
    first = next(iter(window.position_rates), None)
    if (
        reference.lookup
        or first is None
        or not expected.first_acceptance
        or (window.drafts or 0) < LEAST_DRAFTS
    ):
        return ""
    if at_most(first, window.drafts or 0.0) >= min(
        ZERO, _ZERO_OF_MEASURED * expected.first_acceptance
    ):
        return ""
    want = formatting.share(expected.first_acceptance)
    return f"first-position acceptance {formatting.share(first)} of {window.drafts:.0f} drafts, measured {want}"


def at_most(share: float, count: float) -> float:
    """Upper confidence bound of a share of ``count`` (Wilson)."""
    square = _Z * _Z / count
    return (share + square / 2 + math.sqrt(square * (share * (1.0 - share) + square / 4))) / (
        1.0 + square
    )


def _no_drafts(expected: Expected, window: Window) -> str:
    """Why no drafts at all are none by chance; empty otherwise."""
    wanted = (expected.coverage or 0.0) * (window.steps or 0.0)
    if window.drafts != 0 or wanted < LEAST_DRAFTS:
        return ""
    return f"no draft in {window.steps:.0f} steps, about {wanted:.0f} were expected"


def _by_sums(
    policy: WatchPolicy, state: State, figures: Figures, expected: Expected
) -> tuple[State, Assessment]:
    """The two statistical findings: slower than measured, and not worth its cost."""
    if not figures.tokens_per_step:
        return state, Assessment(Signal.IDLE, "no step was counted")
    fewer = math.log(expected.tokens_per_step / figures.tokens_per_step)
    costlier = 0.0
    if figures.step_ms and expected.step_ms:
        costlier = math.log(figures.step_ms / expected.step_ms)
    shift = -math.log(1.0 - policy.loss)
    slack = min(max(expected.slack, 0.0), shift / 2)
    allowance = slack + ALLOWED * (shift - slack)
    slower = state.slower.after(
        fewer + costlier - allowance, allowance - slack, policy.run_length, shift - allowance
    )
    began = slower.total.windows <= 1
    break_even = expected.break_even or _UNTIMED * expected.baseline_tokens_per_step
    below = math.log(break_even / figures.tokens_per_step)
    unpaid = state.unpaid.after(below, _PAYS, policy.run_length, _PAYS)
    sound = slower.sound and unpaid.sound
    state = replace(
        state,
        slower=slower.learned(fewer + costlier) if sound else slower,
        fewer_tokens=fewer if began else state.fewer_tokens + fewer,
        costlier_steps=costlier if began else state.costlier_steps + costlier,
        unpaid=unpaid.learned(fewer) if sound else unpaid,
    )
    seconds = windows_to_detect(slower.limit, shift - allowance) * policy.interval_s
    signal = _signal(state, expected, break_even)
    text = _text(signal, figures, expected, break_even)
    if signal is Signal.CACHE_LOST:
        text = state.cache.text
    # A finding whose figures lie below the break-even pays no more, for all that is known; it is not certain yet. One
    # window below it is no finding.
    uncertain = signal is not Signal.HEALTHY and figures.tokens_per_step < break_even
    # The break-even counts no prompts that are computed again: with those, whether it pays is unknown.
    uncertain = uncertain or signal is Signal.CACHE_LOST
    pays = False if state.unpaid.alarm else None if uncertain else True
    return state, Assessment(signal, text, pays, figures, expected, seconds)


def _signal(state: State, expected: Expected, break_even: float) -> Signal:
    if state.unpaid.alarm:
        if expected.tokens_per_step <= break_even:
            return Signal.PAST_CROSSOVER
        return Signal.WORSE_DRAFT
    if state.cache.loss.alarm:
        return Signal.CACHE_LOST
    if not state.slower.alarm:
        return Signal.HEALTHY
    return (
        Signal.WORSE_DRAFT if state.fewer_tokens >= state.costlier_steps else Signal.COSTLIER_STEP
    )


def _text(signal: Signal, figures: Figures, expected: Expected, break_even: float) -> str:
    parts = [
        f"tokens per step {figures.tokens_per_step:.2f}, measured {expected.tokens_per_step:.2f}"
    ]
    parts.append(f"break-even {break_even:.2f}")
    if figures.step_ms and expected.step_ms:
        parts.append(f"step {figures.step_ms:.1f} ms, measured {expected.step_ms:.1f} ms")
    if signal is Signal.HEALTHY and figures.time_per_token_ms:
        parts = [f"{figures.time_per_token_ms:.1f} ms per token", *parts[:1]]
    return "; ".join(parts)
