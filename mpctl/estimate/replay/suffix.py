"""Suffix decoding over this request and earlier answers, after ArcticInference 0.1.1.

Every ending of the request up to the tree's depth is looked up; the most frequent continuation is followed while its
probability lasts and the draft is no longer than the match allows; the draft with the highest sum of probabilities
wins.
Where two continuations are equally frequent the library's choice may differ.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from mpctl.estimate.replay.counts import Tokens

_MOST_PLACES = 64  # of an ending that are followed: the first ones; more change no choice in practice


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
        own, own_score = self._speculate(self._own, context)
        other, other_score = self._speculate(self._earlier, context)
        return own if own_score >= other_score else other

    def end(self) -> None:
        """The answer stays in the shared tree."""

    def _speculate(self, index: _Index, context: list[int]) -> tuple[list[int], float]:
        best: list[int] = []
        best_score = 0.0
        places = index.places(context[-1]) if context else []
        for size in range(1, len(context)):
            if size > 1:
                token = context[-size]
                places = [(text, end) for text, end in places if end - size >= 0 and text[end - size] == token]
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
            following = Counter(text[end + len(draft)] for text, end in places if end + len(draft) < len(text))
            if not following:
                break
            token, count = following.most_common(1)[0]
            probability *= count / len(places)
            if probability < _LEAST_PROBABILITY:
                break
            places = [
                (text, end) for text, end in places if end + len(draft) < len(text) and text[end + len(draft)] == token
            ]
            draft.append(token)
            score += probability
        return draft, score


class _Index:
    """Texts, and where each token occurred in them."""

    def __init__(self) -> None:
        self._text: list[int] = []
        self._places: dict[int, list[tuple[list[int], int]]] = defaultdict(list)

    def open(self) -> None:
        """Begin another text."""
        self._text = []

    def append(self, tokens: Tokens) -> None:
        for token in tokens:
            self._text.append(token)
            self._places[token].append((self._text, len(self._text)))

    def places(self, token: int) -> list[tuple[list[int], int]]:
        """Texts with the position behind each occurrence that something follows."""
        places = self._places.get(token, [])
        return [place for place in places[-_MOST_PLACES:] if place[1] < len(place[0])]
