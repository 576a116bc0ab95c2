"""Ratios of a cell with their 90 % bands, calibrated by pairs that the user measured.

A band adds three uncertainties: of the constants (Laplace), of the acceptance, and of the model itself, which is larger
beyond the knee and where the pool binds. The first two are scaled by 0.75: they came out too wide on systems left out.
A measured pair moves the point and narrows the band of every cell that shares its uncertainty: the constants fully,
the model's own error the less, the further away concurrency and K are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mpctl.lab.payoff.published_evidence import CPU, LONGEST_PROMPT, MeasuredPair, Posterior
from mpctl.lab.payoff.roofline import Ratios, ratios
from mpctl.lab.payoff.scenario import LOOKUPS, PRECISIONS, Scenario, drafting_of, serving_of
from mpctl.methods import METHODS

Vector = NDArray[np.float64]

_Z90 = 1.645
_SCALE = 0.75
_STEP = 0.02  # of a logarithm, for gradients
# Standard deviation of the logarithm of tokens drafted per step, by how the acceptance is known.
_ACCEPTANCE = {"measured": 0.06, "published": 0.45}
_HOST_BOUND = 0.30
# Standard deviations outside the evidence: a mixture of experts at 16 requests and above; windows and states.
_MIXTURE, _HYBRID = 0.20, 0.20
_UNKNOWN_DEVICE = 0.5  # a CPU: nothing is known of it but what is measured
_SURPRISE = (
    2.0  # mean square of residuals, in standard deviations, that a sound model may have by chance
)
# Distances at which the correlation of the model's own error falls to 1/e.
_REACH_CONCURRENCY, _REACH_K = math.log(4), 4.0


@dataclass(frozen=True)
class Band:
    """A ratio with its 90 % band."""

    value: float
    low: float
    high: float

    def text(self) -> str:
        """``1.31 [1.19-1.41]``."""
        return f"{self.value:.2f} [{self.low:.2f}-{self.high:.2f}]"


@dataclass(frozen=True)
class Prediction:
    """The prediction of a cell. ``load``: tokens per step over the knee; ``batch``: requests that decode at once."""

    throughput: Band
    time_per_token: Band
    load: float
    pool_bound: bool
    batch: float
    tokens_per_step: float


@dataclass(frozen=True)
class _Linear:
    """A cell's logarithms of both ratios, their slopes by constant and acceptance, and the model's own deviation."""

    cell: Scenario
    logs: tuple[float, float]
    slopes: Vector
    accepted: float
    model: float
    ratios: Ratios
    tokens_per_step: float

    def shared(self, other: _Linear, which: int, covariance: Vector) -> float:
        """Covariance of one ratio's logarithm between two cells."""
        mine, theirs = self.slopes[which], other.slopes[which]
        constants = float(mine[:-1] @ covariance @ theirs[:-1])
        acceptance = float(mine[-1] * theirs[-1]) * self.accepted * other.accepted
        distance = (
            abs(math.log(self.cell.concurrency / other.cell.concurrency)) / _REACH_CONCURRENCY
        )
        distance += abs(self.cell.k - other.cell.k) / _REACH_K
        return _SCALE**2 * (constants + acceptance) + self.model * other.model * math.exp(-distance)


def predict(cell: Scenario, posterior: Posterior, pairs: Sequence[MeasuredPair] = ()) -> Prediction:
    """Ratios and bands of one cell; ``pairs``: measured ones of the same service. Where an estimated pool limits the
    batch, the bands span what its range allows."""
    low, middle, high = cell.pool_cases()
    least = _predict(low, posterior, pairs)
    if not least.pool_bound or (low.pool, low.draft_pool) == (high.pool, high.draft_pool):
        return least
    point, most = _predict(middle, posterior, pairs), _predict(high, posterior, pairs)
    cases = (least, point, most)
    return replace(
        point,
        throughput=_spanning(point.throughput, [case.throughput for case in cases]),
        time_per_token=_spanning(point.time_per_token, [case.time_per_token for case in cases]),
        pool_bound=True,
    )


def _spanning(point: Band, bands: Sequence[Band]) -> Band:
    return Band(point.value, min(band.low for band in bands), max(band.high for band in bands))


def _predict(cell: Scenario, posterior: Posterior, pairs: Sequence[MeasuredPair]) -> Prediction:
    """Ratios and bands with one figure for each pool."""
    covariance = np.array(posterior.covariance)
    here = _linear(cell, posterior)
    mine = [pair for pair in pairs if pair.method == cell.method]
    linearised = [
        _linear(replace(cell, k=pair.k, concurrency=pair.concurrency), posterior) for pair in mine
    ]
    bands = []
    for which in (0, 1):
        measured = [pair.throughput if which == 0 else pair.time_per_token for pair in mine]
        measured_pairs = [
            (linear, pair.noise, value)
            for linear, pair, value in zip(linearised, mine, measured, strict=True)
            if value
        ]
        bands.append(_updated_band(here, which, measured_pairs, covariance))
    ratios = here.ratios
    return Prediction(
        throughput=bands[0],
        time_per_token=bands[1],
        load=float(ratios.load[0]),
        pool_bound=bool(np.ravel(ratios.bound)[0]),
        batch=float(ratios.candidate.batch[0]),
        tokens_per_step=here.tokens_per_step,
    )


def throughput_point(
    cell: Scenario, posterior: Posterior, pairs: Sequence[MeasuredPair] = ()
) -> float:
    """The throughput ratio alone; without measured pairs a fraction of the work of its band."""
    if any(pair.method == cell.method for pair in pairs):
        return predict(cell, posterior, pairs).throughput.value
    return float(ratios(serving_of(cell), drafting_of(cell), posterior.values).throughput)


def break_even(cell: Scenario, posterior: Posterior) -> float | None:
    """Tokens per step at which throughput is the baseline's; None where even a perfect draft loses. The step's cost is
    that of the cell: with a lookup, of its coverage."""
    most = 1 + cell.k * cell.acceptance.coverage_at(cell.k)
    yields = np.linspace(1.0, most, 201)
    drafting = replace(drafting_of(cell), tokens_per_step=yields)
    gains = np.ravel(ratios(serving_of(cell), drafting, posterior.values).throughput) >= 1
    return float(yields[np.argmax(gains)]) if gains.any() else None


def _linear(cell: Scenario, posterior: Posterior) -> _Linear:
    """Both ratios and their gradients, in one evaluation: the first column is the point, in each other one thing is
    moved, in the last one the acceptance."""
    count = len(posterior.names)
    moved = np.tile(np.array(posterior.logs)[:, None], (1, count + 2))
    moved[np.arange(count), np.arange(count) + 1] += _STEP
    point = cell.acceptance.tokens_per_step(cell.k)
    yielded = np.full(count + 2, point)
    yielded[-1] = 1 + (point - 1) * math.exp(_STEP)
    constants = {name: np.exp(moved[i]) for i, name in enumerate(posterior.names)}
    evaluated = ratios(
        serving_of(cell), replace(drafting_of(cell), tokens_per_step=yielded), constants
    )
    both = np.log(np.stack([evaluated.throughput, evaluated.time_per_token]))
    slopes = (both[:, 1:] - both[:, :1]) / _STEP
    logs = (float(both[0, 0]), float(both[1, 0]))
    return _Linear(
        cell,
        logs,
        slopes,
        _acceptance_sd(cell),
        _discrepancy(cell, evaluated, posterior),
        evaluated,
        point,
    )


def _updated_band(
    here: _Linear, which: int, measured: Sequence[tuple[_Linear, float, float]], covariance: Vector
) -> Band:
    """The band after the update of a Gaussian process: the prior is the model with its covariance between scenarios,
    the observations are logarithms of measured ratios with their noise."""
    mean, variance = here.logs[which], here.shared(here, which, covariance)
    if measured:
        points = [point for point, _, _ in measured]
        prior = np.array([[a.shared(b, which, covariance) for b in points] for a in points])
        noise = np.diag([noise**2 for _, noise, _ in measured])
        cross = np.array([here.shared(point, which, covariance) for point in points])
        residuals = np.array([math.log(value) - point.logs[which] for point, _, value in measured])
        # Residuals far beyond the model's uncertainty show that it was too small: it grows with them.
        surprise = float(residuals @ np.linalg.solve(prior + noise, residuals)) / len(measured)
        scale = max(surprise / _SURPRISE, 1.0)
        variance *= scale
        cross *= scale
        gain = np.linalg.solve(prior * scale + noise, cross)
        mean += float(gain @ residuals)
        variance = max(variance - float(gain @ cross), 1e-6)
    width = _Z90 * math.sqrt(variance)
    return Band(math.exp(mean), math.exp(mean - width), math.exp(mean + width))


def _acceptance_sd(cell: Scenario) -> float:
    """Standard deviation of the logarithm of accepted tokens per step."""
    if cell.acceptance.deviation:  # seen between systems, and no guess to be scaled
        return cell.acceptance.deviation / _SCALE
    origin_sd, drafts = _ACCEPTANCE[cell.acceptance.origin], cell.acceptance.drafts
    if cell.acceptance.origin == "measured" and drafts:
        mean = max(cell.acceptance.tokens_per_step(cell.k) - 1, 1e-3)
        sampled = (
            math.sqrt(cell.k / drafts) / mean
        )  # a draft accepts 0 to K tokens; its deviation is below sqrt(K)
        return math.hypot(origin_sd, min(sampled, 1.0))
    return origin_sd


def _discrepancy(cell: Scenario, ratios: Ratios, posterior: Posterior) -> float:
    """Standard deviation of the model's own error, as a logarithm. It grows with the load as its square root: sources
    that the fit has not seen lie apart from half the knee on already."""
    load, host = float(np.ravel(ratios.load)[0]), float(np.ravel(ratios.host)[0])
    parts = [0.04, posterior.load_error * math.sqrt(min(1.5, load))]
    parts.append(0.10 if bool(np.ravel(ratios.bound)[0]) else 0.0)
    if (
        cell.target.experts or 0
    ) > 1:  # four published rows at concurrency 1; above it, errors of 25 % were found
        parts.append(0.12 + _MIXTURE * min(math.log(max(cell.concurrency, 1)) / math.log(16), 1.0))
    parts.append(_HYBRID if cell.target.hybrid else 0.0)
    parts.append(0.08 if PRECISIONS[cell.precision] < PRECISIONS["bf16"] else 0.0)
    parts.append(0.05 * max(math.log2(cell.prompt / LONGEST_PROMPT), 0.0))
    parts.append(
        0.0 if cell.method not in METHODS or METHODS[cell.method].published_ratios else 0.10
    )
    parts.append(0.08 if host > _HOST_BOUND else 0.0)
    parts.append(0.05 if cell.gpus > 1 and not cell.gpu.nvlink else 0.0)
    parts.append(0.05 if cell.method in LOOKUPS else 0.0)
    parts.append(_UNKNOWN_DEVICE if cell.gpu.name == CPU else 0.0)
    return math.sqrt(sum(part**2 for part in parts))
