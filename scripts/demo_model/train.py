"""Trains the demo model: a Qwen3-shaped model small enough to commit that edits code by copying it.

Speculation only pays on a model whose output repeats its prompt. Random weights do not do that, and a real
model is too large for a repository, so this one learns the copying itself on the tasks of ``tasks.py``, on a
CPU and within minutes. Its weights, tokenizer and checksums are committed; training again is only needed to
change it. The same seed, torch build, thread count and kind of CPU give the same weights; another CPU may
round otherwise.

    python scripts/demo_model/train.py --out scripts/demo_model/model
    python scripts/demo_model/train.py --size draft --tokenizer scripts/demo_model/model --out draft
    python scripts/demo_model/train.py --start scripts/demo_model/model --tokenizer scripts/demo_model/model \
        --steps 40 --lr 2e-2 --seed 1 --out next-version
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from tasks import Task, TrainingTasks, held_out_edits
from tokenizer import END, MAX_POSITIONS, VOCABULARY, conversation, train_tokenizer
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

SIZES: dict[str, dict[str, int]] = {
    "target": {"hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
               "head_dim": 32, "intermediate_size": 384},
    "draft": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
              "head_dim": 32, "intermediate_size": 192},
}  # fmt: skip

# Share of the steps at which a phase ends, and the functions per file in it: short files teach copying first.
CURRICULUM: tuple[tuple[float, tuple[int, int]], ...] = (
    (0.25, (1, 1)),
    (0.45, (1, 3)),
    (1.0, (2, 5)),
)

PROMPT_LOSS = 0.2
POOL = 64
IGNORED = -100


@dataclass(frozen=True)
class Example:
    """Token ids of a conversation; the first ``prompt`` are given, the rest are the answer and its end."""

    ids: list[int]
    prompt: int


def encode(tokenizer: PreTrainedTokenizerFast, task: Task) -> Example:
    prompt = tokenizer.encode(conversation(task.prompt), add_special_tokens=False)
    answer = tokenizer.encode(task.answer + END, add_special_tokens=False)
    return Example(prompt + answer, len(prompt))


def build_model(tokenizer: PreTrainedTokenizerFast, size: str) -> Qwen3ForCausalLM:
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        **SIZES[size],
    )
    return Qwen3ForCausalLM(config)


class Batches:
    """Batches of about ``tokens`` tokens, each of examples of similar length so that little is padding."""

    def __init__(self, take: Callable[[], Example], seed: int, tokens: int) -> None:
        self._take = take
        self._tokens = tokens
        self._generator = torch.Generator().manual_seed(seed)
        self._ready: list[list[Example]] = []

    def next(self) -> list[Example]:
        if not self._ready:
            self._ready = self._fill()
        return self._ready.pop()

    def drop(self) -> None:
        """Forget what is ready: the next examples are of another kind."""
        self._ready = []

    def _fill(self) -> list[list[Example]]:
        pool = [self._take() for _ in range(POOL)]
        pool.sort(key=lambda example: len(example.ids))
        batches: list[list[Example]] = [[]]
        for example in pool:
            if batches[-1] and (len(batches[-1]) + 1) * len(example.ids) > self._tokens:
                batches.append([])
            batches[-1].append(example)
        order = torch.randperm(len(batches), generator=self._generator).tolist()
        return [batches[at] for at in order]


class Lessons:
    """The batch of each step: files grow by :data:`CURRICULUM`."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, args: argparse.Namespace) -> None:
        tasks = TrainingTasks(args.seed)
        self._steps = args.steps
        self._functions: tuple[int, int] | None = None
        self._batches = Batches(
            lambda: encode(tokenizer, tasks.take(self._functions or (1, 1))),
            args.seed,
            args.batch_tokens,
        )

    def __call__(self, step: int) -> list[Example]:
        functions = next(count for until, count in CURRICULUM if step < until * self._steps)
        if functions != self._functions:
            self._functions = functions
            self._batches.drop()
        return self._batches.next()


def collate(batch: list[Example], pad: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Inputs, the tokens to predict (``IGNORED`` where padded) and the weight of each prediction's loss.

    Padding is on the right, where a causal model cannot see it, so no attention mask is needed.
    """
    width = max(len(example.ids) for example in batch) - 1
    inputs = torch.full((len(batch), width), pad)
    labels = torch.full((len(batch), width), IGNORED)
    weights = torch.zeros(len(batch), width)
    for row, example in enumerate(batch):
        length = len(example.ids) - 1
        inputs[row, :length] = torch.tensor(example.ids[:-1])
        labels[row, :length] = torch.tensor(example.ids[1:])
        weights[row, : example.prompt - 1] = PROMPT_LOSS
        weights[row, example.prompt - 1 : length] = 1.0
    return inputs, labels, weights


def loss_of(
    model: Qwen3ForCausalLM, inputs: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor
) -> tuple[torch.Tensor, float]:
    """Weighted cross entropy, and the share of answer tokens that were predicted right."""
    logits = model(input_ids=inputs, use_cache=False).logits.float()
    losses = torch.nn.functional.cross_entropy(
        logits.transpose(1, 2), labels, ignore_index=IGNORED, reduction="none"
    )
    answer = weights == 1.0
    right = (logits.detach().argmax(-1) == labels)[answer].float().mean().item()
    return (losses * weights).sum() / weights.sum(), right


@torch.no_grad()
def evaluate(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, tasks: list[Task]
) -> tuple[float, float]:
    """Share of answer tokens right with teacher forcing, and of answers right throughout.

    An answer is right throughout exactly when greedy decoding writes it, so nothing has to be generated.
    """
    right = total = whole = 0
    for task in tasks:
        inputs, labels, weights = collate([encode(tokenizer, task)], tokenizer.pad_token_id)
        guesses = model(input_ids=inputs, use_cache=False).logits.argmax(-1)
        hits = (guesses == labels)[weights == 1.0]
        right, total, whole = right + int(hits.sum()), total + hits.numel(), whole + int(hits.all())
    return right / total, whole / len(tasks)


def learning_rate(step: int, steps: int, peak: float) -> float:
    warm_up = min(100, max(1, steps // 10))
    if step < warm_up:
        return peak * (step + 1) / warm_up
    return peak * (
        0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up)))
    )


def build_optimizers(model: Qwen3ForCausalLM, peak: float) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices and AdamW for the rest: copying is learned sooner than with AdamW alone.

    Muon's steps are scaled to the size of AdamW's, so that one learning rate serves both.
    """
    layers = dict(model.model.layers.named_parameters())
    matrices = [weight for weight in layers.values() if weight.ndim == 2]
    vectors = [weight for weight in layers.values() if weight.ndim == 1]
    others = [*vectors, model.model.norm.weight, model.model.embed_tokens.weight]
    return [
        torch.optim.Muon(matrices, lr=peak, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=peak, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def train(tokenizer: PreTrainedTokenizerFast, args: argparse.Namespace) -> Qwen3ForCausalLM:
    model = build_model(tokenizer, args.size)
    if args.start:
        model.load_state_dict(Qwen3ForCausalLM.from_pretrained(args.start).float().state_dict())
    print(f"{args.size}: {sum(p.numel() for p in model.parameters())} parameters", flush=True)

    def save(step: int) -> None:
        if args.save_every and step % args.save_every == 0:
            export(model, tokenizer, args.out)

    fit(
        model,
        Lessons(tokenizer, args),
        tokenizer.pad_token_id,
        steps=args.steps,
        peak=args.lr,
        done=save,
    )
    return model


def fit(
    model: Qwen3ForCausalLM,
    batch_of: Callable[[int], list[Example]],
    pad: int,
    *,
    steps: int,
    peak: float,
    done: Callable[[int], None] = lambda step: None,
) -> None:
    """Train a model on the batch of each step."""
    optimizers = build_optimizers(model, peak)
    started = time.monotonic()
    hits: list[float] = []
    for step in range(steps):
        for group in (group for optimizer in optimizers for group in optimizer.param_groups):
            group["lr"] = learning_rate(step, steps, peak)
        inputs, labels, weights = collate(batch_of(step), pad)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss, right = loss_of(model, inputs, labels, weights)
        model.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        hits.append(right)
        if (step + 1) % 50 == 0 or step + 1 == steps:
            seconds = time.monotonic() - started
            mean = sum(hits) / len(hits)
            print(
                f"step {step + 1}/{steps} loss {loss:.3f} right {mean:.3f} {seconds:.0f}s",
                flush=True,
            )
            hits.clear()
        done(step + 1)


def write_json(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def export(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    """Writes the model directory with its checksums, without the fields that name where it was made."""
    out.mkdir(parents=True, exist_ok=True)
    saved = copy.deepcopy(model).to(torch.bfloat16)
    saved.generation_config = GenerationConfig(
        do_sample=False, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    saved.save_pretrained(out)
    tokenizer.save_pretrained(out)
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        content = json.loads((out / name).read_text(encoding="utf-8"))
        for key in ("transformers_version", "name_or_path", "is_local", "local_files_only"):
            content.pop(key, None)
        write_json(out / name, content)
    (out / "model.safetensors").chmod(0o644)
    write_checksums(out)


def write_checksums(out: Path) -> None:
    """``SHA256SUMS`` over every other file, as ``sha256sum -c`` reads it."""
    files = sorted(path for path in out.iterdir() if path.is_file() and path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (out / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the demo model on generated code edits.")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "model", help="where to write"
    )
    parser.add_argument("--size", choices=sorted(SIZES), default="target")
    parser.add_argument("--tokenizer", type=Path, help="model whose tokenizer to reuse")
    parser.add_argument(
        "--start",
        type=Path,
        help="a model to train on: its next version, for a drill of a stale head",
    )
    parser.add_argument("--steps", type=int, default=2300)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--save-every", type=int, default=500, help="steps between exports, 0 for none"
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    if args.tokenizer:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(args.tokenizer)
    else:
        tokenizer = train_tokenizer(args.seed)
    print(f"tokenizer: {len(tokenizer)} tokens", flush=True)
    export(train(tokenizer, args), tokenizer, args.out)
    if args.start:
        return
    share, whole = evaluate(
        Qwen3ForCausalLM.from_pretrained(args.out).float(), tokenizer, held_out_edits()
    )
    print(
        f"held-out edits: {share:.4f} of answer tokens right, {whole:.4f} of answers exact",
        flush=True,
    )


if __name__ == "__main__":
    main()
