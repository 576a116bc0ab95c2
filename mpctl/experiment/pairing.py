"""Pair the requests of both arms by prompt, and condense each round to one number per figure.

A prompt decides the length of its answer and how well it can be drafted, which is most of the variance between
requests; a paired ratio removes it.

Requests that stall are cut, so that a few of them do not decide a mean. A request stalls when its time is more than
STALL times both that of the same prompt on the other arm and the median of its own arm; it then counts as STALL times
the larger. Comparing it with its partner leaves a prompt alone that is slow on both arms, and comparing it with its arm
leaves a large gain alone, which is no stall of the baseline. Both arms are cut by the same rule, so equal arms stay
equal.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from mpctl.experiment.arm import NO_TEXT
from mpctl.experiment.block import BASELINE, CANDIDATE, Block, Sample
from mpctl.experiment.counters import Window
from mpctl.experiment.run import STALL
from mpctl.stats.numerics import Floats, np

_CLOCKS = (
    0.1  # by which the client's mean may differ from the engine's for its stalls to be the engine's
)

MUCH = 1.5  # times as long as on the other arm
Pair = tuple[Sample, Sample]
Cut = Mapping[int, Sample]
"""Samples with shorter times, by the identity of those that they replace."""


def cut_samples(pairs: Sequence[Pair]) -> dict[int, Sample]:
    """Return the requests that stall with their times cut: the time to the first token, and that of the whole request
    by its tokens."""
    timed = [pair for pair in pairs if all(s.ttft_ms and s.e2e_ms and s.tokens for s in pair)]
    if not timed:
        return {}
    first = [np.array([pair[arm].ttft_ms for pair in timed], dtype=np.float64) for arm in (0, 1)]
    tokens = [np.array([pair[arm].tokens for pair in timed], dtype=np.float64) for arm in (0, 1)]
    whole = [np.array([pair[arm].e2e_ms for pair in timed], dtype=np.float64) for arm in (0, 1)]
    shortened: dict[int, Sample] = {}
    for arm in (0, 1):
        ttft = _limited(first[arm], first[1 - arm])
        e2e = tokens[arm] * _limited(whole[arm] / tokens[arm], whole[1 - arm] / tokens[1 - arm])
        for index in np.flatnonzero((ttft < first[arm]) | (e2e < whole[arm] * (1 - 1e-9))):
            sample = timed[index][arm]
            times = float(ttft[index]), float(max(e2e[index], ttft[index]))
            shortened[id(sample)] = replace(sample, ttft_ms=times[0], e2e_ms=times[1])
    return shortened


def _limited(times: Floats, partners: Floats) -> Floats:
    return np.minimum(times, STALL * np.maximum(partners, np.median(times)))


def cut_block(block: Block, cut: Cut) -> Block:
    """Return the block with the samples in ``cut``.

    Its duration, unless requests arrive at a rate, and the engine's sums follow the client's times. The engine's sums
    stay where its clock does not agree with the client's, which may have received chunks merged.
    """
    samples = tuple(cut.get(id(s), s) for s in block.samples)
    if samples == block.samples:
        return block
    changed = replace(block, samples=samples)
    window = block.window
    first = _factor(block, changed, "ttft_ms", block.ttft_ms)
    later = _factor(block, changed, "tpot_ms", window.tpot_ms)
    whole = _sum(changed, "e2e_ms") / _sum(block, "e2e_ms") if block.cell.rate is None else 1.0
    return replace(
        changed,
        duration_s=block.duration_s * whole,
        held_ms=block.held_ms * first,
        window=replace(
            window,
            ttft_seconds=None if window.ttft_seconds is None else window.ttft_seconds * first,
            tpot_seconds=None if window.tpot_seconds is None else window.tpot_seconds * later,
        ),
    )


def _sum(block: Block, name: str) -> float:
    return math.fsum(getattr(s, name) or 0.0 for s in block.samples)


def _factor(block: Block, changed: Block, name: str, engine: float | None) -> float:
    """Return by how much the engine's sum shrinks: as much as the client's, where their means agree."""
    before, count = _sum(block, name), sum(getattr(s, name) is not None for s in block.samples)
    if not engine or not before or abs(before / count / engine - 1.0) > _CLOCKS:
        return 1.0
    return _sum(changed, name) / before


@dataclass(frozen=True)
class Round:
    """Both arms' blocks of one round, and their requests paired by prompt, in order."""

    baseline: Block
    candidate: Block
    pairs: tuple[tuple[Sample, Sample], ...]

    @property
    def number(self) -> int:
        """The round's number, the same in every cell."""
        return self.baseline.repeat

    @property
    def seconds(self) -> float:
        """Time of both blocks, without the pause between them."""
        return self.baseline.duration_s + self.candidate.duration_s

    @property
    def time_per_token_ratios(self) -> list[float]:
        """Time per output token of the whole request, candidate over baseline, of each prompt that both answered."""
        return [
            (cand.e2e_ms / cand.tokens) / (base.e2e_ms / base.tokens)
            for base, cand in self.pairs
            if base.e2e_ms and cand.e2e_ms and base.tokens and cand.tokens
        ]


@dataclass(frozen=True)
class Pairing:
    """``rounds`` in order, and the counts that :class:`mpctl.gate.analysis.Comparison` explains."""

    rounds: tuple[Round, ...]
    compared: int
    different: int
    newly_failed: int
    newly_answered: int
    textless: int
    new_error: str = ""
    unpaired_failed: int = 0
    joined: bool = False  # the arms are of two measurements

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> Pairing:
        """Pair the blocks of one cell by round and their requests by prompt."""
        by_key = {(b.arm, b.repeat): b for b in blocks}
        rounds = []
        for repeat in sorted({b.repeat for b in blocks}):
            base, cand = by_key.get((BASELINE, repeat)), by_key.get((CANDIDATE, repeat))
            if base is not None and cand is not None:
                rounds.append(Round(base, cand, _pairs(base, cand)))
        compared = different = newly_failed = newly_answered = textless = failed = 0
        new_error = ""
        for base_sample, cand_sample in (pair for round_ in rounds for pair in round_.pairs):
            if base_sample.error or cand_sample.error:
                failed += bool(cand_sample.error)
                new_error = new_error or ("" if base_sample.error else cand_sample.error)
                newly_failed += not base_sample.error
                newly_answered += not cand_sample.error
            elif base_sample.text_digest == cand_sample.text_digest == NO_TEXT:
                textless += 1
            else:
                compared += 1
                different += base_sample.text_digest != cand_sample.text_digest
        every = sum(bool(s.error) for b in blocks if b.arm == CANDIDATE for s in b.samples)
        return cls(
            tuple(rounds),
            compared,
            different,
            newly_failed,
            newly_answered,
            textless,
            new_error,
            every - failed,
        )

    def without_stalls(self) -> Pairing:
        """The same with the requests cut that stall."""
        cut = cut_samples([pair for r in self.rounds for pair in r.pairs])
        if not cut:
            return self
        rounds = tuple(
            Round(
                cut_block(r.baseline, cut),
                cut_block(r.candidate, cut),
                tuple((cut.get(id(base), base), cut.get(id(cand), cand)) for base, cand in r.pairs),
            )
            for r in self.rounds
        )
        return replace(self, rounds=rounds)

    @property
    def separate(self) -> bool:
        """True when the arms are of two measurements, or one was measured as a whole before the other: a change of the
        machine between the two looks like a difference between them."""
        if self.joined:
            return True
        base, cand = (
            [_started(getattr(r, arm)) for r in self.rounds] for arm in (BASELINE, CANDIDATE)
        )
        return len(self.rounds) > 1 and (max(base) < min(cand) or max(cand) < min(base))

    def time_per_token_logs(self) -> dict[int, float]:
        """Return by the round's number the mean logarithm of its prompts' time-per-token ratios."""
        logs = {
            r.number: [math.log(ratio) for ratio in r.time_per_token_ratios] for r in self.rounds
        }
        return {
            number: math.fsum(of_round) / len(of_round)
            for number, of_round in logs.items()
            if of_round
        }

    @property
    def miscounted(self) -> float | None:
        """Return by what share the candidate's tokens by usage differ from the baseline's, for as many token ids where
        every answer has them, else over answers with the same text; None where there are none. A parser may hide ids
        from the client, on both arms alike."""
        arms = [[getattr(r, arm) for r in self.rounds] for arm in (BASELINE, CANDIDATE)]
        if all(block.id_count for blocks in arms for block in blocks) and self.rounds:
            base, cand = (
                sum(b.output_tokens for b in blocks) / sum(b.id_count or 0 for b in blocks)
                for blocks in arms
            )
        else:
            pairs = [p for r in self.rounds for p in r.pairs if p[0].tokens and p[1].tokens]
            equal = [p for p in pairs if p[0].text_digest == p[1].text_digest != NO_TEXT]
            base, cand = (sum(pair[arm].tokens for pair in equal) for arm in (0, 1))
        return abs(cand / base - 1.0) if base else None

    def request_times(self) -> dict[int, tuple[float, float]]:
        """Return by the round's number both arms' mean time of a whole request that both answered, ms."""
        times = {
            r.number: [(b.e2e_ms, c.e2e_ms) for b, c in r.pairs if b.e2e_ms and c.e2e_ms]
            for r in self.rounds
        }
        return {
            n: (_mean([b for b, _ in t]), _mean([c for _, c in t])) for n, t in times.items() if t
        }

    @property
    def much_slower(self) -> tuple[int, int, int]:
        """Return how many prompts took more than MUCH times as long on the candidate, how many on the baseline, and how
        many both answered."""
        ratios = [c.e2e_ms / b.e2e_ms for b, c in self._timed_pairs()]
        return sum(r > MUCH for r in ratios), sum(r < 1.0 / MUCH for r in ratios), len(ratios)

    def stalls(self) -> list[float]:
        """Return the times of the candidate's requests that stall, over the mean of its others."""
        timed = [
            (b.e2e_ms / b.tokens, c.e2e_ms / c.tokens, c.e2e_ms) for b, c in self._timed_pairs()
        ]
        if not timed:
            return []
        typical = statistics.median(cand for _, cand, _ in timed)
        stalled = [e2e for base, cand, e2e in timed if cand > STALL * max(base, typical)]
        others = math.fsum(e2e for _, _, e2e in timed) - math.fsum(stalled)
        return [e2e * (len(timed) - len(stalled)) / others for e2e in stalled] if others else []

    def _timed_pairs(self) -> list[tuple[Any, Any]]:
        return [
            (b, c)
            for r in self.rounds
            for b, c in r.pairs
            if b.e2e_ms and c.e2e_ms and b.tokens and c.tokens
        ]

    def length_logs(self) -> list[float]:
        """Return per round the logarithm of the candidate's tokens over the baseline's, of prompts both answered."""
        both = [[p for p in r.pairs if p[0].tokens and p[1].tokens] for r in self.rounds]
        sums = [
            (sum(base.tokens for base, _ in p), sum(cand.tokens for _, cand in p))
            for p in both
            if p
        ]
        return [math.log(cand / base) for base, cand in sums]

    def throughput_logs(self) -> dict[int, float]:
        """Return by the round's number the logarithm of the candidate's throughput over the baseline's."""
        both = [(r.number, r.baseline.throughput, r.candidate.throughput) for r in self.rounds]
        return {number: math.log(cand / base) for number, base, cand in both if base and cand}

    @property
    def pooled_throughput_ratio(self) -> float | None:
        """Throughput over all rounds together, candidate over baseline."""
        if not self.rounds:
            return None
        arms = [[getattr(r, arm) for r in self.rounds] for arm in (BASELINE, CANDIDATE)]
        base, cand = (
            sum(b.output_tokens for b in blocks) / math.fsum(b.duration_s for b in blocks)
            for blocks in arms
        )
        return cand / base if base else None

    def times(self, name: str) -> list[tuple[float, float]]:
        """Return per round both arms' mean of ``ttft_ms``, ``tpot_ms`` or ``queue_wait_ms`` by the engines' clocks.

        TTFT includes the time that the load client held requests back. Where an engine reports no such time, both arms
        have the load client's mean; it has no queue wait. An engine may count a request after its answer, so that a
        round of one prompt has none, and the next has two: such rounds are left out, unless they are half of all.
        """
        by_engine = [
            (_engine_mean(r.baseline, name), _engine_mean(r.candidate, name)) for r in self.rounds
        ]
        complete = [
            (base, cand) for base, cand in by_engine if base is not None and cand is not None
        ]
        if len(complete) == len(by_engine):
            return complete
        if name == "queue_wait_ms":
            return complete if 2 * len(complete) > len(by_engine) else []
        theirs = [
            (_client_mean(r.baseline, name), _client_mean(r.candidate, name)) for r in self.rounds
        ]
        return [(base, cand) for base, cand in theirs if base is not None and cand is not None]

    @property
    def late_ms(self) -> float | None:
        """Return how much later than by its engine's clock the load client gets a first token of the candidate, less
        the same of the baseline: the median over the rounds, ms. None where an engine reports no such time."""
        lags = [
            [
                client - engine
                for client, engine in clocks
                if client is not None and engine is not None
            ]
            for clocks in (
                [
                    (_client_mean(block, "ttft_ms"), block.ttft_ms)
                    for block in (r.baseline, r.candidate)
                ]
                for r in self.rounds
            )
        ]
        gaps = [lag[1] - lag[0] for lag in lags if len(lag) == len((BASELINE, CANDIDATE))]
        return statistics.median(gaps) if gaps else None

    def of_windows(self, name: str) -> list[float]:
        """Return per round a figure of the candidate's counters, where it has one."""
        figures = (_figure(r.candidate.window, name) for r in self.rounds)
        return [value for value in figures if value is not None]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _started(block: Block) -> float:
    try:
        return datetime.fromisoformat(block.started).timestamp()
    except ValueError:
        return 0.0  # of a file that anybody may have written: taken as measured in turns with others like it


def _figure(window: Window, name: str) -> float | None:
    if name == "first_acceptance":
        return window.position_rates[0] if window.position_rates else None
    value: float | None = getattr(window, name)
    return value


def _pairs(base: Block, cand: Block) -> tuple[tuple[Sample, Sample], ...]:
    """Pair requests by prompt, and repeats of a prompt in order; prompts sent to one arm only are left out."""
    waiting: dict[str, list[Sample]] = {}
    for sample in reversed(base.samples):
        waiting.setdefault(sample.prompt, []).append(sample)
    pairs = []
    for sample in cand.samples:
        partners = waiting.get(sample.prompt)
        if partners:
            pairs.append((partners.pop(), sample))
    return tuple(pairs)


def _engine_mean(block: Block, name: str) -> float | None:
    value: float | None = block.ttft_ms if name == "ttft_ms" else getattr(block.window, name)
    return value


def _client_mean(block: Block, name: str) -> float | None:
    values = [v for v in (getattr(s, name) for s in block.completed) if v is not None]
    return math.fsum(values) / len(values) if values else None
