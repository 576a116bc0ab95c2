"""The cost of speculation in the prefix cache: for drafters that read the hidden states of the prompt, an engine
computes cached tokens again (docs/explanation/payoff.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mpctl import formatting
from mpctl.json_types import Json
from mpctl.lab.payoff.published_evidence import Posterior
from mpctl.lab.payoff.roofline import prefill_ms
from mpctl.lab.payoff.scenario import Scenario, serving_of
from mpctl.methods import METHODS

# vLLM's default block on GPUs, and the smallest unit that was reported of hybrids, which may also lose every hit
# (vllm-project/vllm#54360, #51771; in tokens).
BLOCK, HYBRID_UNIT = 16, 528
AHEAD = (0, 33, 0)  # hashes blocks ahead and drops none (PR 50438), except with a KV connector


@dataclass(frozen=True)
class LostHits:
    """Cached tokens of a request that are computed again, least and most, and the milliseconds that they take.

    ``share``: of its prompts that the service gets from the cache, 0..1; None where it is unknown. Then the tokens are
    of a request whose whole prompt is cached."""

    method: str
    share: float | None
    prompt: float
    tokens: tuple[float, float]
    ms: tuple[float, float]

    @property
    def matters(self) -> bool:
        """Return whether a tenth of a prompt or more may be computed again."""
        return self.tokens[1] >= self.prompt / 10

    @property
    def text(self) -> str:
        """One sentence: what is computed again, and what that means for conversations."""
        (least, most), (short, long) = self.tokens, self.ms
        lost = f"{least:.0f} tokens" if least == most else f"{least:.0f} to {most:.0f} tokens"
        later = f"{short:.1f} ms" if least == most else f"{short:.1f} to {long:.1f} ms"
        users = (
            "of a prompt in the prefix cache (the users' share is unknown)"
            if self.share is None
            else f"of the {formatting.share(self.share, 0)} of a prompt that users get from the prefix cache"
        )
        return (
            f"{users} {self.method} forgets {lost} a request, {later} more to the first token"
            + "; a gain on single turns may be a loss for conversations" * self.matters
        )

    def to_record(self) -> Json:
        """A JSON object."""
        return {
            "hitShare": self.share,
            "lostTokens": list(self.tokens),
            "lostMs": list(self.ms),
            "matters": self.matters,
            "text": self.text,
        }


def lost_hits(
    cell: Scenario,
    posterior: Posterior,
    *,
    share: float | None,
    block: int | None = None,
    connector: bool = False,
) -> LostHits | None:
    """Return what ``cell``'s method loses of the prefix cache; None where it loses nothing. ``block``: tokens of the
    cache's unit, where the engine's flags name it; ``connector``: whether a KV connector moves the cache."""
    hashes_ahead = cell.engine is not None and cell.engine >= AHEAD and not connector
    if not METHODS[cell.method].prompt_states or hashes_ahead:
        return None
    cached = cell.prompt * (1.0 if share is None else share)
    unit = HYBRID_UNIT if cell.target.hybrid else block or BLOCK
    tokens = min(unit, cached), cached if cell.target.hybrid else min(unit, cached)
    least, most = (
        float(prefill_ms(serving_of(replace(cell, prompt=lost)), posterior.values))
        for lost in tokens
    )
    return LostHits(cell.method, share, cell.prompt, tokens, (least, most))
