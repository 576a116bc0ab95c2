"""Measurements of conversations, whose turns find most of their prompt in the prefix cache: behind
``scripts/gate-table --caches``.

Both arms hold what the measurement's own prompts explain, but for evictions, which each arm has by chance, and for what
the candidate forgets of each turn. A time to first token is in part that of the tokens that are computed. Not modelled:
units of a cache, turns that differ in length, a cache that fills up.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace

from mpctl.experiment.block import Block
from mpctl.gate.analysis import Analysis
from mpctl.gate.assess import assess
from mpctl.gate.policy import Policy
from tests.simulation.measurements import Truth, rounds

PROMPT, TURNS_SHARE = 2000, 0.85  # tokens of a turn, and how much of it was sent before
COMPUTED = 0.7  # of a time to first token: what computing the rest of the prompt takes
POLICY = Policy(min_tokens_per_step=0, max_failed_excess=1.0)


@dataclass(frozen=True)
class Caches:
    """``evicted``: share of turns, on either arm, that find nothing; ``forgotten``: tokens of each turn that the
    candidate computes again."""

    evicted: float = 0.0
    forgotten: int = 0


def turns(block: Block, chance: random.Random, evicted: float, forgotten: int) -> Block:
    """The block as if its requests were turns of conversations."""
    hits, samples = 0.0, []
    for sample in block.samples:
        held = 0.0 if chance.random() < evicted else TURNS_SHARE * PROMPT - forgotten
        hits += held
        share = (PROMPT - held) / (PROMPT * (1 - TURNS_SHARE))
        ttft = (sample.ttft_ms or 0.0) * (1 - COMPUTED + COMPUTED * share)
        e2e = (sample.e2e_ms or 0.0) - (sample.ttft_ms or 0.0) + ttft
        samples.append(replace(sample, ttft_ms=ttft, e2e_ms=e2e))
    asked = float(PROMPT * len(samples))
    window = replace(
        block.window,
        prefix_queries=asked,
        prefix_hits=hits,
        prefix_expected=TURNS_SHARE * asked,
        ttft_seconds=sum(sample.ttft_ms or 0.0 for sample in samples) / 1000,
    )
    return replace(block, samples=tuple(samples), window=window)


def verdicts(caches: Caches, repetitions: int, *, count: int = 12) -> Counter[tuple[str, str]]:
    """Outcomes of *cache kept* and of the whole, for arms that differ in nothing else, over ``count`` rounds."""
    outcomes: Counter[tuple[str, str]] = Counter()
    for seed in range(repetitions):
        chance, blocks = random.Random(seed), []
        for baseline, candidate in rounds(Truth(), count, seed):
            blocks.append(turns(baseline, chance, caches.evicted, 0))
            blocks.append(turns(candidate, chance, caches.evicted, caches.forgotten))
        verdict = assess(Analysis.of(blocks, POLICY, rounds=count, planned=count))
        (kept_rule,) = (result for result in verdict.rules if result.rule == "cache kept")
        outcomes[kept_rule.outcome.value, verdict.outcome.value] += 1
    return outcomes
