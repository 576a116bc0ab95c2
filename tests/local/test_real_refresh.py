"""A head goes stale on a real vLLM, is trained anew by the watch and serves again behind the gate, with nobody asked.
Figures are printed (``pytest -s``)."""

import importlib
import json
import subprocess
import sys

import pytest

from mpctl.lab.drafts.card import card_of

from .conftest import DEMO, LAX, ROOT, real_service

pytestmark = [pytest.mark.engine, pytest.mark.nightly, pytest.mark.timeout(3600)]
LOAD = ("--requests", "6", "--repeats", "8", "--max-tokens", "160")


@pytest.fixture
def traffic(tmp_path, monkeypatch):
    """Edits of a service's users, none of which the built-in sets have."""
    monkeypatch.syspath_prepend(str(DEMO))
    stream = importlib.import_module("tasks").TrainingTasks(7)
    path = tmp_path / "traffic.jsonl"
    path.write_text(
        "".join(json.dumps({"prompt": stream.take((2, 5)).prompt}) + "\n" for _ in range(320))
    )
    return path


def test_a_stale_head_is_trained_anew_and_serves_again(tmp_path, traffic):
    target = tmp_path / "target"
    target.symlink_to(DEMO / "model")
    with real_service(target) as tool:
        words = (
            "--spec",
            "eagle3",
            "--draft",
            str(DEMO / "eagle3"),
            "--prompts",
            "edits",
            *LOAD,
            "--keep-baseline",
        )
        tool(
            "rollout",
            *words,
            "--policy",
            tool.policy(f"{LAX}min_tokens_per_step: 1.5\n"),
            timeout=900,
        )
        before = tool.live_text()
        drill = (
            "--fault",
            "stale-head",
            "--newer-target",
            str(DEMO / "next"),
            "--refresh",
            str(traffic),
        )
        command = [sys.executable, "-m", "scripts.drills", "demo", *drill, "--json", "--yes"]
        done = subprocess.run(
            command, cwd=ROOT, env=tool.environment, capture_output=True, text=True, check=False
        )
        sys.stdout.write(f"{done.stderr}{done.stdout}\n")
        (result,) = json.loads(done.stdout)["faults"]
        assert (done.returncode, result["failure"], result["skipped"]) == (0, None, None)
        assert result["signal"] == "WorseDraft" and result["requestsFailed"] == 0
        assert result["tokensPerSecond"]["reArmed"] > result["tokensPerSecond"]["withoutFallback"]
        (path,) = (tool.service / "drafts").glob("*/card.json")
        card = card_of(json.loads(path.read_text()))
        assert card.better() and card.trained.steps == 320
        assert card.holdout.new.tokens_per_step.value > 1.5 * card.holdout.old.tokens_per_step.value
        assert tool.live_text() == before  # a drill leaves what it found
        assert "refresh-3" in tool("history").stdout
