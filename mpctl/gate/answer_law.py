"""Sampled tokens against the baseline's law of each token: a test that is valid at any time.

The baseline's log probabilities give the probability of every token, so the candidate's choices are tested against a
known law and no answers of the baseline are needed. Evidence is an e-value: the mean over alternatives of the product
of likelihood ratios. If the law holds, its expectation is at most 1 at any time, so it exceeds 200 with a probability
of at most 0.5 % however often one looks (Ville 1939; Vovk and Wang, Annals of Statistics 49, 2021).

Tokens less likely than the last alternative that is listed are one class, whose probability is what the others leave.
At another temperature than 1 it is only bounded; a position where the bound exceeds 2 % is left out. Which positions
are left out depends on the tokens before them alone, so the test stays valid.

Rounding flattens a law on average: if each logit has independent errors of variance v in one arm against the other, a
probability p becomes p (1 + v (Q - p)) to second order, where Q is the sum of squared probabilities. The law tested is
that one, with v from the baseline's own control; at another temperature T the errors are 1/T times as large. The
control is an estimate, so v may be half as large again, or half as small: evidence counts against the likeliest of
these laws (universal inference: Wasserman, Ramdas and Balakrishnan, PNAS 117, 2020).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from mpctl.experiment.answers import Scored
from mpctl.stats.numerics import Bools, Floats, np

REFUSES = 200.0  # e-value
_TILTS = (-0.5, -0.2, -0.07, 0.07, 0.2, 0.5, 2.0)  # of the logits: another temperature
_ANYWHERE = (0.0003, 0.002, 0.01, 0.05, 0.3)  # share of tokens that come from anywhere
_GREEDY = (0.03, 0.1, 0.3)  # share of tokens that are taken greedily
_ROUNDINGS = (0.5, 1.5)  # times the variance of the control, which the law may have as well
_ALTERNATIVES = len(_TILTS) + len(_ANYWHERE) + len(_GREEDY)
_VOCABULARY = (
    30_000.0  # at least; a share of tokens from anywhere falls on the listed ones by as much
)
_LARGEST_VOCABULARY = 300_000.0
_UNKNOWN = 0.02  # probability of the unlisted tokens above which their bound is too wide
_LEAST = 1e-5  # probability of a class: a difference of sums near 1 is known no better
_OUTSIDE = 0.3  # nats beyond the nucleus that rounding explains
_SPREADS = 8.0
_LISTED = 20


@dataclass(frozen=True)
class Outside:
    """A token outside the nucleus, by ``margin`` nats."""

    number: int
    position: int
    margin: float


@dataclass(frozen=True)
class LawResult:
    """``e_value``: the largest after any answer; ``crossed``: number of the answer with which it first refuses;
    ``tokens``: judged, of ``answers``."""

    e_value: float = 1.0
    crossed: int | None = None
    outside: tuple[Outside, ...] = ()
    tokens: int = 0
    answers: int = 0


@dataclass
class _LikelihoodEvidence:
    """Logarithms of the products of likelihood ratios, one per alternative, then one per other rounding of the law."""

    logs: list[float] = field(default_factory=lambda: [0.0] * (_ALTERNATIVES + len(_ROUNDINGS)))

    def log_mean(self) -> float:
        """Logarithm of the mean over the alternatives, against the likeliest law."""
        alternatives = self.logs[:_ALTERNATIVES]
        top = max(alternatives)
        mean = top + math.log(math.fsum(math.exp(v - top) for v in alternatives) / _ALTERNATIVES)
        return mean - max(0.0, *self.logs[_ALTERNATIVES:])


def examine_law(answers: Iterable[tuple[int, float, float, Scored]], spread: float) -> LawResult:
    """Test sampled answers in order. ``answers``: number, temperature, top_p and the baseline's scores of each.
    ``spread``: as in :class:`mpctl.experiment.answers.Tie`. Answers of each temperature and top_p have an e-value of
    their own; the mean of e-values is one."""
    evidence: dict[tuple[float, float], _LikelihoodEvidence] = {}
    outside: list[Outside] = []
    largest, crossed, tokens, count = 0.0, None, 0, 0
    listed = list(answers)
    settings = len({(temperature, top_p) for _, temperature, top_p, _ in listed}) or 1
    for number, temperature, top_p, scored in listed:
        mine = evidence.setdefault((temperature, top_p), _LikelihoodEvidence())
        ratios, beyond = likelihood_ratios(scored, temperature, top_p, spread)
        count += 1
        tokens += len(ratios)
        outside += [Outside(number, position, margin) for position, margin in beyond]
        mine.logs = [
            log + float(step) for log, step in zip(mine.logs, ratios.sum(axis=0), strict=True)
        ]
        logs = [e.log_mean() for e in evidence.values()] + [0.0] * (settings - len(evidence))
        top = max(logs)
        value = top + math.log(math.fsum(math.exp(v - top) for v in logs) / settings)
        largest = max(largest, value)
        if crossed is None and value > math.log(REFUSES):
            crossed = number
    return LawResult(math.exp(min(largest, 700.0)), crossed, tuple(outside), tokens, count)


def likelihood_ratios(
    scored: Scored, temperature: float, top_p: float, spread: float
) -> tuple[Floats, list[tuple[int, float]]]:
    """Return the logarithm of the likelihood ratio of each judged token under each alternative and each other rounding
    of the law, and the positions of tokens beyond the nucleus with their distance in nats."""
    width = min(_LISTED, *(len(top) for top in scored.tops)) if scored.tops else 0
    if width < 2:
        return np.zeros((0, len(_LikelihoodEvidence().logs))), []
    tops = np.array([top[:width] for top in scored.tops], dtype=np.float64)
    logprobs = np.array(scored.logprobs, dtype=np.float64)
    border = tops[:, -1:]
    complete = (
        tops > border
    )  # equal ones at the end of the list may have equals that are not listed
    weights = np.where(complete, np.exp(tops), 0.0)
    unlisted = np.clip(1.0 - weights.sum(axis=1), 0.0, 1.0)
    inverse = 1.0 / temperature
    weights = np.where(complete, np.exp(tops * inverse), 0.0)
    if temperature < 1.0:
        unlisted = unlisted * np.exp(border[:, 0] * (inverse - 1.0))
    elif temperature > 1.0:
        unlisted = unlisted**inverse * _LARGEST_VOCABULARY ** (1.0 - inverse)
    total = weights.sum(axis=1) + unlisted
    weights, unlisted = weights / total[:, None], unlisted / total
    judged = np.ones(len(logprobs), dtype=bool) if temperature == 1.0 else unlisted <= _UNKNOWN
    beyond: list[tuple[int, float]] = []
    if top_p < 1.0:
        likelier = np.clip((weights * (tops > logprobs[:, None])).sum(axis=1), 1e-9, 1 - 1e-9)
        judged &= ~_rounding_moves_border(weights, top_p, spread * inverse)
        weights, inside, reaches = _nucleus(tops, weights, top_p)
        judged &= ~reaches
        unlisted = np.zeros_like(unlisted)
        tolerance = max(_OUTSIDE, _SPREADS * spread)
        last = np.where(inside, tops, np.inf).min(axis=1)
        mass = np.log(likelier / (1.0 - likelier)) - math.log(top_p / (1.0 - top_p))
        # Rounding may swap two tokens, or move the border's mass.
        gaps = np.minimum(last - logprobs, temperature * mass)
        beyond = [(int(n), float(gaps[n])) for n in np.flatnonzero(judged & (gaps > tolerance))]
        judged &= gaps <= tolerance
        logprobs = np.maximum(logprobs, last)
    if not judged.any():
        return np.zeros((0, len(_LikelihoodEvidence().logs))), beyond
    ratios = _of_classes(
        tops[judged],
        weights[judged],
        unlisted[judged],
        logprobs[judged],
        2.0 * (spread * inverse) ** 2,
    )
    return ratios, beyond


def _nucleus(tops: Floats, weights: Floats, top_p: float) -> tuple[Floats, Bools, Bools]:
    """Return the probabilities within the nucleus, which tokens it may hold, and where it reaches beyond the list. Of
    equally likely tokens at its border as many are in as its mass asks for; which ones is unknown, so they share it."""
    before = np.cumsum(weights, axis=1) - weights
    needed = before < top_p
    needed[:, 0] = True
    needed &= weights > 0.0
    reaches = weights.sum(axis=1) < top_p
    equal = tops[:, :, None] == tops[:, None, :]
    members = (weights > 0.0).astype(np.float64)
    inside = (equal & needed[:, None, :]).any(axis=2) & (weights > 0.0)
    share = (equal * needed[:, None, :]).sum(axis=2) / np.maximum(
        (equal * members[:, None, :]).sum(axis=2), 1.0
    )
    weights = weights * share * inside
    return weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300), inside, reaches


def _rounding_moves_border(weights: Floats, top_p: float, spread: float) -> Bools:
    """Return where errors of three standard deviations may put another token at the border of the nucleus: the mass
    before a token is then near ``top_p``."""
    before = np.clip((np.cumsum(weights, axis=1) - weights)[:, 1:], 1e-9, 1 - 1e-9)
    distance = np.abs(np.log(before / (1.0 - before)) - math.log(top_p / (1.0 - top_p)))
    near = distance < 3.0 * math.sqrt(2.0) * spread
    return np.asarray(near.any(axis=1), dtype=np.bool_)


def _of_classes(
    tops: Floats,
    weights: Floats,
    unlisted: Floats,
    own: Floats,
    variance: float,
) -> Floats:
    """Return the logarithms of the likelihood ratios. The last class is that of the unlisted tokens. Equally likely
    tokens have equal ratios, so they need not be told apart."""
    rows = np.arange(len(own))
    law = np.concatenate([weights, unlisted[:, None]], axis=1)
    squares = (law**2).sum(axis=1, keepdims=True)
    flattened = [
        law * np.maximum(1.0 + times * variance * (squares - law), 0.0)
        for times in (1.0, *_ROUNDINGS)
    ]
    law, *others = (each / each.sum(axis=1, keepdims=True) for each in flattened)
    hits = tops == own[:, None]
    hits &= weights > 0.0
    chosen = np.where(hits.any(axis=1), hits.argmax(axis=1), law.shape[1] - 1)
    null = np.maximum(law[rows, chosen], _LEAST)
    logits = np.concatenate([tops, tops[:, -1:]], axis=1)
    logits = logits - logits[:, :1]
    best = (tops == tops[:, :1]) & (weights > 0.0)
    greedy = np.concatenate([best, np.zeros((len(own), 1), dtype=bool)], axis=1)
    greedy_law = greedy / np.maximum(greedy.sum(axis=1, keepdims=True), 1)
    listed = (weights > 0.0).sum(axis=1, keepdims=True)
    uniform = np.where(np.arange(law.shape[1]) < law.shape[1] - 1, 1.0 / _VOCABULARY, 0.0) * (
        law > 0.0
    )
    uniform[:, -1] = 1.0 - listed[:, 0] / _VOCABULARY if bool(unlisted.any()) else 0.0
    logs = []
    for tilt in _TILTS:
        tilted = law * np.exp(tilt * logits)
        logs.append(tilted[rows, chosen] / tilted.sum(axis=1))
    logs += [
        (1.0 - share) * law[rows, chosen] + share * uniform[rows, chosen] for share in _ANYWHERE
    ]
    logs += [
        (1.0 - share) * law[rows, chosen] + share * greedy_law[rows, chosen] for share in _GREEDY
    ]
    logs += [other[rows, chosen] for other in others]
    ratios: Floats = np.log(np.maximum(np.stack(logs, axis=1), 1e-12) / null[:, None])
    return ratios
