"""Lengths, thinking and LoRA adapters as classes of traffic, on a real vLLM with the demo's model that can think.

The adapters are written here in PEFT's format with random weights: a light one hardly changes an answer, a heavy one
makes text that nothing drafts well. Speed is left out of the policy: which class gains is for its counters to say.
"""

import json

import pytest

from mpctl.app.bench.recorded import read_run

from .conftest import DEMO, LAX, Mpctl, environment_in

pytestmark = [pytest.mark.engine, pytest.mark.nightly]  # three minutes of a real engine
MODEL = DEMO / "tools"
LOAD = ("--max-tokens", "64", "--repeats", "4", "--requests", "4")
RANK = 8


def adapter(directory, scale):
    """A LoRA adapter of every layer's queries and values; its weights are random, of this standard deviation."""
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    shape = json.loads((MODEL / "config.json").read_text())
    widths = {"q_proj": shape["num_attention_heads"], "v_proj": shape["num_key_value_heads"]}
    generator, weights = torch.Generator().manual_seed(1), {}
    for layer in range(shape["num_hidden_layers"]):
        for name, heads in widths.items():
            prefix = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            sizes = {
                "lora_A": (RANK, shape["hidden_size"]),
                "lora_B": (heads * shape["head_dim"], RANK),
            }
            for part, size in sizes.items():
                weights[f"{prefix}.{part}.weight"] = torch.randn(size, generator=generator) * scale
    directory.mkdir()
    save_file(weights, directory / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": RANK,
        "lora_alpha": 16,
        "bias": "none",
    }
    config |= {"target_modules": sorted(widths), "base_model_name_or_path": str(MODEL)}
    (directory / "adapter_config.json").write_text(json.dumps(config))


@pytest.fixture
def thinker(tmp_path):
    tool = Mpctl(tmp_path, environment_in(tmp_path))
    modules = []
    for name, scale in (("light", 0.02), ("heavy", 0.6)):
        adapter(tmp_path / name, scale)
        modules.append(f"{name}={tmp_path / name}")
    manifest = tool.manifest(model=str(MODEL))
    lora = ["--enable-lora", f"--max-lora-rank={RANK}", "--lora-modules", *modules]
    manifest.write_text(
        manifest.read_text().replace(
            "--enforce-eager]", ", ".join(["--enforce-eager", *lora]) + "]"
        )
    )
    tool("local", "up", "-f", str(manifest), timeout=900)
    yield tool
    tool("local", "down", "--all", "--orphans", "--force", code=None)
    for process in tool.processes():
        process.kill()


def test_lengths_thinking_and_adapters_each_get_a_verdict(thinker):
    policy = thinker.policy(f"{LAX}min_scored_answers: 0\n")
    before = thinker.live_text()
    measurement = thinker.directory / "measurement.yaml"
    rollout = ("rollout", "--spec", "ngram", "--measurement", str(measurement), *LOAD)
    measurement.write_text("contexts: 4k\n")
    refused = thinker(*rollout, code=2).stderr
    assert "MPCTL_CONTEXTS: 4096 tokens are more than the 2048" in refused
    measurement.write_text("adapters: tax\n")
    refused = thinker(*rollout, code=2).stderr
    assert "served: demo, light, heavy" in refused
    assert thinker.live_text() == before

    measurement.write_text("contexts: [1k, 2k]\nthinking: both\nprompts: fresh\n")
    asked = ("--measurement", str(measurement), "--run", "lengths.json")
    printed = thinker("bench", "--spec", "ngram", *asked, *LOAD, "--policy", policy, timeout=900)
    run = read_run(str(thinker.directory / "lengths.json"))
    names = {f"fresh-{k}-{mode}" for k in ("1k", "2k") for mode in ("thinking", "direct")}
    assert {block.cell.traffic for block in run.blocks} == names
    assert all(not sample.error for block in run.blocks for sample in block.samples)
    assert all(name in printed.stdout for name in names)
    tokens = {
        k: [b.window.prefix_queries for b in run.blocks if b.cell.traffic == f"fresh-{k}-direct"]
        for k in ("1k", "2k")
    }
    assert all(800 < count <= 1024 - 64 for count in tokens["1k"])
    assert all(1700 < count <= 2048 - 64 for count in tokens["2k"])

    measurement.write_text("adapters: all\n")
    done = thinker(*rollout, "--policy", policy, code=None, timeout=900)
    assert done.returncode in (0, 5, 6), done.stderr
    report = thinker.json("report")
    assert {cell["traffic"] for cell in report["cells"]} == {
        "edits-demo",
        "edits-light",
        "edits-heavy",
    }
    answered = {cell["traffic"]: cell["outputsCompared"] for cell in report["cells"]}
    assert min(answered.values()) >= 4
    lengths = {cell["traffic"]: cell["candidate"]["tokensPerStep"] for cell in report["cells"]}
    assert lengths["edits-demo"] > 1.1
