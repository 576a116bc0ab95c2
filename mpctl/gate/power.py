"""The statistical power of a planned measurement, from the noise of an earlier one of the same service.

Rounds of any two arms show how much rounds differ on this machine; the gain itself is no part of it. Larger blocks
average the differences between prompts, but not what all requests of a block share. Figures of a cell that a gain
moves rise and fall together, so the least likely of them counts; the other rules are taken as independent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from mpctl import formatting
from mpctl.experiment.cell import Cell
from mpctl.experiment.workload import Workload
from mpctl.gate.analysis import (
    SETTLED_FROM,
    SPEED,
    TRIM,
    Analysis,
    ArmOrder,
    Comparison,
    cell_shares,
)
from mpctl.gate.policy import Policy
from mpctl.records import Record
from mpctl.stats.confidence import gap_beyond
from mpctl.stats.sequential import chance_to_show, fewest_rounds

USUAL_GAIN = 0.2  # of the time per token, of which a plan is asked unless the user names another
MOST_ROUNDS = 200  # that a plan chooses by itself
_TIME = "time_per_token_ratio"
_MOVED = (_TIME, "throughput_ratio", "tpot", "e2e")  # by a gain
_TRIMS = {_TIME: 0.0, "length_ratio": 0.0}  # of the others a tenth at each end


@dataclass(frozen=True)
class CellNoise:
    """The differences between rounds in one cell."""

    traffic: str
    concurrency: int
    requests: float  # prompts of a round
    prompt_spread: float  # standard deviation of a prompt's time-per-token ratio within its round, in logarithms
    spreads: Mapping[
        str, float
    ]  # by figure: standard deviation of one round, of ratios in logarithms
    ttft_ms: float | None = None  # the baseline's, as the next
    queue_wait_ms: float | None = None

    @classmethod
    def of(cls, c: Comparison) -> CellNoise | None:
        """The noise in a cell with two rounds or more."""
        time = c.figures.get(_TIME)
        if time is None or len(time.values) < 2 or c.round_requests < 1:
            return None
        of_rounds = time.trimmed.spread
        within = _within(
            [math.log(r) for r in c.time_per_token_ratios], of_rounds, c.round_requests
        )
        least = within / math.sqrt(c.round_requests)  # few rounds may agree by chance
        spreads = {
            name: figure.trimmed.spread
            for name, figure in c.figures.items()
            if len(figure.values) > 1
        }
        for name in set(_MOVED) & spreads.keys():
            spreads[name] = max(spreads[name], least)
        window = c.baseline.window
        wait = window.queue_wait_ms if window else None
        return cls(
            c.cell.traffic,
            c.cell.concurrency,
            c.round_requests,
            within,
            spreads,
            c.baseline.ttft_ms,
            wait,
        )

    def of_blocks(self, requests: int) -> CellNoise:
        """The noise of blocks of another size."""
        time = self.spreads[_TIME]
        shared = max(time**2 - self.prompt_spread**2 / self.requests, 0.0)
        factor = math.sqrt(shared + self.prompt_spread**2 / requests) / time if time else 1.0
        return replace(
            self, requests=requests, spreads={n: s * factor for n, s in self.spreads.items()}
        )


def _within(logs: list[float], between: float, size: float) -> float:
    """Standard deviation of prompts within their rounds, given that of the rounds' means (analysis of variance)."""
    if size <= 1 or len(logs) < 2:
        return 0.0
    mean = math.fsum(logs) / len(logs)
    total = math.fsum((v - mean) ** 2 for v in logs) / (len(logs) - 1)
    return math.sqrt(max(total - between**2, 0.0) * size / (size - 1))


@dataclass(frozen=True)
class MeasurementNoise(Record):
    """The noise of a measurement."""

    source: str  # in words
    cells: tuple[CellNoise, ...]

    @classmethod
    def of(cls, analysis: Analysis, source: str) -> MeasurementNoise | None:
        """The noise of an earlier measurement; None where it has too few rounds."""
        cells = tuple(noise for c in analysis.cells if (noise := CellNoise.of(c)) is not None)
        return cls(source, cells) if cells else None

    def of_cell(self, cell: Cell) -> CellNoise:
        """The noise of the cell measured that resembles one most: of the same class and load, else of the same load,
        else the largest."""
        return max(
            self.cells,
            key=lambda n: (
                n.concurrency == cell.concurrency,
                n.traffic == cell.traffic,
                n.spreads[_TIME],
            ),
        )


def chance_to_promote(
    noise: MeasurementNoise,
    workload: Workload,
    policy: Policy,
    gain: float,
    order: ArmOrder = ArmOrder.SIDE_BY_SIDE,
) -> float:
    """Return the probability, 0..1, that a candidate is promoted whose time per token is less by the share ``gain`` in
    every cell, which is equal otherwise, and which fails no request. ``order``: that of the planned measurement."""
    rounds = workload.repeats
    if rounds * min(workload.requests_of(cell) for cell in workload.cells) < policy.min_compared:
        return 0.0
    omit = int(rounds >= SETTLED_FROM)
    cells = [noise.of_cell(cell).of_blocks(workload.requests_of(cell)) for cell in workload.cells]
    weights = cell_shares([cell.traffic for cell in workload.cells], workload.shares)
    gained = -math.log1p(-gain)

    def chance(gap: float, spread: float, name: str, base: float | None = None) -> float:
        """The chance that a figure this far inside its limit shows that; ``base``: ms of the baseline, of a wait."""
        margin = 0.0
        if name in SPEED:
            margin = math.log1p(order.margin(policy))
        elif base is not None:  # of a difference in ms
            margin = order.margin(policy) * base
        beyond = gap - margin if order is ArmOrder.SEPARATE else gap_beyond(gap, margin)
        alpha = policy.gain if name == _TIME else policy.guard
        return chance_to_show(beyond, spread, rounds, alpha, trim=_TRIMS.get(name, TRIM), omit=omit)

    def gain_passes(cell: CellNoise) -> float:
        """The chance that the rules pass which the gain itself moves."""
        limits = {"throughput_ratio": -_log(policy.min_throughput_ratio)}
        limits |= {"tpot": _log(policy.max_tpot_ratio), "e2e": _log(policy.max_e2e_ratio)}
        return min(
            (
                chance(gained + limit, cell.spreads[n], n)
                for n, limit in limits.items()
                if n in cell.spreads
            ),
            default=1.0,
        )

    def guards_pass(cell: CellNoise) -> float:
        """The chance that the rules pass about what does not change."""
        limits = {
            **_slack("ttft", cell.ttft_ms, policy.max_ttft_ratio, policy.ttft_slack_ms),
            **_slack(
                "queue_wait",
                cell.queue_wait_ms,
                policy.max_queue_wait_ratio,
                policy.queue_wait_slack_ms,
            ),
            "length_ratio": _log(policy.max_length_ratio),
        }
        bases = {"ttft_ms": cell.ttft_ms, "queue_wait_ms": cell.queue_wait_ms}
        return math.prod(
            chance(limit, cell.spreads[n], n, bases.get(n))
            for n, limit in limits.items()
            if n in cell.spreads
        )

    spread = math.sqrt(
        math.fsum(
            (weight * cell.spreads[_TIME]) ** 2 for weight, cell in zip(weights, cells, strict=True)
        )
    )
    overall = chance(gained + _log(policy.max_time_per_token_ratio), spread, _TIME)
    return min(overall, math.prod(map(gain_passes, cells))) * math.prod(map(guards_pass, cells))


def _slack(name: str, base: float | None, most: float, slack_ms: float) -> dict[str, float]:
    """Distance of no change from the limit: of the ratio, or of the difference where that allows more."""
    if base is None:
        return {}
    return (
        {name: _log(most)}
        if most < 1.0 or base * (most - 1.0) > slack_ms
        else {f"{name}_ms": slack_ms}
    )


def _log(limit: float) -> float:
    return math.log(limit) if limit > 0 else -math.inf


def rounds_to_detect(
    noise: MeasurementNoise,
    workload: Workload,
    policy: Policy,
    gain: float,
    order: ArmOrder = ArmOrder.SIDE_BY_SIDE,
) -> int | None:
    """Return the fewest planned rounds that find ``gain`` with the policy's statistical power; None above those that
    the prompts allow."""
    most = most_rounds(workload)

    def enough(rounds: int) -> bool:
        return (
            chance_to_promote(noise, replace(workload, repeats=rounds), policy, gain, order)
            >= policy.power
        )

    return fewest_rounds(enough, most)


def most_rounds(workload: Workload) -> int:
    """Rounds that a plan may choose by itself, and for which there are prompts."""
    allowed = workload.rounds_allowed
    return MOST_ROUNDS if allowed is None else min(allowed, MOST_ROUNDS)


def describe_power(
    noise: MeasurementNoise,
    workload: Workload,
    policy: Policy,
    gain: float = USUAL_GAIN,
    order: ArmOrder = ArmOrder.SIDE_BY_SIDE,
) -> str:
    """Return what a plan would notice in one sentence: ``this plan would notice a 20% gain in 8 of 10 tries ...``."""
    hits = round(10 * chance_to_promote(noise, workload, policy, gain, order))
    return (
        f"this plan would notice a {formatting.share(gain, 0)} gain in {hits} of 10 tries on a machine as noisy as "
        f"this one ({workload.repeats} rounds of {workload.per_round} prompts, by the noise of {noise.source})"
    )


def power_warning(
    noise: MeasurementNoise,
    workload: Workload,
    policy: Policy,
    order: ArmOrder = ArmOrder.SIDE_BY_SIDE,
) -> str:
    """Return :func:`describe_power` of a plan that would miss the usual gain more often than the policy allows, with
    the rounds that would notice it; empty for a plan that will do."""
    if chance_to_promote(noise, workload, policy, USUAL_GAIN, order) >= policy.power:
        return ""
    rounds = rounds_to_detect(noise, workload, policy, USUAL_GAIN, order)
    remedy = (
        f"no plan of {most_rounds(workload)} rounds or fewer notices it often enough: add prompts"
        if rounds is None
        else f"--repeats {rounds} notices it {formatting.share(policy.power, 0)} of the time"
    )
    return f"{describe_power(noise, workload, policy, order=order)}; {remedy}"
