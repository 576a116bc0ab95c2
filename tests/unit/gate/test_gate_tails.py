"""The gate's rules for the slowest hundredth of requests."""

from __future__ import annotations

from dataclasses import replace

import pytest
from measure_samples import TIMED, results, rounds_of, timed

from mpctl.experiment.block import CANDIDATE
from mpctl.experiment.cell import Cell
from mpctl.experiment.run import Calibration
from mpctl.gate.analysis import Analysis
from mpctl.gate.assess import assess
from mpctl.gate.policy import Policy
from mpctl.gate.rule import Outcome

PASS, FAIL, UNDECIDED, MISSING = Outcome.PASS, Outcome.FAIL, Outcome.UNDECIDED, Outcome.MISSING
CALM = Calibration(p50_ms=0.1, p99_ms=0.2, requests=300, concurrency=1)


def test_thirty_prompts_are_undecided_for_p99_and_say_how_many_are_needed():
    """The Modelplane example measures 30 prompts; its figures say nothing of the slowest hundredth."""
    blocks = timed(rounds_of(3, faster=(2.49,) * 10, jitter=0.01))
    policy = Policy(max_e2e_p99_ratio=1.1)
    changed_analysis = replace(Analysis.of(blocks, policy), calibration=CALM)
    rule = results(changed_analysis)["E2E p99"]
    assert rule.outcome is UNDECIDED
    assert rule.needed == 445
    assert rule.message == (
        "E2E p99: 30 prompts were answered by both arms and 475 are needed at this interim analysis, 445 more "
        "(299 for a single analysis at 95%)"
    )
    assert assess(changed_analysis).outcome is Outcome.UNDECIDED
    enough = replace(Analysis.of(timed(rounds_of(3, faster=(2.49,) * 180, jitter=0.01)), policy), calibration=CALM)
    assert results(enough)["E2E p99"].outcome is PASS
    slow = replace(enough, policy=Policy(max_e2e_p99_ratio=0.3))
    assert results(slow)["E2E p99"].outcome is FAIL


@pytest.mark.parametrize(
    ("calibration", "limit", "message"),
    [
        (None, 1.1, "was not calibrated"),
        (
            replace(CALM, p99_ms=0.29),
            1.1,
            "refused, the load client itself adds 0.29 ms at p99, more than a tenth of the 2.80 ms",
        ),
        (replace(CALM, p99_ms=0.27), 1.1, None),
        (replace(CALM, p99_ms=0.29), 1.2, None),
    ],
)
def test_a_p99_rule_is_refused_when_the_client_adds_more_than_a_tenth_of_the_effect(calibration, limit, message):
    policy = Policy(max_e2e_p99_ratio=limit)
    changed_analysis = replace(Analysis.of(timed(rounds_of(3, faster=(2.0,) * 180)), policy), calibration=calibration)
    rule = results(changed_analysis)["E2E p99"]
    assert (rule.outcome is MISSING) == (message is not None)
    assert (message or "") in rule.message


def test_a_tail_of_which_nothing_was_seen_is_missing():
    """Answers that come in one chunk: hundreds of prompts, and no time per token by the client."""
    blocks = timed(rounds_of(4, faster=(2.0,) * 150))
    whole = [
        replace(
            b,
            samples=tuple(replace(s, ttft_ms=s.e2e_ms) for s in b.samples),
            window=replace(b.window, ttft_seconds=sum(s.e2e_ms for s in b.samples) / 1000, ttft_count=len(b.samples)),
        )
        for b in blocks
    ]
    changed_analysis = replace(
        Analysis.of(whole, Policy(max_tpot_p99_ratio=1.5)), calibration=replace(CALM, p99_ms=0.0)
    )
    rule = results(changed_analysis)["TPOT p99"]
    assert (rule.outcome, rule.message) == (MISSING, "TPOT p99 was not measured on both arms")


@pytest.mark.parametrize(
    ("cell", "refused"),
    [(Cell("edits", 1), False), (Cell("edits", 8), True), (Cell("edits", 256, rate=4.0), False)],
)
def test_a_client_calibrated_with_few_requests_says_nothing_of_many(cell, refused):
    """With a rate there are as many in flight as arrive while one is answered, not the most that may be."""
    blocks = timed(rounds_of(4, faster=(2.0,) * 150, cell=cell))
    rule = results(replace(Analysis.of(blocks, Policy(max_e2e_p99_ratio=1.5)), calibration=CALM))["E2E p99"]
    assert rule.outcome is (MISSING if refused else PASS)
    assert ("--concurrency 8 calibrates it with so many" in rule.message) is refused


def test_a_limit_of_zero_is_judged():
    changed_analysis = replace(
        Analysis.of(timed(rounds_of(4, faster=(2.0,) * 150)), Policy(max_e2e_p99_ratio=0.0)), calibration=CALM
    )
    assert results(changed_analysis)["E2E p99"].outcome is FAIL


def test_a_tails_interval_states_the_simultaneous_confidence_level():
    intervals = Analysis.of(timed(rounds_of(8, faster=(2.0,) * 150)), Policy(), planned=12).cells[0].intervals
    assert intervals["e2e_p99"].level == intervals["tpot"].level == pytest.approx(0.966)


def test_a_p99_of_first_tokens_is_refused_when_the_client_merges_chunks():
    fields = {**TIMED, "ttft_seconds": 0.01}  # the engine says 1 ms, the client 10 of a request's 28
    blocks = [replace(b, window=replace(b.window, **fields)) for b in rounds_of(3, faster=(2.0,) * 180)]
    changed_analysis = replace(
        Analysis.of(blocks, Policy(max_ttft_p99_ratio=1.5, max_e2e_p99_ratio=1.5)), calibration=CALM
    )
    assert "received chunks of the baseline merged" in results(changed_analysis)["TTFT p99"].message
    assert results(changed_analysis)["E2E p99"].outcome is PASS
    silent = [replace(b, window=replace(b.window, ttft_count=0)) if b.arm == CANDIDATE else b for b in timed(blocks)]
    changed_analysis = replace(
        Analysis.of(silent, Policy(max_tpot_p99_ratio=1.5)), calibration=replace(CALM, p99_ms=0.0)
    )
    assert results(changed_analysis)["TPOT p99"].outcome is MISSING
    assert "candidate's engine does not report its own time" in results(changed_analysis)["TPOT p99"].message


def test_a_p99_with_prompts_enough_waits_for_the_round_that_may_decide():
    blocks = timed(rounds_of(2, faster=(2.0,) * 1500))
    changed_analysis = replace(Analysis.of(blocks, Policy(max_e2e_p99_ratio=1.5), planned=12), calibration=CALM)
    rule = results(changed_analysis)["E2E p99"]
    assert (rule.outcome, rule.message) == (UNDECIDED, "E2E p99 is judged from round 8 on, this is round 2")
    assert rule.needed == 6 * 1500
