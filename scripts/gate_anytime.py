"""An anytime-valid gate next to the gate itself, on the same simulated rounds, for ``scripts/gate-table --anytime``.

Each judged figure has a t e-process on either side of its limit: the likelihood ratio of the rounds between an effect
and none, averaged over a prior of the effect in standard deviations of a round, with the right Haar prior on the
standard deviation (Lai 1976; Perez-Ortiz, Lardy, de Heide and Gruenwald, Annals of Statistics 52, 2024). Where nothing
differs its mean is at most 1 whenever it is stopped, so it exceeds 1/alpha in at most a share alpha of measurements of
any length (Ville), and the evidence of two measurements multiplies. It depends on the rounds by their t and number
alone, so trimmed means and the margin for engines that differ for good enter as they do in the gate's intervals.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from gate_noise import (
    LIMITS,
    OURS,
    POLICY,
    PROMPTS,
    Array,
    Times,
    chance,
    figures,
    measured,
    planned_rounds,
    rising,
    sent_before,
    shown,
    trimmed,
    verdicts,
)
from gate_tricks import TRICKS, Attempt, Simulated, changing, drifting, in_numpy, truth
from numpy.typing import NDArray
from scipy.special import ndtri, stdtr

from mpctl.app.bench.recorded import read_run
from mpctl.experiment.block import BASELINE, CANDIDATE
from mpctl.gate.assess import FUTILE_FROM
from mpctl.stats.sequential import FEWEST
from tests.simulation.measurements import TOKENS, Truth

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

    gain: float = 25.0
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
    """Whether the mean of the time per token is shown to be nearer to no difference than the design's bound, in both
    directions."""
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
    """Judge measurements as ``gate_noise.verdicts`` does, by evidence in place of intervals; ``carried``: the evidence
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


@dataclass(frozen=True)
class Setup:
    """A design on measurements of so many budgets of 96 prompts, in the plan's blocks or in blocks of one prompt; None:
    the gate."""

    name: str
    design: Anytime | None
    budgets: int = 1
    single: bool = False

    def truth(self, kind: Truth) -> Truth:
        """The kind of noise in this setup's blocks."""
        return replace(kind, prompts=1) if self.is_split(kind) else kind

    def is_split(self, kind: Truth) -> bool:
        """True where blocks of the default plan are cut into blocks of one prompt."""
        return self.single and kind.prompts == PROMPTS

    def plans(self, kind: Truth) -> int:
        """The default plans, of at most 48 rounds, that a measurement is as long as."""
        return self.budgets * (PROMPTS if self.is_split(kind) else 1)

    def judge(
        self,
        arms: tuple[Times, Times],
        before: Times | None,
        pod_gap: float,
        repetition: int = 0,
        carried: Evidence | None = None,
        tokens: Array | None = None,
    ) -> Ends:
        """Judge measurements; after ``repetition`` earlier ones of the same pairs, whose evidence is ``carried``."""
        if self.design is not None:
            return decide(
                *arms, self.design, before, pod_gap=pod_gap, carried=carried, tokens=tokens
            )
        outcomes, used = verdicts(
            *arms, before=before, pod_gap=pod_gap, repetition=repetition, tokens=tokens
        )
        return Ends(outcomes, used, np.zeros(len(used), bool), {})


def guaranteed(**changes: Any) -> Anytime:
    """Errors as the gate divides them: 2.9 % for promoting, 1 % for each rule that rejects."""
    alphas = POLICY.gain.alpha, POLICY.guard.alpha, POLICY.loss.alpha
    return Anytime(*(1 / alpha for alpha in alphas), **changes)


CALIBRATED = Anytime(gain=12.0)  # what false verdicts allow in simulation, where 1/alpha allows 34
ONE_BY_ONE = (
    replace(  # a round of one prompt varies more, so an effect has fewer standard deviations
        CALIBRATED, prior=log_uniform(0.15, 1.0), guard_prior=log_uniform(0.3, 1.5)
    )
)
SETUPS = (
    Setup("the gate", None),
    Setup("evidence from 34 on", guaranteed()),
    Setup("the same, time per token alone", guaranteed(judged=("time",))),
    Setup("evidence from 12 on", CALIBRATED),
    Setup("the gate, blocks of 1", None, single=True),
    Setup("evidence from 12 on, blocks of 1", ONE_BY_ONE, single=True),
    Setup("the gate, 192 prompts in blocks of 1", None, 2, single=True),
    Setup(
        "evidence from 34 on, 192 in blocks of 1",
        replace(ONE_BY_ONE, gain=guaranteed().gain),
        2,
        single=True,
    ),
    Setup("evidence from 12 on, 192 in blocks of 1", ONE_BY_ONE, 2, single=True),
)
IN_SHORT = (SETUPS[0], SETUPS[1], SETUPS[-1])  # of which the table of every noise has columns
FACTORS = {"1.1x": 1 / 1.1, "-10 %": 0.9, "1.25x": 0.8, "2x": 0.5, "0.9x": 1 / 0.9, "0.8x": 1.25}
ATTEMPTS = (1, 3, 5)


def false_verdicts(
    kind: Truth, setup: Setup, count: int, pod_gap: float, seed: int
) -> tuple[list[float], Ends]:
    """The shares of equal pairs that one of 1, 3 and 5 measurements tells apart, and the ends of the first ones."""
    undecided, carried, shares = np.arange(count), None, []
    first: Ends | None = None
    truth = setup.truth(replace(kind, tpot=1.0))
    for number in range(max(ATTEMPTS)):
        before = sent_before(truth, count, np.random.default_rng(seed + 1000 + number))
        arms = measured(truth, count, seed + number, setup.plans(kind))
        arms = tuple((times[0][undecided], times[1][undecided]) for times in arms)
        before = before[0][undecided], before[1][undecided]
        ends = setup.judge(arms, before, pod_gap, number, carried)
        first = first or ends
        still = ends.outcomes == 0
        carried = {name: (to[still], out[still]) for name, (to, out) in ends.evidence.items()}
        undecided = undecided[still]
        shares.append(1 - len(undecided) / count)
    assert first is not None
    return [shares[number - 1] for number in ATTEMPTS], first


def measured_ends(
    kind: Truth, setup: Setup, factor: float, count: int, pod_gap: float, seed: int
) -> Ends:
    """The ends of measurements of a candidate whose time per token is ``factor``."""
    truth = setup.truth(replace(kind, tpot=factor))
    before = sent_before(truth, count, np.random.default_rng(seed + 1000))
    return setup.judge(measured(truth, count, seed, setup.plans(kind)), before, pod_gap)


def prompts_of(ends: Ends, kind: Truth, setup: Setup) -> NDArray[np.int64]:
    """The prompts an arm of each measurement."""
    return ends.used * setup.truth(kind).prompts


def summary(kind: Truth, repetitions: int, pod_gap: float, seed: int) -> None:
    """Print a row of every setup on one kind of machine."""
    heads = [
        "A/A 1, 3, 5",
        *FACTORS,
        "prompts: null",
        "1.1x",
        "1.25x",
        "2x",
        "a null: equal, futile, budget over",
    ]
    print(f"| design | {' | '.join(heads)} |\n|{'---|' * (len(heads) + 1)}")
    for setup in SETUPS:
        shares, null = false_verdicts(kind, setup, repetitions, pod_gap, seed)
        cells = [", ".join(f"{share:.1%}" for share in shares)]
        prompts = {"null": prompts_of(null, kind, setup)}
        for name, factor in FACTORS.items():
            ends = measured_ends(kind, setup, factor, repetitions, pod_gap, seed + 50)
            cells.append(f"{(ends.outcomes == (1 if factor < 1 else -1)).mean():.0%}")
            prompts[name] = prompts_of(ends, kind, setup)
        cells += [
            f"{np.median(prompts[name]):.0f} ({prompts[name].mean():.0f})"
            for name in ("null", "1.1x", "1.25x", "2x")
        ]
        total = setup.plans(kind) * planned_rounds(setup.truth(kind).prompts)
        open_ = (null.outcomes == 0) & ~null.equal
        ways = null.equal, open_ & (null.used < total), open_ & (null.used == total)
        cells.append(", ".join(f"{way.mean():.0%}" for way in ways))
        print(f"| {setup.name} | {' | '.join(cells)} |", flush=True)


def every_noise(kinds: Mapping[str, Truth], repetitions: int, pod_gap: float, seed: int) -> None:
    """Print a row for each kind of noise; each cell has the figure of every design in short."""
    names = "1.1x", "1.25x", "2x", "0.9x", "0.8x"
    heads = ["A/A 1", "A/A 3", "A/A 5", *names, "null, share", "1.25x n", "2x n"]
    print(f"| noise | {' | '.join(heads)} |\n|{'---|' * (len(heads) + 1)}")
    for title, kind in kinds.items():
        columns = []
        for setup in IN_SHORT:
            shares, null = false_verdicts(kind, setup, repetitions, pod_gap, seed)
            ends = {
                name: measured_ends(
                    kind, setup, FACTORS[name], repetitions // 3, pod_gap, seed + 50
                )
                for name in names
            }
            column = [f"{share:.1%}" for share in shares]
            column += [
                f"{(ends[name].outcomes == (1 if FACTORS[name] < 1 else -1)).mean():.0%}"
                for name in names
            ]
            total = setup.plans(kind) * planned_rounds(setup.truth(kind).prompts)
            column.append(f"{null.used.mean() / total:.0%}")
            column += [
                f"{np.median(prompts_of(ends[name], kind, setup)):.0f}" for name in ("1.25x", "2x")
            ]
            columns.append(column)
        cells = [" / ".join(figures_) for figures_ in zip(*columns, strict=True)]
        print(f"| {title} | {' | '.join(cells)} |", flush=True)


def _slow_start() -> NDArray[np.float64]:
    return np.where(np.arange(48) < 6, 3.0, 0.7)


def _late_first_tokens(share: float, late_ms: float, tpot: float) -> Simulated:
    """A share of the candidate's prompts waits for its first token."""
    kind = truth(tpot=tpot)

    def measure(count: int) -> tuple[tuple[Times, Times], None]:
        base, (first, later) = measured(kind, count, 29)
        late = np.random.default_rng(31).random(first.shape) < share
        return (base, (first + late_ms * late, later)), None

    return Simulated(measure, kind)


GAP = POLICY.max_pod_gap
SPEED_TRICKS: dict[str, Simulated] = {  # of a later review, side by side
    "0.8x at first, 1.3x in the last planned round": drifting(0.8, 1.3),
    "0.7x, but 3x in the first six rounds": changing(_slow_start()),
    "a pod that is 8 % faster for good, no gain": in_numpy(GAP, tpot=0.92),
    "a pod that is 12 % faster for good, no gain": in_numpy(GAP, tpot=0.88),
    "the same on a quiet GPU": in_numpy(GAP, tpot=0.88, block_sigma=0.01, request_sigma=0.05),
    "10 % of prompts 2.8x slower, the others 0.6x": in_numpy(
        GAP, tpot=0.6, hit=0.1, hit_factor=2.8 / 0.6
    ),
    "20 % of prompts 2.5x slower, the others 0.5x": in_numpy(
        GAP, tpot=0.5, hit=0.2, hit_factor=2.5 / 0.5
    ),
    "5 % of prompts wait 8 s for the first token, 0.7x": _late_first_tokens(0.05, 8000.0, 0.7),
    "5 % of prompts wait 1 s for the first token, 0.7x": _late_first_tokens(0.05, 1000.0, 0.7),
}
SAME_ROUNDS = (SETUPS[0], SETUPS[1], SETUPS[3])


def tricks(repetitions: int, chosen: str) -> None:
    """Print a row for each trick that speed decides, judged by every design on the same 48 rounds of 2."""
    rows = {
        f"{trick.number} | {trick.what}": trick.now
        for trick in TRICKS
        if isinstance(trick.now, Simulated)
    }
    rows |= {f"review | {what}": trick for what, trick in SPEED_TRICKS.items()}
    names = " | ".join(setup.name for setup in SAME_ROUNDS)
    print(f"| | trick | {names} |\n|---|---|{'---|' * len(SAME_ROUNDS)}")
    for title, trick in rows.items():
        if chosen in title:
            cells = [trick.judged(repetitions, _judge_of(setup)) for setup in SAME_ROUNDS]
            print(f"| {title} | {' | '.join(cells)} |", flush=True)


def _judge_of(setup: Setup) -> Any:
    """A design as the tricks ask for it."""

    def judge(
        attempt: Attempt, carried: Evidence | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], Evidence]:
        ends = setup.judge(
            (attempt.base, attempt.cand),
            attempt.before,
            attempt.pod_gap,
            attempt.number,
            carried,
            attempt.tokens,
        )
        return ends.outcomes, ends.used, ends.evidence

    return judge


PRIORS = {
    "half normal 0.35": half_normal(0.35),
    "half normal 0.5": half_normal(0.5),
    "half normal 1": half_normal(1.0),
    "half normals 0.3, 1 and 3": mixture(half_normal(0.3), half_normal(1.0), half_normal(3.0)),
    "log uniform 0.15 to 1": log_uniform(0.15, 1.0),
    "log uniform 0.2 to 1.5": log_uniform(0.2, 1.5),
    "log uniform 0.3 to 2": log_uniform(0.3, 2.0),
}


def grid(kind: Truth, repetitions: int, pod_gap: float, seed: int) -> None:
    """Print a row for each prior, evidence that promotes and size of blocks, on the seed that chooses among them."""
    heads = "prior | blocks | from | A/A 1, 5 | 1.1x in 96 | in 192 | 1.25x n | 2x n | null, share in 192"
    print(f"| {heads} |\n|{'---|' * 9}")
    for (name, prior), single, gain in itertools.product(
        PRIORS.items(), (False, True), (10.0, 12.0, 20.0)
    ):
        design = replace(CALIBRATED, gain=gain, prior=prior)
        short, long = (Setup("", design, budgets, single) for budgets in (1, 2))
        shares, _ = false_verdicts(kind, short, repetitions, pod_gap, seed)
        _, null = false_verdicts(kind, long, repetitions, pod_gap, seed)
        ends = {
            (factor, setup.budgets): measured_ends(
                kind, setup, factor, repetitions, pod_gap, seed + 50
            )
            for factor, setup in ((1 / 1.1, short), (1 / 1.1, long), (0.8, short), (0.5, short))
        }
        cells = [f"{shares[0]:.1%}, {shares[-1]:.1%}"]
        cells += [f"{(ends[1 / 1.1, part].outcomes == 1).mean():.0%}" for part in (1, 2)]
        cells += [f"{np.median(prompts_of(ends[f, 1], kind, short)):.0f}" for f in (0.8, 0.5)]
        cells.append(f"{null.used.mean() / (long.plans(kind) * 48):.0%}")
        blocks = 1 if single else kind.prompts
        print(f"| {name} | {blocks} | {gain:g} | {' | '.join(cells)} |", flush=True)


def recorded_arms(name: str) -> tuple[tuple[Times, Times], Array]:
    """Return both arms' times of a recorded measurement, and the tokens of its answers: an mpctl run of one class, or
    pairs of results of ``vllm bench serve``, ``BASELINE:CANDIDATE,BASELINE:CANDIDATE``, each pair a round of means."""
    if ":" in name:
        pairs = [[_means(file) for file in pair.split(":")] for pair in name.split(",")]
        table = np.array(pairs)  # pair, arm, figure
    else:
        run = read_run(name)
        blocks = {
            arm: sorted((b for b in run.blocks if b.arm == arm), key=lambda block: block.repeat)
            for arm in (BASELINE, CANDIDATE)
        }
        table = np.array(
            [
                [[[s.ttft_ms, s.tpot_ms, s.tokens] for s in block.samples] for block in both]
                for both in zip(*blocks.values(), strict=True)
            ]
        )  # round, arm, request, figure
        table = np.moveaxis(table, 3, 2)
    table = table.reshape(len(table), 2, 3, -1)[None]
    base, cand = ((table[:, :, arm, 0], table[:, :, arm, 1]) for arm in (0, 1))
    return (base, cand), table[:, :, 0, 2]


def _means(file: str) -> tuple[float, float, float]:
    """Time to first token, time per later token and tokens of the mean request of a ``vllm bench serve`` result."""
    result = json.loads(Path(file).read_text())
    tokens = result["total_output_tokens"] / result["completed"]
    first = result["mean_ttft_ms"]
    return first, (result["mean_e2el_ms"] - first) / (tokens - 1), tokens


def _padded(figures_: Array, planned: int) -> Array:
    """Repeat the last round until as many are there as were planned; no design looks ahead."""
    missing = max(planned - figures_.shape[1], 0)
    return np.concatenate([figures_, np.repeat(figures_[:, -1:], missing, 1)], 1)


def recorded(names: Iterable[str], planned: int, pod_gap: float) -> None:
    """Print how each design ends recorded measurements, ``TITLE=FILES``, which may have fewer rounds than planned."""
    heads = " | ".join(setup.name for setup in SAME_ROUNDS)
    print(f"| measurement | rounds | {heads} |\n|---|---|{'---|' * len(SAME_ROUNDS)}")
    for title in names:
        label, _, name = title.rpartition("=")
        arms, tokens = recorded_arms(name)
        count = tokens.shape[1]
        base, cand = (tuple(_padded(part, planned) for part in arm) for arm in arms)
        cells = []
        for setup in SAME_ROUNDS:
            ends = setup.judge((base, cand), None, pod_gap, tokens=_padded(tokens, planned))
            outcome, used = int(ends.outcomes[0]), int(ends.used[0])
            word = {1: "promoted", -1: "rejected", 0: "undecided"}[outcome]
            cells.append(f"{word}, round {used}" if used <= count else f"open after {count}")
            if setup.design is not None:
                never = replace(setup.design, gain=math.inf, loss=math.inf, equal_at=math.inf)
                only = decide(
                    *arms, replace(never, least_chance=0.0), pod_gap=pod_gap, tokens=tokens
                )
                cells[-1] += f"; evidence of a gain {math.exp(only.evidence['time'][0][0]):.3g}"
        print(f"| {label or name} | {count} | {' | '.join(cells)} |", flush=True)
