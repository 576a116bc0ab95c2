"""``mpctl try``: its question, on a service in memory; tests/local/test_try.py runs its steps."""

from pathlib import Path

import pytest
from session import MemorySession

pytestmark = pytest.mark.needs("local", "lab")


@pytest.fixture
def ask(cli, monkeypatch):
    """Run it up to the measurement, which fails; returns its messages and the loads that a method was chosen for."""
    chosen = []

    def choose(_session, speculation, concurrency):
        chosen.append(concurrency)
        return speculation.__class__("ngram")

    monkeypatch.setattr("mpctl.lab.plan.service_plan.choose_best", choose)
    monkeypatch.setattr("mpctl.local.session.open_local", lambda *_, **_gone: MemorySession())

    monkeypatch.setattr(
        "mpctl.cli.trial._step", lambda _context, line: 5 if line.split()[1] == "bench" else 0
    )

    def ask(settings=""):
        Path("mpctl.yaml").write_text(settings)
        done = cli("try", "--yes")
        assert done.code == 5, done.err
        return " ".join(done.err.split()), chosen

    return ask


@pytest.mark.parametrize(
    ("settings", "concurrency", "minutes"),
    [
        ("", (1,), 27),  # two arms of 96 prompts, 8 s each, and a start of a minute
        ("bench: {run: {concurrency: 8, repeats: 8}}", (8,), 6),
        ("bench: {run: {concurrency: [1, 4]}}", (1, 4), 14),
        ("bench: {run: {max-time: 10m}}", (1,), 11),
    ],
    ids=["default", "eight at once", "two loads", "limited"],
)
def test_the_method_and_the_time_are_those_of_the_measurement_that_follows(
    ask, settings, concurrency, minutes
):
    question, chosen = ask(settings)
    assert chosen == [concurrency]
    assert f"for at most about {minutes} min; users stay where they are" in question


def test_the_load_of_a_variable_counts_too(ask, monkeypatch):
    monkeypatch.setenv("MPCTL_CONCURRENCY", "4")
    assert ask()[1] == [(4,)]


def test_a_measurement_that_cannot_be_made_is_refused_before_the_question(cli, ask):
    Path("mpctl.yaml").write_text("bench: {run: {prompts: gone.jsonl}}")
    done = cli("try", "--no-input")
    assert done.code == 2
    assert "gone.jsonl" in done.err
    assert "is measured next to" not in done.err


def test_a_file_that_describes_the_measurement_is_read_as_well(ask, monkeypatch):
    Path("load.yaml").write_text("concurrency: [2]\n")
    monkeypatch.setenv("MPCTL_MEASUREMENT", "load.yaml")
    question, chosen = ask("bench: {run: {repeats: 8}}")
    assert chosen == [(2,)]
    assert "for at most about 6 min;" in question  # 32 prompts to each arm, two at once
