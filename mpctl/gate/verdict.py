"""Join the rules' results to a verdict: of one cell, and of all cells by their share of the traffic."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from mpctl import formatting
from mpctl.experiment.cell import Cell
from mpctl.gate.analysis import Analysis, ArmOrder, Comparison, cell_shares
from mpctl.gate.rule import Case, Outcome, RuleResult
from mpctl.gate.rules import RULES, rule_named

_ABOUT_ANSWERS = frozenset(rule.name for rule in RULES if rule.about_answers)


@dataclass(frozen=True)
class CellVerdict:
    """The verdict on a cell."""

    cell: Cell
    share: float  # of the traffic, 0..1
    outcome: Outcome
    rules: tuple[RuleResult, ...]
    throughput_ratio: float | None = None
    sentence: str = ""  # why it was rejected although a figure looks good

    @property
    def reasons(self) -> tuple[str, ...]:
        """The messages that decided: of failed rules, else of missing and undecided ones, else of those passed."""
        failed = self._messages(Outcome.FAIL)
        if failed and self.outcome is not Outcome.UNDECIDED:
            return (self.sentence, *failed) if self.sentence else failed
        open_ = (*self._messages(Outcome.MISSING), *self._messages(Outcome.UNDECIDED))
        return open_ or self._messages(Outcome.PASS)

    def _messages(self, outcome: Outcome) -> tuple[str, ...]:
        return tuple(r.message for r in self.rules if r.outcome is outcome)

    @property
    def broken(self) -> tuple[str, ...]:
        """The failed rules about answers, for which no speed elsewhere compensates."""
        return tuple(
            r.rule for r in self.rules if r.outcome is Outcome.FAIL and r.rule in _ABOUT_ANSWERS
        )


@dataclass(frozen=True)
class Crossover:
    """The concurrency at which speculation stops paying: the interval of the throughput ratio lies above 1 at ``pays``
    and below 1 at ``costs``; ``near``: where the line between the two crosses 1, in logarithms of both."""

    traffic: str
    temperature: float
    pays: int
    costs: int
    near: float


@dataclass(frozen=True)
class Verdict:
    """Promote, reject or undecided, with every cell's own verdict; ``summary``: one sentence over all."""

    outcome: Outcome
    cells: tuple[CellVerdict, ...]
    summary: str = ""
    crossovers: tuple[Crossover, ...] = ()

    @property
    def rules(self) -> tuple[RuleResult, ...]:
        """Every rule of every cell, cell by cell."""
        return tuple(r for c in self.cells for r in c.rules)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return the reasons of one cell; with several the summary and the first reason of each deciding cell."""
        if not self.cells:
            return (self.summary,)
        if len(self.cells) == 1:
            return self.cells[0].reasons
        deciding = [c for c in self.cells if c.outcome is self.outcome]
        return (
            self.summary,
            *(f"{c.cell.label}: {_first(c.reasons)}" for c in deciding if c.reasons),
        )


def judge_cell(case: Case, results: tuple[RuleResult, ...]) -> CellVerdict:
    """A rule that fails rejects; otherwise any that cannot be judged leaves it undecided. Arms that may not be compared
    are judged by their answers alone."""
    outcomes = {r.outcome for r in results}
    c = case.comparison
    unequal = any(map(distorts_speed, results))
    failed = {r.rule for r in results if r.outcome is Outcome.FAIL}
    if failed & _ABOUT_ANSWERS if unequal else failed:
        outcome = Outcome.REJECT
    elif unequal or outcomes & {Outcome.MISSING, Outcome.UNDECIDED}:
        outcome = Outcome.UNDECIDED
    else:
        outcome = Outcome.PROMOTE
    return CellVerdict(
        cell=c.cell,
        share=_share(case.analysis, c),
        outcome=outcome,
        rules=results,
        throughput_ratio=c.throughput_ratio.value if c.throughput_ratio else None,
        sentence=_trap(case) if outcome is Outcome.REJECT else "",
    )


def distorts_speed(result: RuleResult) -> bool:
    """Return whether a rule that guards the speed has no data: no speed counts then, so no round promotes or
    rejects."""
    rule = rule_named(result.rule)
    return result.outcome is Outcome.MISSING and rule is not None and rule.guards_speed


def join(cells: tuple[CellVerdict, ...], analysis: Analysis) -> Verdict:
    """Promote when the rejected share of the traffic is within the policy and every other cell is promoted. No share
    excuses failed or different answers."""
    crossovers = _crossovers(analysis)
    if not cells:
        return Verdict(Outcome.UNDECIDED, (), "nothing was measured")
    allowed = analysis.policy.max_rejected_share + 1e-9
    rejected = math.fsum(c.share for c in cells if c.outcome is Outcome.REJECT)
    undecided = math.fsum(c.share for c in cells if c.outcome is Outcome.UNDECIDED)
    broken = [c for c in cells if c.broken]
    if broken or rejected > allowed or all(c.outcome is Outcome.REJECT for c in cells):
        outcome = Outcome.REJECT
    elif undecided > 0 or not any(c.outcome is Outcome.PROMOTE for c in cells):
        outcome = Outcome.UNDECIDED
    else:
        outcome = Outcome.PROMOTE
    summary = _summary(cells, crossovers)
    if rejected and outcome is Outcome.PROMOTE:
        outcome, why = _weigh_losers(cells, analysis)
        summary += f"; {why}"
    if analysis.users_load_gap:
        summary += f"; {analysis.users_load_gap}"
    if any(c.order is ArmOrder.SEPARATE for c in analysis.cells):
        summary += "; the arms were not measured in turns, and the intervals are widened for it"
    if broken and rejected <= allowed:
        names = ", ".join(dict.fromkeys(name for c in broken for name in c.broken))
        summary += f"; rules about answers are not weighted by a share: {names}"
    if rejected and outcome is Outcome.PROMOTE:
        most = formatting.limit(analysis.policy.max_rejected_share, "share")
        summary += f"; {formatting.share(rejected, 0)} of the traffic is slower (at most {most})"
    return Verdict(outcome, cells, summary, crossovers)


def _weigh_losers(cells: tuple[CellVerdict, ...], analysis: Analysis) -> tuple[Outcome, str]:
    """Return whether the gain of the promoted cells outweighs the loss of the rejected ones, and a sentence with the
    machine time that a request takes over all cells."""
    most, time = analysis.policy.max_rejected_slowdown, analysis.machine_time
    for cell in cells:
        ratio = analysis.of_cell(cell.cell).time_per_token_ratio
        if cell.outcome is Outcome.REJECT and ratio is not None and ratio.value > most:
            text = f"{cell.cell.label} takes {formatting.ratio(ratio.value)} the time per token"
            return (
                Outcome.REJECT,
                f"{text} (at most {formatting.limit(most, 'x')} in a class that may be slower)",
            )
    if time is None:
        return Outcome.UNDECIDED, "machine time over all classes was not measured"
    text = f"machine time per request {formatting.ratio(time.value)}, {formatting.confidence(time)}, over all classes"
    if time.below(1.0, strictly=True):
        return Outcome.PROMOTE, text
    return Outcome.REJECT if time.above(
        1.0, strictly=True
    ) else Outcome.UNDECIDED, f"{text} (below 1.00x)"


def _first(reasons: tuple[str, ...]) -> str:
    further = len(reasons) - 1
    return reasons[0] + (f" (and {further} more)" if further else "")


def _share(analysis: Analysis, comparison: Comparison) -> float:
    weights = cell_shares([c.cell.traffic for c in analysis.cells], analysis.run.shares)
    return weights[analysis.cells.index(comparison)]


def _summary(cells: tuple[CellVerdict, ...], crossovers: tuple[Crossover, ...]) -> str:
    """promote for edits; reject for chat (30% of the traffic); pays up to 32 at once, no longer at 128, near 70."""
    parts = []
    for outcome in (Outcome.PROMOTE, Outcome.REJECT, Outcome.UNDECIDED):
        chosen = [c for c in cells if c.outcome is outcome]
        if not chosen:
            continue
        names: list[str] = []
        for traffic in dict.fromkeys(c.cell.traffic for c in chosen):
            of_it = [c for c in cells if c.cell.traffic == traffic]
            mine = [c for c in chosen if c.cell.traffic == traffic]
            names += [traffic] if len(of_it) == len(mine) else [c.cell.label for c in mine]
        share = math.fsum(c.share for c in chosen)
        text = f"{outcome.value} for {('; ' if any(',' in n for n in names) else ', ').join(names)}"
        parts.append(
            f"{text} ({formatting.share(share, 0)} of the traffic)"
            if len(chosen) < len(cells)
            else text
        )
    parts += [
        f"{c.traffic} pays up to {c.pays} at once and no longer at {c.costs}, near {c.near:.0f}"
        for c in crossovers
    ]
    return "; ".join(parts)


def _crossovers(analysis: Analysis) -> tuple[Crossover, ...]:
    """Find crossovers between cells whose intervals lie on either side of 1; the cells between are undecided."""
    groups: dict[tuple[str, float], list[tuple[int, float]]] = {}
    for c in analysis.cells:
        ratio = c.throughput_ratio
        if (
            c.cell.rate is None
            and ratio is not None
            and (ratio.above(1.0, strictly=True) or ratio.below(1.0, strictly=True))
        ):
            groups.setdefault((c.cell.traffic, c.cell.temperature), []).append(
                (c.cell.concurrency, ratio.value)
            )
    crossovers = []
    for (traffic, temperature), group in groups.items():
        for (pays, gain), (costs, loss) in itertools.pairwise(sorted(group)):
            if gain > 1.0 > loss:
                part = math.log(gain) / (math.log(gain) - math.log(loss))
                near = math.exp(math.log(pays) + part * math.log(costs / pays))
                crossovers.append(Crossover(traffic, temperature, pays, costs, near))
                break
    return tuple(crossovers)


def _trap(case: Case) -> str:
    """Return the sentence for a candidate whose running requests are faster while the service is slower and its
    requests wait, each beyond the noise; "" for another."""
    c = case.comparison
    tpot, throughput, ttft = c.intervals.get("tpot"), c.throughput_ratio, c.intervals.get("ttft")
    base, cand = c.baseline.ttft_ms, c.candidate.ttft_ms
    if tpot is None or throughput is None or ttft is None or base is None or cand is None:
        return ""
    faster, slower = tpot.below(1.0, strictly=True), throughput.below(1.0, strictly=True)
    if not (faster and slower and ttft.above(1.0, strictly=True)):
        return ""
    text = (
        f"TPOT is {formatting.ratio(tpot.value)} the baseline's, but throughput is only "
        f"{formatting.ratio(throughput.value)}: requests wait {cand / 1000:.1f} s for their first token instead of "
        f"{base / 1000:.1f} s"
    )
    before, after = (arm.kv_pool_tokens if arm else None for arm in (case.baseline, case.candidate))
    if before and after and after < before:
        return f"{text}, because the draft left {after} of {before} tokens of the KV cache"
    return f"{text}, as when the draft takes memory from the KV cache"
