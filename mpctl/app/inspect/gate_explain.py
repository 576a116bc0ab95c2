"""Explain the gate: its policy, or its verdict on one measurement."""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.app.console import Console
from mpctl.app.inspect.run_source import find_source
from mpctl.app.policy import read_policy
from mpctl.app.requests import ExplainRequest
from mpctl.app.session.place import Place
from mpctl.errors import InputError
from mpctl.experiment.run import Run
from mpctl.gate.analysis import Analysis
from mpctl.gate.decomposition import Decomposition, memory_floor_ms
from mpctl.gate.policy import Policy
from mpctl.gate.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Explanation:
    """A verdict with the measurement and the analysis it judges, and per traffic condition the factors of the measured
    ratio."""

    run: Run
    analysis: Analysis
    verdict: Verdict
    decompositions: tuple[Decomposition | None, ...]


def explain_policy(request: ExplainRequest) -> Policy:
    """Return the policy to explain.

    Raises:
        InputError: the policy file cannot be used, or an option needs a measurement.
    """
    if request.weights_gb is not None or request.bandwidth_gb_s is not None:
        _memory_floor_ms(request)
        raise InputError("needs a RUN", field="--weights-gb")
    return read_policy(request.policy_file)


def explain_run(place: Place, console: Console, request: ExplainRequest) -> Explanation:
    """Judge a measurement again, and decompose its throughput ratio.

    Raises:
        InputError: the measurement is not found, or the policy file cannot be used.
    """
    policy = read_policy(request.policy_file) if request.policy_file else None
    floor_ms = _memory_floor_ms(request)
    source = find_source(place, console, request.run, request.service)
    analysis, verdict = source.judge(policy)
    parts = tuple(Decomposition.of(comparison, floor_ms=floor_ms) for comparison in analysis.cells)
    return Explanation(source.run, analysis, verdict, parts)


def _memory_floor_ms(request: ExplainRequest) -> float | None:
    weights, bandwidth = request.weights_gb, request.bandwidth_gb_s
    if weights is None and bandwidth is None:
        return None
    if weights is None or bandwidth is None:
        given, other = ("--bandwidth", "--weights-gb") if weights is None else ("--weights-gb", "--bandwidth")
        raise InputError(f"needs {other} too", field=given)
    return memory_floor_ms(weights * 1e9, bandwidth * 1e9)
