#!/usr/bin/env python3
"""Gives the demo's model, or its eagle3 head, the size of a real one without changing what it computes.

    python scripts/demo_model/enlarge.py OUT                      the demo's model in the dimensions of an 8B
    python scripts/demo_model/enlarge.py OUT --of eagle3          its head, for that model
    python scripts/demo_model/enlarge.py OUT --hidden 2048 ...    other dimensions

A GPU answers the demo's model in the time that it takes to launch kernels, where nothing can be gained by speculation.
The enlarged model writes the same answers, so its drafts are accepted as often, and a step reads as many bytes as that
of a model of its dimensions. It is for measuring on GPUs where no model can be downloaded.

How the function stays the same:

- Every value of the hidden state is there ``copies`` times, so a root mean square over it is what it was. Matrices that
  read the hidden state divide by ``copies``, a power of two and therefore exact in bfloat16.
- A head's dimension ``i`` of 32 goes where rotary positions have its frequency: ``theta ** (-2 i / 32)`` is
  ``theta ** (-2 j / 128)`` at ``j = 4 i``. What the wider head changes in the scale of attention and in the norms of
  queries and keys is divided out, by a power of two.
- What is added besides (heads, inner columns, layers) has ordinary weights where it reads and zeros where it would
  write, so it costs what it costs anywhere and adds nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TEXTS = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
LAYER = "model.layers."
READ_SCALE = 0.02  # of weights whose product is thrown away: the usual initial deviation


@dataclass(frozen=True)
class Dimensions:
    """Of a decoder: hidden state, inner columns, layers, heads, key-value heads, and a head."""

    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head: int

    @classmethod
    def of(cls, config: dict[str, Any]) -> Dimensions:
        """Return those of a ``config.json``."""
        names = "hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim"
        return cls(*(config[name] for name in names.split()))


class Enlarged:
    """The larger tensors of a checkpoint, one at a time."""

    def __init__(self, small: Dimensions, large: Dimensions) -> None:
        self.small, self.large = small, large
        self.copies, self.widths = large.hidden // small.hidden, large.head // small.head
        whole = (
            large.hidden % small.hidden == 0
            and large.head % small.head == 0
            and self.copies & (self.copies - 1) == 0
            and math.isqrt(self.widths) ** 2 == self.widths
            and large.heads // large.kv_heads >= small.heads // small.kv_heads
        )
        if not whole:
            raise SystemExit(
                f"{large} is no enlargement of {small}: the hidden state has to be a power of two as wide, a head 4 or"
                " 16 times, and a key-value head needs as many heads as before"
            )

    def tensor(self, name: str, old: Any) -> Any:
        """Return the larger tensor of this name. ``old``: the small model's; None in a layer that is added."""
        part = name.split(".")[-2] if "." in name else name
        ways: dict[str, Callable[[Any], Any]] = {
            "embed_tokens": lambda embedding: embedding.repeat(1, self.copies),
            "q_proj": lambda matrix: self._heads(matrix, part, has_norm=name.startswith(LAYER)),
            "k_proj": lambda matrix: self._heads(matrix, part),
            "v_proj": lambda matrix: self._heads(matrix, part),
            "q_norm": lambda weights: self._head_norm(weights, 1),
            "k_norm": lambda weights: self._head_norm(weights, math.isqrt(self.widths)),
            "o_proj": self._output,
            "gate_proj": self._inner,
            "up_proj": self._inner,
            "down_proj": self._down,
            "fc": lambda matrix: self._reading(matrix).repeat(self.copies, 1),
            "lm_head": self._reading,
            "d2t": lambda ids: ids,
            "t2d": lambda ids: ids,
        }
        return ways.get(part, self._norm)(old)

    def _norm(self, old: Any) -> Any:
        return self._ones(self.large.hidden) if old is None else old.repeat(self.copies)

    def _inner(self, old: Any) -> Any:
        reads = None if old is None else self._reading(old)
        return self._grown(reads, (self.large.inner, self.large.hidden))

    def _down(self, old: Any) -> Any:
        grown = self._zeros(self.large.hidden, self.large.inner)
        if old is not None:
            grown[:, : self.small.inner] = old.repeat(self.copies, 1)
        return grown

    def _reading(self, old: Any) -> Any:
        """Columns for each copy of every hidden state that a matrix reads (a head's reads several, one after the
        other)."""
        rows, columns = old.shape
        blocks = old.reshape(rows, columns // self.small.hidden, self.small.hidden) / self.copies
        return blocks.repeat(1, 1, self.copies).reshape(rows, columns * self.copies)

    def _grown(self, old: Any, shape: tuple[int, int]) -> Any:
        """The matrix in the first rows of a larger one with weights that nothing reads."""
        import torch

        block = torch.randn(
            min(shape[0], 256), shape[1], generator=torch.Generator().manual_seed(0)
        )
        grown = (
            (block * READ_SCALE)
            .to(torch.bfloat16)
            .repeat(math.ceil(shape[0] / len(block)), 1)[: shape[0]]
        )
        if old is not None:
            grown[: len(old)] = old
        return grown.contiguous()

    def _heads(self, old: Any, part: str, *, has_norm: bool = True) -> Any:
        """Rows of each head in its place, and in it of each dimension."""
        small, large = self.small, self.large
        count = large.heads if part == "q_proj" else large.kv_heads
        columns = large.hidden if old is None else old.shape[1] * self.copies
        grown = self._grown(None, (count * large.head, columns))
        if old is None:
            return grown
        reads = self._reading(old)
        if part == "q_proj" and not has_norm:
            reads = reads * math.isqrt(self.widths)
        for head in range(small.heads if part == "q_proj" else small.kv_heads):
            rows = reads[head * small.head : (head + 1) * small.head]
            start = self._place(head, part) * large.head
            grown[start : start + large.head] = 0
            for i in range(small.head):
                grown[start + (i if part == "v_proj" else self._rotary(i))] = rows[i]
        return grown

    def _place(self, head: int, part: str) -> int:
        """Where a head goes, so that it shares its keys with the heads that it shared them with."""
        if part != "q_proj":
            return head
        group = self.small.heads // self.small.kv_heads
        return head // group * (self.large.heads // self.large.kv_heads) + head % group

    def _rotary(self, i: int) -> int:
        """Where a dimension of queries and keys goes: halves stay halves, frequencies stay what they are."""
        half = self.small.head // 2
        return i // half * (self.large.head // 2) + i % half * self.widths

    def _head_norm(self, old: Any, divisor: int) -> Any:
        """Weights of the norm of queries or keys. The root of the mean square over a wider head is smaller by the root
        of its width; attention's scale is smaller by as much, and takes one of the two."""
        grown = self._ones(self.large.head)
        if old is not None:
            for i in range(self.small.head):
                grown[self._rotary(i)] = old[i] / divisor
        return grown

    def _output(self, old: Any) -> Any:
        grown = self._zeros(self.large.hidden, self.large.heads * self.large.head)
        if old is None:
            return grown
        small, large = self.small, self.large
        for head in range(small.heads):
            start = self._place(head, "q_proj") * large.head
            columns = old[:, head * small.head : (head + 1) * small.head]
            grown[:, start : start + small.head] = columns.repeat(self.copies, 1)
        return grown

    def _zeros(self, rows: int, columns: int) -> Any:
        import torch

        return torch.zeros(rows, columns, dtype=torch.bfloat16)

    def _ones(self, count: int) -> Any:
        import torch

        return torch.ones(count, dtype=torch.bfloat16)


def enlarge(source: Path, out: Path, large: Dimensions) -> None:
    """Write the checkpoint in ``source`` in the dimensions ``large`` to ``out``: a file per layer.

    Raises:
        SystemExit: the dimensions do not allow it.
    """
    from safetensors.torch import load_file, save_file

    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    old = load_file(source / "model.safetensors")
    sizes, is_head = Enlarged(Dimensions.of(config), large), "fc.weight" in old
    out.mkdir(parents=True, exist_ok=True)
    index: dict[str, str] = {}
    for file, names in _files(old, 0 if is_head else large.layers).items():
        tensors = {name: sizes.tensor(name, old.get(name)).contiguous() for name in names}
        if "model.embed_tokens.weight" in names:
            tensors["lm_head.weight"] = sizes.tensor(
                "lm_head.weight", old["model.embed_tokens.weight"]
            )
        save_file(tensors, out / file, metadata={"format": "pt"})
        index |= dict.fromkeys(tensors, file)
    if not is_head:
        text = json.dumps({"metadata": {}, "weight_map": index})
        (out / "model.safetensors.index.json").write_text(text, encoding="utf-8")
    config = _config(config, large, is_head=is_head)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    for text in TEXTS:
        if (source / text).exists():
            shutil.copy(source / text, out)


def _files(old: Mapping[str, Any], layers: int) -> dict[str, list[str]]:
    """The names of the tensors by file: one for each layer, one for the rest."""
    other = "model-other.safetensors" if layers else "model.safetensors"
    files: dict[str, list[str]] = {other: [name for name in old if not name.startswith(LAYER)]}
    first = [name for name in old if name.startswith(f"{LAYER}0.")]
    for layer in range(layers):
        names = [name.replace(f"{LAYER}0.", f"{LAYER}{layer}.") for name in first]
        files[f"model-layer-{layer}.safetensors"] = names
    return files


def _config(small: dict[str, Any], large: Dimensions, *, is_head: bool) -> dict[str, Any]:
    changed = {
        "hidden_size": large.hidden,
        "intermediate_size": large.inner,
        "num_attention_heads": large.heads,
        "num_key_value_heads": large.kv_heads,
        "head_dim": large.head,
        "tie_word_embeddings": False,  # what reads the hidden state divides, an embedding does not
    }
    if is_head:
        return small | changed | {"target_hidden_size": large.hidden}
    layers = {"num_hidden_layers": large.layers, "layer_types": ["full_attention"] * large.layers}
    return small | changed | layers


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--of", default="model", choices=("model", "eagle3"))
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--inner", type=int, default=12288)
    parser.add_argument("--layers", type=int, default=36)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--head", type=int, default=128)
    arguments = vars(parser.parse_args())
    out, of = arguments.pop("out"), arguments.pop("of")
    enlarge(HERE / of, out, Dimensions(**arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main())
