"""Requests whose answers the gate compares, the answers of both arms, and what is recorded of them.

An answer and its token ids exist in memory alone. A record holds numbers: of a finding the request by its place in the
pass, the position of the token, both tokens' ids and the margin between them, in nats.

A pass has three parts, in which only the platform sends requests (mpctl.gate.answers has the functions):

1. Both arms answer the same requests. The baseline scores the candidate's greedy answers whose token ids differ from
   its own, all sampled answers of the candidate, and at least a dozen greedy answers of its own as a control.
   :func:`mpctl.gate.answers.examine` makes an :class:`AnswerCheck` of the pairs.
2. :func:`mpctl.gate.answers.to_confirm` names the requests that decide. Each is sent again alone, and the candidate's
   first answer is scored again: a :class:`Repeat` each.
3. :func:`mpctl.gate.answers.confirm` adds what they show. Only a confirmed finding refuses.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from mpctl.json_types import JsonView
from mpctl.records import Record

OWN = "own"  # the kind of requests that are users', of a file or a log


class AnswerRule(StrEnum):
    """The rules about answers, by their names in the gate."""

    TOKENS = "chosen tokens"
    LAW = "sampled tokens"
    RENDERING = "rendering"
    VALIDITY = "validity"
    SESSIONS = "sessions"
    SEEDS = "seeds"


class Level(StrEnum):
    """The content that an endpoint gives of an answer: its token ids, its text (tokenized again), or what was parsed of
    it."""

    IDS = "token ids"
    TEXT = "text"
    PARSED = "parsed answers"


GRAMMAR = (
    "response_format",
    "structured_outputs",
)  # settings that hold an answer to a form, as guided_... do
_RESHAPING = (
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "bad_words",
    "allowed_token_ids",
)


def has_grammar(body: JsonView) -> bool:
    """Return whether a request asks for answers of a form."""
    return any(
        value and (name in GRAMMAR or name.startswith("guided_")) for name, value in body.items()
    )


@dataclass(frozen=True)
class Ask:
    """A request. ``body``: its messages, tools and response format, as the chat API takes them.

    A pass may hold the same body twice. Greedy ones that differ in ``stream`` alone test the streaming parser, those
    that agree in everything a prefix that was cached in between; sampled ones test whether seeds are used again.
    """

    kind: str
    body: JsonView
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
        """True when a grammar may hold the answer."""
        calls = self.body.get("tools") and self.body.get("tool_choice") != "none"
        return bool(calls or has_grammar(self.body))

    @property
    def reshaped(self) -> bool:
        """True when a grammar or a setting may change the probabilities of tokens, which the log probabilities of a
        scored prompt do not know."""
        repetition = self.body.get("repetition_penalty") not in (None, 1)
        return self.constrained or repetition or any(map(self.body.get, _RESHAPING))

    @property
    def digest(self) -> str:
        """Identifies the request without its text, whether it is streamed or not."""
        fields = [self.body, self.max_tokens, self.temperature, self.top_p]
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class ToolCall:
    """A call as the server parsed it. ``arguments``: JSON text, as it came."""

    name: str
    arguments: str


@dataclass(frozen=True)
class Answer:
    """An answer. ``logprobs``: the engine's own log probability of each token, ``best``: of the most likely one there;
    both empty where the engine reports none. ``alternatives``: by token id, the log probabilities of the most likely
    ones, of an arm that will not be there to score the other's answer. ``error``: why there is no answer, without a
    word of the request."""

    prompt_ids: tuple[int, ...] = ()
    ids: tuple[int, ...] = ()
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish: str = ""  # stop, length or tool_calls
    logprobs: tuple[float, ...] = ()
    best: tuple[float, ...] = ()
    alternatives: tuple[Mapping[int, float], ...] = ()
    error: str = ""
    seconds: float = field(
        default=0.0, compare=False
    )  # of the whole answer, 0 where nobody took it
    model: str = ""  # the adapter that was asked, empty for the engine's own model
    tokenized: bool = (
        False  # the ids are those of the text, which may have been sampled as other ones
    )
    surplus: int = field(
        default=0, compare=False
    )  # token ids beyond those that were asked for, which were cut
    document_fits: bool = field(
        default=True, compare=False
    )  # the text is JSON of the schema that was asked for
    arguments_fit: bool = field(default=True, compare=False)  # so are the arguments of all calls
    unread_schema: str = field(
        default="", compare=False
    )  # why a schema could not be read; such a one fits everything

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
        """Return how much less likely each token is than the most likely one, in nats."""
        return tuple(top[0] - own for own, top in zip(self.logprobs, self.tops, strict=True))


def scored_by(baseline: Answer, candidate: Answer) -> Scored | None:
    """Score a candidate's answer by the alternatives that came with the baseline's, up to the first token in which they
    differ: behind it the baseline never was. None without alternatives, or where one answer ends the other."""
    tokens = list(zip(candidate.ids, baseline.ids, strict=False))
    first = next((n for n, (token, other) in enumerate(tokens) if token != other), None)
    if first is None or len(baseline.alternatives) <= first:
        return None
    rows = baseline.alternatives[: first + 1]
    chosen = [
        row.get(token, min(row.values())) for token, row in zip(candidate.ids, rows, strict=False)
    ]
    return Scored(
        tuple(chosen),
        tuple(tuple(sorted(row.values(), reverse=True)) for row in rows),
        tuple(max(row, key=lambda token: row[token]) for row in rows),
    )


def behind(baseline: Sequence[Answer], answers: Sequence[Answer]) -> tuple[Answer, ...]:
    """Return answers behind the prompts that the baseline read, of which they are to be the continuation: a gateway
    that mixes requests up returns the other one's prompt as well."""
    rows = zip(baseline, answers, strict=True)
    return tuple(
        replace(answer, prompt_ids=own.prompt_ids or answer.prompt_ids) for own, answer in rows
    )


@dataclass(frozen=True)
class Pair:
    """A request with both arms' answers, each scored by the baseline where that was possible and needed."""

    number: int
    ask: Ask
    baseline: Answer
    candidate: Answer
    own: Scored | None = (
        None  # of the baseline's answer; with two alternatives or more its gaps are known
    )
    scored: Scored | None = (
        None  # of the candidate's answer; of a sampled answer with 20 alternatives; see scored_by
    )

    @property
    def equal(self) -> bool:
        """True when both answers have the same token ids, or the same text where one has none."""
        if self.baseline.ids and self.candidate.ids:
            return self.baseline.ids == self.candidate.ids
        return self.baseline.rendering == self.candidate.rendering


@dataclass(frozen=True)
class BaselineAnswers:
    """The baseline's part of a pass: ``own`` has its scores of its greedy answers, ``skipped`` the kinds of requests
    that it refuses, with the reason."""

    asks: tuple[Ask, ...]
    answers: tuple[Answer, ...]
    own: tuple[Scored | None, ...]
    skipped: Mapping[str, str]


@dataclass(frozen=True)
class Repeat:
    """A request of a finding sent again. ``alone``: fresh answers of both arms with nothing else running, the
    baseline's and the candidate's scored; ``loaded``: the same at the concurrency of the pass, where it was measured.
    ``rescored``: the baseline's second score of the candidate's first answer. ``alone.number`` is the first pair's."""

    alone: Pair
    rescored: Scored | None = None
    loaded: Pair | None = None


class Reproduction(StrEnum):
    """The answer to whether a fault occurs again."""

    ALONE = "reproduces alone"
    LOADED = "reproduces under load only"
    TRANSIENT = "does not reproduce"


@dataclass(frozen=True)
class AnswerFinding(Record):
    """A fault of one answer. ``rule``: of the gate; ``number``: of the request in the pass, from 0.

    ``confirmed``: the baseline's second score, or the answer itself, shows the fault again; None before confirmation.
    A finding that is not confirmed, or that the baseline has as well, refuses nothing.
    """

    rule: AnswerRule
    number: int
    kind: str  # of the request
    fault: str  # in words, without a text of the answer
    position: int | None = None  # of the token in the answer, from 0
    token: int | None = None
    expected: int | None = None
    margin: float | None = None  # nats by which the baseline finds the expected token more likely
    shift: float | None = None  # nats between the two arms' log probabilities of the token
    confirmed: bool | None = None
    reproduction: Reproduction | None = None
    on_baseline: bool = False  # the baseline has the fault too


@dataclass(frozen=True)
class RuleCount(Record):
    """The result of one rule over a pass. ``baseline``, ``candidate``: answers with a fault of each arm; ``alone``:
    those that only the candidate has. ``p``: of the exact test, where rates decide; ``unread``: the requests whose
    schemas could not be read, in words; ``missing``: why the rule could not run; ``impossible``: True where no pass on
    these arms could have run it. ``applies`` is False where nothing of the pass is for it to judge."""

    compared: int = 0
    baseline: int = 0
    candidate: int = 0
    alone: int = 0
    p: float | None = None
    e_value: float | None = None
    missing: str = ""
    applies: bool = True
    impossible: bool = False
    unread: str = ""


@dataclass(frozen=True)
class Tie(Record):
    """``tau``: margin in nats above which a token is a fault; it is the largest of a floor, of eight times ``spread``
    (standard deviation between the baseline's own log probabilities while decoding and while scoring, over ``tokens``)
    and of twice ``largest`` (margin of the baseline's own ``answers``, scored by itself)."""

    tau: float
    spread: float
    largest: float
    answers: int
    tokens: int


@dataclass(frozen=True)
class AnswerCheck(Record):
    """The result of a pass: counts, statistics, findings and digests, no text. ``skipped``: kinds of requests that
    could not be sent, with the reason."""

    fidelity: str
    level: Level
    requests: int  # sent to each arm
    scored: int
    rules: Mapping[AnswerRule, RuleCount] = field(default_factory=dict)
    compared: Mapping[str, int] = field(default_factory=dict)  # answers of both arms by kind
    equal: int = 0  # with the same token ids, or the same text
    tied: int = 0  # that differ within tau
    unscored: int = 0  # that differ, and are more than may be scored between rounds
    tie: Tie | None = None
    findings: tuple[AnswerFinding, ...] = ()
    settled: Mapping[str, str] = field(
        default_factory=dict
    )  # by the request's digest, of tokens far from every tie
    skipped: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_record(cls, record: Any) -> Self:
        """The check that :meth:`to_record` wrote, without a rule that is none any more."""
        rules = {name: count for name, count in record["rules"].items() if name in set(AnswerRule)}
        return super().from_record({**record, "rules": rules})
