"""The lines that show a running operation on a terminal: its phases with their times, and the rounds of its
measurement. Pure; :mod:`mpctl.cli.terminal` draws them in place of those before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mpctl.cli.size import shortened
from mpctl.formatting import duration, time_taken

if TYPE_CHECKING:
    from mpctl.rollout.ports import PhaseProgress, RoundProgress

_MARKS = {"waiting": "  ", "running": "> ", "done": "ok", "failed": "NO", "omitted": "- "}
_INDENT = " " * 5


@dataclass(frozen=True)
class OperationView:
    """What is known of a running operation. ``reported_at``: the clock when ``phases`` were reported, seconds;
    ``detail``: of the running step; ``rounds``: the last one of each phase; ``first_intervals``: of each figure, with
    the number of its round."""

    phases: tuple[PhaseProgress, ...] = ()
    reported_at: float = 0.0
    detail: str = ""
    rounds: dict[str, RoundProgress] = field(default_factory=dict)
    first_intervals: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def running(self) -> str:
        """The name of the phase that runs; empty where none does."""
        return next((phase.name for phase in self.phases if _runs(phase)), "")

    def has(self, phases: Sequence[PhaseProgress]) -> bool:
        """Return whether these are the phases of the same operation."""
        return [phase.name for phase in phases] == [phase.name for phase in self.phases]

    def continued(self, phases: Sequence[PhaseProgress], now: float) -> OperationView:
        """The view with the phases that are reported ``now``."""
        return replace(self, phases=tuple(phases), reported_at=now, detail="")

    def at(self, detail: str) -> OperationView:
        """The view while the running step does ``detail``."""
        return replace(self, detail=" ".join(detail.split()))

    def with_round(self, progress: RoundProgress) -> OperationView:
        """The view after a round of the running phase."""
        intervals = {
            name: (progress.number, interval)
            for name, _, interval in progress.figures
            if any(sign.isdigit() for sign in interval)
        }
        return replace(
            self,
            rounds={**self.rounds, self.running: progress},
            first_intervals={**intervals, **self.first_intervals},
        )

    def lines(self, now: float, columns: int) -> Iterator[str]:
        """Yield the lines, none wider than ``columns``. ``now``: on the clock of ``reported_at``."""
        widest = max((len(phase.name) for phase in self.phases), default=0)
        for phase in self.phases:
            spent_s = phase.spent_s + (now - self.reported_at if _runs(phase) else 0.0)
            idle = phase.state.value in ("waiting", "omitted")
            spent = "" if idle else time_taken(spent_s)
            row = f"{_MARKS[phase.state.value]} {phase.name:<{widest}}  {spent:<8}  {_expected(phase)}"
            yield shortened(row.rstrip(), columns)
            for line in self._below(phase, columns - len(_INDENT)):
                yield _INDENT + line

    def _below(self, phase: PhaseProgress, columns: int) -> Iterator[str]:
        """Yield the running step, or the last round with its figures."""
        progress, running = self.rounds.get(phase.name), _runs(phase)
        if progress is None:
            if running and self.detail:
                yield shortened(self.detail, columns)
            return
        counted = f"round {progress.number} of at most {progress.at_most}"
        if running:
            counted += f", at most {duration(progress.remaining_s)} left; {self.detail}"
        yield shortened(counted.rstrip("; "), columns)
        for name, estimate, interval in progress.figures:
            number, first = self.first_intervals.get(name, (0, interval))
            closing = f", at round {number} {first}" if running and first != interval else ""
            yield figure_line(name, f"{estimate} ({interval})", closing, columns)
        if running and progress.open:
            yield shortened(f"still open: {', '.join(progress.open)}", columns)
        if progress.users:
            yield shortened(f"users: {progress.users}", columns)


def figure_line(name: str, figure: str, closing: str, columns: int) -> str:
    """Return a figure between its name and the remark how its interval closes. Where that is too wide, the remark
    goes, then the name is cut; the figure never is."""
    line = f"{name} {figure}"
    if len(line + closing) <= columns:
        return line + closing
    if len(line) <= columns:
        return line
    return f"{shortened(name, max(columns - len(figure) - 1, 1))} {figure}"


def _runs(phase: PhaseProgress) -> bool:
    return phase.state.value == "running"


def _expected(phase: PhaseProgress) -> str:
    if phase.state.value == "omitted":
        return "left out"
    return "" if phase.expected_s is None else f"usually {time_taken(phase.expected_s)}"


def round_line(progress: RoundProgress, *, short: bool = False) -> str:
    """``round 9 of at most 12, 40 s spent, at most 13 s left: throughput ratio 1.31x (1.20 to 1.45); open: TTFT``;
    short, with the first figure alone: ``9/12, at most 13 s left: throughput 1.31x (1.20 to 1.45); open: TTFT``."""
    remaining = f"at most {duration(progress.remaining_s)} left"
    if short:
        head = f"{progress.number}/{progress.at_most}, {remaining}"
    else:
        number, spent = (
            f"round {progress.number} of at most {progress.at_most}",
            duration(progress.elapsed_s),
        )
        head = f"{number}, {spent} spent, {remaining}"
    figures = ", ".join(
        f"{name.removesuffix(' ratio') if short else name} {estimate} ({interval})"
        for name, estimate, interval in progress.figures[: 1 if short else None]
    )
    line = f"{head}: {figures}" if figures else head
    return f"{line}; open: {', '.join(progress.open)}" if progress.open else line
