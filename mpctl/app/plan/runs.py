"""Measurements of a service as evidence: pairs, acceptance, pools, devices."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from mpctl.app.bench.recorded import Source, measured_by, rollouts_of
from mpctl.app.bench.run_file import read_run
from mpctl.app.session.base import Session
from mpctl.errors import MpctlError
from mpctl.estimate.payoff.acceptance import Acceptance, check_rates
from mpctl.estimate.payoff.cell import LOOKUPS
from mpctl.estimate.payoff.evidence import Pair
from mpctl.experiment.arm import BASELINE, CANDIDATE
from mpctl.experiment.counters import Window
from mpctl.experiment.run import Run
from mpctl.gate.analysis import Comparison
from mpctl.methods import Spec, from_config
from mpctl.stats.confidence import Interval

_FLAG = "--speculative-config"
_LEAST_NOISE, _NOISE = 0.02, 0.05
_Z95 = 1.96


@dataclass(frozen=True)
class Learned:
    """The evidence of one measurement. ``name``: of the rollout or the file; ``spec`` of its candidate."""

    name: str
    spec: Spec
    acceptance: Acceptance | None
    pairs: tuple[Pair, ...]
    tokens_per_s: dict[float, float]
    pools: tuple[float | None, float | None]
    devices: tuple[str, ...]
    output_tokens: float | None


def learned_from(session: Session | None, files: Sequence[str]) -> tuple[Learned, ...]:
    """Return every measurement of a service and of files, oldest first. Unreadable records are skipped.

    Raises:
        InputError: a file is not a measurement.
    """
    runs = [_learned(path, Source(read_run(path))) for path in files]
    if session is not None:
        for operation in rollouts_of(session):
            try:
                source = measured_by(session, operation)
            except MpctlError as error:
                session.console.warn(f"measurement of {operation.id} not used: {error.message}")
                continue
            if source is not None:
                runs.append(_learned(operation.id, source))
    return tuple(run for run in runs if run is not None)


def _learned(name: str, source: Source) -> Learned | None:
    run = source.run
    spec = candidate_spec(run)
    if spec is None or spec.is_none:
        return None
    analysis, _ = source.judge()
    comparisons = [comparison for comparison in analysis.cells if comparison.cell.rate is None]
    lengths = [
        comparison.baseline.output_tokens / n for comparison in comparisons if (n := comparison.baseline.requests) > 0
    ]
    return Learned(
        name=name,
        spec=spec,
        acceptance=_acceptance(run, spec.method),
        pairs=tuple(pair for comparison in comparisons if (pair := _pair(comparison, spec, name)) is not None),
        tokens_per_s={float(c.cell.concurrency): t for c in comparisons if (t := c.baseline.throughput)},
        pools=(run.arms[BASELINE].kv_pool_tokens, run.arms[CANDIDATE].kv_pool_tokens),
        devices=tuple(arm.device for arm in run.arms.values() if arm.device),
        output_tokens=sum(lengths) / len(lengths) if lengths else None,
    )


def candidate_spec(run: Run) -> Spec | None:
    """The speculation of the candidate, by its engine's own arguments; None where it has none."""
    arm = run.arms.get(CANDIDATE)
    argv = arm.argv if arm and BASELINE in run.arms else ()
    for index, word in enumerate(argv):
        flag, equals, value = word.partition("=")
        if flag.replace("_", "-") == _FLAG:
            text = value if equals else argv[index + 1] if index + 1 < len(argv) else ""
            try:
                config = json.loads(text)
            except ValueError:
                return None
            return from_config(config) if isinstance(config, dict) else None
    return None


def _pair(comparison: Comparison, spec: Spec, name: str) -> Pair | None:
    through, time = comparison.throughput_ratio, comparison.time_per_token_ratio
    if through is None and time is None:
        return None
    k = spec.k or 5
    return Pair(
        method=spec.method,
        k=k,
        concurrency=float(comparison.cell.concurrency),
        throughput=through.value if through else None,
        time_per_token=time.value if time else None,
        noise=_noise(through or time),
        source=name,
    )


def _noise(interval: Interval | None) -> float:
    """The standard deviation that an interval stands for."""
    if interval is None or not interval.low or not interval.high or interval.low <= 0:
        return _NOISE
    return max(math.log(interval.high / interval.low) / (2 * _Z95), _LEAST_NOISE)


def _acceptance(run: Run, method: str) -> Acceptance | None:
    """Of the candidate at the lowest concurrency measured."""
    cells = [cell for cell in run.cells if cell.rate is None]
    if not cells:
        return None
    least = min(cells, key=lambda cell: cell.concurrency).concurrency
    windows = tuple(b.window for b in run.blocks if b.arm == CANDIDATE and b.cell.concurrency == least)
    return acceptance_in(Window.total(windows), method) if windows else None


def acceptance_in(window: Window, method: str) -> Acceptance | None:
    """Return the acceptance from an engine's counters; None without a draft."""
    if not window.drafts or not window.per_position:
        return None
    rates = tuple(min(count / window.drafts, 1.0) for count in window.per_position)
    if check_rates(rates) is not None:
        return None
    coverage = min(window.coverage or 1.0, 1.0) if method in LOOKUPS else 1.0
    return Acceptance(rates, coverage, drafts=int(window.drafts))
