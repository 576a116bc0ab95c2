"""Heads trained on this machine: one run per head, found again by its uid, and no text after its card."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from training_orders import PROMPTS, order

from mpctl.errors import InputError, MpctlError
from mpctl.lab.drafts.order import Limits, TrainingPhase
from mpctl.lab.in_engine import heads
from mpctl.local.trainer import LocalTrainer

STAGES = """#!{python}
import json, pathlib, sys, time
folder, uid, command = pathlib.Path(sys.argv[2]), sys.argv[4], sys.argv[5:]
with open(folder / "runs", "a") as file:
    file.write("run\\n")
(folder / "command").write_text(json.dumps(command))
def say(phase):
    (folder / ".state").write_text(json.dumps(dict(uid=uid, phase=phase, message="")))
    (folder / ".state").replace(folder / "state.json")
if "wait" in command:
    say("training")
    time.sleep(60)
order = json.loads((folder / "order.json").read_text())
counts = [dict(steps=10, accepted=[9 - n % 2, 7, 5]) for n in range(8)]
worse = [dict(steps=10, accepted=[4, 2, 1]) for n in range(8)]
card = dict(name=order["name"], method=order["method"], target=order["target"], head_digest="ab", salt=order["salt"],
            training_digests=order["training"], counts=dict(k=3, new=counts, old=worse))
(folder / "card.json").write_text(json.dumps(card))
say("done")
"""


@pytest.fixture
def trainer(tmp_path, monkeypatch):
    monkeypatch.setenv("MPCTL_STATE_DIR", str(tmp_path / "state"))
    engine = tmp_path / "python"
    engine.write_text(STAGES.format(python=sys.executable))
    for program in (
        engine,
        tmp_path / "train",
        tmp_path / "wait",
    ):  # the stand-in for the stages starts none of them
        program.touch()
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    trainer = LocalTrainer(tmp_path / "service", str(engine), tmp_path)
    yield trainer
    for ended in trainer.orders():
        trainer.purge(ended.name)


def wait_for(trainer: LocalTrainer, uid: str, *phases: TrainingPhase) -> TrainingPhase:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        status = trainer.status(uid)
        if status.phase in phases:
            return status.phase
        time.sleep(0.02)
    raise AssertionError(f"{trainer.status(uid)} after 30 s")


def test_a_run_ends_with_a_card_with_intervals(trainer):
    uid = trainer.submit(order(), PROMPTS)
    wait_for(trainer, uid, TrainingPhase.DONE)
    card = trainer.card(uid)
    assert card.better()
    assert card.holdout.new.tokens_per_step.value == pytest.approx(3.05)
    assert card.trained_on(PROMPTS.training) == 8
    assert card.trained_on(PROMPTS.holdout) == 0
    assert trainer.cards() == (card,)
    assert [known.name for known in trainer.orders()] == ["qwen-1"]


@pytest.mark.parametrize("program", ["no-such-trainer", "./no-such-trainer"])
def test_a_trainer_that_does_not_exist_is_named_before_anything_starts(trainer, program):
    with pytest.raises(InputError, match=f"--trainer: this machine has no program '{program}'"):
        trainer.submit(order(program), PROMPTS)
    assert trainer.orders() == ()


def test_an_order_is_never_run_twice_at_once(trainer):
    uid = trainer.submit(order("wait"), PROMPTS)
    wait_for(trainer, uid, TrainingPhase.TRAINING)
    assert trainer.submit(order("wait"), PROMPTS) == uid
    assert (trainer.folder("qwen-1") / "runs").read_text() == "run\n"


def test_a_killed_run_is_failed_and_the_same_order_continues_it(trainer):
    uid = trainer.submit(order("wait"), PROMPTS)
    wait_for(trainer, uid, TrainingPhase.TRAINING)
    record = json.loads((trainer.folder("qwen-1") / "process.json").read_text())
    os.kill(record["pid"], signal.SIGKILL)
    wait_for(trainer, uid, TrainingPhase.FAILED)
    assert "ended while training" in trainer.status(uid).message
    assert trainer.submit(order("train"), PROMPTS) == uid
    wait_for(trainer, uid, TrainingPhase.DONE)


def test_cancel_stops_the_run_and_purge_deletes_its_text(trainer):
    uid = trainer.submit(order("wait"), PROMPTS)
    wait_for(trainer, uid, TrainingPhase.TRAINING)
    prompts = trainer.folder("qwen-1") / "prompts.jsonl"
    assert stat.S_IMODE(prompts.stat().st_mode) == 0o600
    trainer.cancel(uid)
    wait_for(trainer, uid, TrainingPhase.FAILED)
    trainer.purge("qwen-1")
    assert not trainer.folder("qwen-1").exists()
    assert trainer.status(uid) is None
    with pytest.raises(MpctlError, match="has written no card"):
        trainer.card(uid)


def test_no_prompt_is_in_the_order_or_a_command_line(trainer):
    uid = trainer.submit(order(), PROMPTS)
    wait_for(trainer, uid, TrainingPhase.DONE)
    texts = [
        (trainer.folder("qwen-1") / name).read_text()
        for name in ("order.json", "command", "card.json")
    ]
    assert not [text for text in texts if "planted secret" in text]


def test_a_name_that_leads_elsewhere_is_refused(trainer):
    with pytest.raises(InputError):
        trainer.folder("../other")


def folder_to_train(folder: Path, **limits: float) -> Path:
    record = replace(order(), limits=Limits(**limits)).to_record()
    (folder / "order.json").write_text(json.dumps(record))
    for stage in ("collect", "card"):
        (folder / f".{stage}.done").touch()
    return folder


def test_stages_that_are_done_are_skipped_and_what_the_others_printed_goes_with_the_card(tmp_path):
    heads.run(folder_to_train(tmp_path), "u", [sys.executable, "-c", "print('planted answer')"])
    state = json.loads((tmp_path / "state.json").read_text())
    assert (state["phase"], state["message"]) == ("done", "")
    assert not [file for file in tmp_path.iterdir() if "planted answer" in file.read_text()]


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("print('planted answer'); raise SystemExit(3)", "train ended with code 3"),
        ("raise MemoryError('planted answer')", "train ended with code 1 (MemoryError)"),
        (
            "import json; json.loads('planted answer')",
            "train ended with code 1 (json.decoder.JSONDecodeError)",
        ),
    ],
)
def test_a_failure_names_the_private_log_and_nothing_that_its_stage_printed_but_an_exception(
    tmp_path, program, message
):
    heads.run(folder_to_train(tmp_path), "u", [sys.executable, "-c", program])
    state, log = json.loads((tmp_path / "state.json").read_text()), tmp_path / heads.LOG
    assert (state["phase"], state["message"]) == ("failed", f"{message}; {log}")
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def processes_of(group: int) -> list[psutil.Process]:
    members = []
    for process in psutil.process_iter(["status"]):
        with suppress(ProcessLookupError):
            if os.getpgid(process.pid) == group and process.info["status"] != psutil.STATUS_ZOMBIE:
                members.append(process)
    return members


def test_a_run_ends_itself_and_what_it_started_at_the_deadline(tmp_path):
    nested = "import subprocess; subprocess.run(['sleep', '600'])"
    program = [
        sys.executable,
        heads.__file__,
        str(folder_to_train(tmp_path, deadline_s=0.5)),
        "run",
        "u",
    ]
    with subprocess.Popen([*program, sys.executable, "-c", nested], start_new_session=True) as run:
        assert run.wait(30) == -signal.SIGKILL
        end = time.monotonic() + 30
        while processes_of(run.pid):
            assert time.monotonic() < end
            time.sleep(0.02)
    state = json.loads((tmp_path / "state.json").read_text())
    assert state["phase"] == "failed"
    assert "train was stopped: the deadline of 0.5 s for all stages has passed" in state["message"]


def test_tokens_of_a_step_beyond_the_first_are_accepted():
    assert heads.accepted_counts([1, 4, 2, 1, 3], 3) == {"steps": 3, "accepted": [2, 1, 1]}
    assert heads.accepted_counts([1], 2) == {"steps": 0, "accepted": [0, 0]}


def test_a_head_reads_the_layers_of_its_start_head(tmp_path):
    assert heads.layers_of("", 32) == [2, 16, 29]
    config = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 3]}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert heads.layers_of(str(tmp_path), 32) == [1, 2, 3]


def test_transcripts_keep_every_named_layer_and_count_the_last_token(tmp_path):
    torch, safetensors = pytest.importorskip("torch"), pytest.importorskip("safetensors.torch")
    raw = tmp_path / "raw.safetensors"
    states = torch.arange(4 * 2 * 3, dtype=torch.float32).reshape(4, 2, 3)
    safetensors.save_file({"token_ids": torch.tensor([5, 6, 7, 8]), "hidden_states": states}, raw)
    answer = SimpleNamespace(
        kv_transfer_params={"hidden_states_path": str(raw)},
        outputs=[SimpleNamespace(finish_reason="length")],
    )
    figures = {"rows": 0, "tokens": 0, "cut_off": 0, "bytes": 0}
    heads._keep(tmp_path, [1, 3, 3], 2, answer, figures)
    row = json.loads((tmp_path / "rows.jsonl").read_text())
    assert row == {"input_ids": [5, 6, 7, 8], "loss_mask": [0, 0, 1, 1], "seq_len": 4}
    kept = safetensors.load_file(tmp_path / "hs_0.safetensors")["hidden_states"]
    assert torch.equal(kept, states[:, [0, 1, 1]])
    assert figures == {"rows": 1, "tokens": 3, "cut_off": 1, "bytes": kept.nbytes}


def test_code_beside_weights_is_left_out_and_text_is_deleted_with_the_card(tmp_path, monkeypatch):
    head = tmp_path / "head"
    head.mkdir()
    (head / "model.safetensors").write_bytes(b"weights")
    (head / "config.py").write_text("code")
    (tmp_path / "transcripts").mkdir()
    (tmp_path / "transcripts" / "rows.jsonl").write_text("planted answer")
    (tmp_path / "prompts.jsonl").write_text("planted secret")
    (tmp_path / "order.json").write_text(json.dumps(order().to_record()))
    (tmp_path / "collected.json").write_text("{}")
    monkeypatch.setattr(heads, "_measured", lambda folder, head: [{"steps": 1, "accepted": [1]}])
    monkeypatch.setattr(heads, "_card_record", lambda *values: {"name": "qwen-1"})
    heads.card(tmp_path)
    assert sorted(file.name for file in head.iterdir()) == ["SHA256SUMS", "model.safetensors"]
    texts = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert not [text for text in texts if b"planted" in text]
    assert set(json.loads(Path(tmp_path / "card.json").read_text())["counts"]) == {
        "k",
        "new",
        "old",
    }
