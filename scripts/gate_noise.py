"""The gate's speed rules in NumPy, thousands of simulated measurements at a time, for ``scripts/gate-table``.

It repeats the rules on time per token, TPOT, E2E and TTFT and the stop for futility, for the plan that is
the default for a block's size and one cell; no request fails. The gate itself takes a hundred times as long;
``scripts/gate-table --check`` compares both, measurement by measurement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtr, stdtrit

from mpctl.experiment.pairing import STALL
from mpctl.gate.analysis import SETTLED_FROM, STALL_TAIL, SUMS_LEVEL, TRIM, error_left
from mpctl.gate.assess import FUTILE_FROM, LEAST_CHANCE
from mpctl.gate.policy import Policy
from mpctl.gate.rules.figures import TREND_ERROR
from mpctl.stats.sequential import FEWEST, FIRST_LOOK, Spending, nominal_levels
from tests.simulation.measurements import TOKENS, TPOT_MS, Truth, cold_factor, rounds

Array = NDArray[np.float64]
Times = tuple[
    Array, Array
]  # time to first token and time per later token: measurement, round, prompt

PROMPTS = 2  # of a block of the default plan
# Of a block where the arms take turns, and the pairs of blocks: an engine starts between two of them.
TURN_PROMPTS, TURNS = 16, 6
BEFORE = 56  # requests before the rounds, as many as let the rule errors pass at the first analysis that decides
POLICY = Policy()
LIMITS = {  # of ratios their logarithms
    "time": math.log(POLICY.max_time_per_token_ratio),
    "tpot": math.log(POLICY.max_tpot_ratio),
    "ttft": math.log(POLICY.max_ttft_ratio),
    "e2e": math.log(POLICY.max_e2e_ratio),
    "ttft_ms": POLICY.ttft_slack_ms,
}


SCENARIOS: dict[str, dict[str, Any]] = {
    "quiet": {"block_sigma": 0.02},
    "usual": {},
    "shared, tau 16 requests": {"tau": 16.0},
    "shared, blocks 0.2": {"block_sigma": 0.2},
    "AR(1), tau 4 requests": {"tau": 4.0},
    "AR(1), tau 64 requests": {"tau": 64.0},
    "period of 4 blocks, 10 %": {"period": 4.0, "amplitude": 0.1},
    "period of 4 blocks, 20 %": {"period": 4.0, "amplitude": 0.2},
    "period of 4.2 blocks, 20 %": {"period": 4.2, "amplitude": 0.2},
    "period of 2 blocks, 20 %": {"period": 2.0, "amplitude": 0.2},
    "first block 2 % slower, GPU": {"waking": 1.02, "block_sigma": 0.005, "request_sigma": 0.02},
    "first block 5 % slower, GPU": {"waking": 1.05, "block_sigma": 0.005, "request_sigma": 0.02},
    "first block 10 % slower, GPU": {"waking": 1.1, "block_sigma": 0.005, "request_sigma": 0.02},
    "drift 5 % a block": {"drift": 0.05},
    "bursts 2.2x": {"slow": 2.2},
    "Pareto(2) requests": {"pareto": 2.0},
    "Pareto(1.3) requests": {"pareto": 1.3},
    "5 % stalls, Pareto(1.2)": {"stalls": 0.05},
    "cold first block 2x": {"cold": 2.0},
    "period of 3 blocks, 20 %": {"period": 3.0, "amplitude": 0.2},
    "period of 5 blocks, 20 %": {"period": 5.0, "amplitude": 0.2},
    "turns, 6x16, quiet": {"prompts": TURN_PROMPTS, "block_sigma": 0.02},
    "turns, 6x16, usual": {"prompts": TURN_PROMPTS},
    "turns, 6x16, GPU": {
        "prompts": TURN_PROMPTS,
        "block_sigma": 0.005,
        "request_sigma": 0.02,
    },
    "one prompt in a round, usual": {"prompts": 1},
    "12x64, usual": {"prompts": 64},
    "12x64, period of 4 blocks, 10 %": {"prompts": 64, "period": 4.0, "amplitude": 0.1},
    "12x64, period of 2 blocks, 20 %": {"prompts": 64, "period": 2.0, "amplitude": 0.2},
    "12x64, first block 5 % slower, GPU": {
        "prompts": 64,
        "waking": 1.05,
        "block_sigma": 0.005,
        "request_sigma": 0.02,
    },
    "12x64, first block 10 % slower, GPU": {
        "prompts": 64,
        "waking": 1.1,
        "block_sigma": 0.005,
        "request_sigma": 0.02,
    },
    "12x8, first block 10 % slower, GPU": {
        "prompts": 8,
        "waking": 1.1,
        "block_sigma": 0.005,
        "request_sigma": 0.02,
    },
}


@dataclass(frozen=True)
class Estimator:
    """``stall``: how many times its partner's time a request may take, 0 for any; ``trim``: of the rounds, of block
    means and of ``trim_time`` the time per token; ``logs``: E2E, TPOT and TTFT as mean logarithms of prompts'
    ratios; ``checked``: a rule passes only with the figure of all requests and rounds."""

    stall: float = STALL
    trim: float = TRIM
    trim_time: float = 0.0
    logs: bool = False
    checked: bool = True


OURS = Estimator()
ESTIMATORS = {
    "a tenth of the rounds trimmed at each end": Estimator(stall=0.0),
    "a fifth trimmed": Estimator(stall=0.0, trim=0.2),
    "a quarter trimmed": Estimator(stall=0.0, trim=0.25),
    "logarithms of ratios by prompt": Estimator(stall=0.0, trim=0.0, logs=True),
    "stalls cut, a tenth trimmed (the gate)": OURS,
    "stalls cut, logarithms by prompt": Estimator(trim=0.0, logs=True),
    "stalls cut, time per token trimmed as well": Estimator(trim_time=TRIM),
    "the gate without the check of the uncut figure": Estimator(checked=False),
}


def planned_rounds(prompts: int) -> int:
    """Rounds of the default plan, as in Workload.default_rounds, of turns, as in mpctl.rollout.placement, and with one
    prompt in a round, as behind untimed requests that show a large gain."""
    if prompts == 1:
        return 96
    return TURNS if prompts == TURN_PROMPTS else max(min(48, 96 // prompts), 12)


def machine(truth: Truth, count: int, rounds_: int, rng: np.random.Generator) -> Array:
    """The machine's slowness at each request of each block, as in tests/simulation, for ``count`` measurements."""
    blocks = 2 * rounds_
    logs, place = np.zeros((count, blocks, truth.prompts)), np.arange(blocks)
    if truth.period:
        phase = rng.uniform(0.0, 2 * np.pi, (count, 1))
        logs += (truth.amplitude * np.sin(2 * np.pi * place / truth.period + phase))[..., None]
    logs += truth.drift * place[None, :, None]
    logs[:, ::2] += math.log(truth.waking)
    state, value, keep = (
        np.zeros(count, bool),
        rng.normal(size=count),
        math.exp(-1 / truth.tau) if truth.tau else 0.0,
    )
    for block in place:
        if truth.slow != 1.0:
            draw = rng.random(count)
            state = np.where(state, draw > 1 / 4, draw < 1 / 12)
            logs[:, block] += math.log(truth.slow) * state[:, None]
        for prompt in range(truth.prompts if truth.tau else 0):
            logs[:, block, prompt] += 0.3 * value
            value = keep * value + math.sqrt(1 - keep * keep) * rng.normal(size=count)
    return np.asarray(np.exp(logs))


def measured(truth: Truth, count: int, seed: int, plans: int = 1) -> tuple[Times, Times]:
    """Both arms' times of ``count`` measurements, each as long as so many default plans."""
    rng = np.random.default_rng(seed)
    shape = (count, plans * planned_rounds(truth.prompts), truth.prompts)
    noise = machine(truth, count, shape[1], rng)
    first = coins(count, shape[1], rng)  # the baseline goes first
    prompt = np.exp(rng.normal(0.0, truth.prompt_sigma, shape))
    arms = []
    for candidate in (False, True):
        place = 2 * np.arange(shape[1])[None] + (first == candidate)
        shared = np.exp(rng.normal(0.0, truth.block_sigma, shape[:2]))[..., None]
        shared = shared * noise[np.arange(count)[:, None], place]
        if truth.pareto:
            own = (rng.pareto(truth.pareto, (2, *shape)) + 1) / 2 ** (1 / truth.pareto)
        else:
            own = np.exp(rng.normal(0.0, truth.request_sigma, (2, *shape)))
            stalled = rng.random(shape) < truth.stalls
            own[1] *= np.where(stalled, 1 + 9 * rng.pareto(1.2, shape), 1.0)
        if candidate:
            shared *= np.array([cold_factor(truth, repeat) for repeat in range(shape[1])])[
                None, :, None
            ]
            own[1] *= np.where(rng.random(shape) < truth.hit, truth.hit_factor, 1.0)
        factor = truth.tpot if candidate else 1.0
        arms.append((truth.ttft_ms * shared * own[0], TPOT_MS * factor * shared * prompt * own[1]))
    return arms[0], arms[1]


def coins(count: int, rounds_: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """The tosses of mpctl.experiment.workload.round_order."""
    allowed = np.array([toss for toss in range(256) if toss >> 1 not in (0, 127)])
    tosses = rng.choice(allowed, (count, -(-rounds_ // 8), 1))
    return np.asarray((tosses >> np.arange(8) & 1).reshape(count, -1)[:, :rounds_] == 1)


def recorded(truth: Truth, seeds: list[int]) -> tuple[Times, Times]:
    """Both arms' times of the measurements that scripts/gate-table makes of these seeds."""
    found = [list(rounds(truth, planned_rounds(truth.prompts), seed)) for seed in seeds]

    def times(arm: int, name: str) -> Array:
        return np.array(
            [[[getattr(s, name) for s in both[arm].samples] for both in one] for one in found]
        )

    base, cand = ((times(arm, "ttft_ms"), times(arm, "tpot_ms")) for arm in (0, 1))
    return base, cand


def cut(base: Array, cand: Array, stall: float, tokens: Array | float = 1.0) -> Times:
    """Both arms' times with stalls cut, compared by token."""
    if not stall:
        return base, cand
    base, cand = base / tokens, cand / tokens
    typical = [np.median(times.reshape(len(times), -1), 1)[:, None, None] for times in (base, cand)]
    shortened = np.minimum(base, stall * np.maximum(cand, typical[0]))
    return tokens * shortened, tokens * np.minimum(cand, stall * np.maximum(base, typical[1]))


def excess(base: Array, cand: Array, before: Times, tokens: Array | float) -> Array:
    """By how much the candidate's time grows if as many of its requests stall as those sent do not rule out."""
    one, two = ((times / tokens).reshape(len(times), -1) for times in (base, cand))
    stalled = two > STALL * np.maximum(one, np.median(two, 1)[:, None])
    base, cand = base.reshape(len(base), -1), cand.reshape(len(cand), -1)
    hits, count = stalled.sum(1), cand.shape[1]
    others = np.where(stalled, 0.0, cand).sum(1) / (count - hits)
    slowness = np.where(stalled, cand, 0.0).sum(1) / others  # of all stalls of the rounds together
    every, times = hits + before[0], slowness + before[1]
    most = betaincinv(
        every + 1, count + BEFORE - every, 1 - STALL_TAIL / ((every + 1) * (every + 2))
    )
    bound = 1 + most * (times / np.maximum(every, 1) - 1)
    return np.where(every > 0, np.log(bound / (1 + (slowness - hits) / count)), 0.0)


def skewed(base: Array, cand: Array, level: float) -> Array:
    """The upper bound of the difference of means, as in mpctl.stats.confidence.lognormal_mean."""
    logs, offset = np.log(cand.mean(2) + POLICY.ttft_slack_ms / 10), POLICY.ttft_slack_ms / 10
    count, spread = logs.shape[1], logs.var(1, ddof=1)
    error = np.sqrt(spread / count + spread**2 / (2 * (count - 1)))
    bound = logs.mean(1) + spread / 2 + stdtrit(count - 1, 1 - level) * error
    return np.asarray(np.exp(np.minimum(bound, 50.0)) - offset - base.mean((1, 2)))


def sums_bound(base: Array, cand: Array, level: float) -> Array:
    """The upper bound of the ratio of both arms' times in all requests, as in mpctl.stats.confidence."""
    base, cand = base.sum(2), cand.sum(2)
    whole, count = base.sum(1), base.shape[1]
    value = cand.sum(1) / whole
    squares = ((cand - value[:, None] * base) ** 2).sum(1)
    error = np.sqrt(squares * count / (count - 1)) / whole
    return np.asarray(np.log(value + stdtrit(count - 1, 1 - level) * error))


def figures(
    base: Times,
    cand: Times,
    how: Estimator,
    before: Times,
    level: float,
    tokens: Array | float = TOKENS,
) -> tuple[dict[str, Array], dict[str, Array]]:
    """The figures of the rounds, and those of all requests together; ratios as logarithms, better below."""
    whole = [first + (tokens - 1) * later for first, later in (base, cand)]
    first, e2e = cut(base[0], cand[0], how.stall), cut(whole[0], whole[1], how.stall, tokens)
    e2e = np.maximum(e2e[0], first[0]), np.maximum(e2e[1], first[1])
    later = (e2e[0] - first[0]) / (tokens - 1), (e2e[1] - first[1]) / (tokens - 1)

    def ratio(pair: Times) -> Array:
        if how.logs:
            return np.asarray(np.log(pair[1] / pair[0]).mean(2))
        return np.asarray(np.log(pair[1].sum(2) / pair[0].sum(2)))

    def pooled(one: Array, two: Array) -> Array:
        return np.asarray(np.log(two.sum((1, 2)) / one.sum((1, 2))))

    rounded = {
        "time": np.log(e2e[1] / e2e[0]).mean(2),
        "e2e": ratio(e2e),
        "tpot": ratio(later),
        "ttft": ratio(first),
        "ttft_ms": (first[1] - first[0]).mean(2),
    }
    every = {"time": np.log(whole[1] / whole[0]).mean((1, 2)), "tpot": pooled(base[1], cand[1])}
    every |= {
        "e2e": pooled(*whole) + excess(*whole, before, tokens),
        "ttft": pooled(base[0], cand[0]),
    }
    if level:
        of_sums = SUMS_LEVEL * level if e2e[0].shape[2] > 1 else level
        every["e2e"] = np.maximum(every["e2e"], sums_bound(*e2e, of_sums))
    return rounded, every | {"ttft_ms": skewed(base[0], cand[0], level)}


def rising(values: Array, planned: int, limit: float) -> NDArray[np.bool_]:
    """Whether the time per token rises so that it is no gain at the end of the plan, as in
    mpctl.gate.rules.figures.contradiction."""
    count = values.shape[1]
    if count < FEWEST:
        return np.zeros(len(values), bool)
    places = np.arange(count) - (count - 1) / 2
    square, offsets = (places**2).sum(), values - values.mean(1)[:, None]
    slope = (offsets * places).sum(1) / square
    error = np.sqrt(((offsets - slope[:, None] * places) ** 2).sum(1) / (count - 2) / square)
    end = values.mean(1) + slope * (planned - 1 - (count - 1) / 2)
    return np.asarray((slope > stdtrit(count - 2, 1 - TREND_ERROR / 2) * error) & (end >= limit))


def trimmed(values: Array, trim: float) -> tuple[Array, Array, int]:
    """The trimmed mean of each measurement's rounds, its spread and its degrees of freedom."""
    count, ordered = values.shape[1], np.sort(values, 1)
    out = int(trim * count)
    inner = ordered[:, out : count - out]
    winsorised, size = np.clip(ordered, inner[:, :1], inner[:, -1:]), inner.shape[1]
    spread = winsorised.std(1, ddof=1) * math.sqrt((count - 1) * count / (size - 1) / size)
    return inner.mean(1), spread, size - 1


def last_reach(total: int, alpha: Spending) -> float:
    """The standard errors that a mean must be beyond its limit to decide at the last planned round."""
    return float(stdtrit(total - 1, 1 - nominal_levels(total, alpha)[-1]))


def chance(gap: Array, spread: Array, count: int, total: int, reach: Array | float) -> Array:
    """The chance that the last round decides, as in mpctl.stats.confidence.chance_to_decide; ``reach``: the standard
    errors that the mean must be beyond its limit then."""
    width = reach * spread / math.sqrt(total)
    expected = gap + (total - count) / total * spread / math.sqrt(count) - width
    return np.asarray(ndtr(expected / (spread * math.sqrt(total - count) / total)))


def shown(gap: Array, margin: Array | float) -> Array:
    """How far beyond a limit rounds can show the mean to be, as in mpctl.stats.confidence.gap_beyond."""
    return np.where(
        gap > margin, np.sqrt(np.maximum(gap**2 - np.square(margin), 0.0)), gap - margin
    )


def verdicts(
    base: Times,
    cand: Times,
    how: Estimator = OURS,
    before: Times | None = None,
    *,
    pod_gap: float = POLICY.max_pod_gap,
    repetition: int = 0,
    tokens: Array | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Outcome (1 promote, -1 reject, 0 undecided) and rounds of each measurement. ``before``: stalls among the requests
    before the rounds, and the sum of their times over the usual one; None where none stalled. ``repetition``: earlier
    measurements of the same pair."""
    total, part_left = base[0].shape[1], error_left(repetition)
    gain, loss = (
        replace(error, alpha=error.alpha * part_left) for error in (POLICY.gain, POLICY.loss)
    )
    gap_margin, losses = max(pod_gap, 1e-12), nominal_levels(total, loss)
    outcome, used = np.zeros(len(base[0]), np.int64), np.full(len(base[0]), total)
    live = np.arange(len(base[0]))
    first = int(total >= SETTLED_FROM)  # that counts
    for look in range(FEWEST, total + 1):
        if not len(live):
            break
        part = [(times[0][live, first:look], times[1][live, first:look]) for times in (base, cand)]
        earlier = (
            (before[0][live], before[1][live])
            if before
            else (np.zeros(len(live)), np.zeros(len(live)))
        )
        guarded = nominal_levels(total, POLICY.guard)[look - 1]
        lengths = TOKENS if tokens is None else tokens[live, first:look]
        rounded, every = figures(part[0], part[1], how, earlier, guarded, lengths)
        slack = (
            base[0][live, :look].mean((1, 2)) * (POLICY.max_ttft_ratio - 1) <= POLICY.ttft_slack_ms
        )
        passed, failed = np.ones(len(live), bool), np.zeros(len(live), bool)
        passes, fails = np.ones(len(live)), np.zeros(len(live))
        for name, limit in LIMITS.items():
            mean, spread, freedom = trimmed(
                rounded[name], how.trim_time if name == "time" else how.trim
            )
            margin = (
                gap_margin * part[0][0].mean((1, 2))
                if name == "ttft_ms"
                else math.log1p(gap_margin)
            )
            gap, count = limit - mean, look - first
            alpha = gain if name == "time" else POLICY.guard
            to_pass, to_fail = (
                np.hypot(stdtrit(freedom, 1 - level) * spread / math.sqrt(count), margin)
                for level in (nominal_levels(total, alpha)[look - 1], losses[look - 1])
            )
            good, bad = gap - to_pass >= 0, -gap - to_fail > 0
            if name == "time":
                good &= ~rising(rounded[name], total, limit)
            if how.checked and (how.stall or name != "time"):
                good &= every[name] <= limit
            asked = (
                slack
                if name == "ttft_ms"
                else ~slack
                if name == "ttft"
                else np.ones(len(live), bool)
            )
            passed, failed = passed & (good | ~asked), failed | (bad & asked)
            if look < total:
                passes = np.where(
                    asked,
                    np.minimum(
                        passes,
                        chance(shown(gap, margin), spread, count, total, last_reach(total, alpha)),
                    ),
                    passes,
                )
                rejected = chance(
                    shown(-gap, margin), spread, count, total, last_reach(total, loss)
                )
                fails = np.where(asked, np.maximum(fails, rejected), fails)
        found = np.where(failed, -1, np.where(passed, 1, 0))
        futile = (
            (found == 0)
            & (np.maximum(passes, fails) < LEAST_CHANCE)
            & (FUTILE_FROM * total <= look < total)
        )
        ended = (found != 0) | futile
        outcome[live], used[live[ended]] = found, look
        live = live[~ended]
    return outcome, used


def sent_before(truth: Truth, count: int, rng: np.random.Generator) -> Times:
    """Stalls among the requests before the rounds."""
    hits = rng.binomial(BEFORE, truth.hit if truth.hit_factor > STALL else 0.0, count).astype(
        np.float64
    )
    return hits, hits * truth.hit_factor


HEADS = (
    "A/A",
    "gain of 20 %",
    "of 10 %",
    "of 2x",
    "loss of 20 %",
    "wrong",
    "null",
    "gain of 20 %, n",
    "of 2x, n",
)


def line(name: str, kind: Truth, repetitions: int, pod_gap: float, how: Estimator = OURS) -> str:
    """A row of the table: false verdicts, of ten times as many measurements as the others, the gains and losses that
    are found, wrong verdicts, the share of the budget that equal arms take, and prompts an arm."""
    ends = {}
    for tpot in (1.0, 0.8, 0.9, 0.5, 1.2):
        truth, parts = replace(kind, tpot=tpot), []
        for part in range(10 if tpot == 1.0 else 1):
            before = sent_before(truth, repetitions, np.random.default_rng(31 + part))
            parts.append(
                verdicts(*measured(truth, repetitions, 29 + part), how, before, pod_gap=pod_gap)
            )
        ends[tpot] = tuple(np.concatenate(both) for both in zip(*parts, strict=True))
    wrong = (ends[0.8][0] == -1).mean() + (ends[1.2][0] == 1).mean()
    shares = [
        (ends[1.0][0] != 0).mean(),
        *((ends[tpot][0] == 1).mean() for tpot in (0.8, 0.9, 0.5)),
    ]
    shares += [
        (ends[1.2][0] == -1).mean(),
        wrong,
        ends[1.0][1].mean() / planned_rounds(kind.prompts),
    ]
    prompts = [ends[tpot][1].mean() * kind.prompts for tpot in (0.8, 0.5)]
    return f"| {' | '.join([name, *(f'{share:.1%}' for share in shares), *(f'{count:.0f}' for count in prompts)])} |"


def skewed_waits(repetitions: int) -> None:
    """The share of measurements in which a wait passes whose mean is beyond its limit by a factor, and whose rounds
    differ as a lognormal law of that spread."""
    rng, slack = np.random.default_rng(5), POLICY.ttft_slack_ms
    for sd in (0.5, 1.0, 1.5):
        row = []
        for mean in (25.0, 50.0, 75.0, 100.0):
            cand = (mean + 5.0) * np.exp(rng.normal(-sd * sd / 2, sd, (repetitions, 48, 1)))
            base, passed = np.full(cand.shape, 5.0), np.zeros(repetitions, bool)
            for look in range(FIRST_LOOK, 49):
                level = nominal_levels(48, POLICY.guard)[look - 1]
                value, spread, freedom = trimmed((cand - base)[:, 1:look, 0], TRIM)
                width = stdtrit(freedom, 1 - level) * spread / math.sqrt(look - 1)
                passed |= (value + width <= slack) & (
                    skewed(base[:, 1:look], cand[:, 1:look], level) <= slack
                )
            row.append(f"+{mean:.0f} ms {passed.mean():.1%}")
        print(
            f"  queue wait, sd of log {sd}: passes the limit of +50 ms at {', '.join(row)}",
            flush=True,
        )
