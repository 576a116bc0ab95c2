"""Measure a copy of the baseline and the candidate in turns on one GPU, while users stay on the service.

Each block is of a fresh engine, so what differs between two equal engines for as long as both live differs between
rounds here, and is part of their spread.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mpctl.experiment.arm import BASELINE, CANDIDATE
from mpctl.rollout.context import Context
from mpctl.rollout.measurement import Measured, Measurement, Target
from mpctl.rollout.operation import Operation
from mpctl.rollout.steps.measure import measurement
from mpctl.rollout.steps.ready import await_ready


@dataclass
class _Turns:
    """``running``: the arm whose turn it is; empty where a command that was interrupted left it open."""

    context: Context
    operation: Operation
    measurement: Measurement
    running: str = ""
    starts: int = 0

    def target(self, name: str) -> Target:
        """Return the arm, started alone on the GPU unless it is its turn already."""
        if name != self.running:
            self._start(name)
        return replace(self.measurement.target(name), start=self.starts)

    def _start(self, name: str) -> None:
        plan, platform = self.operation.plan, self.context.platform
        arms = {BASELINE: plan.measured_baseline, CANDIDATE: plan.arm}
        self.running, self.starts = "", self.starts + 1
        what = "the copy of the baseline" if name == BASELINE else plan.spec_text
        self.context.progress.step("turn", f"engine start {self.starts}: {what} has the GPU now")
        platform.stop(arms[CANDIDATE if name == BASELINE else BASELINE])
        platform.start(arms[name])
        await_ready(self.context, arms[name], plan.ready_timeout_s)
        self.running = name


def measure_turns(context: Context, operation: Operation) -> Measured:
    """Send the same prompts to both arms, one block of a fresh engine each, until the gate has decided."""
    measured = measurement(context, operation)
    return replace(measured, target=_Turns(context, operation, measured).target).measure()
