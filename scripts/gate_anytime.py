"""An anytime-valid gate next to the gate itself, on the same simulated rounds, for ``scripts/gate-table --anytime``.

Each judged figure has a t e-process on either side of its limit: the likelihood ratio of the rounds between an effect
and none, averaged over a prior of the effect in standard deviations of a round, with the right Haar prior on the
standard deviation (Lai 1976; Perez-Ortiz, Lardy, de Heide and Gruenwald, Annals of Statistics 52, 2024). Where nothing
differs its mean is at most 1 whenever it is stopped, so it exceeds 1/alpha in at most a share alpha of measurements of
any length (Ville), and the evidence of two measurements multiplies. It depends on the rounds by their t and number
alone, so trimmed means and the margin for engines that differ for good enter as they do in the gate's intervals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from gate_noise import LIMITS, OURS, POLICY, Array, Times, chance, figures, rising, shown, trimmed
from numpy.typing import NDArray
from scipy.special import ndtri, stdtr

from mpctl.gate.assess import FUTILE_FROM
from mpctl.stats.sequential import FEWEST
from tests.simulation.measurements import TOKENS

_GRID = np.linspace(-8.0, 8.0, 401)  # inverse hyperbolic sines of t
_NODES = np.linspace(-8.0, 8.0, 65)  # of the integral over the scale, in widths of its integrand


@dataclass(frozen=True)
class Prior:
    """Effects in standard deviations of a round, each with its weight; all on the same side."""

    effects: tuple[float, ...]
    weights: tuple[float, ...]


def log_uniform(low: float, high: float, count: int = 12) -> Prior:
    """Effects between two, as likely in each interval of the same ratio."""
    return Prior(tuple(np.geomspace(low, high, count)), (1 / count,) * count)


def half_normal(scale: float, count: int = 25) -> Prior:
    """The positive half of a normal prior, at the middles of so many equal parts."""
    parts = ndtri(0.5 + (np.arange(count) + 0.5) / count / 2)
    return Prior(tuple(scale * parts), (1 / count,) * count)


def mixture(*priors: Prior) -> Prior:
    """Each of the priors with the same weight."""
    effects = tuple(effect for prior in priors for effect in prior.effects)
    return Prior(effects, tuple(w / len(priors) for prior in priors for w in prior.weights))


PRIORS = {
    "half normal 0.35": half_normal(0.35),
    "half normal 0.5": half_normal(0.5),
    "half normal 1": half_normal(1.0),
    "half normals 0.3, 1 and 3": mixture(half_normal(0.3), half_normal(1.0), half_normal(3.0)),
    "log uniform 0.15 to 1": log_uniform(0.15, 1.0),
    "log uniform 0.2 to 1.5": log_uniform(0.2, 1.5),
    "log uniform 0.3 to 2": log_uniform(0.3, 2.0),
}


def _log_scale_integral(count: int, z: Array) -> Array:
    """The logarithm of the integral of u^(count - 1) exp(z u - u^2 / 2) over u > 0, up to a constant."""
    mode = np.maximum((z + np.sqrt(z * z + 4 * (count - 1))) / 2, 1e-9)
    width = 1 / np.sqrt(1 + (count - 1) / mode**2)
    u = mode[..., None] + width[..., None] * _NODES
    inside = u > 0
    u = np.where(inside, u, 1.0)
    logs = np.where(inside, (count - 1) * np.log(u) - u * u / 2 + z[..., None] * u, -np.inf)
    most = logs.max(-1)
    return np.asarray(most + np.log(np.exp(logs - most[..., None]).sum(-1) * width))


@lru_cache(maxsize=4096)
def _table(prior: Prior, count: int) -> Array:
    """The logarithm of the evidence of so many rounds at each t of the grid."""
    t, effects = np.sinh(_GRID)[:, None], np.array(prior.effects)
    direction = (
        math.sqrt(count) * t / np.sqrt(count - 1 + t * t)
    )  # sum over the root of the squares' sum
    logs = _log_scale_integral(count, direction * effects) - _log_scale_integral(count, np.zeros(1))
    logs += np.log(prior.weights) - count * effects**2 / 2
    most = logs.max(1)
    return np.asarray(most + np.log(np.exp(logs - most[:, None]).sum(1)))


def log_evidence(t: Array, count: int, prior: Prior) -> Array:
    """The logarithm of the evidence that a mean is above 0, given Student's t of so many rounds."""
    if count < 2:
        return np.zeros(len(t))
    return np.asarray(np.interp(np.arcsinh(t), _GRID, _table(prior, count)))


def reach(evidence: Array | float, count: int, prior: Prior) -> Array:
    """The t of so many rounds at which the logarithm of the evidence is ``evidence``."""
    return np.asarray(np.sinh(np.interp(evidence, _table(prior, count), _GRID)))


@dataclass(frozen=True)
class Anytime:
    """``gain``, ``guard`` and ``loss``: the evidence that passes the time per token, that passes another figure, and
    that rejects by any; ``first``: the rounds before a decision; ``equal``: a measurement ends where the time per token
    differs by less than this share, with the evidence ``equal_at`` on either side; ``least_chance``: it also ends as
    futile, as the gate does, where the chance to decide by the last round is lower; ``judged``: the figures."""

    gain: float = 20.0
    guard: float = 20.0
    loss: float = 100.0
    prior: Prior = field(default_factory=lambda: log_uniform(0.2, 1.5))
    guard_prior: Prior = field(default_factory=lambda: log_uniform(0.4, 2.0))
    first: int = 7
    equal: float = 0.1
    equal_at: float = 20.0
    least_chance: float = 0.015
    judged: tuple[str, ...] = tuple(LIMITS)


Evidence = dict[str, tuple[Array, Array]]
"""Logarithms of the evidence to pass and to fail, by figure."""


@dataclass(frozen=True)
class Ends:
    """Outcomes (1 promote, -1 reject, 0 neither) and rounds of measurements, those that ended as equal, and the
    evidence at the end of each."""

    outcomes: NDArray[np.int64]
    used: NDArray[np.int64]
    equal: NDArray[np.bool_]
    evidence: Evidence


@dataclass(frozen=True)
class _Judged:
    """A figure after some rounds: how far its mean is inside and outside its limit as far as rounds can show it, the
    spread of a round, the number of rounds, and the priors of the evidence to pass and to fail."""

    beyond: tuple[Array, Array]
    spread: Array
    count: int
    freedom: int
    priors: tuple[Prior, Prior]

    @classmethod
    def of(cls, name: str, values: Array, margin: Array | float, design: Anytime) -> _Judged:
        """Judge a figure by its rounds; ``margin``: by how much equal engines may differ for good."""
        is_time = name == "time"
        mean, spread, freedom = trimmed(values, OURS.trim_time if is_time else OURS.trim)
        gap = LIMITS[name] - mean
        prior = design.prior if is_time else design.guard_prior
        return cls(
            (shown(gap, margin), shown(-gap, margin)),
            np.maximum(spread, 1e-12),
            values.shape[1],
            freedom,
            (prior, design.prior),
        )

    def evidence(self, side: int) -> Array:
        """The logarithm of the evidence of these rounds, to pass (0) or to fail (1)."""
        t = self.beyond[side] * math.sqrt(self.count) / self.spread
        return log_evidence(t, self.freedom + 1, self.priors[side])

    def chance(self, side: int, missing: Array, total: int) -> Array:
        """The chance that the evidence has grown to ``missing`` by the last of ``total`` rounds."""
        last = reach(missing, total - 1, self.priors[side])
        return chance(self.beyond[side], self.spread, self.count, total, last)


def _is_equal(values: Array, design: Anytime) -> NDArray[np.bool_]:
    """Return whether the mean of the time per token is shown to be nearer to no difference than the design's bound, in
    both directions."""
    count, mean = values.shape[1], values.mean(1)
    error = np.maximum(values.std(1, ddof=1), 1e-12) / math.sqrt(count)
    sides = (
        log_evidence((math.log1p(design.equal) - side) / error, count, design.prior)
        for side in (mean, -mean)
    )
    return np.asarray(np.minimum(*sides) >= math.log(design.equal_at))


def decide(
    base: Times,
    cand: Times,
    design: Anytime,
    before: Times | None = None,
    *,
    pod_gap: float = POLICY.max_pod_gap,
    carried: Evidence | None = None,
    tokens: Array | None = None,
) -> Ends:
    """Judge measurements as ``gate_noise.verdicts`` does, by evidence instead of intervals; ``carried``: the evidence
    of earlier measurements of the same pairs."""
    count, total = base[0].shape[:2]
    outcomes, used = np.zeros(count, np.int64), np.full(count, total)
    equal, live = np.zeros(count, bool), np.arange(count)
    nothing = np.zeros(count), np.zeros(count)
    carried, before = carried or dict.fromkeys(LIMITS, nothing), before or nothing
    evidence = {name: (both[0].copy(), both[1].copy()) for name, both in carried.items()}
    wanted = dict.fromkeys(LIMITS, (math.log(design.guard), math.log(design.loss)))
    wanted["time"] = math.log(design.gain), math.log(design.loss)
    for look in range(max(design.first, FEWEST), total + 1):
        if not len(live):
            break
        part = [(times[0][live, 1:look], times[1][live, 1:look]) for times in (base, cand)]
        lengths = TOKENS if tokens is None else tokens[live, 1:look]
        bound = float(reach(wanted["e2e"][0], look - 1, design.guard_prior))
        level, stalls = float(stdtr(look - 2, -bound)), (before[0][live], before[1][live])
        rounded, every = figures(part[0], part[1], OURS, stalls, level, lengths)
        waits = base[0][live, :look].mean((1, 2)) * (POLICY.max_ttft_ratio - 1)
        verdict = np.ones(len(live), np.int64)
        passes, fails = np.ones(len(live)), np.zeros(len(live))
        for name in design.judged:
            asked = np.ones(len(live), bool)
            if name.startswith("ttft"):
                asked = (waits <= POLICY.ttft_slack_ms) == (name == "ttft_ms")
            in_ms = max(pod_gap, 1e-12) * part[0][0].mean((1, 2))
            margin = in_ms if name == "ttft_ms" else math.log1p(max(pod_gap, 1e-12))
            figure = _Judged.of(name, rounded[name], margin, design)
            for side in (0, 1):
                evidence[name][side][live] = carried[name][side][live] + figure.evidence(side)
            good, bad = (evidence[name][side][live] >= wanted[name][side] for side in (0, 1))
            good &= every[name] <= LIMITS[name]
            if name == "time":
                good &= ~rising(rounded[name], total, LIMITS[name])
            verdict = np.where(
                bad & asked, -1, np.where(good | ~asked, verdict, np.minimum(verdict, 0))
            )
            if look < total:
                to_pass, to_fail = (
                    figure.chance(side, wanted[name][side] - carried[name][side][live], total)
                    for side in (0, 1)
                )
                passes = np.where(asked, np.minimum(passes, to_pass), passes)
                fails = np.where(asked, np.maximum(fails, to_fail), fails)
        level_pairs = (verdict == 0) & _is_equal(rounded["time"], design)
        futile = np.maximum(passes, fails) < design.least_chance
        futile &= (verdict == 0) & (FUTILE_FROM * total <= look < total)
        ended = (verdict != 0) | futile | level_pairs
        outcomes[live], equal[live], used[live[ended]] = verdict, level_pairs, look
        live = live[~ended]
    return Ends(outcomes, used, equal, evidence)
