"""Compare greedy tokens with the baseline's own choice; the margin separates rounding from faults.

A token is a fault if the baseline finds another one more likely by more than ``tau``, or if the log probability that
the candidate reports for it differs from the baseline's by more than 0.8 tau. Tau comes from the baseline's own answers
of the same pass, so rounding by a quantised cache widens it. In a study on a real engine the two criteria recognised
304 of 309 planted faults and all of 85 ties; ``scripts/fidelity-table`` repeats it on a model whose probabilities are
known.

A grammar allows few tokens, which raw log probabilities do not know. Of a constrained answer the first difference alone
is judged, between two tokens that both arms' grammars allowed.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mpctl.experiment.answers import Answer, Ask, Pair, Scored, Tie

FLOOR = (
    1.0  # nats: a real fault shows at least as much (vllm-rbln 741), ties of bfloat16 up to 0.25
)
_SPREADS, _OWN, _SHIFT = 8.0, 2.0, 0.8
_MIDDLING = (-3.0, -0.05)  # log probabilities at which rounding shows
_NORMAL_99 = 2.58  # standard deviations that hold 99 % of a normal distribution
BROKEN = 6.0  # nats of tau: no rounding is as wide, so the baseline itself chooses tokens that it finds unlikely
FEWEST = 2  # answers of the baseline that are a control
FEWEST_SETTLED = 8  # tokens at least of an answer whose digest is compared
_CHANCE = 12.0  # nats: two independent answers agree on a text as surprising once in 160,000 pairs


@dataclass(frozen=True)
class TokenFault:
    """A token that is no tie, or where an answer ends otherwise."""

    fault: str
    position: int
    token: int | None = None
    expected: int | None = None
    margin: float | None = None
    shift: float | None = None


def tie_of(pairs: Iterable[Pair]) -> Tie | None:
    """Return the margin of ties by the baseline's own greedy answers; None without one that was scored."""
    largest, answers, shifts = 0.0, 0, list[float]()
    for pair in pairs:
        if pair.own is None or not pair.ask.greedy or pair.ask.reshaped:
            continue  # a grammar's mask is in the log probabilities of decoding, and in no score (vLLM 0.32)
        shifts += [
            abs(a - b)
            for a, b in zip(pair.baseline.logprobs, pair.own.logprobs, strict=False)
            if _MIDDLING[0] <= b <= _MIDDLING[1]
        ]
        answers += 1
        largest = max((largest, *pair.own.margins))
    if not answers:
        return None
    shifts.sort()
    spread = (
        shifts[min(len(shifts) - 1, math.floor(0.99 * len(shifts)))] / _NORMAL_99 if shifts else 0.0
    )
    return Tie(max(FLOOR, _SPREADS * spread, _OWN * largest), spread, largest, answers, len(shifts))


def wider(first: Tie | None, second: Tie | None) -> Tie | None:
    """Return the margin of ties that two passes allow, by the answers of both."""
    if first is None or second is None:
        return first or second
    tau, spread, largest = (
        max(first.tau, second.tau),
        max(first.spread, second.spread),
        max(first.largest, second.largest),
    )
    return Tie(tau, spread, largest, first.answers + second.answers, first.tokens + second.tokens)


def token_fault(
    ask: Ask, answer: Answer, scored: Scored, other: Answer, other_scored: Scored | None, tau: float
) -> TokenFault | None:
    """Return the first fault of a greedy answer, scored by the baseline; ``other``: the baseline's answer."""
    if ask.reshaped:
        return _first_difference(answer, scored, other, other_scored, tau)
    logprobs = (
        answer.logprobs
        if len(answer.logprobs) == len(scored.logprobs)
        else (None,) * len(scored.logprobs)
    )
    best = answer.best if len(answer.best) == len(scored.logprobs) else logprobs
    for position, (margin, theirs, mine, top) in enumerate(
        zip(scored.margins, scored.logprobs, logprobs, best, strict=True)
    ):
        shift = abs(mine - theirs) if mine is not None else None
        inner = top - mine if top is not None and mine is not None else 0.0
        fault = (
            "a token that the baseline finds unlikely"
            if margin > tau
            else "a token with another log probability than the baseline's"
            if (shift or 0.0) > _SHIFT * tau
            else "a token that the candidate itself finds unlikely"
            if inner > _SHIFT * tau
            else ""
        )
        if fault:
            return TokenFault(
                fault, position, answer.ids[position], scored.best_ids[position], margin, shift
            )
    return other_end(answer, other)


def _first_difference(
    answer: Answer, scored: Scored, other: Answer, other_scored: Scored | None, tau: float
) -> TokenFault | None:
    position = difference(answer.ids, other.ids)
    theirs = other_scored.logprobs if other_scored else other.logprobs
    if position is None or position >= min(len(scored.logprobs), len(theirs)):
        return other_end(answer, other)
    gap = abs(theirs[position] - scored.logprobs[position])
    if gap <= tau:
        return None
    fault = "the first token that differs is far from a tie"
    return TokenFault(fault, position, answer.ids[position], other.ids[position], gap)


def other_end(answer: Answer, other: Answer) -> TokenFault | None:
    """Return the fault of an answer that is the beginning of the other one, or the other way round: its end is no
    token's choice. Tokens behind the end that change nothing of the answer are none."""
    position = difference(answer.ids, other.ids)
    if (
        position is None
        or position < min(len(answer.ids), len(other.ids))
        or answer.rendering == other.rendering
    ):
        return None
    if answer.tokenized or other.tokenized:
        return None  # a text has no end token, so a tie may have ended it
    if len(answer.ids) < len(other.ids):
        return TokenFault("ends before its end token", position, None, other.ids[position])
    return TokenFault("continues after its end", position, answer.ids[position], None)


def difference(first: Sequence[object], second: Sequence[object]) -> int | None:
    """Return the first position at which two sequences differ, None where they are equal."""
    if first == second:
        return None
    pairs = enumerate(zip(first, second, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(first), len(second)))


def first_of(pairs: Iterable[Pair]) -> dict[int, int]:
    """Return by the number of each greedy request that was sent before the number of the first time."""
    numbers: dict[tuple[str, bool], int] = {}
    repeated = {}
    for pair in pairs:
        if pair.ask.greedy:
            first = numbers.setdefault((pair.ask.digest, pair.ask.stream), pair.number)
            if first != pair.number:
                repeated[pair.number] = first
    return repeated


def same_seed(answers: Sequence[tuple[int, Answer, Sequence[float]]]) -> int | None:
    """Return the number of a sampled answer that begins like another one of the same request with more than 12 nats of
    surprise in common; the probability of that is at most exp(-12) for each pair of independent answers.

    ``answers``: number, answer, and the log probability of each token at temperature 1.
    """
    for index, (number, answer, logprobs) in enumerate(answers):
        for _, other, _ in answers[:index]:
            common = difference(answer.ids, other.ids)
            if -math.fsum(logprobs[: len(answer.ids) if common is None else common]) > _CHANCE:
                return number
    return None


def sampled_groups(pairs: Iterable[Pair]) -> list[list[Pair]]:
    """Return the pairs of each request that was sampled at temperature 1 more than once."""
    groups: Mapping[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        if pair.ask.temperature == 1.0 and pair.ask.top_p == 1.0:
            groups[pair.ask.digest].append(pair)
    return [group for group in groups.values() if len(group) > 1]


def settled(ask: Ask, answer: Answer, scored: Scored, tau: float) -> str:
    """Return the digest of an answer whose first tokens are more than two tau from a tie each; "" where they are
    fewer than eight."""
    count = 0
    for margin, top in zip(scored.margins, scored.tops, strict=True):
        if ask.reshaped or margin or len(top) < 2 or top[0] - top[1] <= 2 * tau:
            break
        count += 1
    return settled_digest(answer, count) if count >= FEWEST_SETTLED else ""


def settled_digest(answer: Answer, count: int) -> str:
    """Return how many tokens are settled, and digests of these, of all ids and of what was made of them."""
    return f"{count}:{digest_of(answer.ids[:count])}:{digest_of(answer.ids)}:{digest_of(answer.rendering)}"


def digest_of(parts: Sequence[object]) -> str:
    """Return a digest of token ids, or of what was made of them."""
    return hashlib.sha256(",".join(map(str, parts)).encode()).hexdigest()[:16]


def differs_from(recorded: str, answer: Answer) -> bool:
    """Return whether an answer differs from a :func:`settled_digest`: in a settled token, or in what was made of the
    same ids."""
    count, first, whole, rendering = recorded.split(":")
    if digest_of(answer.ids[: int(count)]) != first:
        return True
    return digest_of(answer.ids) == whole and digest_of(answer.rendering) != rendering
