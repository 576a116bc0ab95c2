"""Sentinels: requests whose recorded answers are far from every tie, sent again and again while a service has users.

Rounding cannot change such an answer, so a digest of its first tokens shows whether the engine still answers right. A
sentinel begins like users' requests and shares their blocks of the prefix cache. Where its answer is wrong, the same
request with a cache salt of its own, which reads none of these blocks, tells a poisoned cache from a wrong engine.

A wrong answer that is right when it is asked again is noted; a second one within a day is a finding as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from mpctl.experiment.answers import Answer
from mpctl.gate.answer_tokens import FEWEST_SETTLED, differs_from, digest_of, settled_digest
from mpctl.json_types import JsonView
from mpctl.methods import METHODS
from mpctl.records import Record
from mpctl.watch.watch_policy import WatchPolicy

RECORD = "sentinels"  # the name of the record of the operation that promoted
GAP = 4.0  # nats from a tie where no baseline scored the answers: twice the widest tie at a noise of 0.25
_TEXT = "text"
_DAY_S = 86400.0
_OFTEN = 10.0  # times as often after a wrong answer, as far as the share of the load allows
_SAVED = 2.0  # requests that a quiet time allows in advance
_SOUND = 12  # right answers in a row that end a finding
AGAIN = 2  # repetitions per engine, since each may reach another one
_MOST_AGAIN = 8


@dataclass(frozen=True)
class Sentinels(Record):
    """``engine``: see :func:`mpctl.estimate.facts.engine_identity`; ``baseline``: an engine without speculation gave
    the answers; ``prefix``: digest of the beginning that the requests share with users', empty without one;
    ``settled``: by the digest of a request the length and digest of the first tokens of its answer, or of its whole
    text where there are no ids."""

    created: str
    engine: Mapping[str, str]
    baseline: bool
    settled: Mapping[str, str]
    prefix: str = ""


def changes_between(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Name the parts in which two engines differ."""
    return ", ".join(
        sorted(n for n in before.keys() | after.keys() if before.get(n) != after.get(n))
    )


def prefix_digest(prefix: JsonView) -> str:
    """Identify the beginning that sentinels share with users' requests; "" where there is none."""
    return digest_of([json.dumps(prefix, sort_keys=True)]) if prefix else ""


def settle(answer: Answer, again: Answer) -> str:
    """Return length and digest of the tokens of an answer that are far from every tie by its own log probabilities;
    "" where they are too few, or where the same request was answered otherwise ``again``."""
    count = 0
    for row in answer.alternatives:
        best, *others = sorted(row.values(), reverse=True)
        if not others or best - others[0] <= GAP:
            break
        count += 1
    if count < FEWEST_SETTLED or answer.error or again.error:
        return ""
    if answer.ids:
        settled = settled_digest(answer, count)
    else:
        settled = (
            f"{_TEXT}:{digest_of(answer.rendering)}" if count == len(answer.alternatives) else ""
        )
    return settled if settled and _is_right(settled, again) else ""


def _is_right(settled: str, answer: Answer) -> bool | None:
    """None where the answer tells nothing."""
    count, _, digest = settled.partition(":")
    if answer.error or (count != _TEXT and not answer.ids):
        return None
    return (
        digest_of(answer.rendering) == digest
        if count == _TEXT
        else not differs_from(settled, answer)
    )


class Check(StrEnum):
    """The result of one sentinel."""

    RIGHT = "right"
    UNKNOWN = "not answered"
    UNVERIFIED = "unverified"
    ONCE = "wrong once"
    POISONED = "poisoned cache"
    WRONG = "wrong answers"


def first_check(settled: str, answer: Answer) -> Check:
    """Judge one answer; a wrong one is to be asked again."""
    return {True: Check.RIGHT, False: Check.WRONG, None: Check.UNKNOWN}[_is_right(settled, answer)]


def repetitions(engines: int) -> int:
    """Return how often a request is repeated whose answer was wrong, as it was and with fresh salts."""
    return min(AGAIN * max(engines, 1), _MOST_AGAIN)


def diagnose(settled: str, again: Iterable[Answer], salted: Iterable[Answer]) -> Check:
    """Judge the repetitions of a request whose answer was wrong. ``salted``: with a fresh cache salt each."""
    wrong = [_is_right(settled, answer) is False for answer in again]
    with_salt = [_is_right(settled, answer) for answer in salted]
    if False in with_salt:
        return Check.WRONG
    if any(wrong):
        return Check.POISONED if True in with_salt else Check.WRONG
    return Check.ONCE


@dataclass(frozen=True, slots=True)
class Guard:
    """The state of a service's sentinels between rounds. ``credit``: requests that the load allows; ``sent``,
    ``wrong``: requests and wrong answers so far; ``odd``: when a single answer was wrong; ``last``: what the last one
    showed, with its text; ``finding``: POISONED or WRONG, ``found`` in words; ``sound``: right answers since."""

    credit: float = 0.0
    asked_at: float | None = None
    sent: int = 0
    wrong: int = 0
    odd: tuple[float, ...] = ()
    turn: int = 0
    last: Check | None = None
    text: str = ""
    finding: Check | None = None
    found: str = ""
    sound: int = 0

    def with_load(self, policy: WatchPolicy, requests: float) -> Guard:
        """Add the requests of users since the last round."""
        return replace(self, credit=min(self.credit + policy.sentinel_share * requests, _SAVED))

    def due(self, policy: WatchPolicy, now: float) -> bool:
        """Return whether a sentinel is to be sent."""
        if not policy.sentinel_s or self.credit < 1.0:
            return False
        interval = policy.sentinel_s / (_OFTEN if self.odd or self.finding else 1.0)
        return self.asked_at is None or now - self.asked_at >= interval

    def after(self, check: Check, text: str, *, sent: int, now: float) -> Guard:
        """Add what a sentinel showed. ``sent``: its requests."""
        odd = tuple(when for when in self.odd if now - when < _DAY_S)
        if check is Check.ONCE:
            odd = (*odd, now)
            if len(odd) > 1:
                check, text = (
                    Check.WRONG,
                    f"{len(odd)} answers within a day were wrong and right when asked again",
                )
        guard = replace(
            self,
            credit=self.credit - sent,
            asked_at=now,
            turn=self.turn + 1,
            sent=self.sent + sent,
            wrong=self.wrong + (check in (Check.ONCE, *_FINDINGS)),
            odd=odd,
            last=check,
            text=text,
        )
        if check in _FINDINGS:
            return replace(guard, finding=check, found=text, sound=0)
        sound = self.sound + (check is Check.RIGHT)
        ended = check is Check.UNVERIFIED or sound >= _SOUND
        return replace(
            guard, finding=None if ended else self.finding, sound=sound if self.finding else 0
        )


_FINDINGS = (Check.POISONED, Check.WRONG)


def unanswerable(method: str) -> str:
    """Say why no sentinel can be recorded from a service's own answers; empty where one can."""
    row = METHODS.get(method)
    if row is None or not row.foreign_logprobs:
        return ""
    why = f"may report log probabilities of other tokens ({row.foreign_logprobs})"
    return f"an engine that drafts by {method.upper()} {why}"
