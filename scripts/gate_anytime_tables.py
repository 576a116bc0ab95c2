"""The tables of ``scripts/gate-table --anytime``: e-processes next to the gate's intervals, on the same rounds."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from gate_anytime import PRIORS, Anytime, Ends, Evidence, decide, log_uniform
from gate_noise import (
    POLICY,
    PROMPTS,
    Array,
    Times,
    measured,
    planned_rounds,
    sent_before,
    verdicts,
)
from gate_simulated import Attempt, Simulated, changing, drifting, in_numpy, truth
from gate_tricks import TRICKS
from numpy.typing import NDArray

from mpctl.app.bench.recorded import read_run
from mpctl.experiment.block import BASELINE, CANDIDATE
from tests.simulation.measurements import Truth


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

    def planned(self, kind: Truth) -> int:
        """The rounds of a measurement."""
        return self.plans(kind) * planned_rounds(self.truth(kind).prompts)

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


BOLDER = Anytime(gain=20.0)  # 5 % for promoting alone
# A round of one prompt varies more, so an effect has fewer standard deviations.
ONE_BY_ONE = replace(BOLDER, prior=log_uniform(0.15, 1.0), guard_prior=log_uniform(0.3, 1.5))
SETUPS = (
    Setup("the gate", None),
    Setup("evidence from 34 on", guaranteed()),
    Setup("the same, time per token alone", guaranteed(judged=("time",))),
    Setup("evidence from 20 on", BOLDER),
    Setup("the gate, blocks of 1", None, single=True),
    Setup("evidence from 20 on, blocks of 1", ONE_BY_ONE, single=True),
    Setup("the gate, 192 prompts in blocks of 1", None, 2, single=True),
    *(
        Setup(
            f"evidence from {gain} on, 192 in blocks of 1", replace(ONE_BY_ONE, gain=gain), 2, True
        )
        for gain in (34, 20, 12)
    ),
)
IN_SHORT = tuple(SETUPS[place] for place in (0, 1, 6, 8))  # in the table of every noise
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
        again = ends.outcomes == 0
        carried = {name: (to[again], out[again]) for name, (to, out) in ends.evidence.items()}
        undecided = undecided[again]
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


def shares_right(ends: Ends, factor: float) -> str:
    """The share of measurements that promote a gain, or reject a loss."""
    return f"{(ends.outcomes == (1 if factor < 1 else -1)).mean():.0%}"


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
            cells.append(shares_right(ends, factor))
            prompts[name] = prompts_of(ends, kind, setup)
        cells += [
            f"{np.median(prompts[name]):.0f} ({prompts[name].mean():.0f})"
            for name in ("null", "1.1x", "1.25x", "2x")
        ]
        total = setup.planned(kind)
        undecided = (null.outcomes == 0) & ~null.equal
        ways = null.equal, undecided & (null.used < total), undecided & (null.used == total)
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
            column += [shares_right(ends[name], FACTORS[name]) for name in names]
            total = setup.planned(kind)
            column.append(f"{null.used.mean() / total:.0%}")
            column += [
                f"{np.median(prompts_of(ends[name], kind, setup)):.0f}" for name in ("1.25x", "2x")
            ]
            columns.append(column)
        cells = [" / ".join(figures) for figures in zip(*columns, strict=True)]
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


def grid(kind: Truth, repetitions: int, pod_gap: float, seed: int) -> None:
    """Print a row for each prior, evidence that promotes and size of blocks, on the seed that chooses among them."""
    heads = "prior | blocks | from | A/A 1, 5 | 1.1x in 96 | in 192 | 1.25x n | 2x n | null, share in 192"
    print(f"| {heads} |\n|{'---|' * 9}")
    for (name, prior), single, gain in itertools.product(
        PRIORS.items(), (False, True), (10.0, 12.0, 20.0)
    ):
        design = replace(BOLDER, gain=gain, prior=prior)
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
        cells.append(f"{null.used.mean() / (long.planned(kind)):.0%}")
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


def _padded(rounds: Array, planned: int) -> Array:
    """Repeat the last round until as many are there as were planned; no design looks ahead."""
    missing = max(planned - rounds.shape[1], 0)
    return np.concatenate([rounds, np.repeat(rounds[:, -1:], missing, 1)], 1)


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
            with np.errstate(divide="ignore"):  # repeated rounds do not vary
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
