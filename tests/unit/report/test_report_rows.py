"""The tables that people read, exactly, and the records that programs read."""

from __future__ import annotations

import json
from dataclasses import replace

from mpctl.experiment.arm import ArmSummary, Spread
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import Window
from mpctl.gate.analysis import Comparison
from mpctl.gate.rule import Outcome, RuleResult
from mpctl.gate.verdict import CellVerdict, Verdict
from mpctl.methods import Spec
from mpctl.report import comparison_rows, gate_rows, operation_record, price_text
from mpctl.report.record import arm_record, cell_record
from mpctl.rollout.operation import Ending, Operation
from mpctl.rollout.plan import Kind, Plan, Strategy
from mpctl.rollout.revision import Manifest
from mpctl.stats.confidence import Interval

OFF = Window(200.0, 0.0, 1.0, 8.0, None, None, None, ())
ON = Window(200.0, 1.0, 2.0, 8.0, 40.0, 200.0, 120.0, (40.0, 30.0, 20.0, 20.0, 10.0))


def flat(value):
    return Spread(value, value, value, value, 8)


def arm(name, failed, tokens, throughput, times, counted):
    ttft, tpot, e2e = map(flat, times)
    return ArmSummary(
        name, 2, 8, failed, tokens, tokens / throughput, ttft, tpot, e2e, None, counted
    )


CELL = Cell("edits", 1)
BASE = arm("baseline", 0, 200, 100.04, (12.34, 9.876, 500.0), OFF)
CAND = arm("candidate", 1, 195, 161.26, (11.96, 6.1, 300.0), ON)
RATIO = Interval(1.61, 1.5, 1.725, 2, "rounds", 0.975)
BOTH = Comparison(
    CELL,
    BASE,
    CAND,
    (1.5, 1.725),
    compared=7,
    different=0,
    newly_failed=1,
    intervals={"throughput_ratio": RATIO},
)
RULES = (
    RuleResult(Outcome.FAIL, "1 of 8 requests failed", rule="errors"),
    RuleResult(
        Outcome.MISSING, "7 prompts answered by both arms, at least 8 needed", rule="comparable"
    ),
    RuleResult(Outcome.UNDECIDED, "E2E 0.61x, 96% CI 0.40x to 1.30x", rule="E2E"),
    RuleResult(Outcome.PASS, "TPOT 0.62x the baseline's", rule="TPOT"),
    RuleResult(Outcome.SKIP, "max_tpot_p99_ratio sets no limit", rule="TPOT p99"),
)
ONE = Verdict(Outcome.REJECT, (CellVerdict(CELL, 1.0, Outcome.REJECT, RULES),), "reject for edits")
HEADER = [
    "ARM",
    "TOK/S",
    "THROUGHPUT RATIO",
    "TPOT",
    "TTFT",
    "TOKENS/STEP",
    "ACCEPTANCE",
    "COVERAGE",
    "REQUESTS",
]


def rows(comparison):
    return comparison_rows(comparison, baseline="none", candidate="ngram K=5")


def test_a_measurement():
    assert rows(BOTH) == [
        HEADER,
        ["baseline: none", "100.0", "1.00x", "9.88 ms", "12.3 ms", "1.00", "-", "-", "8/8"],
        [
            "candidate: ngram K=5",
            "161.3",
            "1.61x (1.50x to 1.73x)",
            "6.10 ms",
            "12.0 ms",
            "2.50",
            "60.0%",
            "50.0%",
            "7/8",
        ],
    ]


def test_too_few_rounds_have_no_interval():
    early = {"throughput_ratio": replace(RATIO, low=None, high=None)}
    assert rows(replace(BOTH, intervals=early))[2][2] == "1.61x"


def test_what_was_not_measured_is_no_zero():
    nothing = replace(CAND, seconds=0.0, tpot=None, ttft=None, window=None)
    assert rows(replace(BOTH, candidate=nothing, intervals={}))[2] == [
        "candidate: ngram K=5",
        *("?", "?", "?", "?", "?"),
        *("-", "-"),
        "7/8",
    ]


def test_speculation_that_is_on_but_idle_is_unknown_not_absent():
    idle = Window(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, (0.0,) * 5)
    assert rows(replace(BOTH, candidate=replace(CAND, window=idle)))[2][5:8] == ["?", "?", "?"]


def test_a_baseline_that_speculates_shows_it_too():
    assert rows(replace(BOTH, baseline=replace(BASE, window=ON)))[1][5:8] == [
        "2.50",
        "60.0%",
        "50.0%",
    ]


def test_a_ratio_is_shown_only_of_what_was_measured():
    without = {arm: replace(getattr(BOTH, arm), seconds=0.0) for arm in ("baseline", "candidate")}
    assert [row[2] for row in rows(replace(BOTH, **without, intervals={}))[1:]] == ["?", "?"]
    no_base = replace(BOTH, baseline=without["baseline"], intervals={})
    assert [row[2] for row in rows(no_base)[1:]] == ["?", "?"]
    no_cand = replace(BOTH, candidate=without["candidate"], intervals={})
    assert [row[2] for row in rows(no_cand)[1:]] == ["1.00x", "?"]


def test_no_measurement_at_all():
    empty = rows(Comparison.of(CELL, []))
    assert empty[1] == ["baseline: none", "?", "?", "?", "?", "?", "-", "-", "0/0"]
    assert empty[2][1:] == ["?", "?", "?", "?", "?", "-", "-", "0/0"]


def test_the_gate_in_the_order_of_its_rules():
    assert gate_rows(ONE) == [
        ["GATE", "", "REASON"],
        ["errors", "NO", "1 of 8 requests failed"],
        ["comparable", "?", "7 prompts answered by both arms, at least 8 needed"],
        ["E2E", "?", "E2E 0.61x, 96% CI 0.40x to 1.30x"],
        ["TPOT", "ok", "TPOT 0.62x the baseline's"],
        ["TPOT p99", "-", "max_tpot_p99_ratio sets no limit"],
    ]


def test_a_million_tokens_cost_the_price_of_the_time_that_they_take():
    """0.72 an hour are 0.0002 a second, and 100.04 tokens a second take 9996 s for a million."""
    idle = replace(BOTH, candidate=replace(CAND, output_tokens=0))
    assert price_text((BOTH, idle), 0.72) == (
        "$ per 1M output tokens at $0.72 an hour for an engine: edits, 1 at once: baseline 2, candidate 1.24; "
        "edits, 1 at once: baseline 2"
    )


def test_several_traffic_conditions_have_their_rules_below_their_name():
    other = CellVerdict(Cell("chat", 8), 0.5, Outcome.PROMOTE, RULES[3:4])
    trap = replace(ONE.cells[0], share=0.5, rules=RULES[:1], sentence="requests wait")
    assert gate_rows(Verdict(Outcome.REJECT, (trap, other))) == [
        ["GATE", "", "REASON"],
        ["edits, 1 at once", "reject", "requests wait"],
        ["errors", "NO", "1 of 8 requests failed"],
        ["chat, 8 at once", "promote", ""],
        ["TPOT", "ok", "TPOT 0.62x the baseline's"],
    ]


def test_every_row_is_as_wide_as_its_header():
    for table in (rows(BOTH), rows(Comparison.of(CELL, [])), gate_rows(ONE)):
        assert {len(row) for row in table} == {len(table[0])}
        assert all(isinstance(cell, str) for row in table for cell in row)


def test_the_record_has_units_in_its_names_and_null_where_nothing_was_measured():
    record = cell_record(BOTH, ONE.cells[0])
    assert record["throughputRatio"]["value"] == 1.61
    assert record["throughputRatioByRound"] == [1.5, 1.725]
    assert record["timePerTokenRatio"] is None
    assert (record["outputsCompared"], record["outputsDifferent"]) == (7, 0)
    assert (record["traffic"], record["concurrency"], record["outcome"], record["share"]) == (
        "edits",
        1,
        "reject",
        1,
    )
    assert [r["rule"] for r in record["rules"]] == [r.rule for r in RULES]
    times = {"mean": 6.1, "p50": 6.1, "p90": 6.1, "p99": 6.1}
    assert record["candidate"] == {
        "requests": 8,
        "failed": 1,
        "outputTokens": 195,
        "tokensPerSecond": CAND.throughput,
        "requestsPerSecond": CAND.requests_per_second,
        "ttftMs": dict.fromkeys(times, 11.96),
        "tpotMs": times,
        "e2eMs": dict.fromkeys(times, 300.0),
        "stepMs": None,
        "tokensPerStep": 2.5,
        "acceptanceRate": 0.6,
        "acceptanceLength": 4.0,
        "coverage": 0.5,
        "acceptanceByPosition": [1.0, 0.75, 0.5, 0.5, 0.25],
        "drafts": 40.0,
        "draftTokens": 200.0,
        "acceptedTokens": 120.0,
        "queueWaitMs": 250.0,
        "preemptions": 1.0,
    }
    assert record["baseline"]["acceptanceRate"] is None
    empty = arm_record(Comparison.of(CELL, []).candidate)
    counted = {k: v for k, v in empty.items() if v not in (None, dict.fromkeys(times))}
    assert counted == {"requests": 0, "failed": 0, "outputTokens": 0, "acceptanceByPosition": []}


NGRAM = Spec("ngram", {"num_speculative_tokens": 5})


def test_the_record_of_an_operation():
    plan = Plan(
        Kind.ROLLOUT, Strategy.IN_PLACE, Manifest.of("a"), Manifest.of("b"), NGRAM, Spec("none")
    )
    done = {"record": {"revision": 1}, "start": {}}
    running = Operation("rollout-1", plan, "2026-01-01", "x", done, begun="ready")
    record = operation_record(running, None)
    assert record["metadata"] == {"name": "rollout-1", "openedAt": "2026-01-01", "by": "x"}
    assert record["spec"] == {
        "kind": "rollout",
        "strategy": "in-place",
        "speculation": "ngram K=5",
        "baseline": "none",
        "planDigest": plan.digest(),
    }
    assert record["status"] == {
        "ending": None,
        "detail": "",
        "steps": ["record", "start"],
        "step": "ready",
        "phaseSeconds": {},
        "secondStart": None,
        "gate": None,
        "cells": [],
    }
    ended = replace(running, begun="", ending=Ending.REJECTED, detail="why")
    full = json.loads(json.dumps(operation_record(ended, ONE, [BOTH])))["status"]
    assert (full["ending"], full["step"], full["gate"]["outcome"]) == ("rejected", None, "reject")
    assert [cell["outcome"] for cell in full["cells"]] == ["reject"]
    assert full["cells"][0]["candidate"]["outputTokens"] == 195
