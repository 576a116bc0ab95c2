"""The programs of a training pod with nothing of mpctl around them, over a stand-in for the engine."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from test_platform_head_trainer import SALT, order

from mpctl.drafts.card import card_of, prompt_digest
from mpctl.drafts.order import Limits, Split, TrainingOrder, prompt_lines
from mpctl.platform.kubernetes.training_job.manifest import stage_programs
from tests.unit.support.fake_engine import fake_engine

PROMPTS = Split.of([f"planted secret {number}" for number in range(100)], SALT)
TRAINER = "import pathlib, sys; f = pathlib.Path(sys.argv[1]); f.mkdir(); (f / 'model.safetensors').write_text('w')"


@pytest.fixture
def stage(tmp_path):
    """Run the programs of the ConfigMap on an order in a folder of a claim."""
    programs, claim = tmp_path / "programs", tmp_path / "claim"
    programs.mkdir()
    claim.mkdir()
    for name, text in stage_programs().items():
        (programs / name).write_text(text)
    modules = str(fake_engine(tmp_path / "modules"))

    def run(order: TrainingOrder, *arguments: str, engine: str = "") -> subprocess.CompletedProcess[str]:
        (claim / "order.json").write_text(json.dumps(order.to_record()))
        (claim / "prompts.jsonl").write_text(prompt_lines(PROMPTS))
        command = [sys.executable, str(programs / "heads.py"), str(claim), *arguments]
        environment = {**os.environ, "PYTHONPATH": modules, "FAKE_ENGINE": engine}
        return subprocess.run(command, cwd=claim, env=environment, capture_output=True, text=True, check=False)

    run.claim = claim
    return run


def test_a_pod_without_a_gpu_collects_with_the_programs_of_its_config_map_alone(stage):
    collected = stage(order(), "collect")
    assert collected.returncode == 0, collected.stderr
    rows = (stage.claim / "transcripts" / "rows.jsonl").read_text().splitlines()
    assert len(rows) == len(PROMPTS.training)
    assert json.loads(rows[0]) == {"input_ids": [1, 2, 7], "loss_mask": [0, 0, 1], "seq_len": 3}


def test_collecting_stops_at_the_limit_of_disk_and_the_card_says_so(stage):
    digests = tuple(prompt_digest(prompt, SALT) for prompt in PROMPTS.training)
    small = replace(order(), limits=Limits(disk_gib=1e-9), training=digests)
    ended = stage(small, "run", "u", sys.executable, "-c", TRAINER, str(stage.claim / "head"))
    assert ended.returncode == 0, ended.stderr
    assert json.loads((stage.claim / "state.json").read_text())["phase"] == "done", ended
    card = card_of(json.loads((stage.claim / "card.json").read_text()))
    assert card.disk_reached
    assert json.loads((stage.claim / "collected.json").read_text())["rows"] == 64 < len(PROMPTS.training)
    assert not [file for file in stage.claim.rglob("*") if file.is_file() and "planted" in file.read_text()]


def test_an_engine_that_does_not_start_fails_the_run_with_a_message_without_text(stage):
    stage(order(), "run", "u", "never", engine="broken")
    state = json.loads((stage.claim / "state.json").read_text())
    assert state["phase"] == "failed"
    assert state["message"] == f"collect ended with code 1 (RuntimeError); {stage.claim / 'output.log'}"
