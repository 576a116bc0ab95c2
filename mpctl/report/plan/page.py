"""A plan as one page, which every format writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mpctl.report.plan.lines import (
    Record,
    detail_lines,
    head_lines,
    headline,
    history_lines,
    history_rows,
    methods_of,
    outside_lines,
    run_lines,
    tables,
    title_of,
)

Rows = list[list[str]]


@dataclass(frozen=True)
class Section:
    """A method: whether it runs, its tables, what they rest on. ``answered``: its record, None without a figure."""

    title: str
    runs: tuple[str, ...]
    tables: tuple[Rows, ...] = ()
    details: tuple[str, ...] = ()
    answered: Record | None = None


@dataclass(frozen=True)
class Page:
    """A plan, or the comparison of earlier ones, which has ``rows`` and no section."""

    title: str
    head: tuple[str, ...]
    sections: tuple[Section, ...] = ()
    rows: Rows | None = None


def page_of(record: Record) -> Page:
    """The page of a record."""
    if "history" in record:
        return Page(title_of(record), tuple(history_lines(record)), rows=history_rows(record))
    sections: list[Section] = []
    for method in methods_of(record):
        sections.append(_section(method, sections))
    return Page(title_of(record), tuple(head_lines(record)), tuple(sections))


def _section(method: Record, before: Sequence[Section]) -> Section:
    title, runs = headline(method), tuple(run_lines(method))
    if not method.get("answers"):
        return Section(title, runs)
    figures = _figures(method)
    twin = next((s.answered for s in before if s.answered is not None and _figures(s.answered) == figures), None)
    if twin is not None and "cells" not in method:
        reason = f"the figures of {twin['method']}: one term predicts both, and only a measurement tells them apart"
        return Section(title, runs, (), (reason, *outside_lines(method)), method)
    return Section(title, runs, tuple(tables(method)), tuple(detail_lines(method)), method)


def _figures(method: Record) -> list[Record]:
    named = ("concurrency", "k", "throughputRatio", "timePerTokenRatio")
    return [{name: answer[name] for name in named} for answer in method["answers"]]
