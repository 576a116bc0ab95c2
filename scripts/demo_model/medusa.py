"""Trains Medusa heads for the demo model: each reads the target's last hidden state and drafts one token by itself.

Head ``k`` drafts the token ``k + 2`` places after the one the hidden state was read at; the target says the first of
them itself. A head has nothing but that one state, so it knows what the target happens to keep there of what it will
write later: acceptance is far below that of ``eagle3``, which sees the earlier positions too. Labels are the target's
own greedy tokens. Files and configuration keys are those of ``MedusaModel`` as vLLM 0.32 reads them; all heads share
one output, as ``original_lm_head`` says (arXiv 2401.10774, section 2.1.1, has an output for each).

    python scripts/demo_model/medusa.py --out scripts/demo_model/medusa
    python scripts/demo_model/medusa.py --steps 0 --out random-heads      # fit by their shapes alone
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from eagle3 import Target, begun, tell
from safetensors.torch import save_file
from tasks import Task, TrainingTasks, held_out_edits
from torch import nn
from torch.nn import functional
from train import encode, learning_rate, write_checksums, write_json

HEADS = 3
LAYERS = 2  # residual layers in a head


class Heads(nn.Module):
    """Parameters have the checkpoint's names: ``blocks.HEAD.layers.LAYER`` and the output all heads share."""

    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.ModuleDict({"layers": nn.ModuleList(nn.Linear(width, width) for _ in range(LAYERS))})
            for _ in range(HEADS)
        )
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        for name, parameter in self.named_parameters():
            nn.init.zeros_(parameter) if name.endswith("bias") else nn.init.normal_(
                parameter, std=0.02
            )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits ``[positions, HEADS, vocabulary]`` of hidden states ``[positions, width]``."""
        logits = []
        for block in self.blocks:
            inner = hidden
            for layer in block["layers"]:
                inner = inner + functional.silu(layer(inner))
            logits.append(self.lm_head(inner))
        return torch.stack(logits, dim=1)


@torch.no_grad()
def places(target: Target, tasks: list[Task]) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden states ``[positions, width]`` over right answers, and the tokens the target says next, ``[.., HEADS]``."""
    states, wanted = [], []
    for task in tasks:
        example = encode(target.tokenizer, task)
        hidden, logits = target.last(torch.tensor([example.ids]))
        target_tokens = logits[0].argmax(-1)
        at = torch.arange(example.prompt - 1, len(example.ids) - 1 - HEADS)
        states.append(hidden[0, at])
        wanted.append(torch.stack([target_tokens[at + 1 + head] for head in range(HEADS)], dim=1))
    return torch.cat(states), torch.cat(wanted)


def train(
    heads: Heads, states: torch.Tensor, wanted: torch.Tensor, args: argparse.Namespace
) -> None:
    optimizer = torch.optim.AdamW(
        heads.parameters(), lr=args.lr, betas=(0.9, 0.98), weight_decay=0.01
    )
    generator = torch.Generator().manual_seed(args.seed)
    started = time.monotonic()
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args.steps, args.lr)
        chosen = torch.randint(len(states), (args.batch,), generator=generator)
        loss = functional.cross_entropy(
            heads(states[chosen]).flatten(0, 1), wanted[chosen].flatten()
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if (step + 1) % 100 == 0:
            print(
                f"step {step + 1}/{args.steps} loss {loss:.3f} {time.monotonic() - started:.0f}s",
                flush=True,
            )


@torch.no_grad()
def acceptance(heads: Heads, states: torch.Tensor, wanted: torch.Tensor) -> list[float]:
    """Share of drafts whose first 1, 2, ... tokens are all the target's."""
    hits = heads(states).argmax(-1) == wanted
    return [hits[:, : head + 1].all(dim=1).float().mean().item() for head in range(HEADS)]


def export(heads: Heads, target: Target, out: Path) -> None:
    """Writes the heads with their checksums."""
    out.mkdir(parents=True, exist_ok=True)
    weights = {
        name: p.detach().to(torch.bfloat16).contiguous() for name, p in heads.named_parameters()
    }
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    (out / "model.safetensors").chmod(0o644)
    config = target.model.config
    write_json(out / "config.json", {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "hidden_size": config.hidden_size,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_position_embeddings,
        "medusa_num_heads": HEADS,
        "medusa_num_layers": LAYERS,
        "medusa_fc_bias": True,
        "original_lm_head": True,
        "dtype": "bfloat16",
    })  # fmt: skip
    write_checksums(out)


def main() -> None:
    here = Path(__file__).parent
    parser = argparse.ArgumentParser(description="Train Medusa heads for the demo model.")
    parser.add_argument("--out", type=Path, default=here / "medusa", help="where to write")
    parser.add_argument(
        "--steps", type=int, default=1500, help="0 leaves the heads as they were drawn: random"
    )
    parser.add_argument("--examples", type=int, default=500, help="right answers to learn from")
    parser.add_argument("--batch", type=int, default=1024, help="positions in one step")
    parser.add_argument("--lr", type=float, default=2e-3)
    args, target = begun(parser)
    heads = Heads(target.model.config.hidden_size, target.model.config.vocab_size)
    print(f"heads: {sum(p.numel() for p in heads.parameters())} parameters", flush=True)
    if args.steps:
        with torch.no_grad():
            heads.lm_head.weight.copy_(
                target.model.lm_head.weight
            )  # which it has to approach anyway
        stream = TrainingTasks(args.seed + 1)
        train(heads, *places(target, [stream.take((2, 5)) for _ in range(args.examples)]), args)
    export(heads, target, args.out)
    if args.steps:
        tell(acceptance(heads, *places(target, held_out_edits())))


if __name__ == "__main__":
    main()
