"""Trains heads of one layer that share the demo model's embedding and output: EAGLE's first generation, and MTP.

Both join the embedding of a token with the target's last hidden state before it, send that through one decoder layer,
and draft the token after it. They differ in their norms and in where they live:

- ``eagle``: a checkpoint of its own, as ``EagleLlamaForCausalLM`` of vLLM 0.32 reads it. The layer starts without a
  norm and its result goes to the target's output as it is (EAGLE, arXiv 2401.15077).
- ``mtp``: a layer inside the target's checkpoint. Qwen3 has none, so the demo model is written once more as a
  ``MiMoForCausalLM``, which computes the same (biases are zero, ``qk_norm`` is kept) and has room for one
  (``MiMoMTP``). Only the layer is kept here; ``--join`` writes the model with it.

    python scripts/demo_model/one_layer.py eagle --out scripts/demo_model/eagle
    python scripts/demo_model/one_layer.py mtp --out scripts/demo_model/mtp
    python scripts/demo_model/one_layer.py mtp --join scripts/demo_model/mtp --out model-with-mtp
    python scripts/demo_model/one_layer.py eagle --steps 0 --out random-head      # fits by its shapes alone
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch
from eagle3 import Past, Target, acceptance, begun, tell, train
from safetensors.torch import load_file, save_file
from tasks import TrainingTasks, held_out_edits
from torch import nn
from torch.nn import functional
from train import encode, write_checksums, write_json
from transformers import Qwen3Config
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

MTP_PREFIX = "model.mtp_layers.0."
BESIDE = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "generation_config.json",
)


class Layer(nn.Module):
    """A decoder layer; its parameters have the checkpoint's names. ``norms``: on its input, and on queries and keys."""

    def __init__(self, config: Qwen3Config, *, norms: bool) -> None:
        super().__init__()
        width, size, eps = config.hidden_size, config.head_dim, config.rms_norm_eps
        self.heads, self.kv_heads, self.size, self.norms = (
            config.num_attention_heads,
            config.num_key_value_heads,
            size,
            norms,
        )
        if norms:
            self.input_layernorm = nn.RMSNorm(width, eps=eps)
        self.post_attention_layernorm = nn.RMSNorm(width, eps=eps)
        self.self_attn = nn.ModuleDict({
            "q_proj": nn.Linear(width, self.heads * size, bias=False),
            "k_proj": nn.Linear(width, self.kv_heads * size, bias=False),
            "v_proj": nn.Linear(width, self.kv_heads * size, bias=False),
            "o_proj": nn.Linear(self.heads * size, width, bias=False),
            **({name: nn.RMSNorm(size, eps=eps) for name in ("q_norm", "k_norm")} if norms else {}),
        })  # fmt: skip
        self.mlp = nn.ModuleDict({
            "gate_proj": nn.Linear(width, config.intermediate_size, bias=False),
            "up_proj": nn.Linear(width, config.intermediate_size, bias=False),
            "down_proj": nn.Linear(config.intermediate_size, width, bias=False),
        })  # fmt: skip

    def forward(
        self, hidden: torch.Tensor, rotary: tuple[torch.Tensor, torch.Tensor], past: Past
    ) -> torch.Tensor:
        """``[batch, positions, width]`` in and out; ``rotary``: cosines and sines of the positions."""
        inputs = self.input_layernorm(hidden) if self.norms else hidden
        parts = self.self_attn
        query, key, value = (
            parts[f"{letter}_proj"](inputs).unflatten(-1, (-1, self.size)) for letter in "qkv"
        )
        if self.norms:
            query, key = parts["q_norm"](query), parts["k_norm"](key)
        query, key, value = (projected.transpose(1, 2) for projected in (query, key, value))
        query, key = apply_rotary_pos_emb(query, key, *rotary)
        key, value = (
            projected.repeat_interleave(self.heads // self.kv_heads, dim=1)
            for projected in (key, value)
        )
        hidden = hidden + parts["o_proj"](past.attend(query, key, value).transpose(1, 2).flatten(2))
        inner, mlp = self.post_attention_layernorm(hidden), self.mlp
        return hidden + mlp["down_proj"](
            functional.silu(mlp["gate_proj"](inner)) * mlp["up_proj"](inner)
        )


class Head(nn.Module):
    """A layer between the target's embedding and its output, which both stay as they are."""

    def __init__(self, target: Target, *, norms: bool) -> None:
        super().__init__()
        config, width = target.model.config, target.model.config.hidden_size
        self.join = nn.Linear(2 * width, width, bias=False)
        self.layer = Layer(config, norms=norms)
        self.norms = norms
        if norms:
            names = ("token_layernorm", "hidden_layernorm", "final_layernorm")
            self.around = nn.ModuleDict(
                {name: nn.RMSNorm(width, eps=config.rms_norm_eps) for name in names}
            )
        self.draft_ids = torch.arange(config.vocab_size)
        self._target = [target]  # in a list, so that its weights are no parameters of this module

    def read(self, target: Target, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The hidden states as the engine hands them on: after the last norm for Qwen3, before it for MiMo."""
        after, logits = target.last(ids)
        return (target.before_norm() if self.norms else after), logits

    def step(
        self, embeds: torch.Tensor, hidden: torch.Tensor, positions: torch.Tensor, past: Past
    ) -> torch.Tensor:
        """The hidden states of the next draft step, ``[batch, positions, width]``."""
        if self.norms:
            # The engine gives the first token of a prompt no embedding here; its row drafts nothing that counts.
            parts = [
                self.around["hidden_layernorm"](hidden),
                self.around["token_layernorm"](embeds),
            ]
        else:
            parts = [embeds, hidden]
        rotary = self._target[0].model.model.rotary_emb(hidden, positions)
        output = self.layer(self.join(torch.cat(parts, dim=-1)), rotary, past)
        return self.around["final_layernorm"](output) if self.norms else output

    def follow(
        self, embeds: torch.Tensor, hidden: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Later draft steps read the tokens before and their own outputs."""
        return embeds, hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return functional.linear(hidden, self._target[0].model.lm_head.weight).float()

    def weights(self) -> dict[str, torch.Tensor]:
        """By the names the engine loads."""
        layer, join = (MTP_PREFIX, f"{MTP_PREFIX}input_proj") if self.norms else ("layers.0.", "fc")
        renamed = {"layer.": layer, "join.": f"{join}.", "around.": MTP_PREFIX}
        weights = {}
        for name, value in self.named_parameters():
            first = name.partition(".")[0] + "."
            weights[renamed[first] + name.removeprefix(first)] = (
                value.detach().to(torch.bfloat16).contiguous()
            )
        return weights


def config_of(target: Target, *, mtp: bool) -> dict[str, object]:
    """The ``config.json`` of the head, or of the model that the MTP layer belongs to."""
    config = target.model.config
    same = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "vocab_size",
            "rms_norm_eps", "rope_parameters", "max_position_embeddings", "hidden_act", "bos_token_id", "eos_token_id",
            "pad_token_id")  # fmt: skip
    common = {name: getattr(config, name) for name in same} | {
        "dtype": "bfloat16",
        "tie_word_embeddings": False,
    }
    # As model type the demo's own: the tokenizer is loaded by it, and under qwen2 it would split text otherwise.
    if not mtp:
        return {**common, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 1,
                "head_dim": config.head_dim, "attention_bias": False}  # fmt: skip
    return {**common, "architectures": ["MiMoForCausalLM"], "model_type": "qwen3", "qk_norm": True,
            "num_hidden_layers": config.num_hidden_layers, "num_nextn_predict_layers": 1}  # fmt: skip


def export(weights: dict[str, torch.Tensor], config: dict[str, object], out: Path) -> None:
    """Writes weights, configuration and checksums."""
    out.mkdir(parents=True, exist_ok=True)
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    (out / "model.safetensors").chmod(0o644)
    write_json(out / "config.json", config)
    write_checksums(out)


def joined(target: Target, layer: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The demo model's weights as MiMo has them, and the MTP layer with the biases that come with it."""
    own = {name: value.to(torch.bfloat16) for name, value in target.model.state_dict().items()}
    weights = own | {"lm_head.weight": own["model.embed_tokens.weight"].clone()} | layer
    for name in [
        name
        for name in weights
        if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))
    ]:
        weights[name.removesuffix("weight") + "bias"] = torch.zeros(
            weights[name].shape[0], dtype=torch.bfloat16
        )
    return {name: value.contiguous() for name, value in weights.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a head of one layer for the demo model.")
    parser.add_argument("method", choices=("eagle", "mtp"))
    parser.add_argument("--out", type=Path, required=True, help="where to write")
    parser.add_argument(
        "--join", type=Path, help="mtp: write the target with this layer, and train nothing"
    )
    parser.add_argument(
        "--steps", type=int, default=900, help="0 leaves the head as it was drawn: random"
    )
    parser.add_argument("--examples", type=int, default=480, help="right answers to learn from")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--unroll", type=int, default=1, help="draft steps in one training step")
    parser.add_argument("--lr", type=float, default=3e-3)
    args, target = begun(parser)
    mtp = args.method == "mtp"
    if args.join:
        layer = load_file(args.join / "model.safetensors")
        export(joined(target, layer), config_of(target, mtp=True), args.out)
        for name in BESIDE:
            shutil.copy(args.target / name, args.out / name)
        write_checksums(args.out)
        return
    head = Head(target, norms=mtp)
    print(f"head: {sum(p.numel() for p in head.parameters())} parameters", flush=True)
    if args.steps:
        stream = TrainingTasks(args.seed + 1)
        train(
            head,
            target,
            [encode(target.tokenizer, stream.take((2, 5))) for _ in range(args.examples)],
            args,
        )
    export(head.weights(), config_of(target, mtp=mtp), args.out)
    if args.steps:
        held_out = [encode(target.tokenizer, task) for task in held_out_edits()[:64]]
        tell(acceptance(head, target, held_out, args.unroll))


if __name__ == "__main__":
    main()
