"""A service with a target of the catalogue, a draft head for it, and listings of checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

SERVICE = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: chat
spec:
  predictor:
    model:
      modelFormat: {name: vLLM}
      runtime: kserve-vllmserver
      storageUri: hf://Qwen/Qwen3-8B  # 16 GiB
      args:
      - --max-model-len=8192
"""
HEAD = "RedHatAI/Qwen3-8B-speculator.eagle3"
CONFIG = {
    "architectures": ["Eagle3LlamaForCausalLM"],
    "hidden_size": 4096,
    "target_hidden_size": 4096,
    "num_hidden_layers": 1,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "draft_vocab_size": 32000,
    "max_position_embeddings": 40960,
    "dtype": "bfloat16",
    "speculators_config": {"verifier": {"name_or_path": "Qwen/Qwen3-8B"}},
}


def staging(cli, **facts) -> tuple[str, str]:
    """The option of a file with these staging facts."""
    path = cli.directory / "staging.yaml"
    path.write_text(json.dumps(facts))
    return "--staging", str(path)


def listing(directory: Path, name: str, config: dict, weights: int) -> str:
    """Write the listing of a checkpoint that cannot be read from here."""
    path = directory / name
    path.write_text(f"{weights} ./model.safetensors\n==> config.json <==\n{json.dumps(config)}\n")
    return str(path)
