"""Sentinels of the watch on a real vLLM: a poisoned cache and a wrong engine are found, each as what it is, by one
request in two hundred at most; a sound engine raises no alarm. Figures are printed (``pytest -s``)."""

import json
import subprocess
import sys

import pytest

from .conftest import ROOT
from .planted import PROMPT, files_with_finds, finds

pytestmark = [pytest.mark.engine, pytest.mark.nightly, pytest.mark.timeout(1800)]
SHORT = ("--requests", "8", "--repeats", "4", "--concurrency", "4", "--max-tokens", "32")
SYSTEM = {"role": "system", "content": f"You repeat code for {PROMPT}."}


def prompts_with_a_system_prompt(engine):
    """Requests of users that share a marked beginning, which sentinels take over."""
    path = engine.directory / "users.jsonl"
    texts = [f"Repeat this line.\n\nvalue_{n} = load_value({n})\n" * 4 for n in range(64)]
    bodies = [{"messages": [SYSTEM, {"role": "user", "content": text}]} for text in texts]
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies))
    return f"users={path}"


@pytest.fixture(scope="module")
def promoted(engine):
    """The prompts of a service with n-gram whose pass of answers recorded sentinels."""
    prompts = prompts_with_a_system_prompt(engine)
    words = ("--prompts", prompts, "--fidelity", "quick", "--policy", engine.policy(), *SHORT)
    done = engine("rollout", "--spec", "ngram", *words, timeout=900)
    assert "no sentinel for the watch" not in done.stderr
    return prompts


@pytest.mark.parametrize(
    ("fault", "signal", "action"),
    [
        ("poisoned-cache", "PoisonedCache", "restarted the engines"),
        ("wrong-answers", "WrongAnswers", "fell back to none"),
    ],
)
def test_sentinels_find_a_planted_fault_as_what_it_is(engine, promoted, fault, signal, action):
    before = engine.live_text()
    words = (
        "--fault",
        fault,
        "--prompts",
        promoted,
        "--interval",
        "2",
        "--window",
        "5",
        "--json",
        "--yes",
    )
    command = [sys.executable, "-m", "scripts.drills", "demo", *words]
    done = subprocess.run(
        command, cwd=ROOT, env=engine.environment, capture_output=True, text=True, check=False
    )
    sys.stdout.write(f"{done.stderr}{done.stdout}\n")
    (result,) = json.loads(done.stdout)["faults"]
    assert (done.returncode, result["failure"]) == (0, None)
    assert result["signal"] == signal and result["action"].startswith(action)
    assert result["requestsFailed"] == 0
    assert 3 <= result["sentinels"] <= 0.0055 * result["requests"]
    assert engine.live_text().startswith(before)  # a restart adds a comment
    report = engine("report", "-o", "json").stdout
    assert not finds((done.stdout + done.stderr + report).encode())
    marked = {path.rpartition("/")[2] for path in files_with_finds(engine.state)}
    assert marked <= {"sealed.json"}  # of this user alone
