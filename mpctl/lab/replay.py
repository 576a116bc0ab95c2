"""Acceptance of lookup methods on logged prompts and answers, without an engine, counted as vLLM counts.

Prompt lookup (vLLM 0.32.0, ngram_proposer.py): the longest n-gram that ends the request and occurred before, at its
earliest place; what followed there is proposed.

Suffix decoding (ArcticInference 0.1.1): every ending of the request up to the tree's depth is looked up; the most
frequent continuation is followed while its probability lasts and the draft is no longer than the match allows; the
draft with the highest sum of probabilities wins. Where two continuations are equally frequent the library's choice may
differ.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mpctl.errors import InputError
from mpctl.json_types import JsonView

_ANSWERS = ("answer", "completion", "response")
_FORMS = (
    'a line is {"prompt": "...", "answer": "..."}, {"messages": [..., {"role": "assistant", "content": "..."}]}, '
    'or {"prompt_token_ids": [...], "token_ids": [...]}'
)


@dataclass(frozen=True)
class Transcript:
    """A request: texts, or ``tokens`` of prompt and answer. ``messages``: of a chat, without the answer."""

    prompt: str = ""
    messages: tuple[JsonView, ...] = ()
    answer: str = ""
    tokens: tuple[tuple[int, ...], tuple[int, ...]] | None = None


def read_transcripts(text: str, file: str) -> tuple[Transcript, ...]:
    """Every line of the file.

    Raises:
        InputError: a line is no JSON object or holds no prompt and answer; with its number.
    """
    transcripts = []
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        if line.strip():
            transcripts.append(_read(line, file, number))
    if not transcripts:
        raise InputError("holds no prompt with an answer", file=file, hint=_FORMS)
    return tuple(transcripts)


def _read(line: str, file: str, number: int) -> Transcript:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise InputError(f"not JSON: {error}", file=file, line=number, hint=_FORMS) from error
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InputError(
            "holds half of a surrogate pair, a text that was cut", file=file, line=number
        ) from error
    transcript = _made(record) if isinstance(record, Mapping) else None
    if transcript is None:
        raise InputError("holds no prompt with an answer", file=file, line=number, hint=_FORMS)
    return transcript


def _made(record: JsonView) -> Transcript | None:
    prompt_ids, ids = _ids(record.get("prompt_token_ids")), _ids(record.get("token_ids"))
    if prompt_ids is not None and ids is not None:
        return Transcript(tokens=(prompt_ids, ids))
    answer = next((record[key] for key in _ANSWERS if isinstance(record.get(key), str)), None)
    messages = record.get("messages")
    if (
        isinstance(messages, list)
        and messages
        and all(isinstance(message, Mapping) for message in messages)
    ):
        last = messages[-1]
        if (
            answer is None
            and last.get("role") == "assistant"
            and isinstance(last.get("content"), str)
        ):
            answer, messages = last["content"], messages[:-1]
        return (
            None
            if not answer or not messages
            else Transcript(messages=tuple(messages), answer=answer)
        )
    prompt = record.get("prompt")
    return (
        Transcript(prompt=prompt, answer=answer)
        if isinstance(prompt, str) and prompt and answer
        else None
    )


def _ids(value: Any) -> tuple[int, ...] | None:
    whole = isinstance(value, list) and all(
        isinstance(token, int) and not isinstance(token, bool) for token in value
    )
    return tuple(value) if whole else None


Tokens = Sequence[int]


@dataclass(frozen=True)
class Conversation:
    """A request: the tokens of its prompt, with the chat template, and of its answer."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]


class Proposer(Protocol):
    """Proposes tokens after those of one request that are known so far."""

    def begin(self, prompt: Tokens) -> None:
        """Start a request."""

    def extend(self, tokens: Tokens) -> None:
        """Take the tokens of the answer that a step generated."""

    def propose(self) -> Tokens:
        """The next tokens; empty where nothing matches."""


@dataclass(frozen=True)
class Counts:
    """The counters that the engine would report. ``per_position``: drafts accepted up to each position."""

    requests: int
    generated: int
    drafts: int
    drafted: int
    accepted: int
    per_position: tuple[int, ...]

    @property
    def steps(self) -> int:
        """Steps of the target, the prefill of each request included."""
        return self.generated - self.accepted

    @property
    def tokens_per_step(self) -> float:
        """Generated tokens over steps."""
        return self.generated / self.steps if self.steps else 1.0

    @property
    def coverage(self) -> float:
        """Share of steps with a proposal."""
        return self.drafts / self.steps if self.steps else 0.0

    @property
    def rates(self) -> tuple[float, ...]:
        """Acceptance rate per position over drafts."""
        return tuple(count / self.drafts for count in self.per_position) if self.drafts else ()


def replay(conversations: Iterable[Conversation], proposer: Proposer, k: int) -> Counts:
    """Run a proposer over answers whose tokens are known: as greedy verification accepts them.

    The first token is the prefill's. What an engine drafts past an answer's end is not known and counts as refused.
    """
    requests = generated = drafts = drafted = accepted = 0
    positions = [0] * k
    for conversation in conversations:
        if not conversation.answer:
            continue
        requests += 1
        generated += len(conversation.answer)
        proposer.begin(conversation.prompt)
        proposer.extend(conversation.answer[:1])
        done = 1
        while done < len(conversation.answer):
            proposal = list(proposer.propose())[:k]
            agreed = _agreed(proposal, conversation.answer[done : done + len(proposal)])
            if proposal:
                drafts += 1
                drafted += len(proposal)
                accepted += agreed
                for position in range(agreed):
                    positions[position] += 1
            step = conversation.answer[done : done + agreed + 1]
            proposer.extend(step)
            done += len(step)
    return Counts(requests, generated, drafts, drafted, accepted, tuple(positions))


def _agreed(proposal: Tokens, answer: Tokens) -> int:
    for index, (guess, token) in enumerate(zip(proposal, answer, strict=False)):
        if guess != token:
            return index
    return min(len(proposal), len(answer))


class PromptLookup:
    """The proposer of method ngram. Every n-gram's first place is kept, so that a step costs the same however long the
    request is."""

    def __init__(self, k: int, least: int, most: int, max_model_len: int | None = None) -> None:
        self._k, self._sizes = k, range(most, least - 1, -1)
        self._limit = max_model_len
        self._tokens: list[int] = []
        self._first: dict[tuple[int, ...], int] = {}

    def begin(self, prompt: Tokens) -> None:
        """Start a request."""
        self._tokens, self._first = [], {}
        self.extend(prompt)

    def extend(self, tokens: Tokens) -> None:
        """Append tokens. The n-grams that end in the last token are kept only when another follows: they would match
        themselves."""
        for token in tokens:
            self._keep()
            self._tokens.append(token)

    def _keep(self) -> None:
        end = len(self._tokens)
        for size in self._sizes:
            if size <= end:
                self._first.setdefault(tuple(self._tokens[end - size :]), end)

    def propose(self) -> Tokens:
        """The tokens after the earliest occurrence of the longest n-gram."""
        end = len(self._tokens)
        k = self._k if self._limit is None else min(self._k, self._limit - end)
        for size in self._sizes:
            place = self._first.get(tuple(self._tokens[end - size :])) if size <= end else None
            if place is not None:
                return self._tokens[place : place + max(k, 0)]
        return []


_MOST_PLACES = 64  # of an ending that are followed: the last ones
_INDEXED = 4  # tokens of an ending by which places are found; longer endings are compared


_LEAST_PROBABILITY = 0.1  # of a continuation that is followed; the library's default


class SuffixLookup:
    """The proposer of method suffix."""

    def __init__(self, k: int, *, depth: int = 24) -> None:
        self._k, self._depth = k, depth
        self._earlier = _Index()
        self._own = _Index()
        self._tokens: list[int] = []
        self._answer: list[int] = []

    def begin(self, prompt: Tokens) -> None:
        """Start a request with a tree of its own."""
        self._own = _Index()
        self._tokens, self._answer = list(prompt), []
        self._own.append(prompt)
        self._earlier.open()

    def extend(self, tokens: Tokens) -> None:
        """Append to both trees: an answer is known to the others while it grows."""
        self._tokens.extend(tokens)
        self._answer.extend(tokens)
        self._own.append(tokens)
        self._earlier.append(tokens)

    def propose(self) -> Tokens:
        """The better draft of both trees, the request's own first."""
        context = self._tokens[-self._depth :]
        proposal, own_score = self._speculate(self._own, context)
        other, other_score = self._speculate(self._earlier, context)
        return proposal if own_score >= other_score else other

    def _speculate(self, index: _Index, context: list[int]) -> tuple[list[int], float]:
        best: list[int] = []
        best_score = 0.0
        places: list[tuple[list[int], int]] = []
        for size in range(1, len(context)):
            if size <= _INDEXED:
                places = index.places(context[-size:])
            else:
                token = context[-size]
                places = [
                    (text, end)
                    for text, end in places
                    if end - size >= 0 and text[end - size] == token
                ]
            if not places:
                break
            most = min(self._k, size)
            draft, score = self._follow(places, most)
            if score >= best_score:
                best, best_score = draft, score
        return best, best_score

    def _follow(self, places: list[tuple[list[int], int]], most: int) -> tuple[list[int], float]:
        """Follow the most frequent continuation."""
        draft: list[int] = []
        probability, score = 1.0, 0.0
        while len(draft) < most:
            following = Counter(
                text[end + len(draft)] for text, end in places if end + len(draft) < len(text)
            )
            if not following:
                break
            token, count = following.most_common(1)[0]
            probability *= count / len(places)
            if probability < _LEAST_PROBABILITY:
                break
            places = [
                (text, end)
                for text, end in places
                if end + len(draft) < len(text) and text[end + len(draft)] == token
            ]
            draft.append(token)
            score += probability
        return draft, score


class _Index:
    """Texts, and where each ending of a few tokens occurred in them."""

    def __init__(self) -> None:
        self._text: list[int] = []
        self._places: dict[tuple[int, ...], list[tuple[list[int], int]]] = defaultdict(list)

    def open(self) -> None:
        """Begin another text."""
        self._text = []

    def append(self, tokens: Tokens) -> None:
        for token in tokens:
            self._text.append(token)
            place, ending = (self._text, len(self._text)), tuple(self._text[-_INDEXED:])
            for first in range(len(ending)):
                self._places[ending[first:]].append(place)

    def places(self, ending: Tokens) -> list[tuple[list[int], int]]:
        """Texts with the position behind each occurrence that something follows."""
        places = self._places.get(tuple(ending), [])
        return [place for place in places[-_MOST_PLACES:] if place[1] < len(place[0])]
