"""A report computed from raw samples: it says what the gate says, and what was not measured stays unknown."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_samples import HOSTILE
from run_samples import make_run

from mpctl.experiment.block import BASELINE, CANDIDATE, Sample
from mpctl.experiment.cell import Cell
from mpctl.experiment.users import Placement, UserLoad
from mpctl.gate.advice import MoreData
from mpctl.gate.assess import judge_run
from mpctl.report.build import build_report, deciding
from mpctl.report.html import html_report
from mpctl.report.markdown import markdown_report
from mpctl.report.record import cell_record, report_record
from mpctl.report.text_table import tail_text
from mpctl.report.values import title_of

BOTH = {Cell("edits", 1): 2.0, Cell("edits", 8): 1.4, Cell("chat", 1): 1.2, Cell("chat", 8): 0.6}


def made(run, **more):
    analysis, verdict = judge_run(run)
    return build_report(run, analysis, verdict, **more)


def test_one_cell_promoted_in_one_sentence():
    report = made(make_run(), service="default/demo")
    assert (report.outcome, report.service) == ("promote", "default/demo")
    assert report.sentence.startswith("ngram K=5 pays for edits (1 at once): throughput ratio 1.9")
    assert "x (94% CI 1." in report.sentence
    assert report.reasons == ()
    cell = report.cells[0]
    assert (cell.traffic, cell.load, cell.share) == ("edits", "1 at once", None)
    both = cell.comparison
    assert both.throughput_ratio.low > 1.5
    assert both.throughput_ratio.n == 7  # the first of eight rounds does not count
    assert both.baseline.throughput == pytest.approx(98, abs=5)
    assert both.candidate.window.tokens_per_step == 2.0
    assert both.candidate.position_rates == (1.0, 0.5, 0.5)
    assert both.baseline.position_rates == ()
    assert len(cell.curves["candidate"]["tpot"]) == 101
    assert both.candidate.ttft_ms == pytest.approx(20.0)  # by the engine's clock


def test_every_rule_of_the_gate_is_there_with_its_figures():
    run = make_run()
    _, verdict = judge_run(run)
    rules = made(run).cells[0].verdict.rules
    assert rules == verdict.cells[0].rules
    by_name = {r.rule: r for r in rules}
    assert (by_name["time per token"].limit, by_name["TPOT"].limit, by_name["outputs"].limit) == (
        1.0,
        1.05,
        None,
    )
    assert by_name["time per token"].interval.high < 1
    assert by_name["errors"].n == 64 + 60


def test_several_cells_with_shares_and_a_crossover():
    report = made(make_run(BOTH, shares={"edits": 0.7, "chat": 0.3}))
    assert report.outcome == "reject"
    assert report.sentence.startswith("ngram K=5: promote for")
    assert "reject for chat, 8 at once (15% of the traffic)" in report.sentence
    assert sum(c.share for c in report.cells) == pytest.approx(1.0)
    assert report.crossovers[0].startswith(
        "chat: speculation pays up to 1 requests at once and no longer at 8"
    )
    assert all(r.startswith("chat, 8 at once: ") for r in report.reasons)


def test_failed_requests_leave_it_undecided_or_rejected_and_the_error_is_shown():
    report = made(make_run(error=f"boom {HOSTILE}"))
    assert report.outcome != "promote"
    assert "boom" in "".join(report.reasons)
    assert report.cells[0].comparison.candidate.failed == 8
    assert "<script>" not in html_report(report)


def test_one_arm_alone_has_its_figures_and_no_verdict():
    run = make_run()
    alone = replace(
        run,
        blocks=tuple(b for b in run.blocks if b.arm == BASELINE),
        arms={BASELINE: run.arms[BASELINE]},
    )
    report = made(alone)
    assert report.outcome == "undecided"
    cell = report.cells[0]
    assert cell.comparison.baseline.throughput > 0
    assert cell.comparison.candidate.throughput is None
    assert cell.comparison.throughput_ratio is None
    for form in (html_report, markdown_report):
        text = form(report)
        assert "0.00x" not in text
        assert "None" not in text
        assert "nan" not in text


def test_a_run_without_blocks_can_be_reported():
    report = made(replace(make_run(), blocks=()))
    assert (report.outcome, report.cells) == ("undecided", ())
    for form in (html_report, markdown_report):
        assert form(report)


def test_a_report_names_the_rounds_that_would_decide():
    more = deciding(make_run(BOTH), MoreData(40, 60.0, 12))
    assert more.text.startswith("measure again with --repeats 12")
    command = "mpctl rollout qwen --spec ngram --repeats 12"
    assert deciding(make_run(BOTH), MoreData(40, 60.0, 12), command).command == command


def test_the_throughput_ratio_is_decomposed():
    report = made(make_run(BOTH, shares={"edits": 0.7, "chat": 0.3}))
    cell = report.decomposed[0]
    assert cell.label == "edits, 1 at once"
    first = cell.decomposition
    assert title_of(first).startswith("Why 1.9")
    assert title_of(first).endswith(" and not 3.00x")
    assert first.parts[0].after == 3.0
    assert first.parts[-1].after == pytest.approx(cell.comparison.throughput_ratio.value)
    assert made(make_run(BOTH)).decomposed[0].decomposition.sentence


def test_a_client_that_is_late_is_named_in_a_note():
    run = make_run()

    def late(sample):
        return Sample(
            sample.ttft_ms + 200,
            sample.e2e_ms,
            sample.tokens,
            sample.text_digest,
            "",
            sample.prompt,
        )

    blocks = tuple(
        replace(b, samples=tuple(map(late, b.samples))) if b.arm == CANDIDATE else b
        for b in run.blocks
    )
    notes = made(replace(run, blocks=blocks)).notes
    assert len(notes) == 1
    assert notes[0].startswith(
        "edits, 1 at once, candidate: TTFT and TPOT of single requests are not measurable by this client: chunks "
    )


def test_times_that_rest_on_merged_chunks_are_not_shown_as_latency():
    """A whole answer that reaches the client at once: 722 ms were shown beside an engine's mean of 15 ms."""
    run = make_run()
    cell = made(run).cells[0]
    assert cell.tails[CANDIDATE]["ttft"].value_ms is not None

    def merged(sample):
        return replace(sample, ttft_ms=sample.e2e_ms - 0.1)

    def late(block):
        return replace(block, samples=tuple(map(merged, block.samples)))

    blocks = tuple(late(b) if b.arm == CANDIDATE else b for b in run.blocks)
    cell = made(replace(run, blocks=blocks)).cells[0]
    tails = cell.tails[CANDIDATE]
    assert "merged" in tails["ttft"].why
    assert (tail_text(tails["ttft"]), tail_text(tails["tpot"])) == ("?", "?")
    assert tails["e2e"].value_ms is not None
    assert set(cell.curves[CANDIDATE]) == {"e2e"}
    record = cell_record(cell.comparison, cell.verdict)
    assert record["candidate"]["ttftMs"]["p99"] is None
    assert record["baseline"]["ttftMs"]["p99"] is not None


def test_a_tool_parser_holds_chunks_back():
    run = make_run()
    arms = {
        name: replace(arm, argv=(*arm.argv, "--enable-auto-tool-choice"))
        for name, arm in run.arms.items()
    }
    tails = made(replace(run, arms=arms)).cells[0].tails
    assert all("tool parser" in tails[arm]["ttft"].why for arm in (BASELINE, CANDIDATE))


def test_the_clients_own_error_stands_beside_its_figures():
    tails = made(make_run()).cells[0].tails[BASELINE]
    assert tails["ttft"].error_ms == tails["e2e"].error_ms == 3.1
    assert 0 < tails["tpot"].error_ms < 3.1
    assert tail_text(tails["ttft"]).endswith(" ± 3.10 ms")


_TIMES = st.one_of(st.none(), st.floats(0, 1e6))
_SAMPLES = st.builds(
    lambda first, more, tokens, error: (
        Sample(None, None, 0, "d", error, "p")
        if error or first is None
        else Sample(first, first + (more or 0.0), tokens, "d", "", "p")
    ),
    _TIMES,
    _TIMES,
    st.integers(1, 100),
    st.sampled_from(["", "", "", "refused <b>", HOSTILE]),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(_SAMPLES, _SAMPLES), min_size=1, max_size=6))
def test_any_samples_make_a_report_in_every_quick_format(pairs):
    run = make_run(rounds=3, requests=len(pairs))
    arms = {BASELINE: 0, CANDIDATE: 1}
    blocks = tuple(
        replace(
            b,
            samples=tuple(
                replace(p[arms[b.arm]], prompt=f"{b.repeat}-{i}") for i, p in enumerate(pairs)
            ),
        )
        for b in run.blocks
    )
    report = made(replace(run, blocks=blocks))
    for text in (markdown_report(report),):
        assert "nan" not in text.lower().split()
        assert "inf" not in text.split()
    assert "NaN" not in json.dumps(report_record(report), allow_nan=False)


@pytest.mark.parametrize(
    ("placement", "rate", "noted"),
    [
        (Placement.PAIR, 6.0, True),
        (Placement.TURNS, 6.0, True),
        (Placement.PAIR, 0.4, False),
        (Placement.SPLIT, 6.0, False),
    ],
)
def test_a_load_that_is_not_the_users_is_noted_where_a_copy_was_measured(placement, rate, noted):
    users = UserLoad(rate, 2, True, 10.0, answer_s=2.0)
    notes = made(replace(make_run(), placement=placement, users=users)).notes
    note = "Users keep about 6 requests in flight on each pod, the prompts were sent 1 at once: --concurrency 6"
    assert any(text.startswith(note) for text in notes) is noted
