"""``mpctl bench --tune``: the search that a command line asks for."""

from __future__ import annotations

import pytest

from mpctl.app.bench_requests import BenchRequest
from mpctl.app.requests import SpeculationRequest
from mpctl.errors import Cancelled
from mpctl.lab.requests import TuneRequest

URL = "http://127.0.0.1:9"


@pytest.fixture
def searched(cli, monkeypatch):
    """The request that a command line with --tune becomes."""
    requests = []

    def tune(session, request):
        requests.append(request)
        raise Cancelled("captured")

    monkeypatch.setattr("mpctl.lab.commands.tuned.tune", tune)
    monkeypatch.setattr("mpctl.cli.context.CliContext.open_session", lambda *_: None)

    def ask(*arguments):
        done = cli("bench", *arguments)
        assert "captured" in done.err, done.err
        return requests.pop()

    return ask


def test_a_search_is_among_all_methods_unless_some_are_named(searched):
    assert searched("qwen", "--tune") == TuneRequest(
        ("all",), SpeculationRequest(""), BenchRequest("qwen")
    )
    named = searched(
        "--tune", "--spec", "ngram,eagle3", "--draft", "org/head", "--run", "best.json"
    )
    assert named == TuneRequest(
        ("ngram", "eagle3"),
        SpeculationRequest("", draft="org/head"),
        BenchRequest(run_file="best.json"),
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--tune", "--url", URL), "--url: cannot be combined with --tune"),
        (("--tune", "--candidate", "b"), "--candidate: cannot be combined with --tune"),
    ],
)
def test_an_option_that_a_search_has_no_place_for_is_refused(cli, arguments, message):
    done = cli("bench", *arguments)
    assert done.code == 2
    assert message in done.err
