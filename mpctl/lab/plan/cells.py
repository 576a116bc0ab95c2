"""Answer a file of questions: any target, draft and GPU, without a service."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from mpctl.app.change.resolve import load_catalogue
from mpctl.app.files import read_file
from mpctl.errors import InputError
from mpctl.json_types import Json
from mpctl.lab.payoff.grid import Grid, grid_record, table
from mpctl.lab.payoff.published_evidence import fitted
from mpctl.lab.payoff.question import Published, Question, Unanswerable, read_questions
from mpctl.lab.payoff.scenario import Acceptance, from_length
from mpctl.staging.catalogue import Catalogue, Draft


@dataclass(frozen=True)
class AnsweredCell:
    """A question with the table that answers it."""

    question: Question
    grid: Grid

    def to_record(self) -> Json:
        """A JSON object."""
        return {
            "id": self.question.id,
            "assumed": list(self.question.assumed),
            **grid_record(self.grid),
        }


@dataclass(frozen=True)
class Answers:
    """All of a file, in its order."""

    cells: tuple[AnsweredCell | Unanswerable, ...]

    def to_record(self) -> Json:
        """A JSON object."""
        return {"cells": [_record(cell) for cell in self.cells]}


def _record(cell: AnsweredCell | Unanswerable) -> Json:
    if isinstance(cell, AnsweredCell):
        return cell.to_record()
    return {"id": cell.id, "refused": {"reason": cell.reason, "hint": cell.hint}}


def run(file: str, catalogue: str | None, progress: Callable[[str], None]) -> Answers:
    """Answer every question of a file that can be answered. ``catalogue``: the user's drafts; ``progress``: called with
    the number of ratios that are predicted.

    Raises:
        InputError: the file cannot be read, or every question lacks what an answer needs.
    """
    questions = read_questions(
        read_file(file, "the questions"), file, published(load_catalogue(catalogue))
    )
    total = sum(
        len(asked.ks) * len(asked.concurrency) for asked in questions if isinstance(asked, Question)
    )
    count = itertools.count(1)

    def answered(question: Question | Unanswerable) -> AnsweredCell | Unanswerable:
        if isinstance(question, Unanswerable):
            return question
        asked = (question.cell, question.concurrency, question.ks, fitted(), question.pairs)
        return AnsweredCell(
            question,
            table(*asked, answered=lambda: progress(f"{next(count):,} of {total:,} answers")),
        )

    return Answers(tuple(map(answered, questions)))


def published(catalogue: Catalogue) -> Published:
    """Look up what is published of a draft's acceptance."""

    def look_up(draft: str | None, target: str | None, method: str, k: int) -> Acceptance | None:
        entry = catalogue.published(draft, target) if draft else _first(catalogue, target, method)
        return None if entry is None else acceptance_of(entry, k)

    return look_up


def _first(catalogue: Catalogue, target: str | None, method: str) -> Draft | None:
    """The first draft of a target for a method."""
    try:
        drafts = catalogue.of(target) if target else ()
    except InputError:
        return None
    return next((draft for draft in drafts if draft.method == method), None)


def acceptance_of(draft: Draft, k: int) -> Acceptance | None:
    """Return the published acceptance of a draft at the nearest K; None if none is published."""
    if draft.per_position:
        return Acceptance(draft.per_position, origin="published")
    if not draft.expected:
        return None
    nearest = min(draft.expected, key=lambda expectation: abs(expectation.k - k))
    return Acceptance(
        from_length(min(nearest.tokens, nearest.k + 1), nearest.k), origin="published"
    )
