"""The stages of a training that need an engine. Runs in the engine's Python; imports nothing of mpctl.

``heads.py FOLDER collect`` has the target answer the training prompts greedily and keeps its hidden states, in one
pass: ``transcripts/hs_N.safetensors`` (``token_ids [n]``, ``hidden_states [n, layers + 1, width]``, the last one after
the last layer and before the last norm) and ``transcripts/rows.jsonl`` (``input_ids``, ``loss_mask``, ``seq_len``).
``heads.py FOLDER card`` drafts the hold-out with the new head and the one that it started from, writes ``SHA256SUMS``
and ``card.json``, and deletes prompts and transcripts. ``heads.py FOLDER run UID COMMAND...`` runs all stages one after
the other, ``train`` by the command, and writes ``state.json``; a stage that is done is skipped.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

_BATCH = 64  # prompts between two looks at the disk
_WRITTEN_S = 30.0
_LEFT_OUT = ("config.py", "*.pyc", "__pycache__")  # code beside weights: a head is data


def _write(path: Path, record: object) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(record), encoding="utf-8")
    part.replace(path)


def _read(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record


def _prompts(folder: Path, order: dict[str, Any], side: str) -> list[dict[str, Any]]:
    """Return the prompts of one side; ends the stage where they are not those that the order has the digest of."""
    path = folder / "prompts.jsonl"
    text = path.read_text(encoding="utf-8")
    salted = f"{order['salt']}\n{text}".encode()
    if hashlib.sha256(salted).hexdigest() != order["prompts"]:
        raise SystemExit(f"{path} does not hold the prompts of the order {order['name']}")
    rows = [json.loads(line) for line in text.split("\n") if line]
    return [row["body"] for row in rows if row["side"] == side]


def tokens_of(body: dict[str, Any], tokenizer: Any) -> list[int]:
    """Return the tokens of a request's prompt with the target's chat template."""
    messages = body["messages"]
    text = tokenizer.apply_chat_template(
        messages, tools=body.get("tools"), add_generation_prompt=True, tokenize=False
    )
    return list(tokenizer.encode(text, add_special_tokens=False))


def _engine(order: dict[str, Any], speculative: dict[str, Any], **settings: Any) -> Any:
    import torch
    from vllm import LLM

    devices = torch.cuda.device_count()
    revision = order["target"].get("revision") or None
    return LLM(
        order["target"]["model"],
        revision=revision,
        speculative_config=speculative,
        tensor_parallel_size=max(1, devices),
        enable_prefix_caching=False,  # hidden states of cached tokens are not extracted (vLLM #44485)
        seed=0,
        **settings,
    )


def layers_of(start: str, layers: int) -> list[int]:
    """Return the layers after which a head reads hidden states: the start head's, else vLLM's default for EAGLE-3."""
    config = (
        _read(Path(start) / "config.json")
        if start and (Path(start) / "config.json").is_file()
        else {}
    )
    named = (config.get("eagle_config") or {}).get(
        "eagle_aux_hidden_state_layer_ids"
    ) or config.get("eagle_aux_hidden_state_layer_ids")
    return list(named or (2, layers // 2, layers - 3))


def collect(folder: Path) -> None:
    """Answer the training prompts and keep the transcripts; stop at the order's limit of disk."""
    from transformers import AutoConfig
    from vllm import SamplingParams, TokensPrompt

    order, began = _read(folder / "order.json"), time.time()
    texts = _prompts(folder, order, "training")
    config = AutoConfig.from_pretrained(
        order["target"]["model"], revision=order["target"].get("revision") or None
    )
    count = config.get_text_config().num_hidden_layers
    wanted = [*layers_of((order.get("start") or {}).get("head", ""), count), count]
    raw, transcripts = folder / "transcripts" / "raw", folder / "transcripts"
    shutil.rmtree(transcripts, ignore_errors=True)
    raw.mkdir(parents=True)
    llm, limit = _extracting(order, sorted(set(wanted)), raw), order["limits"]
    tokenizer = llm.get_tokenizer()
    prompts = [tokens_of(prompt, tokenizer) for prompt in texts]
    sampling = SamplingParams(
        temperature=0.0,
        max_tokens=limit["answer_tokens"],
        extra_args={"kv_transfer_params": {"include_output_tokens": True}},
    )
    figures: dict[str, Any] = {"rows": 0, "tokens": 0, "cut_off": 0, "bytes": 0}
    full = False
    for at in range(0, len(prompts), _BATCH):
        batch = prompts[at : at + _BATCH]
        answers = llm.generate(
            [TokensPrompt(prompt_token_ids=ids) for ids in batch], sampling, use_tqdm=False
        )
        # The engine writes the files of its last requests in the step after them.
        llm.generate(
            [TokensPrompt(prompt_token_ids=batch[0])], SamplingParams(max_tokens=1), use_tqdm=False
        )
        for ids, answer in zip(batch, answers, strict=True):
            _keep(transcripts, wanted, len(ids), answer, figures)
        shutil.rmtree(raw)
        raw.mkdir()
        full = figures["bytes"] > limit["disk_gib"] * 2**30
        if full:
            break
    raw.rmdir()
    figures |= {"cut_off": figures["cut_off"] / figures["rows"], "disk_reached": full}
    _write(folder / "collected.json", figures | {"began": began, "prompts": order["prompts"]})


def _extracting(order: dict[str, Any], layers: Sequence[int], raw: Path) -> Any:
    """Return an engine that writes the hidden states after some layers."""
    import torch

    connector = {"kv_connector": "ExampleHiddenStatesConnector", "kv_role": "kv_producer"}
    if not torch.cuda.is_available():
        connector |= {
            "kv_connector": "CpuHiddenStatesConnector",
            "kv_connector_module_path": "cpu_hidden_states",
        }
    extract = {
        "method": "extract_hidden_states",
        "num_speculative_tokens": 1,
        "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": layers}},
    }
    extra = {"shared_storage_path": str(raw)}
    return _engine(
        order, extract, kv_transfer_config={**connector, "kv_connector_extra_config": extra}
    )


def _keep(
    transcripts: Path, layers: Sequence[int], prompt: int, answer: Any, figures: dict[str, Any]
) -> None:
    """Write one answer as a row; ``prompt``: its tokens before the answer."""
    from safetensors.torch import load_file, save_file

    states = _states(Path(answer.kv_transfer_params["hidden_states_path"]), load_file)
    unique = sorted(set(layers))  # a layer that is named twice is returned once
    hidden = states["hidden_states"][:, [unique.index(layer) for layer in layers]].contiguous()
    tokens = states["token_ids"].tolist()
    row = transcripts / f"hs_{figures['rows']}.safetensors"
    save_file({"token_ids": states["token_ids"], "hidden_states": hidden}, row)
    mask = [0] * prompt + [1] * (len(tokens) - prompt)
    with (transcripts / "rows.jsonl").open("a", encoding="utf-8") as file:
        file.write(
            json.dumps({"input_ids": tokens, "loss_mask": mask, "seq_len": len(tokens)}) + "\n"
        )
    figures["rows"] += 1
    figures["tokens"] += sum(mask) + 1  # the last token was never read, so it has no hidden state
    figures["cut_off"] += answer.outputs[0].finish_reason == "length"
    figures["bytes"] += hidden.nbytes


def _states(path: Path, load_file: Any) -> Any:
    end = time.monotonic() + _WRITTEN_S
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.05)
    lock = Path(f"{path}.lock")
    if lock.exists():
        with lock.open() as held:
            fcntl.flock(held, fcntl.LOCK_SH)  # until the writer is done
    return load_file(path)


def accepted_counts(deltas: Sequence[int], k: int) -> dict[str, Any]:
    """Return the counts of one answer: ``deltas`` are its new tokens per engine step. The first one is the prefill's,
    which has no draft, and the last may be cut at the answer's end."""
    steps = deltas[1:-1]
    return {
        "steps": len(steps),
        "accepted": [sum(new > place for new in steps) for place in range(1, k + 1)],
    }


def measure(folder: Path, head: str, out: Path) -> None:
    """Draft the hold-out with a head and write its counts per prompt."""
    from vllm import SamplingParams, TokensPrompt
    from vllm.sampling_params import RequestOutputKind

    order = _read(folder / "order.json")
    llm = _engine(
        order, {**order["speculation"], "model": head, "num_speculative_tokens": order["k"]}
    )
    tokenizer, engine = llm.get_tokenizer(), llm.llm_engine
    prompts = _prompts(folder, order, "holdout")
    sampling = SamplingParams(
        temperature=0.0,
        max_tokens=order["limits"]["answer_tokens"],
        output_kind=RequestOutputKind.DELTA,
    )
    deltas: dict[str, list[int]] = {str(index): [] for index in range(len(prompts))}
    for index, prompt in enumerate(prompts):
        engine.add_request(
            str(index), TokensPrompt(prompt_token_ids=tokens_of(prompt, tokenizer)), sampling
        )
    while engine.has_unfinished_requests():
        for output in engine.step():
            new = len(output.outputs[0].token_ids)
            if new:
                deltas[output.request_id.partition("-")[0]].append(new)
    _write(out, [accepted_counts(new, order["k"]) for new in deltas.values()])


def weights_digest(head: Path) -> str:
    """Return the sha256 over the weights of a checkpoint in the order of their names, hex; empty without any."""
    files = sorted(head.glob("*.safetensors"))
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            while block := file.read(2**20):
                digest.update(block)
    return digest.hexdigest() if files else ""


UNKNOWN = "unknown"  # licence


def licence_of(checkpoint: str) -> str:
    """Return the licence in the front matter of a checkpoint's README.md, else :data:`UNKNOWN`."""
    file = Path(checkpoint) / "README.md"
    match = file.is_file() and re.search(
        r"(?m)^license:\s*([\w.-]+)", file.read_text(encoding="utf-8", errors="replace")
    )
    return match[1] if match else UNKNOWN


def _sums(head: Path) -> Iterator[str]:
    for path in sorted(head.iterdir()):
        if path.is_file():
            yield f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"


def card(folder: Path) -> None:
    """Measure old and new head, write the card and delete what holds the text of prompts or answers."""
    order, head = _read(folder / "order.json"), folder / "head"
    for pattern in _LEFT_OUT:
        for path in head.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    if not weights_digest(head):
        raise SystemExit(f"the trainer wrote no *.safetensors to {head}")
    start = (order.get("start") or {}).get("head", "")
    counts = {"new": _measured(folder, str(head))}
    if start:
        counts["old"] = _measured(folder, start)
    (head / "SHA256SUMS").unlink(missing_ok=True)
    (head / "SHA256SUMS").write_text("".join(_sums(head)), encoding="utf-8")
    record = _card_record(order, _read(folder / "collected.json"), head, start)
    (folder / "prompts.jsonl").unlink(missing_ok=True)
    shutil.rmtree(folder / "transcripts", ignore_errors=True)
    _write(folder / "card.json", {**record, "counts": {"k": order["k"], **counts}})


def _measured(folder: Path, head: str) -> Any:
    out = folder / ".counts.json"
    # An engine of its own: memory of the one before it is free again.
    subprocess.run([sys.executable, __file__, str(folder), "measure", head, str(out)], check=True)
    counts = json.loads(out.read_text(encoding="utf-8"))
    out.unlink()
    return counts


def _card_record(
    order: dict[str, Any], collected: dict[str, Any], head: Path, start: str
) -> dict[str, Any]:
    import torch
    import vllm

    target = order["target"]
    seconds = time.time() - collected["began"]
    versions = {name: version(name) for name in ("torch", "transformers")} | {
        "vllm": str(vllm.__version__)
    }
    return {
        "name": order["name"],
        "method": order["method"],
        "target": {**target, "digest": target["digest"] or weights_digest(Path(target["model"]))},
        "head_digest": weights_digest(head),
        "start": {"head": start, "digest": weights_digest(Path(start))} if start else None,
        "salt": order["salt"],
        "training_digests": order["training"],
        "prompts": collected["prompts"],
        "versions": versions,
        "licences": {
            "target": licence_of(target["model"]),
            "start": licence_of(start) if start else UNKNOWN,
        },
        "made_with": order["made_with"],
        "trained": {
            "tokens": collected["tokens"],
            "steps": order["limits"]["steps"],
            "seconds": seconds,
            "gpu_hours": seconds / 3600 * torch.cuda.device_count(),
            "cut_off": collected["cut_off"],
        },
        "disk_reached": collected["disk_reached"],
    }


STAGES = (("collect", "collecting"), ("train", "training"), ("card", "card"))


LOG = "output.log"
_ERROR = re.compile(r"([A-Za-z_][\w.]*(?:Error|Exception))(?::|$)")


def run(folder: Path, uid: str, command: Sequence[str]) -> None:
    """Run the stages that are not done, within the order's deadline, and keep their state.

    Their output goes to a log that only its owner can read: a trainer prints what it likes. It is deleted when the head
    has its card, as the prompts are; a failure's message has no text of it but the name of an exception.
    """
    allowed: float = _read(folder / "order.json")["limits"]["deadline_s"]
    end, log = time.monotonic() + allowed, folder / LOG

    def say(phase: str, message: str = "") -> None:
        pid = 0 if phase in ("done", "failed") else os.getpid()
        _write(folder / "state.json", {"uid": uid, "phase": phase, "message": message, "pid": pid})

    for stage, phase in STAGES:
        say(phase)
        done = folder / f".{stage}.done"
        if done.exists():
            continue
        arguments = (
            list(command) if stage == "train" else [sys.executable, __file__, str(folder), stage]
        )
        try:
            code = _logged(arguments, log, end - time.monotonic())
        except subprocess.TimeoutExpired:
            say(
                "failed",
                f"{stage} was stopped: the deadline of {allowed:g} s for all stages has passed; {log}",
            )
            if os.getpgrp() == os.getpid():
                os.killpg(0, signal.SIGKILL)  # with what the stage has started
            return
        if code:
            say("failed", f"{stage} ended with code {code}{_error_in(log)}; {log}")
            return
        done.touch()
    log.unlink(missing_ok=True)
    say("done")


def _logged(arguments: Sequence[str], log: Path, seconds: float) -> int:
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        return subprocess.run(
            arguments,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=seconds,
        ).returncode


def _error_in(log: Path) -> str:
    """Return the name of the exception in the last line of a log; its message may hold a prompt."""
    lines = log.read_text(encoding="utf-8", errors="replace").rstrip().splitlines()
    name = _ERROR.match(lines[-1]) if lines else None
    return f" ({name[1]})" if name else ""


def main(arguments: Sequence[str]) -> None:
    """Run a stage, or all of them."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = (
        "0"  # one engine step per call: accepted tokens are counted by step
    )
    folder, stage = Path(arguments[0]), arguments[1]
    if stage == "run":
        run(folder, arguments[2], arguments[3:])
    elif stage == "measure":
        measure(folder, arguments[2], Path(arguments[3]))
    else:
        {"collect": collect, "card": card}[stage](folder)


if __name__ == "__main__":
    main(sys.argv[1:])
