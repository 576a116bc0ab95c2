"""Limits of the gate, as users write them."""

from __future__ import annotations

import json
import math
from contextlib import suppress

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mpctl.errors import InputError
from mpctl.gate.policy import Policy
from mpctl.gate.rules import RULES

few = settings(max_examples=100, deadline=None)


def test_every_limit_has_a_reason_and_a_source_and_names_a_rule():
    names = {"all", *(rule.name for rule in RULES), "equal load"}
    for name, (_, term) in Policy.terms().items():
        assert term.why, name
        assert term.source, name
        assert term.rule in names, name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_tpto_ratio: 1\n", "gate.yaml:1: max_tpto_ratio: unknown; known are "),
        (
            "level: 0.95\nmax_tpot_ratio: fast\n",
            "gate.yaml:2: max_tpot_ratio: must be a number above 0, not 'fast'",
        ),
        (
            "max_tpot_ratio: null\n",
            "gate.yaml:1: max_tpot_ratio: must be a number above 0, not None",
        ),
        (
            "max_tpot_ratio: true\n",
            "gate.yaml:1: max_tpot_ratio: must be a number above 0, not True",
        ),
        (
            "max_tpot_ratio: .inf\n",
            "gate.yaml:1: max_tpot_ratio: must be a number above 0, not inf",
        ),
        (
            "max_tpot_ratio: 2026-13-41\n",
            "gate.yaml:1: max_tpot_ratio: must be a number above 0, not '2026-13-41'",
        ),
        (
            "max_tpot_ratio: " + "9" * 400,
            "gate.yaml:1: max_tpot_ratio: must be a number above 0, not 9999",
        ),
        (
            "max_tpot_ratio: .nan\n",
            "gate.yaml:1: max_tpot_ratio: must be a number above 0, not nan",
        ),
        ("max_tpot_ratio: -1\n", "gate.yaml:1: max_tpot_ratio: must be a number above 0, not -1"),
        *(
            (f"{name}: 0\n", f"gate.yaml:1: {name}: must be a number above 0")
            for name in (
                "max_time_per_token_ratio",
                "max_ttft_ratio",
                "max_queue_wait_ratio",
                "max_e2e_ratio",
            )
        ),
        (
            "max_failed_excess: 2\n",
            "gate.yaml:1: max_failed_excess: must be a number of zero or more and at most 1, not 2",
        ),
        (
            "level: 0.5\n",
            "gate.yaml:1: level: must be a number above 0.5 and at most 0.999, not 0.5",
        ),
        (
            "max_tpot_ratio: x\n",
            "gate.yaml:1: max_tpot_ratio: must be a number above 0, not 'x'",
        ),
        (
            "slo_ttft_ms: 200\n",
            "gate.yaml:1: slo_ttft_ms: unknown; known are ",
        ),
        (
            "min_coverage: 0.2\n",
            "gate.yaml:1: min_coverage: unknown; known are ",
        ),
        (
            "level: 0.9\nmin_throughput_ratio: 0.9\n",
            "gate.yaml:2: min_throughput_ratio: unknown; known are ",
        ),
        (
            "min_compared: 30\n",
            "gate.yaml:1: min_compared: unknown; known are ",
        ),
        ("level: 0.9\nlevel: 0.95\n", 'gate.yaml:2: duplicate key "level"'),
        ("- 1\n", "gate.yaml:1: expected a mapping, got a list"),
        ("hello\n", "gate.yaml:1: expected a mapping, got a single value"),
        ("a: b: c\n", "gate.yaml:1: not YAML: "),
        ("[: 1\n", "gate.yaml:"),
        ("? [a]\n: 1\n", "gate.yaml:"),
        ("1: 2\n", "gate.yaml:1: 1: unknown"),
    ],
)
def test_what_cannot_be_a_limit_is_refused_with_file_line_and_field(text, message):
    with pytest.raises(InputError) as caught:
        Policy.parse(text, file="gate.yaml")
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "{}\n"])
def test_an_empty_file_changes_nothing(text):
    assert Policy.parse(text, file="gate.yaml") == Policy()


def test_a_recorded_policy_may_have_limits_that_are_gone():
    record = {"min_coverage": 0.0, "slo_ttft_ms": 200, "slo_e2e_ms": None, "max_pool_loss": 0.3}
    assert Policy.from_record(record) == Policy(max_pool_loss=0.3)
    assert Policy.from_record({"min_compared": 8, "min_throughput_ratio": 0.95}) == Policy()


limits = st.dictionaries(
    st.sampled_from(sorted(Policy.terms())),
    st.floats(0.0, 3.0) | st.none() | st.integers(-1, 3),
    max_size=6,
)


@few
@given(limits)
def test_policies_round_trip_or_are_refused_by_name(record):
    try:
        policy = Policy.from_record(record)
    except InputError as error:
        assert error.field in record
        return
    assert Policy.from_record(json.loads(json.dumps(policy.to_record()))) == policy
    assert Policy.parse(yaml.safe_dump(policy.to_record()), file="x") == policy


@few
@given(st.text(st.sampled_from('level:0.95 \n#-[]{}"&*!|>%@`?'), max_size=30))
def test_any_text_is_read_or_refused(text):
    with suppress(InputError):
        Policy.parse(text, file="x")


def test_the_error_is_shared_out_between_promoting_and_rejecting():
    assert math.isclose(Policy().side, 0.017)
    assert math.isclose(Policy(level=0.9).side, 0.034)


def test_every_rule_says_what_it_asks():
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all(rule.asks.endswith(".") for rule in RULES)


def test_limits_of_a_file_are_plain_numbers_that_a_record_can_hold():
    text = "ttft_slack_ms: 0\nmax_ttft_ratio: 1.20\nqueue_wait_slack_ms: 0x10\n"
    record = Policy.parse(text, file="gate.yaml").to_record()
    assert (record["ttft_slack_ms"], record["max_ttft_ratio"], record["queue_wait_slack_ms"]) == (
        0,
        1.2,
        16,
    )
    assert {type(value) for value in record.values()} <= {int, float, type(None)}


def test_a_limit_of_an_earlier_version_that_was_off_is_no_limit():
    """Measurements of earlier versions hold the limits of 99th percentiles, which were null by default."""
    assert Policy.from_record({"max_e2e_p99_ratio": None}) == Policy()
    with pytest.raises(InputError, match="unknown"):
        Policy.from_record({"max_e2e_p99_ratio": 1.1})
