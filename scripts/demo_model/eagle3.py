"""Trains an EAGLE-3 head for the demo model, so that a head which fits its target can be told from one which does not.

The head is one decoder layer that reads the target's hidden states after each of its layers and drafts the token
after the target's next one. What it learns from is what the target writes, not what would have been right. Each
training step unrolls several draft steps, the later ones on the head's own outputs, as they run in the engine
("training-time test": EAGLE-3, arXiv 2503.01840, section 3.2). Files and configuration keys are those of
``LlamaForCausalLMEagle3`` as vLLM 0.32 reads them. The target's embedding is not repeated in the head: the engine
shares it when the checkpoint has none.

With ``--parallel`` it becomes a P-EAGLE head, which drafts all tokens in one pass: every place but the first reads the
padding token and one learnt hidden state instead of what was drafted before (``mask_hidden`` and ``ptd_token_id``).

    python scripts/demo_model/eagle3.py --out scripts/demo_model/eagle3
    python scripts/demo_model/eagle3.py --steps 0 --out random-head      # fits by its shapes alone
    python scripts/demo_model/eagle3.py --parallel --start scripts/demo_model/eagle3 --out scripts/demo_model/p-eagle
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from safetensors.torch import load_file, save_file
from tasks import Task, TrainingTasks, held_out_edits
from tokenizer import conversation
from torch import nn
from torch.nn import functional
from train import Example, learning_rate, write_checksums, write_json
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

# Hidden states after this many of the target's layers. vLLM's default (2, n//2, n-3) does not fit three layers.
AUX_LAYERS = (1, 2, 3)
# The generated tasks use 508 of the target's 1024 tokens, so a draft of half the vocabulary loses nothing.
DRAFT_VOCABULARY = 512
# Weight of a draft step's loss over that of the step before it.
DECAY = 0.8
MAX_ANSWER = 320


class HeadLayer(nn.Module):
    """The one decoder layer; its parameters have the checkpoint's names."""

    def __init__(self, config: Qwen3Config) -> None:
        super().__init__()
        width, head = config.hidden_size, config.head_dim
        self.heads, self.kv_heads, self.head_dim = (
            config.num_attention_heads,
            config.num_key_value_heads,
            head,
        )
        self.input_layernorm = nn.RMSNorm(width, eps=config.rms_norm_eps)
        self.hidden_norm = nn.RMSNorm(width, eps=config.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(width, eps=config.rms_norm_eps)
        self.self_attn = nn.ModuleDict({
            "q_proj": nn.Linear(2 * width, self.heads * head, bias=False),
            "k_proj": nn.Linear(2 * width, self.kv_heads * head, bias=False),
            "v_proj": nn.Linear(2 * width, self.kv_heads * head, bias=False),
            "o_proj": nn.Linear(self.heads * head, width, bias=False),
        })  # fmt: skip
        self.mlp = nn.ModuleDict({
            "gate_proj": nn.Linear(width, config.intermediate_size, bias=False),
            "up_proj": nn.Linear(width, config.intermediate_size, bias=False),
            "down_proj": nn.Linear(config.intermediate_size, width, bias=False),
        })  # fmt: skip

    def project(self, name: str, inputs: torch.Tensor, heads: int) -> torch.Tensor:
        """``[batch, heads, positions, head_dim]``; shared key and value heads are repeated."""
        made = self.self_attn[name](inputs).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        return made if heads == self.heads else made.repeat_interleave(self.heads // heads, dim=1)


class Past:
    """Keys and values of the draft steps so far.

    Row ``i`` of draft step ``k`` stands at position ``i + k``. It sees every earlier position as the engine has it
    in its cache, which is step 0's, and what its own chain of drafts added: row ``i`` of the steps up to ``k``.
    """

    def __init__(self) -> None:
        self._keys: list[torch.Tensor] = []
        self._values: list[torch.Tensor] = []

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        self._keys.append(key)
        self._values.append(value)
        length = query.shape[2]
        scores = query @ self._keys[0].transpose(-1, -2)
        unseen = torch.ones(length, length, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(unseen, float("-inf"))
        own = [(query * key).sum(-1, keepdim=True) for key in self._keys[1:]]
        weights = torch.softmax(
            torch.cat([scores, *own], dim=-1).float() * query.shape[-1] ** -0.5, dim=-1
        )
        attended = weights[..., :length].to(value.dtype) @ self._values[0]
        for step, drafted in enumerate(self._values[1:], start=length):
            attended = attended + weights[..., step : step + 1].to(drafted.dtype) * drafted
        return attended


class Head(nn.Module):
    """``fc``, one layer, ``norm`` and an output over the draft vocabulary."""

    def __init__(
        self, target: Qwen3ForCausalLM, draft_ids: torch.Tensor, *, parallel: bool = False
    ) -> None:
        super().__init__()
        config = target.config
        width = config.hidden_size
        self.fc = nn.Linear(len(AUX_LAYERS) * width, width, bias=False)
        self.midlayer = HeadLayer(config)
        self.norm = nn.RMSNorm(width, eps=config.rms_norm_eps)
        self.lm_head = nn.Linear(width, len(draft_ids), bias=False)
        self.register_buffer(
            "draft_ids", draft_ids
        )  # ids of the draft's tokens in the target's vocabulary, ascending
        self._rotary = target.model.rotary_emb
        self._embedding = [
            target.model.embed_tokens
        ]  # in a list, so that its weights are no parameters of the head
        self._masked = target.config.pad_token_id
        self.mask_hidden = (
            nn.Parameter(torch.randn(1, 1, len(AUX_LAYERS) * width)) if parallel else None
        )

    def read(self, target: Target, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Input of the first draft step, ``[batch, positions, width]``, and the target's logits."""
        aux, logits = target.read(ids)
        return self.fc(aux), logits

    def follow(
        self, embeds: torch.Tensor, hidden: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs of later draft steps: the tokens before and the step's own outputs, or in parallel neither."""
        if self.mask_hidden is None:
            return embeds, hidden
        masked = self._embedding[0].weight[self._masked]
        return masked.expand_as(embeds), self.fc(self.mask_hidden).expand_as(hidden)

    @torch.no_grad()
    def start_from(self, target: Qwen3ForCausalLM) -> None:
        """Begin with the target's own last norm and output, which the head has to approach anyway."""
        self.norm.weight.copy_(target.model.norm.weight)
        self.lm_head.weight.copy_(target.lm_head.weight[self.draft_ids])

    def step(
        self, embeds: torch.Tensor, hidden: torch.Tensor, positions: torch.Tensor, past: Past
    ) -> torch.Tensor:
        """One draft step: the hidden states of the next one, ``[batch, positions, width]``, before the last norm."""
        layer = self.midlayer
        inputs = torch.cat([layer.input_layernorm(embeds), layer.hidden_norm(hidden)], dim=-1)
        query = layer.project("q_proj", inputs, layer.heads)
        key, value = (layer.project(name, inputs, layer.kv_heads) for name in ("k_proj", "v_proj"))
        cos, sin = self._rotary(inputs, positions)
        query, key = apply_rotary_pos_emb(query, key, cos, sin)
        attended = past.attend(query, key, value).transpose(1, 2).flatten(2)
        hidden = hidden + layer.self_attn["o_proj"](attended)
        inner = layer.post_attention_layernorm(hidden)
        mlp = layer.mlp
        return hidden + mlp["down_proj"](
            functional.silu(mlp["gate_proj"](inner)) * mlp["up_proj"](inner)
        )

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.lm_head(self.norm(hidden)).float()


class Target:
    """The demo model, kept as it is: hidden states, logits and greedy answers."""

    def __init__(self, directory: Path) -> None:
        self.model = (
            Qwen3ForCausalLM.from_pretrained(directory).float().eval().requires_grad_(False)
        )
        self.tokenizer = PreTrainedTokenizerFast.from_pretrained(directory)
        self._seen: dict[int, torch.Tensor] = {}
        for number, layer in enumerate(self.model.model.layers, start=1):
            layer.register_forward_hook(
                lambda _m, _i, out, n=number: self._seen.__setitem__(n, _first(out))
            )

    @torch.no_grad()
    def read(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The hidden states of ``AUX_LAYERS`` side by side, and the logits."""
        logits = self.model(input_ids=ids, use_cache=False).logits.float()
        return torch.cat([self._seen[n].float() for n in AUX_LAYERS], dim=-1), logits

    @torch.no_grad()
    def last(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The last hidden states after the last norm, which is where the engine reads them, and the logits."""
        logits = self.model(input_ids=ids, use_cache=False).logits.float()
        return self.model.model.norm(self.before_norm()).float(), logits

    def before_norm(self) -> torch.Tensor:
        """The last hidden states of the text read last, before the last norm."""
        return self._seen[self.model.config.num_hidden_layers]

    @torch.no_grad()
    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model.model.embed_tokens(ids)

    @torch.no_grad()
    def answer(self, tasks: list[Task]) -> list[Example]:
        """The target's greedy answer to each prompt."""
        prompts = [
            self.tokenizer.encode(conversation(t.prompt), add_special_tokens=False) for t in tasks
        ]
        pad, end = self.tokenizer.pad_token_id, self.tokenizer.eos_token_id
        width = max(map(len, prompts))
        ids = torch.tensor([[pad] * (width - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
        written = self.model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=MAX_ANSWER,
            do_sample=False,
            pad_token_id=pad,
        )[:, width:].tolist()
        answers = [row[: row.index(end) + 1] if end in row else row for row in written]
        return [Example(p + a, len(p)) for p, a in zip(prompts, answers, strict=True)]


def _first(out: torch.Tensor | tuple[torch.Tensor, ...]) -> torch.Tensor:
    return out[0] if isinstance(out, tuple) else out


@dataclass(frozen=True)
class Batch:
    """Token ids padded on the right, and which of them the target wrote."""

    ids: torch.Tensor
    answered: torch.Tensor


def collate(examples: list[Example], pad: int) -> Batch:
    width = max(len(e.ids) for e in examples)
    ids = torch.full((len(examples), width), pad)
    answered = torch.zeros(len(examples), width, dtype=torch.bool)
    for row, example in enumerate(examples):
        ids[row, : len(example.ids)] = torch.tensor(example.ids)
        answered[row, example.prompt : len(example.ids)] = True
    return Batch(ids, answered)


class Drafter(Protocol):
    """A head that drafts one token after the other from the hidden state of the one before."""

    draft_ids: torch.Tensor

    def read(self, target: Target, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]: ...

    def step(
        self, embeds: torch.Tensor, hidden: torch.Tensor, positions: torch.Tensor, past: Past
    ) -> torch.Tensor: ...

    def follow(
        self, embeds: torch.Tensor, hidden: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]: ...

    def logits(self, hidden: torch.Tensor) -> torch.Tensor: ...

    def parameters(self) -> Iterator[nn.Parameter]: ...


def draft_steps(
    head: Drafter, target: Target, batch: Batch, steps: int
) -> list[tuple[torch.Tensor, ...]]:
    """Per draft step: the head's logits, the target's logits for the same token, the token, and where it counts.

    Row ``i`` of step ``k`` has read tokens up to ``i + 1 + k`` and drafts token ``i + 2 + k``.
    """
    hidden, truth = head.read(target, batch.ids)
    embeds = target.embed(batch.ids)
    past, drafted = Past(), []
    rows = batch.ids.shape[1] - 1 - steps
    hidden = hidden[:, :rows]
    for k in range(steps):
        positions = torch.arange(k, k + rows)[None]
        tokens = embeds[:, 1 + k : 1 + k + rows]
        if k:
            tokens, hidden = head.follow(tokens, hidden)
        hidden = head.step(tokens, hidden, positions, past)
        at = slice(2 + k, 2 + k + rows)
        target_logits = truth[:, 1 + k : 1 + k + rows]
        drafted.append(
            (head.logits(hidden), target_logits, batch.ids[:, at], batch.answered[:, at])
        )
    return drafted


def loss_of(head: Drafter, steps: list[tuple[torch.Tensor, ...]]) -> torch.Tensor:
    """Cross entropy against the target's own distribution over the draft vocabulary, later steps weighing less."""
    total = torch.zeros(())
    for k, (logits, target_logits, _, counts) in enumerate(steps):
        wanted = torch.softmax(target_logits[..., head.draft_ids], dim=-1)
        losses = -(wanted * torch.log_softmax(logits, dim=-1)).sum(-1)
        total = total + DECAY**k * losses[counts].mean()
    return total


@torch.no_grad()
def acceptance(head: Drafter, target: Target, examples: list[Example], steps: int) -> list[float]:
    """Share of drafts whose first 1, 2, ... tokens are all the target's, greedily, over every place of the answers."""
    right, places = [0] * steps, 0
    for example in examples:
        alive: torch.Tensor | None = None
        drafted = draft_steps(
            head, target, collate([example], target.tokenizer.pad_token_id), steps
        )
        for k, (logits, _, tokens, counts) in enumerate(drafted):
            hits = (head.draft_ids[logits.argmax(-1)] == tokens) & counts
            alive = hits if alive is None else alive & hits
            right[k] += int(alive.sum())
        places += int(drafted[0][3].sum())
    return [count / max(1, places) for count in right]


def draft_vocabulary(target: Target, examples: list[Example]) -> torch.Tensor:
    """The tokens the target writes most, its end token among them, filled up with the lowest ids."""
    written = Counter(token for e in examples for token in e.ids[e.prompt :])
    written[target.tokenizer.eos_token_id] += 1
    chosen = [token for token, _ in written.most_common(DRAFT_VOCABULARY)]
    spare = (token for token in range(target.model.config.vocab_size) if token not in written)
    while len(chosen) < DRAFT_VOCABULARY:
        chosen.append(next(spare))
    return torch.tensor(sorted(chosen))


def train(head: Drafter, target: Target, examples: list[Example], args: argparse.Namespace) -> None:
    optimizer = torch.optim.AdamW(
        head.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.0
    )
    generator = torch.Generator().manual_seed(args.seed)
    examples = sorted(examples, key=lambda e: len(e.ids))
    groups = [examples[at : at + args.batch] for at in range(0, len(examples), args.batch)]
    started = time.monotonic()
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args.steps, args.lr)
        chosen = groups[int(torch.randint(len(groups), (1,), generator=generator))]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(
                head,
                draft_steps(
                    head, target, collate(chosen, target.tokenizer.pad_token_id), args.unroll
                ),
            )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % 50 == 0:
            print(
                f"step {step + 1}/{args.steps} loss {loss:.3f} {time.monotonic() - started:.0f}s",
                flush=True,
            )


def export(head: Head, target: Target, out: Path) -> None:
    """Writes the head with its checksums. ``d2t``: what to add to a draft's token id; ``t2d``: which ids it has."""
    out.mkdir(parents=True, exist_ok=True)
    config = target.model.config
    weights = {
        name: p.detach().to(torch.bfloat16).contiguous() for name, p in head.named_parameters()
    }
    weights["d2t"] = head.draft_ids - torch.arange(len(head.draft_ids))
    weights["t2d"] = torch.zeros(config.vocab_size, dtype=torch.bool).index_fill_(
        0, head.draft_ids, True
    )
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    (out / "model.safetensors").chmod(0o644)
    same = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
            "rms_norm_eps", "rope_parameters", "max_position_embeddings", "hidden_act", "attention_bias",
            "bos_token_id", "eos_token_id", "pad_token_id")  # fmt: skip
    write_json(out / "config.json", {
        **{name: getattr(config, name) for name in same},
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "draft_vocab_size": len(head.draft_ids),
        "target_hidden_size": config.hidden_size,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": list(AUX_LAYERS), "use_aux_hidden_state": True},
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        **({} if head.mask_hidden is None else {"ptd_token_id": config.pad_token_id}),
    })  # fmt: skip
    write_checksums(out)


def answers(target: Target, count: int, seed: int) -> list[Example]:
    """``count`` of the target's own answers; prompts of one call are of similar length, so that little is padding."""
    stream = TrainingTasks(seed)
    tasks = sorted((stream.take((2, 5)) for _ in range(count)), key=lambda task: len(task.prompt))
    started, examples = time.monotonic(), []
    for at in range(0, count, 64):
        examples += target.answer(tasks[at : at + 64])
        print(f"answers {len(examples)}/{count} {time.monotonic() - started:.0f}s", flush=True)
    return examples


def transcripts(folder: Path) -> list[Example]:
    """The answers that another engine collected from the target: ``rows.jsonl`` of tokens and what was answered."""
    lines = (folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return [
        Example(row["input_ids"], row["loss_mask"].index(1))
        for row in rows
        if sum(row["loss_mask"]) > 1
    ]


def begun(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, Target]:
    """Parse the arguments that every head's training shares and load its target."""
    parser.add_argument("--target", type=Path, default=Path(__file__).parent / "model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    return args, Target(args.target)


def tell(rates: list[float]) -> None:
    """Say how often each position's draft is right."""
    print(
        "held-out edits, accepted by position: " + ", ".join(f"{rate:.3f}" for rate in rates),
        flush=True,
    )


def main() -> None:
    here = Path(__file__).parent
    parser = argparse.ArgumentParser(description="Train an EAGLE-3 head for the demo model.")
    parser.add_argument("--out", type=Path, default=here / "eagle3", help="where to write")
    parser.add_argument("--parallel", action="store_true", help="a P-EAGLE head")
    parser.add_argument(
        "--start", type=Path, help="a head to start from, with its draft vocabulary"
    )
    parser.add_argument(
        "--steps", type=int, default=700, help="0 leaves the head as it was drawn: random"
    )
    parser.add_argument(
        "--examples", type=int, default=640, help="answers of the target to learn from"
    )
    parser.add_argument(
        "--transcripts", type=Path, help="folder of the target's answers, in place of --examples"
    )
    parser.add_argument("--batch", type=int, default=6)
    parser.add_argument("--unroll", type=int, default=3, help="draft steps in one training step")
    parser.add_argument("--lr", type=float, default=2e-3)
    args, target = begun(parser)
    if args.transcripts:
        examples = transcripts(args.transcripts)
    else:
        examples = answers(target, args.examples, args.seed + 1) if args.steps else []
    start = load_file(args.start / "model.safetensors") if args.start else {}
    draft_ids = start["t2d"].nonzero().flatten() if start else draft_vocabulary(target, examples)
    head = Head(target.model, draft_ids, parallel=args.parallel)
    if start:
        weights = {
            name: value.float() for name, value in start.items() if name not in ("d2t", "t2d")
        }
        head.load_state_dict({**head.state_dict(), **weights})
    elif args.steps:
        head.start_from(target.model)
    print(f"head: {sum(p.numel() for p in head.parameters())} parameters", flush=True)
    train(head, target, examples, args)
    export(head, target, args.out)
    if args.steps and not args.transcripts:
        tell(acceptance(head, target, target.answer(held_out_edits()), args.unroll))


if __name__ == "__main__":
    main()
