"""The programs of a training pod with nothing of mpctl around them, over a stand-in for the engine."""

import base64
import json
import os
import socket
import subprocess
import sys
import time
import zlib
from dataclasses import replace

import httpx
import pytest
import training_orders
from training_orders import SALT

from mpctl.lab.drafts.card import card_of, prompt_digest
from mpctl.lab.drafts.order import Limits, Split, TrainingOrder, digest_of, prompt_lines
from mpctl.lab.training_job.manifest import CONFIG, DRAFTS, PORT, WORK, order_text, stage_commands
from tests.unit.support.fake_engine import fake_engine

PROMPTS = Split.of([f"planted secret {number}" for number in range(100)], SALT)
TRAINER = "import pathlib, sys; f = pathlib.Path(sys.argv[1]); f.mkdir(); (f / 'model.safetensors').write_text('w')"


def order():
    return replace(training_orders.order(), prompts=digest_of(PROMPTS, SALT))


@pytest.fixture
def stage(tmp_path):
    """Run the programs of a Job's command on an order in a folder of a claim."""
    programs, claim = tmp_path / "programs", tmp_path / "claim"
    programs.mkdir()
    claim.mkdir()
    packed = stage_commands(order())["collect"][3]
    for name, text in json.loads(zlib.decompress(base64.b64decode(packed))).items():
        (programs / name).write_text(text)
    modules = str(fake_engine(tmp_path / "modules"))

    def run(
        order: TrainingOrder, *arguments: str, engine: str = ""
    ) -> subprocess.CompletedProcess[str]:
        (claim / "order.json").write_text(json.dumps(order.to_record()))
        (claim / "prompts.jsonl").write_text(prompt_lines(PROMPTS))
        command = [sys.executable, str(programs / "heads.py"), str(claim), *arguments]
        environment = {**os.environ, "PYTHONPATH": modules, "FAKE_ENGINE": engine}
        return subprocess.run(
            command, cwd=claim, env=environment, capture_output=True, text=True, check=False
        )

    run.claim = claim
    return run


def test_a_pod_without_a_gpu_collects_with_the_programs_of_its_command_alone(stage):
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
    assert (
        json.loads((stage.claim / "collected.json").read_text())["rows"]
        == 64
        < len(PROMPTS.training)
    )
    assert not [
        file for file in stage.claim.rglob("*") if file.is_file() and "planted" in file.read_text()
    ]


def test_an_engine_that_does_not_start_fails_the_run_with_a_message_without_text(stage):
    stage(order(), "run", "u", "never", engine="broken")
    state = json.loads((stage.claim / "state.json").read_text())
    assert state["phase"] == "failed"
    assert (
        state["message"]
        == f"collect ended with code 1 (RuntimeError); {stage.claim / 'output.log'}"
    )


class Pod:
    """A training pod whose folders are on this machine: the claim, the ConfigMap's mount and the work folder."""

    def __init__(self, folder, order):
        self.folder, self.order = folder, order
        for name in ("drafts", "order", "work"):
            (folder / name).mkdir()
        self.head = folder / "drafts" / "drafts" / order.name
        self.mount(order_text(order))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.modules = str(fake_engine(folder / "modules"))

    def mount(self, text):
        (self.folder / "order" / "order.json").write_text(text)

    def start(self, stage):
        here = {WORK: "work", DRAFTS: "drafts", CONFIG: "order"}

        def translated(word):
            place = next((path for path in here if word.startswith(path)), None)
            if place is not None:
                return word.replace(place, str(self.folder / here[place]), 1)
            return {"python3": sys.executable, str(PORT): str(self.port)}.get(word, word)

        words = [translated(word) for word in stage_commands(self.order)[stage]]
        return subprocess.Popen(
            words,
            cwd=self.folder / "work",
            env={**os.environ, "PYTHONPATH": self.modules},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, stage):
        with self.start(stage) as process:
            return process.communicate(timeout=60)[0], process.returncode

    def post(self, lines):
        for _ in range(200):
            try:
                return httpx.post(
                    f"http://127.0.0.1:{self.port}/prompts", json={"lines": lines}
                ).status_code
            except httpx.ConnectError:
                time.sleep(0.05)
        raise AssertionError("the stage does not listen")


@pytest.fixture
def pod(tmp_path):
    trainer = (sys.executable, "-c", "open('ran', 'w').close()")
    return Pod(tmp_path, replace(order(), command=trainer))


@pytest.mark.parametrize("stage", ["collect", "train", "card"])
def test_an_order_that_was_replaced_after_the_job_was_created_is_not_obeyed(pod, stage):
    theirs = replace(
        pod.order, command=("sh", "-c", "id"), prompts=digest_of(Split(("theirs",), ()), SALT)
    )
    pod.mount(order_text(theirs))
    output, code = pod.run(stage)
    assert code == 1
    assert (
        "order.json is not the order that this Job was created for: its ConfigMap was replaced"
        in output
    )
    assert not pod.head.exists()
    assert not (pod.folder / "work" / "ran").exists()


def test_the_trainer_runs_by_the_order_of_the_job(pod):
    assert pod.run("train") == ("", 0)
    assert (pod.folder / "work" / "ran").exists()


def test_prompts_of_whoever_posts_first_are_refused_and_those_of_the_order_are_taken(pod):
    lines = prompt_lines(PROMPTS)
    with pod.start("collect") as process:
        assert pod.post(lines.replace("secret 7", "poison 7")) == 409
        assert pod.post(lines) == 200
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert (pod.head / "prompts.jsonl").read_text() == lines
    assert json.loads((pod.head / "collected.json").read_text())["prompts"] == pod.order.prompts
    assert "planted" not in output


def test_prompts_that_lie_on_the_claim_already_are_compared_with_the_order(pod):
    pod.head.mkdir(parents=True)
    (pod.head / "prompts.jsonl").write_text(prompt_lines(PROMPTS).replace("secret 7", "poison 7"))
    output, code = pod.run("collect")
    assert code != 0
    assert "prompts.jsonl does not hold the prompts of the order qwen-1" in output
    assert not (pod.head / "transcripts").exists()
