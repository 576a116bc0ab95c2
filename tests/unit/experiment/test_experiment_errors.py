"""Failed requests: whose they are, and which one is named."""

from __future__ import annotations

from dataclasses import replace

from measure_samples import EDITS, block

from mpctl.gate.analysis import Analysis, Comparison
from mpctl.gate.assess import assess
from mpctl.gate.policy import Policy
from mpctl.gate.rule import Outcome


def failing(arm, repeat, errors, **more):
    """A block whose requests failed with these errors; an empty one was answered."""
    actual_block = block(arm, repeat, texts=tuple(None if e else "text" for e in errors), **more)
    samples = tuple(replace(s, error=e) for s, e in zip(actual_block.samples, errors, strict=True))
    return replace(actual_block, samples=samples)


def errors_of(blocks):
    verdict = assess(Analysis.of(blocks, Policy()))
    return next(r for r in verdict.rules if r.rule == "errors")


def test_the_error_named_is_of_a_prompt_that_the_baseline_answered():
    blocks = [
        failing("baseline", 0, ("also here", "", "")),
        failing("candidate", 0, ("fails everywhere", "", "only with drafts")),
    ]
    comparison = Comparison.of(EDITS, blocks)
    assert (comparison.newly_failed, comparison.new_error) == (1, "only with drafts")
    assert "first: only with drafts" in errors_of(blocks).message


def test_errors_in_a_round_without_partner_are_told_and_never_a_pass():
    blocks = [
        failing("baseline", 0, ("", "")),
        failing("candidate", 0, ("", "")),
        failing("candidate", 1, ("gone", "")),
    ]
    comparison = Comparison.of(EDITS, blocks)
    assert (comparison.newly_failed, comparison.unpaired_failed) == (0, 1)
    rule = errors_of(blocks)
    assert rule.outcome is Outcome.MISSING
    assert "1 of 4 requests failed" in rule.message
    assert "1 of them in rounds that were not measured on the baseline" in rule.message


def test_errors_on_both_sides_are_nobodys_fault():
    errors = ("x", *[""] * 399)  # with fewer requests the share is open
    blocks = [failing("baseline", 0, errors), failing("candidate", 0, errors)]
    assert errors_of(blocks).outcome is Outcome.PASS
    assert Comparison.of(EDITS, blocks).new_error == ""
