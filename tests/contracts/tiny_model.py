"""A model for queueing tests: two Qwen3 layers and one token per byte. Its weights are whatever ``--load-format dummy``
draws, since only the time a request holds its slot matters here."""

from __future__ import annotations

import json
from pathlib import Path

END = 256

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 320,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "eos_token_id": END,
    "hidden_act": "silu",
}


def byte_symbols() -> list[str]:
    """The printable character that stands for each byte in byte-level BPE."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]


def write(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    tokenizer = {
        "version": "1.0",
        "added_tokens": [
            {"id": END, "content": "<|end|>", "special": True, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False}
        ],
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {symbol: i for i, symbol in enumerate(byte_symbols())}, "merges": []},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>"})
    )
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder
