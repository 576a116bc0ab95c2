"""vLLM's prompt lookup (0.32.0, ngram_proposer.py).

The longest n-gram that ends the request and occurred before, at its earliest place; what followed there is proposed.
"""

from __future__ import annotations

from mpctl.estimate.replay.counts import Tokens


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

    def end(self) -> None:
        """Do nothing: no state outlives a request."""
