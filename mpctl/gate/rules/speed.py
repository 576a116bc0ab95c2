"""Rules about speed: each holds an interval against its limit."""

from __future__ import annotations

import math

from mpctl.gate.case import Case
from mpctl.gate.outcome import Outcome, RuleResult
from mpctl.gate.thresholds import Bar, hold, in_ms, place, range_of
from mpctl.stats.alpha_spending import FIRST_LOOK
from mpctl.stats.quantiles import values_needed

_ALIKE = 1.5  # how many times the requests of the calibration a client may have in flight and be as quick


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


def _or_slack(
    case: Case, rule: str, name: str, both: tuple[float | None, float | None], most: float, slack_ms: float
) -> RuleResult:
    """As a ratio where that allows more than the slack, else as a difference in ms."""
    cand, base = both
    if cand is None or base is None:
        return RuleResult(rule, Outcome.MISSING, f"{rule} was not measured on both arms", None, most, None, 0, "x")
    before = f" ({in_ms(cand)}, baseline {in_ms(base)})"
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
    tail = case.stages.tail
    wanted = values_needed(0.99, (tail or case.stages.exact) / 2)
    found = c.intervals.get(f"{name}_p99")
    if n < wanted:
        message = (
            f"{rule}: {n} prompts answered by both arms say nothing of the slowest hundredth; {wanted} are needed at "
            f"this look, {wanted - n} more ({values_needed(0.99, 0.05)} for a single look at 95%)"
        )
        return result(Outcome.UNDECIDED, message, wanted - n)
    if not tail:
        stage = case.stages.lower
        first = min(FIRST_LOOK, stage.looks)
        more = math.ceil((first - stage.look) * c.round_requests)
        return result(Outcome.UNDECIDED, f"{rule} is judged from round {first} on, this is {stage.look}", more)
    if found is None:
        return result(Outcome.MISSING, f"{rule} was not measured on both arms")
    bar = Bar(rule, f"{name}_p99", limit, least=False, unit="x")
    outcome = place(found, bar, strictly=False)
    span = f"{range_of(found, 'x')} over {found.n} requests"
    text = f"{rule} {found.value:.2f}x the baseline's, {span} (at most {limit:.2f}x)"
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
            f"refused, the client itself adds {in_ms(error)} at p99, more than a tenth of the {in_ms(effect)} that the "
            "limit allows"
        )
    if name == "e2e":
        return ""
    for arm in (c.baseline, c.candidate):
        lag = arm.client_lag
        if lag is None:
            return (
                f"the {arm.arm}'s engine does not tell its own time to first token, so whether the client received "
                "chunks merged is not known"
            )
        if lag > 0.1:
            return (
                f"refused, the client received chunks of the {arm.arm} merged: {lag:.0%} of a request's time went to "
                "the wrong token"
            )
    return ""


def _in_flight(case: Case) -> float:
    """Requests in flight at a time: those asked for, or with a rate those that Little's law says there were."""
    c = case.comparison
    if c.cell.rate is None:
        return float(c.cell.concurrency)
    arms = [a for a in (c.baseline, c.candidate) if a.e2e is not None and a.seconds]
    return max((a.requests / a.seconds * a.e2e.mean / 1000.0 for a in arms if a.e2e is not None), default=0.0)


def _both(cand: float | None, base: float | None) -> str:
    return "" if cand is None or base is None else f" ({in_ms(cand)}, baseline {in_ms(base)})"
