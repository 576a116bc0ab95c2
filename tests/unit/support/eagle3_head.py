"""The size of an EAGLE-3 head by its layers (SpecForge configurations), to compare with what engines logged."""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.estimate.shape import GIB, Shape


@dataclass(frozen=True)
class Head:
    """An EAGLE-3 head for a target: ``draft_vocab`` tokens it may draft, its own embedding or the target's."""

    target: Shape
    layers: int = 1
    draft_vocab: int = 32_000
    own_embedding: bool = True

    @property
    def params(self) -> int:
        """Parameters: fc 3H*H, q 2H*(heads*hd), k and v 2*(2H*kv*hd), o (heads*hd)*H, mlp 3*H*I, lm_head H*draft_vocab,
        and vocab*H when it brings its own embedding.

        Checked against two logged loads: Qwen3-32B (1.46 + 1.45 GiB in bf16, 2.91 measured) and Llama-3.3-70B.
        """
        target, width = self.target, self.target.heads * self.target.head_dim
        narrow = target.kv_heads * target.head_dim
        attention = (
            2 * target.hidden * width + 2 * (2 * target.hidden * narrow) + width * target.hidden
        )
        mlp = 3 * target.hidden * (target.intermediate or 4 * target.hidden)
        whole = (
            3 * target.hidden * target.hidden
            + self.layers * (attention + mlp)
            + target.hidden * self.draft_vocab
        )
        return whole + (target.vocab * target.hidden if self.own_embedding else 0)

    def gib(self, element_bytes: int = 2) -> float:
        """Loaded size in GiB."""
        return self.params * element_bytes / GIB

    def kv_bytes_per_token(self, *, tensor_parallel: int = 1, element_bytes: int = 2) -> int:
        """The head's layers have the target's key and value heads."""
        heads = max(self.target.kv_heads // tensor_parallel, 1)
        return 2 * self.layers * heads * self.target.head_dim * element_bytes
