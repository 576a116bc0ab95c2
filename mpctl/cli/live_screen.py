"""The lines that show running work on a terminal: the phases of an operation with their times, or a single step, and
the rounds of a measurement. Pure; :mod:`mpctl.cli.terminal` draws them in place of those before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mpctl.cli.size import shortened
from mpctl.formatting import duration, time_taken

if TYPE_CHECKING:
    from mpctl.rollout.ports import PhaseProgress, RoundProgress

_MARKS = {"waiting": "  ", "running": "> ", "done": "ok", "failed": "NO"}
_INDENT = " " * 5


@dataclass(frozen=True)
class LiveView:
    """What is known of running work. ``reported_at``: the clock when ``phases`` were reported, seconds; ``step``: the
    head of a work without phases; ``detail``: of the running step; ``rounds``: the last one of each phase."""

    phases: tuple[PhaseProgress, ...] = ()
    reported_at: float = 0.0
    step: str = ""
    detail: str = ""
    rounds: dict[str, RoundProgress] = field(default_factory=dict)

    @property
    def running(self) -> str:
        """The name of the phase that runs; empty where none does."""
        return next((phase.name for phase in self.phases if phase.state.value == "running"), "")

    def has(self, phases: Sequence[PhaseProgress]) -> bool:
        """Return whether these are the phases of the same operation."""
        return [phase.name for phase in phases] == [phase.name for phase in self.phases]

    def changed(self, **changes: Any) -> LiveView:
        """The view with other values of its fields."""
        return replace(self, **changes)

    def lines(self, now: float, columns: int) -> Iterator[str]:
        """Yield the lines, none wider than ``columns``. ``now``: on the clock of ``reported_at``."""
        if not self.phases:
            yield shortened(self.step + self.detail, columns)
            yield from self._rounds("", columns)
        width = max((len(phase.name) for phase in self.phases), default=0)
        for phase in self.phases:
            running = phase.name == self.running
            spent_s = phase.spent_s + (now - self.reported_at if running else 0.0)
            spent = "" if phase.state.value == "waiting" else time_taken(spent_s)
            usual = phase.expected_s
            row = f"{_MARKS[phase.state.value]} {phase.name:<{width}}  {spent:<8}"
            row += "" if usual is None else f"  usually {time_taken(usual)}"
            yield shortened(row.rstrip(), columns)
            if running and self.detail:
                yield shortened(_INDENT + self.detail, columns)
            yield from self._rounds(phase.name, columns)

    def _rounds(self, phase: str, columns: int) -> Iterator[str]:
        """Yield the last round of a phase; of one that ended only its figures."""
        progress = self.rounds.get(phase)
        if progress is None:
            return
        running = phase == self.running
        if running:
            count = f"round {progress.number} of at most {progress.at_most}"
            remaining = duration(progress.remaining_s)
            yield shortened(f"{_INDENT}{count}, at most {remaining} left", columns)
        for name, estimate, interval in progress.figures:
            figure = f" {estimate} ({interval})"  # is never cut
            yield shortened(_INDENT + name, max(columns - len(figure), 1)) + figure
        if running and progress.open:
            yield shortened(f"{_INDENT}still open: {', '.join(progress.open)}", columns)
        if progress.users:
            yield shortened(f"{_INDENT}users: {progress.users}", columns)


def round_line(progress: RoundProgress) -> str:
    """``round 9 of at most 12, 40 s spent, at most 13 s left: throughput ratio 1.31x (1.20 to 1.45); open: TTFT``."""
    spent, remaining = duration(progress.elapsed_s), duration(progress.remaining_s)
    line = f"round {progress.number} of at most {progress.at_most}, {spent} spent, at most {remaining} left"
    figures = ", ".join(
        f"{name} {estimate} ({interval})" for name, estimate, interval in progress.figures
    )
    line = f"{line}: {figures}" if figures else line
    return f"{line}; open: {', '.join(progress.open)}" if progress.open else line
