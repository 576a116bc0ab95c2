"""Running work on a terminal: the phases of an operation with their times, or a single step, and the rounds of a
measurement, in lines that are redrawn in place."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mpctl.cli.size import height, shortened, width
from mpctl.formatting import duration, time_taken

if TYPE_CHECKING:
    from mpctl.rollout.ports import PhaseProgress, RoundProgress

_MARKS = {"waiting": "  ", "running": "> ", "done": "ok", "failed": "NO"}
_INDENT = " " * 5
_CLOCK_S = 1.0  # between two drawings of an operation that reports nothing


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
            usual = phase.expected_s or 0.0
            row = f"{_MARKS[phase.state.value]} {phase.name:<{width}}  {spent:<8}"
            row += f"  usually {time_taken(usual)}" if usual >= 1 else ""
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


class LiveScreen:
    """Draws the running work with ``tell``, which writes to the terminal. ``view``: None where nothing is shown."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.view: LiveView | None = None
        self.drawn_at = 0.0  # monotonic clock
        self._tell = tell
        self._drawn: tuple[str, ...] = ()  # lines above the cursor that the next ones replace
        self._drawing = threading.RLock()

    def show_phases(self, phases: Sequence[PhaseProgress]) -> None:
        """Show the phases of an operation, also while it reports nothing, until none of them runs."""
        with self._drawing:
            begins = self.view is None or not self.view.has(phases)
            if begins:
                self.leave()
            self.show(phases=tuple(phases), reported_at=time.monotonic(), detail="")
            if self.view is None or not self.view.running:
                self.leave()
            elif begins:
                threading.Thread(target=self._keep_time, args=[phases], daemon=True).start()

    def show_step(self, head: str, detail: str, *, begins: bool) -> None:
        """Show what a step does. ``begins``: one that is no part of an operation leaves the line of the step before."""
        if begins and self.view is not None and not self.view.phases:
            self.leave()
        self.show(step=head, detail=detail)

    def show_round(self, head: str, progress: RoundProgress) -> None:
        """Show the last round of the phase that runs, or of the step ``head``."""
        view = self.view or LiveView(step=head)
        self.show(step=view.step, rounds={**view.rounds, view.running: progress})

    def show(self, **changes: Any) -> None:
        """Change what is known of the running work, and draw it."""
        with self._drawing:
            self.view = replace(self.view or LiveView(), **changes)
            self._draw()

    def write(self, lines: str) -> None:
        """Write lines that stay: above the phases of an operation, below the step of other work."""
        with self._drawing:
            if self.view is None or not self.view.phases:
                self.leave()
            self._tell(f"{self._erased()}{lines}\n")
            self._draw()

    def leave(self) -> None:
        """Leave the lines of the running work on the screen as they are."""
        with self._drawing:
            self.view, self._drawn = None, ()

    def _draw(self) -> None:
        """Draw the running work in place of the lines before; as many lines as the terminal is high."""
        with self._drawing:
            if self.view is None:
                return
            self.drawn_at = time.monotonic()
            lines = tuple(self.view.lines(self.drawn_at, width() - 1))[: max(height() - 1, 1)]
            self._tell(self._erased() + "\n".join(lines) + "\n")
            self._drawn = lines

    def _erased(self) -> str:
        """The control characters that erase the drawn lines. On a terminal that became too narrow for them, they stay:
        some terminals have wrapped them, others cut them, so their first row is unknown."""
        drawn, self._drawn = self._drawn, ()
        if not drawn or any(len(line) >= width() for line in drawn):
            return ""
        return f"\033[{len(drawn)}A\r\033[J"

    def _keep_time(self, phases: Sequence[PhaseProgress]) -> None:
        """Draw an operation every second, so that its time is right while nothing is reported."""
        while self.view is not None and self.view.has(phases):
            time.sleep(_CLOCK_S)
            self._draw()
