"""What an engine's prefix cache can hold of the prompts of a measurement.

An engine keeps whole units of a request's tokens and finds them again by everything before them. Each measurement has
another salt, so that nothing sent before it helps. Hits above what its own prompts explain are of before; hits below
are tokens that the engine was told and has forgotten.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from mpctl.experiment.block import StreamedRequest


class PrefixCache:
    """The cache of one engine under one salt. ``unit``: tokens that it keeps or forgets together: its block, or for a
    model with other layers than attention the block that all of them share (vLLM's ``find_longest_cache_hit``).
    ``sparse``: those layers keep their state only where a prompt ended, and where one was seen to leave another (vLLM's
    ``prefix_cache_retention_interval`` 0); it is found only there."""

    def __init__(self, unit: int, *, sparse: bool = False) -> None:
        self._unit = unit
        self._known: set[int] = set()
        self._resumable: set[int] = set() if sparse else self._known

    def hits(self, requests: Iterable[StreamedRequest]) -> int | None:
        """Return the tokens of prompts that the cache holds, each sent when those before it were answered; None where
        the engine did not tell the tokens of one. From then on it holds these requests, too."""
        counts = [self._hit(r.prompt_ids, r.ids) for r in requests if not r.error]
        return None if None in counts else sum(filter(None, counts))

    def _hit(self, prompt: Sequence[int], answer: Sequence[int]) -> int | None:
        if not prompt:
            return None
        # The last token of a prompt is always computed.
        units, usable = self._units((*prompt, *answer)), (len(prompt) - 1) // self._unit
        shared = list(itertools.takewhile(self._known.__contains__, units[:usable]))
        resumed = [end for end, unit in enumerate(shared, 1) if unit in self._resumable]
        self._resumable.update(shared[-1:], units[:usable][-1:])
        self._known.update(units)
        return max(resumed, default=0) * self._unit

    def _units(self, ids: tuple[int, ...]) -> list[int]:
        """A name for each whole unit, which depends on everything before it."""
        starts = range(0, len(ids) - self._unit + 1, self._unit)
        names = itertools.accumulate(
            (hash(ids[start : start + self._unit]) for start in starts),
            lambda before, unit: hash((before, unit)),
        )
        return list(names)
