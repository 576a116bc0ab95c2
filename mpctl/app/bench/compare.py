"""Compare finished measurements, computed again from their raw samples."""

from __future__ import annotations

from dataclasses import dataclass

from mpctl import commands
from mpctl.app.bench.run_file import read_run
from mpctl.app.policy import read_policy
from mpctl.app.requests import CompareRequest
from mpctl.errors import InputError
from mpctl.experiment.compare import arm_of, combine, differences
from mpctl.experiment.run import Run
from mpctl.gate.analysis import Analysis
from mpctl.gate.assess import judge_run
from mpctl.gate.verdict import Verdict

_ARMS = ("baseline", "candidate")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two arms with the gate's verdict; ``differences`` between their measurements were overridden."""

    run: Run
    analysis: Analysis
    verdict: Verdict
    differences: tuple[str, ...]


def compare(request: CompareRequest) -> Comparison:
    """Judge the two arms of one measurement, or one arm of each of two.

    Raises:
        InputError: a file cannot be used, an arm is missing, or the measurements differ in more than their arms.
    """
    differing: tuple[str, ...] = ()
    if request.second is None:
        run = _both_arms(request.first)
    else:
        run, differing = _combined(request.first, request.second, force=request.force)
    policy = read_policy(request.policy_file) if request.policy_file else run.policy
    analysis, verdict = judge_run(run, policy)
    return Comparison(run, analysis, verdict, differing)


def _both_arms(text: str) -> Run:
    path, arm = _split(text)
    if arm is not None:
        raise InputError(
            f"{text} names one arm",
            hint=f"'{commands.line('bench', 'compare', path)}' compares both arms of the measurement",
        )
    run = read_run(text)
    if len({b.arm for b in run.blocks}) < 2:
        raise InputError("has only one arm", file=text, hint="name a second measurement")
    return run


def _combined(first: str, second: str, *, force: bool) -> tuple[Run, tuple[str, ...]]:
    (baseline_path, baseline_arm), (candidate_path, candidate_arm) = _split(first), _split(second)
    baseline, candidate = read_run(baseline_path), read_run(candidate_path)
    arms = arm_of(baseline, baseline_arm), arm_of(candidate, candidate_arm)
    differing = differences(baseline, arms[0], candidate, arms[1])
    if differing and not force:
        raise InputError(
            f"{baseline_path} and {candidate_path} were measured differently: {'; '.join(differing)}",
            hint="--force compares them anyway",
        )
    return combine(baseline, arms[0], candidate, arms[1]), differing


def _split(text: str) -> tuple[str, str | None]:
    path, _, arm = text.rpartition(":")
    return (path, arm) if path and arm in _ARMS else (text, None)
