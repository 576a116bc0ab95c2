"""Answers are compared before any speed, with a scripted engine."""

import pytest

# Of the built-in requests and of the answers, which repeat their prompts.
TEXTS = ("Call the tool", "Return this record", "Repeat rule", "Rename", "Return the whole file")


def recorded(mpctl):
    """Everything that the state directory holds, as bytes."""
    return b"\0".join(path.read_bytes() for path in mpctl.state.rglob("*") if path.is_file())


@pytest.mark.parametrize("strategy", ["side-by-side", "in-place"])
def test_right_answers_are_promoted_and_nowhere_recorded(up, strategy):
    done = up("rollout", "--spec", "ngram", "--strategy", strategy, "--fidelity", "quick")
    assert "promoted" in done.stderr
    kept = recorded(up)
    assert not [text for text in TEXTS if text.encode() in kept or text in done.stdout + done.stderr]


@pytest.mark.parametrize("strategy", ["side-by-side", "in-place"])
def test_wrong_answers_are_refused_without_a_round(mpctl, strategy):
    mpctl("local", "up", "-f", str(mpctl.manifest(script={"speculating": {"other": True}})))
    before = mpctl.live_text()
    done = mpctl("rollout", "--spec", "ngram", "--strategy", strategy, "--fidelity", "quick", code=5)
    assert "chosen tokens" in done.stdout + done.stderr
    assert mpctl.live_text() == before and len(mpctl.engines()) == 1
    assert mpctl.json("history")["operations"][0]["ending"] == "rejected"
    assert not [text for text in TEXTS if text.encode() in recorded(mpctl)]
    report = mpctl("report", "-o", "md").stdout
    assert "chosen tokens" in report
