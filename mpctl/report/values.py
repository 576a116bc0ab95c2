"""The content of a report as one value: every format is rendered from it, so formats cannot disagree.

Measured figures are the gate's own types (:class:`Comparison`, :class:`CellVerdict`), never copies of them. An outcome
has a word and a sign beside every colour, so that no colour carries meaning alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mpctl import formatting
from mpctl.experiment.arm import Tail
from mpctl.experiment.run import ArmConditions, Calibration, PromptSet
from mpctl.gate.analysis import Comparison
from mpctl.gate.decomposition import Decomposition
from mpctl.gate.policy import Policy
from mpctl.gate.rule import Outcome
from mpctl.gate.verdict import CellVerdict, Verdict

_SIGNS = {
    "promote": "✓",
    "pass": "✓",
    "reject": "✗",
    "fail": "✗",
    "undecided": "?",
    "missing": "?",
    "skip": "·",
}
_WORDS = {
    "promote": "Promote",
    "reject": "Reject",
    "undecided": "Undecided",
    "pass": "pass",
    "fail": "fail",
    "missing": "no data",
    "skip": "not asked",
}


def outcome_sign(outcome: str) -> str:
    """Return a sign for an outcome."""
    return _SIGNS.get(outcome, "?")


def outcome_word(outcome: str) -> str:
    """Return a word for an outcome."""
    return _WORDS.get(outcome, outcome)


def printable(text: str) -> str:
    """Return the text with every control character but line ends and tabs replaced: no format can carry or show one."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


METRICS = ("ttft", "tpot", "e2e")
Curves = Mapping[
    str, Mapping[str, tuple[float, ...]]
]  # arm -> metric -> 101 values in ms, 0th to 100th percentile

Tails = Mapping[str, Mapping[str, Tail]]  # arm -> metric -> the 99th percentile


@dataclass(frozen=True)
class CellReport:
    """A class of traffic at one load: its figures, its verdict, the distributions of its times and their p99."""

    comparison: Comparison
    verdict: CellVerdict
    share: float | None = None
    curves: Curves = field(default_factory=dict)
    decomposition: Decomposition | None = None
    tails: Tails = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The cell's name in sentences."""
        return self.comparison.cell.label

    @property
    def traffic(self) -> str:
        """The class of traffic."""
        return self.label.partition(", ")[0]

    @property
    def load(self) -> str:
        """The concurrency or rate, in words."""
        return self.label.partition(", ")[2]

    @property
    def outcome(self) -> Outcome:
        """The verdict on this cell."""
        return self.verdict.outcome


@dataclass(frozen=True)
class Deciding:
    """A new measurement of ``repeats`` rounds that would probably decide. ``command``: that makes it; empty where it is
    unknown; ``lacking``: what it takes beyond the prompts of this one."""

    repeats: int
    command: str
    lacking: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The command, or its number of rounds, with what it lacks as a comment of the shell."""
        what = self.command or f"measure again with --repeats {self.repeats}"
        return what + (f"  # {'; '.join(self.lacking)}" if self.lacking else "")


@dataclass(frozen=True)
class Report:
    """A whole run. ``sentence``: the verdict in one sentence; ``reasons``: the first few; ``crossovers`` in words."""

    run: str
    created: str
    who: str
    mpctl_version: str
    service: str
    verdict: Verdict
    sentence: str
    reasons: tuple[str, ...]
    crossovers: tuple[str, ...]
    cells: tuple[CellReport, ...]
    baseline: ArmConditions
    candidate: ArmConditions
    prompts: tuple[PromptSet, ...]
    client: Calibration | None
    policy: Policy
    notes: tuple[str, ...] = ()
    deciding: Deciding | None = None

    @property
    def outcome(self) -> Outcome:
        """The verdict on all cells."""
        return self.verdict.outcome

    @property
    def main(self) -> CellReport | None:
        """The cell with the largest share, whose figures a report shows first."""
        return max(self.cells, key=lambda c: c.share or 0.0, default=None)

    @property
    def decomposed(self) -> tuple[CellReport, ...]:
        """The cells whose throughput ratio can be decomposed, the main one first."""
        return tuple(
            sorted((c for c in self.cells if c.decomposition), key=lambda c: c is not self.main)
        )


def price_text(cells: Sequence[Comparison], per_hour: float) -> str:
    """Return what a million output tokens cost on each arm, with an engine at ``per_hour`` USD, by the throughput that
    was measured of it."""
    rows = [
        ", ".join(
            f"{arm.arm} {per_hour / 3600 / arm.throughput * 1e6:.3g}"
            for arm in (cell.baseline, cell.candidate)
            if arm.throughput
        )
        for cell in cells
    ]
    labels = (f"{cell.cell.label}: {row}" for cell, row in zip(cells, rows, strict=True))
    return f"$ per 1M output tokens at ${per_hour:g} an hour for an engine: {'; '.join(labels)}"


def title_of(decomposition: Decomposition) -> str:
    """Return ``Why 2.44x and not 4.27x``."""
    measured, promised = (
        formatting.ratio(decomposition.throughput_ratio),
        formatting.ratio(decomposition.promised),
    )
    if decomposition.throughput_ratio < decomposition.promised:
        return f"Why {measured} and not {promised}"
    return f"Why {measured}, where the drafts promise {promised}"
