"""Requests whose answers the gate compares, the answers of both arms, and what is recorded of them.

An answer and its token ids exist in memory alone. A record holds numbers: of a finding the request by its place in the
pass, the position of the token, both tokens' ids and the margin between them, in nats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from mpctl.records import Record


class Level(StrEnum):
    """What an endpoint tells of an answer: its token ids, its text (tokenized again), or what was parsed of it."""

    IDS = "token ids"
    TEXT = "text"
    PARSED = "parsed answers"


@dataclass(frozen=True)
class Ask:
    """A request. ``body``: its messages, tools and response format, as the chat API takes them."""

    kind: str
    body: Mapping[str, Any]
    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    stream: bool = False

    @property
    def greedy(self) -> bool:
        """True when each token is the most likely one."""
        return self.temperature == 0.0

    @property
    def constrained(self) -> bool:
        """True when a grammar may hold the answer, which the log probabilities of a scored prompt do not know."""
        return bool(self.body.get("tools") or self.body.get("response_format"))


@dataclass(frozen=True)
class ToolCall:
    """A call as the server parsed it. ``arguments``: JSON text, as it came."""

    name: str
    arguments: str


@dataclass(frozen=True)
class Answer:
    """An answer. ``logprobs``: the engine's own log probability of each token, ``best``: of the most likely one there;
    both empty where the engine reports none. ``error``: why there is no answer, without a word of the request."""

    prompt_ids: tuple[int, ...] = ()
    ids: tuple[int, ...] = ()
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish: str = ""  # stop, length or tool_calls
    logprobs: tuple[float, ...] = ()
    best: tuple[float, ...] = ()
    error: str = ""

    @property
    def rendering(self) -> tuple[object, ...]:
        """Everything that was made of the token ids."""
        return self.text, self.reasoning, self.tool_calls, self.finish


@dataclass(frozen=True)
class Scored:
    """The baseline's log probabilities of the tokens of an answer: of each token itself, and of the most likely ones in
    falling order, at least one, the token's own among them."""

    logprobs: tuple[float, ...]
    tops: tuple[tuple[float, ...], ...]
    best_ids: tuple[int, ...]  # the most likely token at each position

    @property
    def margins(self) -> tuple[float, ...]:
        """How much less likely each token is than the most likely one, in nats."""
        return tuple(top[0] - own for own, top in zip(self.logprobs, self.tops, strict=True))


@dataclass(frozen=True)
class Pair:
    """A request with both arms' answers, each scored by the baseline where that was possible and needed."""

    number: int
    ask: Ask
    baseline: Answer
    candidate: Answer
    own: Scored | None = None  # of the baseline's answer
    scored: Scored | None = None  # of the candidate's answer


@dataclass(frozen=True)
class Finding(Record):
    """A fault of one answer. ``rule``: of the gate; ``number``: of the request in the pass, from 0."""

    rule: str
    number: int
    kind: str  # of the request
    fault: str  # in words, without a text of the answer
    position: int | None = None  # of the token in the answer, from 0
    token: int | None = None
    expected: int | None = None
    margin: float | None = None  # nats
    reproduces: bool | None = None  # asked again, the candidate has the fault again; None where it was not asked
    on_baseline: bool = False  # the baseline, asked again, has the fault too


@dataclass(frozen=True)
class AnswerCheck(Record):
    """The result of a pass: counts, statistics and findings, no text.

    ``skipped``: rules, or kinds of requests, that could not run, with the reason. ``tau``: margin in nats above which a
    token is a fault, ``spread``: standard deviation of the baseline's own rounding from which it follows.
    """

    fidelity: str
    level: Level
    requests: int  # sent to each arm
    scored: int
    compared: Mapping[str, int] = field(default_factory=dict)  # answers of both arms by kind
    equal: int = 0  # with the same token ids, or the same text
    tied: int = 0  # that differ within tau
    tau: float | None = None
    spread: float | None = None
    e_value: float | None = None  # of sampled answers
    findings: tuple[Finding, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
