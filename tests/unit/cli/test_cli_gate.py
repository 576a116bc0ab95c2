"""``mpctl gate explain`` through the front door."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from bench_samples import small_run as made

from mpctl.app.bench.recorded import write_run
from mpctl.gate.assess import describe_rules
from mpctl.gate.policy import Policy


def test_rules_and_limits_fit_on_a_screen(cli):
    done = cli("gate", "explain")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert len(lines) <= 60
    for name in describe_rules():
        assert any(re.match(rf"{re.escape(name)} {{2,}}\S", line) for line in lines), name
    for name in Policy.terms():
        assert any(f" {name}: " in line for line in lines), name
    assert lines[-1].endswith("mpctl gate explain -o wide")


def test_every_rule_and_limit_is_explained_with_its_source(cli):
    done = cli("gate", "explain", "-o", "wide")
    assert (done.code, done.err) == (0, "")
    words = " ".join(done.out.split())
    for rule, (asks, fixed) in describe_rules().items():
        assert f"\n{rule}\n" in f"\n{done.out}"
        assert asks in words
        assert fixed in done.out


def test_each_rule_is_one_sentence_and_one_number():
    """The number is a limit of the policy that belongs to the rule, or one that no policy changes; the page on the gate
    has the same number in the rule's row."""
    page = (
        Path(__file__).parents[3].joinpath("docs/explanation/gate.md").read_text(encoding="utf-8")
    )
    rows = [row.split(" | ") for row in page.splitlines() if row.startswith("| ")]
    for rule, (asks, fixed) in describe_rules().items():
        assert asks.endswith(".") and ". " not in asks, rule
        limits = [default for default, term in Policy.terms().values() if term.rule == rule]
        assert bool(limits) != bool(fixed), rule
        (shown,) = [row[-1] for row in rows if rule in row[0].removeprefix("| ").split(", ")]
        numbers = {float(fixed.split()[0])} if fixed else set(limits)
        assert numbers & {float(text) for text in re.findall(r"[\d.]+", shown)}, rule


def test_limits_without_a_rule_are_explained_too(cli):
    done = cli("gate", "explain", "-o", "wide")
    words = " ".join(done.out.split())
    for name, (_, term) in Policy.terms().items():
        assert f"\n  {name}: " in done.out
        assert term.source.split()[0] in words
    assert "  max_time_per_token_ratio: 1 x the baseline's\n" in done.out


def test_limits_of_a_file_are_shown_beside_the_defaults(cli):
    Path("strict.yaml").write_text("max_time_per_token_ratio: 0.8\n", encoding="utf-8")
    done = cli("gate", "explain", "--policy", "strict.yaml", "-o", "wide")
    assert "  max_time_per_token_ratio: 0.8 x the baseline's (default 1)\n" in done.out
    items = {
        i["name"]: i
        for i in json.loads(cli("gate", "explain", "--policy", "strict.yaml", "-o", "json").out)[
            "items"
        ]
    }
    assert (
        items["max_time_per_token_ratio"]["value"],
        items["max_time_per_token_ratio"]["default"],
    ) == (0.8, 1.0)
    assert list(items) == list(Policy.terms())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "max_time_per_token_ratio: quick\n",
            "strict.yaml:1: max_time_per_token_ratio: must be a number above 0, not 'quick'",
        ),
        ("min_speed: 1\n", "strict.yaml:1: min_speed: unknown"),
    ],
)
def test_a_policy_file_that_cannot_be_used_is_refused(cli, text, message):
    Path("strict.yaml").write_text(text, encoding="utf-8")
    done = cli("gate", "explain", "--policy", "strict.yaml")
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_a_measurement_is_judged_rule_by_rule(cli):
    write_run("run.json", made(0.5))
    done = cli("gate", "explain", "run.json")
    assert (done.code, done.err) == (0, "")
    assert "time-per-token ratio" in done.out
    assert "\npromote: promote for edits\n" in done.out
    assert "edits, 1 at once: 2.00x and not " in done.out
    record = json.loads(cli("gate", "explain", "run.json", "-o", "json").out)["status"]
    assert record["gate"]["outcome"] == "promote"
    assert record["decomposition"][0]["parts"][-1]["after"] == pytest.approx(2.0, rel=0.03)
    assert cli("gate", "explain", "run.json", "-o", "name").out == "promote\n"


def test_a_measurement_is_judged_by_another_policy(cli):
    write_run("run.json", made(0.5))
    Path("strict.yaml").write_text("max_time_per_token_ratio: 0.3\n", encoding="utf-8")
    assert (
        cli("gate", "explain", "run.json", "--policy", "strict.yaml", "-o", "name").out
        == "reject\n"
    )


def test_what_is_still_needed_is_said_with_its_time(cli):
    fast, slow = made(0.7), made(1.2)
    blocks = [b for b in fast.blocks if b.repeat % 2 == 0] + [
        b for b in slow.blocks if b.repeat % 2
    ]
    write_run("run.json", replace(fast, blocks=tuple(blocks)))
    out = cli("gate", "explain", "run.json").out
    assert "\nundecided: " in out
    assert "more prompts would decide" in out


def undecided(**changes):
    fast, slow = made(0.7), made(1.2)
    blocks = [b for b in fast.blocks if b.repeat % 2 == 0] + [
        b for b in slow.blocks if b.repeat % 2
    ]
    write_run("run.json", replace(fast, blocks=tuple(blocks), **changes))
    return max(b.repeat for b in blocks) + 1


def test_the_rounds_that_would_decide_are_named(cli):
    rounds = undecided()
    (line,) = [
        x
        for x in cli("gate", "explain", "run.json").out.splitlines()
        if x.startswith("to decide: ")
    ]
    text, _, lacking = line.removeprefix("to decide: ").partition("  # ")
    repeats = int(text.removeprefix("measure again with --repeats "))
    assert repeats > rounds
    found = json.loads(cli("gate", "explain", "run.json", "-o", "json").out)["status"]["gate"][
        "deciding"
    ]
    assert (found["repeats"], found["command"]) == (repeats, "")
    assert "; ".join(found["lacking"]) == lacking
    for form in ("md", "html"):
        cli("report", "run.json", "-o", form, "--output-file", f"report.{form}")
        assert f"--repeats {repeats}" in Path(f"report.{form}").read_text()


def test_a_deciding_command_names_the_prompts_that_it_lacks(cli):
    run = made(0.7)
    undecided(prompts={name: replace(prompts, count=40) for name, prompts in run.prompts.items()})
    out = cli("gate", "explain", "run.json").out
    assert re.search(
        r"  # edits takes \d+ distinct prompts and has 40: add some with --prompts edits=FILE", out
    )


def test_a_verdict_needs_no_other_measurement(cli):
    write_run("run.json", made(0.5))
    assert "to decide" not in cli("gate", "explain", "run.json").out
    record = json.loads(cli("gate", "explain", "run.json", "-o", "json").out)["status"]
    assert record["gate"]["deciding"] is None


def test_a_file_that_is_no_measurement_is_named(cli):
    Path("run.json").write_text("{}", encoding="utf-8")
    done = cli("gate", "explain", "run.json")
    assert done.code == 2
    assert "run.json: kind: must be Run" in done.err
