"""``mpctl report`` through the front door: where a run comes from, where the report goes, what never gets into it."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.append(str(Path(__file__).parents[1] / "support"))
from rollout_samples import keep_rollouts
from run_samples import conditions, make_run

from mpctl.app.bench.recorded import write_run
from mpctl.experiment.block import BASELINE, CANDIDATE


@pytest.fixture
def run_file(cli):
    """A measurement in the directory of the command line."""
    write_run("run.json.gz", make_run())
    return "run.json.gz"


def test_markdown_is_what_one_reads_without_asking(cli, run_file):
    done = cli("report", run_file)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(
        "<!-- mpctl report -->\n\n### ✓ Promote: ngram K=5 pays for edits (1 at once)"
    )


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("r.html", "<!doctype html>"),
        ("r.md", "<!-- mpctl report -->"),
        ("r.json", '{\n  "apiVersion": "mpctl.dev/v1alpha1",\n  "kind": "Report"'),
        ("r.yaml", "apiVersion: mpctl.dev/v1alpha1\nkind: Report"),
    ],
)
def test_the_ending_of_the_file_says_the_format(cli, run_file, name, begins):
    done = cli("report", run_file, "--output-file", name)
    assert (done.code, done.out, done.err) == (0, "", f"wrote {name}\n")
    text = Path(name).read_text(encoding="utf-8")
    assert text.startswith(begins)
    assert (
        cli("report", run_file, "--output-file", name).code == 0
    )  # over its own report, with the same bytes
    assert Path(name).read_text(encoding="utf-8") == text


@pytest.mark.parametrize("form", ["html", "md", "json", "yaml"])
def test_every_format_has_the_cost_of_a_million_tokens_for_a_price(cli, run_file, form):
    assert "per 1M output tokens" not in cli("report", run_file, "-o", form).out
    cli.env(MPCTL_PRICE_PER_HOUR="0.71")
    done = cli("report", run_file, "-o", form)
    assert done.code == 0
    assert done.out.count("per 1M output tokens") == 1


def test_html_without_its_libraries_says_what_to_install(cli, run_file, monkeypatch):
    monkeypatch.delitem(sys.modules, "mpctl.report.html", raising=False)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    done = cli("report", run_file, "--output-file", "r.html")
    error, hint = done.err.splitlines()
    assert (done.code, error) == (
        1,
        "error: the HTML report needs jinja2, which is not installed",
    )
    assert hint.startswith("hint: pip install 'mpctl[report]'; the other")


@pytest.mark.parametrize("output", ["yaml", "wide"])
@pytest.mark.parametrize("place", ["variable", "file"])
def test_a_format_that_is_set_for_all_commands_is_not_meant(cli, run_file, place, output):
    if place == "variable":
        cli.env(MPCTL_OUTPUT=output)
    else:
        cli.project(f"output: {output}\n")
    done = cli("report", run_file, "--output-file", "r.md")
    assert done.code == 0, done.err
    assert (
        (cli.directory / "r.md")
        .read_text()
        .startswith(cli("report", run_file, "-o", "md").out[:40])
    )


def test_a_file_that_is_no_report_is_not_overwritten(cli, run_file):
    Path("notes.md").write_text("mine\n")
    done = cli("report", run_file, "--output-file", "notes.md")
    assert done.code == 2
    assert (
        done.err
        == "error: notes.md: exists already and is not a report\nhint: choose another file, or --force\n"
    )
    assert Path("notes.md").read_text() == "mine\n"
    assert cli("report", run_file, "--output-file", "notes.md", "--force").code == 0
    assert "mpctl report" in Path("notes.md").read_text()


@pytest.mark.needs("local")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["run.json.gz", "--output-file", "x.pdf"],
            "error: x.pdf: unknown ending '.pdf'; known endings: .html",
        ),
        (["run.json.gz", "--output-file", "none/x.md"], "none is not a directory"),
        (["run.json.gz", "-o", "pdf"], "is not one of html, md, json, yaml"),
        (["gone.json"], "error: gone.json: cannot be read: No such file or directory"),
        (["rollout-1"], "error: no service is up on this machine"),
        ([], "error: no service is up on this machine"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_written(cli, run_file, arguments, message):
    done = cli("report", *arguments)
    assert done.code == 2
    assert message in done.err
    assert not list(Path().glob("*.pdf"))


@pytest.mark.parametrize("text", ["{}", "[]", "{", '{"kind": "Run"}', "\x1f\x8b"])
def test_a_file_that_is_no_measurement_is_refused(cli, text):
    Path("bad.json").write_text(text)
    done = cli("report", "bad.json")
    assert done.code == 2
    assert done.err.startswith("error: bad.json")


def test_other_limits_judge_the_same_samples(cli, run_file):
    Path("strict.yaml").write_text("max_time_per_token_ratio: 0.3\n")
    (cell,) = json.loads(cli("report", run_file, "-o", "json", "--policy", "strict.yaml").out)[
        "cells"
    ]
    assert [rule["rule"] for rule in cell["rules"] if rule["outcome"] == "fail"] == [
        "time per token"
    ]


@pytest.mark.parametrize("form", ["html", "md", "json", "yaml"])
def test_no_secret_of_the_command_line_gets_into_a_report(cli, form):
    argv = (
        "--model=m",
        "--api-key",
        "CANARY-1",
        "CANARY-2",
        "--hf-token=CANARY-3",
        "--max-model-len",
        "2048",
    )
    run = make_run()
    run = replace(run, arms={name: conditions("none", argv) for name in (BASELINE, CANDIDATE)})
    write_run("run.json", run)
    done = cli("report", "run.json", "-o", form)
    assert done.code == 0
    assert "CANARY" not in done.out + done.err


def test_a_page_is_not_poured_onto_a_terminal(cli, run_file, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    done = cli("report", run_file, "-o", "html")
    assert done.code == 2
    assert done.err.endswith("hint: --output-file report.html\n")


@pytest.fixture
def browser(monkeypatch):
    """The pages that were opened; ``browser.present``: whether there is a browser."""
    browser = SimpleNamespace(pages=[], present=True)
    monkeypatch.setattr(
        "webbrowser.open", lambda page: browser.pages.append(page) or browser.present
    )
    return browser


def test_a_page_is_opened_in_the_browser(cli, run_file, browser):
    done = cli("report", run_file, "--open")
    (path,) = (cli.state / "reports").iterdir()
    assert (done.code, done.out, done.err) == (0, "", f"wrote {path}\n")
    assert (path.name, browser.pages) == ("bench-1-2026-11-21T050012.html", [path.as_uri()])
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_without_a_browser_the_path_of_the_page_is_the_result(cli, run_file, browser):
    browser.present = False
    done = cli("-q", "report", run_file, "--open", "--output-file", "page.html")
    assert (done.code, done.out, done.err) == (0, "page.html\n", "")


def test_an_attestation_is_not_opened_and_no_file_of_others_is_overwritten(cli, run_file, browser):
    done = cli("report", run_file, "--open", "-o", "attestation")
    assert (done.code, done.err.splitlines()[0]) == (
        2,
        "error: --open: opens a report, not an attestation",
    )
    Path("notes.md").write_text("mine")
    assert cli("report", run_file, "--open", "--output-file", "notes.md").code == 2
    assert (Path("notes.md").read_text(), browser.pages) == ("mine", [])


@pytest.fixture
def service(cli):
    return keep_rollouts(cli.state)


@pytest.mark.needs("local")
def test_the_page_of_a_rollout_lies_with_the_reports_of_its_service(cli, service, browser):
    assert cli("report", "rollout-1", "--open").code == 0
    page = cli.state / "reports" / "default" / "demo" / "rollout-1-2026-11-21T050012.html"
    assert browser.pages == [page.as_uri()]


@pytest.mark.needs("local")
def test_a_rollout_of_a_service_is_named_by_its_id(cli, service):
    record = json.loads(cli("report", "rollout-1", "-o", "json").out)
    assert record["metadata"]["name"] == "rollout-1"
    assert record["metadata"]["service"] == "default/demo"
    assert record["conditions"]["candidate"]["spec"] == "ngram K=5"
    assert record["prompts"][0]["count"] == 40


@pytest.mark.needs("local")
def test_a_rollout_that_measured_nothing_says_so_and_others_are_listed(cli, service):
    assert cli("report", "rollout-3").err.startswith(
        "error: rollout-3 of service default/demo measured nothing\n"
    )
    assert json.loads(cli("report", "-o", "json").out)["metadata"]["name"] == "rollout-2"
    done = cli("report", "demo", "rollout-9")
    assert done.code == 2
    assert (
        "rollout rollout-9 of service default/demo not found\nhint: rollouts: rollout-1, rollout-2, rollout-3"
        in done.err
    )


@pytest.mark.needs("local")
def test_the_service_is_an_argument_and_its_last_rollout_the_default(cli, service):
    for words in (("demo",), ("demo", "rollout-2"), ("rollout-2", "demo"), ("rollout-2",)):
        record = json.loads(cli("report", *words, "-o", "json").out)
        assert record["metadata"]["name"] == "rollout-2", words
        assert record["metadata"]["service"] == "default/demo", words
    explained = json.loads(cli("gate", "explain", "demo", "-o", "json").out)
    assert explained["kind"] != json.loads(cli("gate", "explain", "-o", "json").out)["kind"]
    assert "service other" in cli("report", "other", "rollout-2").err
    for words in (("demo", "other"), ("rollout-1", "rollout-2"), ("demo", "rollout-1", "x")):
        done = cli("report", *words)
        assert done.code == 2
        assert "expected a service and a run at most" in done.err


@pytest.mark.needs("local")
def test_looking_changes_nothing(cli, service):
    before = {p: p.stat().st_mtime_ns for p in cli.state.rglob("*")}
    assert cli("report", "rollout-2").code == 0
    assert {p: p.stat().st_mtime_ns for p in cli.state.rglob("*")} == before


def test_the_example_in_the_documents_is_what_is_written_today(cli):
    """Plots are left out: their coordinates may differ in the last digit from one machine to another."""
    root = Path(__file__).parents[4]
    done = cli("report", str(root / "tests" / "data" / "run-demo.json.gz"), "-o", "html")
    actual_text = (root / "docs" / "example-report.html").read_text(encoding="utf-8")
    assert len(actual_text) < 500_000
    written, actual_text = (
        re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL) for text in (done.out, actual_text)
    )
    assert written == actual_text, "scripts/example-report writes it again"
