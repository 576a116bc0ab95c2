"""The result of a rollout in words: how fast the candidate was, how the rollout ended, how long it took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mpctl import formatting
from mpctl.experiment.cell import Cell
from mpctl.gate.analysis import Comparison
from mpctl.gate.rule import Outcome
from mpctl.gate.verdict import CellVerdict, Verdict
from mpctl.rollout.operation import Ending
from mpctl.stats.confidence import Interval

_ENDINGS = {
    Ending.PROMOTED: "Promoted.",
    Ending.REJECTED: "Rejected: the service is unchanged.",
    Ending.UNDECIDED: "Undecided: the service is unchanged.",
    Ending.FAILED: "Failed after the verdict: the service was restored.",
}
_OPEN = (Outcome.UNDECIDED, Outcome.MISSING)
_MOST_RULES = 3  # that are named
_SAME = (0.9, 1.1)  # an interval of the throughput ratio within it is "about as fast"
_TENTHS_FROM = 1.5  # from this ratio on a tenth is precise enough
_ERRORS = "errors"  # the rule that counts failed requests


def result_in_words(
    verdict: Verdict,
    cells: Sequence[Comparison],
    ending: Ending,
    phase_seconds: Mapping[str, float],
) -> str:
    """Return ``2.6x faster for one user at a time; unclear with 8 at once (TTFT). Promoted. Took 7 min: 94 s engines,
    25 s answers, 5 min rounds.``

    A cell is called faster or slower only where the whole confidence interval is, and unclear where the gate could not
    decide it.
    """
    sentences = (_speed(verdict, cells), _ENDINGS.get(ending, ""), _took(phase_seconds))
    return " ".join(sentence for sentence in sentences if sentence)


def _speed(verdict: Verdict, cells: Sequence[Comparison]) -> str:
    ratios = {comparison.cell: comparison.throughput_ratio for comparison in cells}
    traffics = dict.fromkeys(judged.cell.traffic for judged in verdict.cells)
    several = len(traffics) > 1
    classes = []
    for traffic in traffics:
        loads = [
            _cell_in_words(judged, ratios.get(judged.cell))
            for judged in verdict.cells
            if judged.cell.traffic == traffic
        ]
        classes.append(f"{traffic}: {', '.join(loads)}" if several else "; ".join(loads))
    text = "; ".join(classes)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _cell_in_words(judged: CellVerdict, ratio: Interval | None) -> str:
    showed, remark = _judged(judged, ratio)
    return f"{showed} {_load(judged.cell)}{remark}"


def _load(cell: Cell) -> str:
    if cell.rate is not None:
        load = f"at {cell.rate:g} requests/s"
    elif cell.concurrency == 1:
        load = "for one user at a time"
    else:
        load = f"with {cell.concurrency} at once"
    return load if cell.greedy else f"{load} at temperature {cell.temperature:g}"


def _judged(judged: CellVerdict, ratio: Interval | None) -> tuple[str, str]:
    """Return what a cell showed, and a remark that follows its load."""
    if judged.outcome is Outcome.UNDECIDED:
        open_rules = _listed(r.rule for r in judged.rules if r.outcome in _OPEN)
        return "unclear", f" ({open_rules})" if open_rules else ""
    if judged.broken == (_ERRORS,):
        return "requests fail", ""
    if judged.broken:
        return "answers differ", f" ({_listed(judged.broken)})"
    failed = _listed(r.rule for r in judged.rules if r.outcome is Outcome.FAIL)
    slower = ratio is not None and ratio.below(1.0, strictly=True)
    return _compared(ratio), f", but {failed} failed" if failed and not slower else ""


def _listed(rules: Iterable[str]) -> str:
    """The first names of rules; their table has all."""
    names = list(dict.fromkeys(rules))
    return ", ".join([*names[:_MOST_RULES], *(["others"] if len(names) > _MOST_RULES else [])])


def _compared(ratio: Interval | None) -> str:
    if ratio is None:
        return "no speed measured"
    value = f"{formatting.number(ratio.value, 1 if ratio.value >= _TENTHS_FROM else 2)}x"
    if ratio.above(1.0, strictly=True):
        return f"{value} faster"
    if ratio.below(1.0, strictly=True):
        return f"{value} as fast"
    if ratio.above(_SAME[0]) and ratio.below(_SAME[1]):
        return f"about as fast ({value})"
    return f"neither clearly faster nor slower ({value})"


def _took(phase_seconds: Mapping[str, float]) -> str:
    """How long all phases took, and those of a second or more."""
    total = sum(phase_seconds.values())
    if total < 1:
        return ""
    parts = ", ".join(
        f"{formatting.time_taken(seconds)} {phase}"
        for phase, seconds in phase_seconds.items()
        if seconds >= 1
    )
    return f"Took {formatting.time_taken(total)}: {parts}."
