"""Replay of a proposer over known answers, counted as vLLM counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

Tokens = Sequence[int]


@dataclass(frozen=True)
class Conversation:
    """One request: the tokens of its prompt, with the chat template, and of its answer."""

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

    def end(self) -> None:
        """End the request."""


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
        proposer.end()
    return Counts(requests, generated, drafts, drafted, accepted, tuple(positions))


def _agreed(proposal: Tokens, answer: Tokens) -> int:
    for index, (guess, token) in enumerate(zip(proposal, answer, strict=False)):
        if guess != token:
            return index
    return min(len(proposal), len(answer))
