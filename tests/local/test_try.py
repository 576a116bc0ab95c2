"""``mpctl try``: each step is a command of its own, and nothing that serves is changed."""

import json
import re
import threading
import urllib.request

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
    (page,) = up.directory.glob("try-demo-*.html")
    lines = re.findall(r"^\$ (.*)", done.stderr, re.MULTILINE)
    assert lines == [
        "mpctl plan demo --spec all",
        f"mpctl bench demo --spec ngram --run {page.stem}.json.gz",
        f"mpctl report {page.stem}.json.gz --output-file {page.name}",
    ]
    assert "ngram is measured next to service default/demo" in done.stderr
    assert "Users are on" not in done.stderr
    assert page.read_text().startswith("<!doctype html>")
    assert "next: mpctl rollout demo --spec ngram" in done.stderr


@pytest.mark.parametrize("answer", ["n\n", "^C"], ids=["no", "Ctrl-C"])
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


def test_without_a_service_the_way_to_one_and_to_a_prediction_are_named(mpctl):
    done = mpctl("try", code=2)
    assert done.stderr.startswith("error: no service is up")
    assert "mpctl local up -f" in done.stderr
    assert "mpctl plan ORG/MODEL --spec all --gpu L4" in " ".join(done.stderr.split())


def test_users_on_the_service_are_named_in_the_question_since_their_tokens_leave_it_undecided(up):
    up.environment.update(SHORT)
    (service,) = up.json("status")["items"]
    url = f"{service['status']['url']}/v1/chat/completions"
    body = {"model": "demo", "messages": [{"role": "user", "content": "hello " * 20}]}
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    ended = threading.Event()

    def ask():
        while not ended.is_set():
            with urllib.request.urlopen(request, timeout=30) as answer:
                answer.read()

    user = threading.Thread(target=ask)
    user.start()
    try:
        done = up("try", "--yes")
    finally:
        ended.set()
        user.join()
    assert "Users are on the service" in done.stderr
    assert "next: mpctl gate explain try-demo-" in done.stderr
