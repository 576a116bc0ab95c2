"""``mpctl bench`` through the front door: what a command line asks for, and what is refused."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--spec", "ngram", "--candidate", "x"), "--candidate: cannot be combined with --spec"),
        (("--candidate-url", "http://x"), "--candidate-url: needs --url"),
        (("--url", "http://x", "--spec", "ngram"), "--spec: cannot be combined with --url"),
        (("svc", "--url", "http://x"), "--url: cannot be combined with the service svc"),
        (("--candidate-url", "http://x", "--url", "http://x", "--candidate", "y"), "cannot be combined with"),
    ],
)
def test_options_of_bench_that_exclude_each_other(cli, arguments, message):
    ran = cli("bench", *arguments)
    assert ran.code == 2
    assert message in ran.err


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("localhost:8000", "is no http or https address"),
        ("http://user:secret@localhost", "ends up in logs"),
        ("http://127.0.0.1:9", "does not answer as vLLM does"),
    ],
)
def test_a_url_that_is_no_server(cli, url, message):
    ran = cli("bench", "--url", url, "--vllm", "/usr/bin/env")
    assert ran.code == 2
    assert message in ran.err
    assert "secret" not in ran.err
