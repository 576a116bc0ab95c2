"""Partial pooling of classes that share the rounds of a measurement.

With the prompts of one class split among several, a class alone shows little: of four that are 20 % faster all were
promoted in 12 of 100 simulated measurements. A class therefore borrows from the others as far as they agree. Their
spread beyond that of the rounds is estimated by moments (DerSimonian and Laird, Controlled Clinical Trials 7, 1986),
and a class's mean is drawn towards that of all (Morris, JASA 78, 1983). Only a guard is passed by it: a class is
rejected by its own rounds, and the gain is shown by all classes together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mpctl.gate.analysis import Analysis, Comparison
from mpctl.stats.confidence import Interval, Trimmed, exponential, interval_of


@dataclass(frozen=True)
class Borrowed:
    """A class's mean, of ratios in logarithms, with what it borrows from the others, and its confidence interval."""

    mean: Trimmed
    interval: Interval


def borrow(analysis: Analysis, comparison: Comparison, name: str) -> Borrowed | None:
    """Return a figure of a class with what it borrows from other variants of its class under the same load; None where
    there are none, or where one of them lacks the figure in a round."""
    if not analysis.shared:
        return None
    group = _group(analysis, comparison)
    figures = [c.figures.get(name) for c in analysis.cells if _group(analysis, c) == group]
    figure = comparison.figures.get(name)
    present = [f for f in figures if f is not None]
    if (
        figure is None
        or len(present) < len(figures)
        or len(present) < 2
        or len({len(f.values) for f in present}) > 1
    ):
        return None
    rounds = [
        math.fsum(values) / len(values) for values in zip(*(f.values for f in present), strict=True)
    ]
    joint = Trimmed.of(rounds, figure.trim, correlated=figure.correlated)
    mean = partial_pool(figure.trimmed, [f.trimmed for f in present if f is not figure], joint)
    if mean is None:
        return None
    interval = interval_of(mean, figure.stage)
    return Borrowed(mean, figure.allowed(exponential(interval) if figure.ratio else interval))


def _group(analysis: Analysis, comparison: Comparison) -> tuple[object, ...]:
    """Return what cells that borrow from each other have in common: their class and their load."""
    prompts, cell = analysis.run.prompts.get(comparison.cell.traffic), comparison.cell
    return (
        prompts and prompts.variant and prompts.variant.of,
        cell.concurrency,
        cell.rate,
        cell.temperature,
    )


def partial_pool(own: Trimmed, others: Sequence[Trimmed], joint: Trimmed) -> Trimmed | None:
    """Return the mean of one class drawn towards that of all. ``others``: every other class; ``joint``: the mean over
    all classes of each round, whose spread includes what the classes of a round share. None for too few rounds."""
    every = (own, *others)
    if any(mean.count < 2 or not mean.spread for mean in every):
        return None
    errors = [mean.spread**2 / mean.count for mean in every]
    weights = [1.0 / error for error in errors]
    total = math.fsum(weights)
    centre = math.fsum(w * mean.mean for w, mean in zip(weights, every, strict=True)) / total
    dispersion = math.fsum(
        w * (mean.mean - centre) ** 2 for w, mean in zip(weights, every, strict=True)
    )
    chance = len(others) + math.sqrt(
        2 * len(others)
    )  # of what alike classes lie apart: the mean, one deviation more
    between = max(dispersion - chance, 0.0) / (total - math.fsum(w * w for w in weights) / total)
    drawn = errors[0] / (errors[0] + between)
    variance = (1.0 - drawn) * errors[0] + drawn**2 * joint.spread**2 / joint.count
    mean = drawn * joint.mean + (1.0 - drawn) * own.mean
    return Trimmed(mean, math.sqrt(variance * joint.count), joint.count, joint.cut)
