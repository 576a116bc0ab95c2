"""Answers are compared before any speed, with a scripted engine."""

import json

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
    assert not [
        text for text in TEXTS if text.encode() in kept or text in done.stdout + done.stderr
    ]


@pytest.mark.parametrize("strategy", ["side-by-side", "in-place"])
def test_wrong_answers_are_refused_without_a_round(mpctl, strategy):
    mpctl("local", "up", "-f", str(mpctl.manifest(script={"speculating": {"other": True}})))
    before = mpctl.live_text()
    done = mpctl(
        "rollout", "--spec", "ngram", "--strategy", strategy, "--fidelity", "quick", code=5
    )
    assert "chosen tokens" in done.stdout + done.stderr
    assert mpctl.live_text() == before and len(mpctl.engines()) == 1
    assert mpctl.json("history")["operations"][0]["ending"] == "rejected"
    assert not [text for text in TEXTS if text.encode() in recorded(mpctl)]
    report = mpctl("report", "-o", "md").stdout
    assert "chosen tokens" in report


@pytest.mark.parametrize("script", [{}, {"idless": "answers"}], ids=["token ids", "texts"])
def test_a_fault_that_the_pass_does_not_meet_is_refused_by_the_answers_of_the_rounds(
    mpctl, tmp_path, script
):
    """Without token ids those of the texts are compared, and the verdict says so."""
    prompts = [
        f"Write down the number {n} of the {'zebra' if 8 <= n < 24 else 'giraffe'}"
        for n in range(60)
    ]
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    mpctl("local", "up", "-f", str(mpctl.manifest(script={"other_to": "zebra", **script})))
    load = ("--prompts", f"animals={file}", "--requests", "4", "--repeats", "8")
    done = mpctl("rollout", "--spec", "ngram", *load, "--fidelity", "quick", code=5)
    line = next(line for line in done.stdout.splitlines() if line.strip().startswith("outputs"))
    assert (
        "animals" in done.stdout
        and "12.0 nats, proved by a second score; it reproduces" in done.stdout
    )
    assert ("equal texts" if script else "equal token ids") in line
    kept = recorded(mpctl) + (done.stdout + done.stderr).encode()
    assert b"Write down" not in kept and b"giraffe" not in kept
    assert mpctl.json("history")["operations"][0]["ending"] == "rejected"
