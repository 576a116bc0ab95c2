"""``mpctl bench`` through the front door: what a command line asks for, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpctl.app.bench_requests import BenchRequest
from mpctl.app.requests import MeasurementRequest, SpeculationRequest
from mpctl.errors import Cancelled

URL = "http://a:8000"


@pytest.fixture
def asked(cli, monkeypatch):
    """The request that a command line becomes."""
    requests = []

    def bench(place, console, request):
        requests.append(request)
        raise Cancelled("captured")

    monkeypatch.setattr("mpctl.app.bench.measure.bench", bench)

    def ask(*arguments):
        done = cli("bench", *arguments)
        assert "captured" in done.err, done.err
        return requests.pop()

    return ask


@pytest.mark.parametrize(
    ("arguments", "request_"),
    [
        ((), BenchRequest()),
        (("qwen",), BenchRequest("qwen")),
        (("run", "qwen"), BenchRequest("qwen")),
        (("qwen", "--candidate", "other"), BenchRequest("qwen", candidate="other")),
        (("--spec", "ngram"), BenchRequest(speculation=SpeculationRequest("ngram"))),
        (
            (
                "--spec",
                "eagle3",
                "--set",
                "a=1",
                "--set",
                "b=2",
                "--draft",
                "org/head",
                "--accept",
                "x",
                "--gpu",
                "L4",
            ),
            BenchRequest(
                speculation=SpeculationRequest(
                    "eagle3", ("a=1", "b=2"), draft="org/head", gpu="L4", accepted=("x",)
                )
            ),
        ),
        (("--url", URL), BenchRequest(url=URL)),
        (
            ("--url", URL, "--candidate", "http://b:8000", "--model", "m"),
            BenchRequest(url=URL, candidate="http://b:8000", model="m"),
        ),
        (
            ("--prompts", "edits:3", "--prompts", "mine.jsonl"),
            BenchRequest(measurement=MeasurementRequest(prompts=("edits:3", "mine.jsonl"))),
        ),
        (
            (
                "--concurrency",
                "1,8",
                "--requests",
                "4",
                "--repeats",
                "2",
            ),
            BenchRequest(
                measurement=MeasurementRequest(
                    concurrency=(1, 8),
                    requests=4,
                    rounds=2,
                )
            ),
        ),
        (
            ("--max-time", "5m", "--max-tokens", "64"),
            BenchRequest(measurement=MeasurementRequest(time_limit_s=300.0, max_tokens=64)),
        ),
        (
            ("--policy", "strict.yaml", "--run", "mine.json", "--timeout", "20m"),
            BenchRequest(
                measurement=MeasurementRequest(policy="strict.yaml"),
                run_file="mine.json",
                ready_timeout_s=1200.0,
            ),
        ),
    ],
    ids=lambda value: " ".join(value) or "nothing" if isinstance(value, tuple) else "",
)
def test_a_command_line_becomes_a_request(asked, arguments, request_):
    assert asked(*arguments) == request_


def test_variables_and_settings_files_become_a_request_too(cli, asked):
    cli.user("bench:\n  run:\n    candidate: other\n")
    cli.project("bench:\n  run:\n    concurrency: [1, 4]\n")
    cli.env(MPCTL_REQUESTS="3")
    measurement = MeasurementRequest(requests=3, concurrency=(1, 4))
    assert asked() == BenchRequest(candidate="other", measurement=measurement)


def test_the_result_names_the_file_and_the_verdict(cli, monkeypatch):
    from bench_samples import small_run

    from mpctl.app.bench.measure import BenchMeasurement
    from mpctl.gate.assess import judge_run

    analysis, verdict = judge_run(small_run(0.5))
    measured = BenchMeasurement(
        small_run(0.5), analysis, verdict, "bench-1.json.gz", 6, "all rounds are measured"
    )
    monkeypatch.setattr("mpctl.app.bench.measure.bench", lambda place, console, request: measured)
    done = cli("bench")
    assert done.code == 0
    assert "2.00x" in done.out
    assert done.err == (
        "measured 6 rounds (all rounds are measured); written to bench-1.json.gz\n"
        "gate would promote the candidate\n"
        "next: mpctl report bench-1.json.gz\n"
    )
    assert cli("bench", "-o", "name").out == "bench-1\n"
    cli.env(MPCTL_PRICE_PER_HOUR="0.71")
    assert "per 1M output tokens at $0.71 an hour" in cli("bench").err
    assert not Path("bench-1.json.gz").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--spec", "ngram", "--candidate", "x"), "--candidate: cannot be combined with --spec"),
        (("--candidate", "http://x"), "--candidate: a server is compared with a server"),
        (("--spec-config", '{"method": "ngram"}'), "--spec-config: needs --spec"),
        (("--set", "num_speculative_tokens=3"), "--set: needs --spec"),
        (("--url", "http://x", "--spec", "ngram"), "--spec: cannot be combined with --url"),
        (("svc", "--url", "http://x"), "--url: cannot be combined with the service svc"),
        (
            ("--url", "http://x", "--candidate", "y"),
            "--candidate: a server is compared with a server",
        ),
    ],
)
def test_options_of_bench_that_exclude_each_other(cli, arguments, message):
    ran = cli("bench", *arguments)
    assert ran.code == 2
    assert message in ran.err


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("localhost:8000", "is not an http or https URL"),
        ("http://user:secret@localhost", "would end up in logs"),
        ("http://127.0.0.1:9", "does not answer as vLLM does"),
    ],
)
def test_a_url_that_is_no_server(cli, url, message):
    ran = cli("bench", "--url", url)
    assert ran.code == 2
    assert message in ran.err
    assert "secret" not in ran.err
