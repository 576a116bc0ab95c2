"""The result of a rollout in words: how fast the candidate was, how the rollout ended, how long it took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mpctl import formatting
from mpctl.gate.analysis import Comparison
from mpctl.gate.rule import Outcome
from mpctl.gate.verdict import CellVerdict, Verdict
from mpctl.rollout.operation import Ending
from mpctl.stats.confidence import Interval

_ENDINGS = {
    Ending.PROMOTED: " Promoted.",
    Ending.REJECTED: " Rejected: the service is unchanged.",
    Ending.UNDECIDED: " Undecided: the service is unchanged.",
    Ending.FAILED: " Failed after the verdict: the service was restored.",
}
_OPEN = (Outcome.UNDECIDED, Outcome.MISSING)
_TENTHS_FROM = 1.5  # from this ratio on a tenth is precise enough


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
    ratios = {comparison.cell: comparison.throughput_ratio for comparison in cells}
    several = len({judged.cell.traffic for judged in verdict.cells}) > 1
    speeds = []
    for judged in verdict.cells:
        traffic, _, load = judged.cell.label.partition(", ")
        ratio = ratios.get(judged.cell)
        users = "for one user at a time" if load == "1 at once" else f"with {load}"
        if ratio is None and (time := _users_time(judged)) is not None:
            ratio, users = time, "per token of users' requests"
        shown, remark = _shown(judged, ratio)
        where = f" on {traffic}" if several else ""
        speeds.append(f"{shown}{where} {users}{remark}")
    text = "; ".join(speeds)
    took = _took({name: seconds for name, seconds in phase_seconds.items() if seconds >= 1})
    return f"{text[:1].upper()}{text[1:]}.{_ENDINGS.get(ending, '')}{took}"


def _users_time(judged: CellVerdict) -> Interval | None:
    """The inverse of the time per token where users' requests were measured in place of prompts."""
    time = next((r.interval for r in judged.rules if r.rule == "time per token"), None)
    if time is None:
        return None
    low, high = (1 / bound if bound else None for bound in (time.high, time.low))
    return replace(time, value=1 / time.value, low=low, high=high)


def _shown(judged: CellVerdict, ratio: Interval | None) -> tuple[str, str]:
    """Return what a cell showed, and a remark that follows its load."""
    if judged.outcome is Outcome.UNDECIDED:
        open_rules = _listed(judged, *_OPEN)
        return "unclear", f" ({open_rules})" if open_rules else ""
    if judged.broken == ("errors",):
        return "requests fail", ""
    if judged.broken:
        return "answers differ", f" ({', '.join(judged.broken)})"
    speed, failed = _speed(ratio), _listed(judged, Outcome.FAIL)
    slower = ratio is not None and ratio.below(1.0, strictly=True)
    return speed, f", but {failed} failed" if failed and not slower else ""


def _listed(judged: CellVerdict, *outcomes: Outcome) -> str:
    return ", ".join(dict.fromkeys(r.rule for r in judged.rules if r.outcome in outcomes))


def _speed(ratio: Interval | None) -> str:
    if ratio is None:
        return "no speed measured"
    value = f"{formatting.number(ratio.value, 1 if ratio.value >= _TENTHS_FROM else 2)}x"
    if ratio.above(1.0, strictly=True):
        return f"{value} faster"
    if ratio.below(1.0, strictly=True):
        return f"{value} as fast"
    return f"no clear difference in speed ({value})"


def _took(phase_seconds: Mapping[str, float]) -> str:
    if not phase_seconds:
        return ""
    phases = (f"{formatting.time_taken(s)} {name}" for name, s in phase_seconds.items())
    return f" Took {formatting.time_taken(sum(phase_seconds.values()))}: {', '.join(phases)}."
