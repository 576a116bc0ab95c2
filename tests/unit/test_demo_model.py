"""The committed demo model and prompts are the ones its scripts describe."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from mpctl.experiment.answer_sets import FULL, asks_of
from mpctl.experiment.answers import Answer, ToolCall
from mpctl.experiment.workload import Traffic, Workload
from mpctl.gate.answer_forms import invalid_kinds
from tests.simulation.answers import matched

DEMO = Path(__file__).resolve().parents[2] / "scripts" / "demo_model"
MODEL = DEMO / "model"
PROMPTS = DEMO.parents[1] / "mpctl" / "experiment" / "prompts"
PROMPT_FILES = ("edits.jsonl", "fresh.jsonl")
JSON_FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")


@pytest.fixture(scope="module")
def tasks() -> ModuleType:
    """``tasks.py`` is a script outside any package, so it is loaded by its path."""
    name = "demo_model_tasks"
    spec = importlib.util.spec_from_file_location(name, DEMO / "tasks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


def read_prompts(name: str) -> list[str]:
    rows = [json.loads(line) for line in (PROMPTS / name).read_text(encoding="utf-8").splitlines()]
    assert all(list(row) == ["prompt"] for row in rows)
    return [row["prompt"] for row in rows]


@pytest.mark.parametrize(
    "model", ["model", "next", "draft", "tools", "eagle3", "medusa", "p-eagle", "mtp"]
)
def test_checksums_cover_and_match_every_model_file(model: str) -> None:
    listed = {}
    for line in (DEMO / model / "SHA256SUMS").read_text(encoding="utf-8").splitlines():
        digest, name = line.split("  ", 1)
        listed[name] = digest
    files = {path.name: path for path in (DEMO / model).iterdir() if path.name != "SHA256SUMS"}
    assert {
        name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()
    } == listed
    needed = {"config.json", "model.safetensors"}
    assert needed | (
        set()
        if model not in ("model", "next", "draft", "tools")
        else {"tokenizer.json", "chat_template.jinja"}
    ) <= set(listed)


def test_the_draft_has_the_tokenizer_of_the_target() -> None:
    for name in ("tokenizer.json", "chat_template.jinja"):
        assert (DEMO / "draft" / name).read_bytes() == (MODEL / name).read_bytes()


def test_the_model_with_tools_is_the_target_with_more_tokens() -> None:
    target, tools = (
        json.loads((DEMO / name / "config.json").read_text(encoding="utf-8"))
        for name in ("model", "tools")
    )
    assert {key: tools[key] for key in target if tools[key] != target[key]} == {
        "vocab_size": tools["vocab_size"]
    }
    words, more = (
        json.loads((DEMO / name / "tokenizer.json").read_text(encoding="utf-8"))
        for name in ("model", "tools")
    )
    assert words["model"]["vocab"].items() <= more["model"]["vocab"].items()
    marks = {token["content"]: token["special"] for token in more["added_tokens"]}
    assert [marks[mark] for mark in ("<think>", "</think>", "<tool_call>", "</tool_call>")] == [
        False
    ] * 4
    assert len(more["model"]["vocab"]) + 4 == tools["vocab_size"]


def test_what_the_model_with_tools_was_taught_is_valid_for_every_built_in_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    monkeypatch.syspath_prepend(str(DEMO))
    taught = importlib.import_module("tools")
    prompts = Traffic("edits", tuple(read_prompts("edits.jsonl")))
    workload = Workload((prompts,), repeats=1, requests=4)
    asks = [
        ask
        for ask in asks_of(workload, FULL, context_tokens=2048)
        if ask.kind in ("tools", "json", "session")
    ]
    for ask in asks:
        thought, text = taught.answer_of(ask.body)
        calls = re.findall(r'<tool_call>\n{"name": "(\w+)", "arguments": (.*)}\n</tool_call>', text)
        answer = Answer(
            text="" if calls else text,
            tool_calls=tuple(ToolCall(*call) for call in calls),
            finish="stop",
        )
        assert thought and not invalid_kinds(ask, matched(ask, answer)), (ask.kind, text)
    assert len(asks) > 100


def test_the_enlarged_model_computes_what_the_model_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    monkeypatch.syspath_prepend(str(DEMO))
    enlarge = importlib.import_module("enlarge")
    large = enlarge.Dimensions(hidden=512, inner=1024, layers=5, heads=16, kv_heads=4, head=128)
    enlarge.enlarge(MODEL, tmp_path, large)
    ids = torch.randint(3, 1000, (2, 60), generator=torch.Generator().manual_seed(0))
    load = transformers.AutoModelForCausalLM.from_pretrained
    with torch.no_grad():
        small, same = (load(path, dtype=torch.float32)(ids).logits for path in (MODEL, tmp_path))
    assert json.loads((tmp_path / "config.json").read_text())["num_hidden_layers"] == 5
    assert torch.allclose(small, same, atol=2e-3)


def test_a_model_is_enlarged_by_a_power_of_two_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DEMO))
    enlarge = importlib.import_module("enlarge")
    config = json.loads((MODEL / "config.json").read_text(encoding="utf-8"))
    small = enlarge.Dimensions.of(config)
    large = enlarge.Dimensions(hidden=384, inner=1024, layers=5, heads=16, kv_heads=4, head=128)
    with pytest.raises(SystemExit, match="no enlargement"):
        enlarge.Enlarged(small, large)


def test_the_head_has_the_shapes_of_the_target() -> None:
    target, head = (
        json.loads((DEMO / name / "config.json").read_text(encoding="utf-8"))
        for name in ("model", "eagle3")
    )
    assert head["target_hidden_size"] == head["hidden_size"] == target["hidden_size"]
    assert head["vocab_size"] == target["vocab_size"] > head["draft_vocab_size"]
    layers = head["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
    assert len(layers) == 3 and max(layers) <= target["num_hidden_layers"]


def test_the_medusa_heads_have_the_shapes_of_the_target() -> None:
    target, heads = (
        json.loads((DEMO / name / "config.json").read_text(encoding="utf-8"))
        for name in ("model", "medusa")
    )
    assert (heads["hidden_size"], heads["vocab_size"]) == (
        target["hidden_size"],
        target["vocab_size"],
    )
    shapes = tensors("medusa")
    assert shapes["lm_head.weight"] == [target["vocab_size"], target["hidden_size"]]
    assert (
        len([name for name in shapes if name.endswith(".layers.0.weight")])
        == heads["medusa_num_heads"]
    )


def test_the_parallel_head_brings_what_its_masked_places_read() -> None:
    head = json.loads((DEMO / "p-eagle" / "config.json").read_text(encoding="utf-8"))
    assert 0 <= head["ptd_token_id"] < head["vocab_size"]
    assert tensors("p-eagle")["mask_hidden"] == [1, 1, 3 * head["hidden_size"]]


def test_the_mtp_layer_is_one_of_the_target_written_as_mimo() -> None:
    target, joined = (
        json.loads((DEMO / name / "config.json").read_text(encoding="utf-8"))
        for name in ("model", "mtp")
    )
    assert (
        joined["architectures"] == ["MiMoForCausalLM"] and joined["num_nextn_predict_layers"] == 1
    )
    # By the model type the tokenizer is loaded, which has to be the demo's.
    same = (
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "vocab_size",
        "model_type",
    )
    assert [joined[key] for key in same] == [target[key] for key in same]
    assert all(name.startswith("model.mtp_layers.0.") for name in tensors("mtp"))


def tensors(model: str) -> dict[str, list[int]]:
    """Shapes by name, from the header of the weights: eight bytes of length, then that much JSON."""
    raw = (DEMO / model / "model.safetensors").read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    return {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}


@pytest.mark.parametrize("name", PROMPT_FILES)
def test_committed_prompts_are_what_the_generator_writes(tasks: ModuleType, name: str) -> None:
    assert (PROMPTS / name).read_bytes() == tasks.prompt_files()[name].encode()


@pytest.mark.parametrize("name", ["rag", "chat", "math"])
def test_the_other_committed_prompts_are_what_their_generator_writes(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.syspath_prepend(str(DEMO))
    files: dict[str, str] = importlib.import_module("traffic").prompt_files()
    assert (PROMPTS / f"{name}.jsonl").read_bytes() == files[f"{name}.jsonl"].encode()
    assert len(set(read_prompts(f"{name}.jsonl"))) == 192


def test_prompts_are_distinct(tasks: ModuleType) -> None:
    edits, fresh = (read_prompts(name) for name in PROMPT_FILES)
    assert (len(edits), len(fresh)) == (tasks.HELD_OUT_EDITS, tasks.HELD_OUT_FRESH) == (192, 192)
    assert len({*edits, *fresh}) == len(edits) + len(fresh)


def test_training_prompts_are_distinct_and_never_held_out(tasks: ModuleType) -> None:
    stream = tasks.TrainingTasks(seed=0, fresh_share=0.5)
    sample = [stream.take((1, 3)).prompt for _ in range(400)]
    assert len(set(sample)) == len(sample)
    assert not set(sample) & {prompt for name in PROMPT_FILES for prompt in read_prompts(name)}


def test_held_out_prompts_are_refused_as_training_prompts(tasks: ModuleType) -> None:
    held_out = tasks.held_out_edits(count=3)
    assert list(tasks.distinct(iter(held_out), {task.prompt for task in held_out})) == []


def test_the_same_seed_gives_the_same_tasks(tasks: ModuleType) -> None:
    def sample(seed: int) -> list[object]:
        stream = tasks.TrainingTasks(seed)
        return [stream.take((1, 5)) for _ in range(30)]

    assert sample(7) == sample(7)
    assert sample(7) != sample(8)


def test_answers_are_valid_python_that_does_what_the_prompt_asks(tasks: ModuleType) -> None:
    kinds = set()
    for task in tasks.held_out_edits():
        request, source = task.prompt.split("\n\n", 1)
        compile(task.answer, "<answer>", "exec")
        words = request.rstrip(".").split()
        if task.kind == "rename":
            old, new = words[1], words[3].rstrip(".")
            assert f"def {old}(" in source and f"def {new}(" in task.answer
            assert task.answer.replace(f"{new}(", f"{old}(") == source
        elif task.kind == "docstring":
            added = tasks.docstring(words[4].rstrip("."))
            assert task.answer.count('"""') == 2 and task.answer.replace(added, "") == source
        else:
            assert task.answer == source
        kinds.add(task.kind)
    assert kinds == {"rename", "docstring", "unchanged"}


@pytest.mark.parametrize("name", JSON_FILES)
def test_model_files_parse_and_name_no_machine(name: str) -> None:
    text = (MODEL / name).read_text(encoding="utf-8")
    assert isinstance(json.loads(text), dict)
    assert "transformers_version" not in text and "/tmp" not in text and "/home" not in text


def test_tokenizer_fits_the_model() -> None:
    config = json.loads((MODEL / "config.json").read_text(encoding="utf-8"))
    tokenizer = json.loads((MODEL / "tokenizer.json").read_text(encoding="utf-8"))
    ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    assert config["vocab_size"] == len(tokenizer["model"]["vocab"]) == 1024
    assert (config["eos_token_id"], config["pad_token_id"]) == (
        ids["<|im_end|>"],
        ids["<|endoftext|>"],
    )
