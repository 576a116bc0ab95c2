"""Judge whether the prefix cache still holds what it held of users' prompts before the promotion.

A drafter that reads hidden states may make an engine compute tokens again that it had kept. Hits follow the traffic
more than anything else: longer prompts may be new, and of shorter ones the kept part may be gone. So a length that
differs explains as many tokens as it can, and twice as many new tokens as before are traffic's, too: only what is lost
beyond both counts. Prompts of twice or half the length are other traffic, of which nothing is known.

Requests are pooled, so that a quiet night is no noisier than a day. A cumulative sum finds the loss, as it finds a loss
of speed. Two kinds of traffic with prompts of one length and other hits are not told apart by any counter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mpctl.experiment.counters import CacheUse, Window
from mpctl.watch.detect import ALLOWED, Detection
from mpctl.watch.reference import is_outside
from mpctl.watch.watch_policy import WatchPolicy

POOLED = 30.0  # requests that are compared together
COLD_S = 600.0  # for which an engine that started fills its cache
SELDOM = 100.0  # times as seldom as the other findings: hits follow the traffic, and a fallback costs a restart
_EMPTY = CacheUse()


@dataclass(frozen=True, slots=True)
class CacheWatch:
    """What is known of a service's hits. ``kept``: None where that is unknown, which ``text`` explains; ``warm_at``:
    time from which the engines' caches are filled."""

    pool: CacheUse = _EMPTY
    loss: Detection = Detection()  # noqa: RUF009
    kept: bool | None = None
    text: str = "too few requests to compare"
    warm_at: float = 0.0

    def unknown(self, why: str) -> CacheWatch:
        """Forget the sum: nothing that is compared later may rest on what could not be."""
        loss = Detection(noise=self.loss.noise)
        return replace(self, pool=_EMPTY, loss=loss, kept=None, text=why)

    def after(
        self, policy: WatchPolicy, before: CacheUse | None, window: Window, at: float
    ) -> CacheWatch:
        """Add a window; ``before``: of users before the promotion; ``at``: the time of its reading."""
        if before is None:
            return self.unknown("no hits of users' requests were recorded at the promotion")
        if window.cache_use is None:
            return self.unknown("the engines count no hits: prefix caching is off, or not counted")
        if at < self.warm_at:
            return self.unknown("an engine started with an empty cache")
        pool = self.pool + window.cache_use
        if pool.requests < POOLED:
            return replace(self, pool=pool)
        length = pool.prompt_tokens
        if is_outside(length, [before.prompt_tokens]):
            return self.unknown("other traffic: prompts are twice or half as long as before")
        wanted = before.cached_tokens - max(before.prompt_tokens - length, 0.0)
        new = before.prompt_tokens - before.cached_tokens
        allowance = ALLOWED * policy.cache_loss
        lost = max((wanted - new - pool.cached_tokens) / length, -allowance)
        loss = self.loss.after(
            lost - allowance, allowance, SELDOM * policy.run_length, policy.cache_loss - allowance
        )
        if loss.sound:
            loss = loss.learned(lost)
        text = "as much of users' prompts is cached as before the promotion"
        if loss.alarm and lost <= allowance:  # the sum falls, and what was lost is still the news
            text = self.text
        elif loss.alarm:
            forgotten = wanted - pool.cached_tokens
            text = f"speculation forgets {forgotten:,.0f} of {wanted:,.0f} cached tokens a request"
        return replace(self, pool=_EMPTY, loss=loss, kept=not loss.alarm, text=text)
