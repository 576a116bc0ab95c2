"""Answers compared on a real vLLM with the demo's models: methods of its own pass, one planted fault is refused."""

import json
import os
import sys
from pathlib import Path

import pytest

from mpctl.experiment.answers import AnswerCheck

from .conftest import DEMO, ROOT

ROUNDS = ("--requests", "4", "--repeats", "2", "--max-tokens", "64", "--no-calibrate")
TEXTS = ("Call the tool", "Return this record", "Repeat rule", "The rules of the store", "def ")
pytestmark = [pytest.mark.engine, pytest.mark.nightly]  # minutes of real engines


def check(engine):
    """The last pass that the service's records hold."""
    passes = sorted(engine.service.glob("operations/*/answers.json"), key=lambda path: path.stat().st_mtime)
    return AnswerCheck.from_record(json.loads(passes[-1].read_text()))


def leaked(engine, done):
    """Texts of requests and answers in anything but the engines' own logs, which hold none of them either."""
    kept = [path.read_bytes() for path in engine.state.rglob("*") if path.is_file()]
    shown = (done.stdout + done.stderr).encode()
    return [text for text in TEXTS if any(text.encode() in data for data in (*kept, shown))]


@pytest.mark.parametrize("options", [("ngram",), ("eagle3", "--draft", str(DEMO / "eagle3"))], ids=["ngram", "eagle3"])
def test_a_method_with_the_targets_answers_passes_every_rule_that_can_run(engine, options):
    done = engine(
        "rollout", "--spec", *options, "--fidelity", "full", *ROUNDS, "--policy", engine.policy(), timeout=900
    )
    passed = check(engine)
    assert not [finding for finding in passed.findings if finding.confirmed]
    assert passed.requests > 80 and passed.scored > 60
    assert set(passed.skipped) == {"tools"}  # the demo's engine parses none
    assert not leaked(engine, done)
    engine("rollback", timeout=900)


def test_a_digit_that_is_wrong_in_one_of_twelve_answers_is_refused_before_any_round(engine, tmp_path):
    tool = type(engine)(tmp_path, {**engine.environment, "MPCTL_STATE_DIR": str(tmp_path / "state")})
    tool.environment["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    wrong = str(ROOT / "scripts" / "python-wrong")
    tool("local", "up", "-f", str(tool.manifest(model=str(DEMO / "model"))), "--vllm", wrong, timeout=900)
    try:
        before = tool.live_text()
        policy = tool.policy()
        done = tool(
            "rollout", "--spec", "ngram", "--fidelity", "full", *ROUNDS, "--policy", policy, code=5, timeout=900
        )
        assert "rendering" in done.stdout + done.stderr
        assert {finding.rule.value for finding in check(tool).findings if finding.confirmed} == {"rendering"}
        assert not list(tool.service.glob("operations/*/block-*"))
        assert tool.live_text() == before and len(tool.engines()) == 1
        assert not leaked(tool, done)
    finally:
        tool("local", "down", "--all", "--orphans", "--force", code=None)
