"""Rules about speed: each holds an interval against its limit.

A rule passes when the whole interval is on the good side, fails when the whole of it is on the bad side, and is
undecided while the limit lies inside.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mpctl.measure.case import Case
from mpctl.measure.interval import Interval
from mpctl.measure.outcome import Outcome, RuleResult
from mpctl.measure.quantiles import values_needed
from mpctl.measure.statistics import rounds_needed

_ALIKE = 1.5  # how many times the requests of the calibration a client may have in flight and be as quick


@dataclass(frozen=True)
class Bar:
    """A limit for the interval of one name: ``least`` or most; ``unit``: "x" for ratios, "ms" for differences."""

    rule: str
    name: str
    limit: float
    least: bool
    unit: str
    before: str = ""


def assess_speedup(case: Case) -> RuleResult:
    """A gain must be shown: time per token over whole requests, prompt by prompt."""
    limit = case.policy.min_speedup
    return hold(case, Bar("speedup", "speedup", limit, least=True, unit="x"), strictly=True)


def assess_throughput(case: Case) -> RuleResult:
    """Tokens per second over the same prompts are what the user pays for."""
    return hold(case, Bar("throughput", "throughput", case.policy.min_throughput_ratio, least=True, unit="x"))


def assess_tpot(case: Case) -> RuleResult:
    """Time per output token after the first."""
    c = case.comparison
    before = _both(c.candidate.tpot_ms, c.baseline.tpot_ms)
    return hold(case, Bar("TPOT", "tpot", case.policy.max_tpot_ratio, least=False, unit="x", before=before))


def assess_ttft(case: Case) -> RuleResult:
    """Time to first token: a queue that forms because the draft took memory shows here."""
    c, p = case.comparison, case.policy
    return _or_slack(case, "TTFT", "ttft", (c.candidate.ttft_ms, c.baseline.ttft_ms), p.max_ttft_ratio, p.ttft_slack_ms)


def assess_queue_wait(case: Case) -> RuleResult:
    """Time between arrival and first scheduling."""
    c, p = case.comparison, case.policy
    waits = tuple(a.window.queue_wait_ms if a.window else None for a in (c.candidate, c.baseline))
    both = (waits[0], waits[1])
    return _or_slack(case, "queue wait", "queue_wait", both, p.max_queue_wait_ratio, p.queue_wait_slack_ms)


def assess_ttft_p99(case: Case) -> RuleResult:
    """The slowest hundredth to the first token."""
    return _tail(case, "TTFT", "ttft", case.policy.max_ttft_p99_ratio)


def assess_tpot_p99(case: Case) -> RuleResult:
    """The slowest hundredth per token."""
    return _tail(case, "TPOT", "tpot", case.policy.max_tpot_p99_ratio)


def assess_e2e_p99(case: Case) -> RuleResult:
    """The slowest hundredth of whole requests."""
    return _tail(case, "E2E", "e2e", case.policy.max_e2e_p99_ratio)


def hold(case: Case, bar: Bar, *, strictly: bool = False) -> RuleResult:
    """The interval of ``bar.name`` against its limit; ``strictly``: an end on the limit does not pass."""
    c = case.comparison
    found = c.intervals.get(bar.name)
    n = min(c.baseline.requests, c.candidate.requests)
    if found is None or not math.isfinite(found.value):
        message = f"{bar.rule} was not measured on both arms"
        return RuleResult(bar.rule, Outcome.MISSING, message, None, bar.limit, None, n, bar.unit)
    outcome = _place(found, bar, strictly)
    needed, more = (None, "") if outcome is not Outcome.UNDECIDED else _more(case, bar, found)
    side = "at least" if bar.least else "at most"
    if strictly:
        side = "above" if bar.least else "below"
    text = (
        f"{bar.rule} {_show(found.value, bar.unit)}{bar.before}, {_range(found, bar.unit)} over {found.n} rounds of "
        f"{c.round_requests:.3g} prompts ({side} {_show(bar.limit, bar.unit)}){more}"
    )
    return RuleResult(bar.rule, outcome, text, found.value, bar.limit, found, n, bar.unit, needed)


def _place(found: Interval, bar: Bar, strictly: bool) -> Outcome:
    good, bad = (found.low, found.high) if bar.least else (-found.high, -found.low)
    limit = bar.limit if bar.least else -bar.limit
    if good > limit or (good == limit and not strictly):
        return Outcome.PASS
    return Outcome.FAIL if bad < limit else Outcome.UNDECIDED


def _more(case: Case, bar: Bar, found: Interval) -> tuple[int | None, str]:
    """About how many requests per arm would decide, and the words for it."""
    c = case.comparison
    spread = c.spreads.get(bar.name, math.inf)
    ratio = bar.unit == "x"
    gap = abs(math.log(found.value / bar.limit) if ratio and bar.limit > 0 else found.value - bar.limit)
    if not math.isfinite(spread):
        return None, "; one round does not show how much rounds differ"
    rounds = rounds_needed(gap, spread, case.policy.side, case.policy.power)
    if rounds is None or rounds <= found.n:
        return None, "; too close to the limit to tell on which side it is" if rounds is None else ""
    needed = math.ceil((rounds - found.n) * c.round_requests)
    return needed, f"; about {needed} more prompts would decide"


def _or_slack(
    case: Case, rule: str, name: str, both: tuple[float | None, float | None], most: float, slack_ms: float
) -> RuleResult:
    """As a ratio where that allows more than the slack, else as a difference in ms."""
    cand, base = both
    if cand is None or base is None:
        return RuleResult(rule, Outcome.MISSING, f"{rule} was not measured on both arms", None, most, None, 0, "x")
    before = f" ({_ms(cand)}, baseline {_ms(base)})"
    if base * (most - 1.0) > slack_ms:
        return hold(case, Bar(rule, name, most, least=False, unit="x", before=before))
    return hold(case, Bar(rule, f"{name}_ms", slack_ms, least=False, unit="ms", before=before))


def _tail(case: Case, what: str, name: str, limit: float | None) -> RuleResult:
    rule = f"{what} p99"
    if limit is None:
        return RuleResult(rule, Outcome.SKIP, f"max_{name}_p99_ratio sets no limit", None, None, None, 0, "x")
    c = case.comparison
    n = min(len(c.speedups), c.compared + c.textless)

    def result(outcome: Outcome, message: str, needed: int | None = None) -> RuleResult:
        found = c.intervals.get(f"{name}_p99")
        return RuleResult(rule, outcome, message, found.value if found else None, limit, found, n, "x", needed)

    unfit = _client_unfit(case, what, name, limit)
    if unfit:
        return result(Outcome.MISSING, f"{rule}: {unfit}")
    floor = values_needed(0.99, 0.05)
    tail = case.stages.tail
    enough = values_needed(0.99, tail / 2) if tail else None
    wanted = enough or values_needed(0.99, case.stages.exact / 2)
    found = c.intervals.get(f"{name}_p99")
    if n >= wanted and tail and found is None:
        return result(Outcome.MISSING, f"{rule} was not measured on both arms")
    if n < wanted or found is None:
        missing = max(wanted - n, 1)
        message = (
            f"{rule}: {n} prompts answered by both arms say nothing of the slowest hundredth; {wanted} are needed at "
            f"this look, {missing} more ({floor} for a single look at 95%)"
        )
        return result(Outcome.UNDECIDED, message, missing)
    bar = Bar(rule, f"{name}_p99", limit, least=False, unit="x")
    outcome = _place(found, bar, strictly=False)
    text = (
        f"{rule} {found.value:.2f}x the baseline's, {_range(found, 'x')} over {found.n} requests (at most {limit:.2f}x)"
    )
    if outcome is not Outcome.UNDECIDED:
        return result(outcome, text)
    gap = math.log(found.value / limit) if limit > 0 else 0.0
    width = math.log(found.high / found.low) if found.low > 0 and math.isfinite(found.high) else 0.0
    needed = math.ceil(n * min((width / gap) ** 2, 100.0)) - n if gap and width else None
    if needed is None or needed <= 0:
        return result(outcome, text)
    return result(outcome, f"{text}; about {needed} more prompts would decide", needed)


def _client_unfit(case: Case, what: str, name: str, limit: float) -> str:
    """Why the client's own times cannot carry a rule about the tail, or nothing."""
    c, calibration = case.comparison, case.calibration
    if calibration is None:
        return "the client was not calibrated, so what it adds to the slowest requests is not known"
    busy = _in_flight(case)
    if busy > _ALIKE * calibration.concurrency:
        return (
            f"refused, about {busy:.0f} requests were in flight and the client was calibrated with "
            f"{calibration.concurrency}; --concurrency {math.ceil(busy)} calibrates it with so many"
        )
    spread = getattr(c.baseline, name)
    if spread is None:
        return f"{what} was not measured on the baseline"
    # The effect sought: how much later the candidate's slowest hundredth may be. A tenth of it is what the client may
    # add (measured error of load clients: peers' p99 TTFT is 250 to 630 ms where the truth is 100).
    tokens = c.baseline.output_tokens / max(c.baseline.requests - c.baseline.failed, 1) if name == "tpot" else 1.0
    effect, error = abs(limit - 1.0) * spread.p99, calibration.p99_ms / max(tokens, 1.0)
    if error > effect / 10:
        return (
            f"refused, the client itself adds {_ms(error)} at p99, more than a tenth of the {_ms(effect)} that the "
            "limit allows"
        )
    lag = c.candidate.client_lag
    if name != "e2e" and lag is not None and lag > 0.1:
        return f"refused, the client received chunks merged: {lag:.0%} of a request's time went to the wrong token"
    return ""


def _in_flight(case: Case) -> float:
    """Requests in flight at a time: those asked for, or with a rate those that Little's law says there were."""
    c = case.comparison
    if c.cell.rate is None:
        return float(c.cell.concurrency)
    arms = [a for a in (c.baseline, c.candidate) if a.e2e is not None and a.seconds]
    return max((a.requests / a.seconds * a.e2e.mean / 1000.0 for a in arms if a.e2e is not None), default=0.0)


def _both(cand: float | None, base: float | None) -> str:
    return "" if cand is None or base is None else f" ({_ms(cand)}, baseline {_ms(base)})"


def _range(found: Interval, unit: str) -> str:
    low = _show(found.low, unit) if math.isfinite(found.low) else "?"
    high = _show(found.high, unit) if math.isfinite(found.high) else "?"
    return f"{100 * found.level:.3g}% interval {low} to {high}"


def _show(value: float, unit: str) -> str:
    if unit == "x":
        return f"{value:.2f}x"
    return f"{'+' if value >= 0 else '-'}{_ms(abs(value))}" if unit == "ms" else f"{value:.2f}"


def _ms(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1000:.1f} s"
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms" if value >= 1 else f"{value:.2f} ms"
