"""Ratios of a cell with their 90 % bands.

A band adds four uncertainties: of the constants (Laplace), of the acceptance, of the model itself (larger beyond the
knee and where the pool binds), and of the measured points that calibrate it. The first two are scaled by 0.75: they
came out too wide on systems left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mpctl.estimate.payoff.cell import LOOKUPS, Cell, drafting_of, serving_of
from mpctl.estimate.payoff.constants import Posterior
from mpctl.estimate.payoff.roofline import Ratios, ratios

Vector = NDArray[np.float64]

_Z90 = 1.645
_SCALE = 0.75
_STEP = 0.02  # of a logarithm, for gradients
# Standard deviation of the logarithm of tokens drafted per step, by how the acceptance is known.
_ACCEPTANCE = {"measured": 0.02, "published": 0.14, "class": 0.27}
_HOST_BOUND = 0.30


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
    """What a cell would bring. ``load``: tokens per step over the knee; ``batch``: requests that decode at once;
    times of both arms in milliseconds per token; ``tokens_per_s`` of the baseline, as the model has it."""

    throughput: Band
    time_per_token: Band
    load: float
    pool_bound: bool
    batch: float
    baseline_tpot_ms: float
    candidate_tpot_ms: float
    tokens_per_s: float
    tokens_per_step: float


def predict(cell: Cell, posterior: Posterior) -> Prediction:
    """Ratios and bands of one cell."""
    names = posterior.names
    logs = np.array(posterior.logs)
    # The first column is the point; each other one has one constant moved, the last one the acceptance.
    moved = np.tile(logs[:, None], (1, len(names) + 2))
    moved[np.arange(len(names)), np.arange(len(names)) + 1] += _STEP
    yielded = np.full(len(names) + 2, cell.acceptance.tokens_per_step(cell.k))
    yielded[-1] = 1 + (yielded[0] - 1) * math.exp(_STEP) if yielded[0] > 1 else yielded[0]
    constants = {name: np.exp(moved[i]) for i, name in enumerate(names)}
    found = ratios(serving_of(cell), replace(drafting_of(cell), tokens_per_step=yielded), constants)
    model = _discrepancy(cell, found)
    covariance = np.array(posterior.covariance)
    accepted = _acceptance_sd(cell)
    return Prediction(
        throughput=_band(found.throughput, covariance, accepted, model),
        time_per_token=_band(found.time_per_token, covariance, accepted, model),
        load=float(found.load[0]),
        pool_bound=bool(np.ravel(found.bound)[0]),
        batch=float(found.candidate.batch[0]),
        baseline_tpot_ms=float(found.baseline.tpot_ms[0]),
        candidate_tpot_ms=float(found.candidate.tpot_ms[0]),
        tokens_per_s=float(found.baseline.rate[0]) * 1000,
        tokens_per_step=float(yielded[0]),
    )


def _band(columns: Vector, covariance: Vector, accepted: float, model: float) -> Band:
    logs = np.log(columns)
    slopes = (logs[1:] - logs[0]) / _STEP
    parameters = float(slopes[:-1] @ covariance @ slopes[:-1])
    known = parameters + (float(slopes[-1]) * accepted) ** 2
    width = _Z90 * math.sqrt(_SCALE**2 * known + model**2)
    return Band(float(columns[0]), float(math.exp(logs[0] - width)), float(math.exp(logs[0] + width)))


def _acceptance_sd(cell: Cell) -> float:
    """Standard deviation of the logarithm of accepted tokens per step."""
    known = _ACCEPTANCE[cell.acceptance.origin]
    drafts = cell.acceptance.drafts
    if cell.acceptance.origin == "measured" and drafts:
        mean = max(cell.acceptance.tokens_per_step(cell.k) - 1, 1e-3)
        sampled = math.sqrt(cell.k / drafts) / mean  # a draft accepts 0 to K tokens; its deviation is below sqrt(K)
        return math.hypot(known, min(sampled, 1.0))
    return known


def _discrepancy(cell: Cell, found: Ratios) -> float:
    """Standard deviation of the model's own error, as a logarithm."""
    load, host = float(np.ravel(found.load)[0]), float(np.ravel(found.host)[0])
    parts = [0.04, 0.08 * min(1.5, load)]
    parts.append(0.10 if bool(np.ravel(found.bound)[0]) else 0.0)
    parts.append(0.12 if (cell.target.experts or 0) > 1 else 0.0)
    parts.append(0.08 if host > _HOST_BOUND else 0.0)
    parts.append(0.05 if cell.gpus > 1 and not cell.gpu.nvlink else 0.0)
    parts.append(0.05 if cell.method in LOOKUPS else 0.0)
    return math.sqrt(sum(part**2 for part in parts))
