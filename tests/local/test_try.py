"""``mpctl try``: each step is a command of its own, and nothing that serves is changed."""

import re

import pytest

SHORT = {"MPCTL_MAX_TOKENS": "24", "MPCTL_REPEATS": "8"}


def served(up):
    return up.live_text(), sorted(engine.pid for engine in up.engines())


def test_a_service_is_planned_measured_and_reported(up):
    up.environment.update(SHORT)
    before = served(up)
    done = up("try", "--yes")
    assert served(up) == before
    assert not (up.service / "ledger.jsonl").exists()
    lines = re.findall(r"^\$ (.*)", done.stderr, re.MULTILINE)
    assert lines == [
        "mpctl plan demo --spec all",
        "mpctl bench demo --spec ngram --run try-demo-1.json.gz",
        "mpctl report try-demo-1.json.gz --output-file try-demo-1.html",
    ]
    assert "ngram is measured next to service default/demo" in done.stderr
    assert (up.directory / "try-demo-1.html").read_text().startswith("<!doctype html>")
    assert "next: mpctl rollout demo --spec ngram" in done.stderr


@pytest.mark.parametrize("answer", ["n\n", "\x03"], ids=["no", "Ctrl-C"])
def test_an_answer_of_no_ends_it_before_an_engine_starts(up, answer):
    up.environment.pop("MPCTL_YES")
    before = served(up)
    screen = "\n".join(up.on_terminal(100, "try", typed={"Measure it?": answer}, code=2))
    assert "Measure it?" in screen
    assert "cancelled; nothing was changed" in screen
    assert served(up) == before
    assert not list(up.directory.glob("try-*"))


def test_without_a_terminal_nobody_is_asked(up):
    up.environment.pop("MPCTL_YES")
    assert "confirm beforehand with -y" in up("try", code=2).stderr


def test_without_a_service_a_model_is_planned(mpctl):
    assert "No service is up on this machine" in mpctl("try", code=2).stderr
    screen = "\n".join(mpctl.on_terminal(100, "try", typed={"ORG/MODEL": "Qwen/Qwen3-8B\n", "GPU": "L4\n"}))
    assert "$ mpctl plan Qwen/Qwen3-8B --spec all --gpu L4" in screen
    screen = "\n".join(mpctl.on_terminal(100, "try", typed={"ORG/MODEL": "nothing\n"}, code=2))
    assert "hint: start a service with mpctl local up -f FILE" in screen
