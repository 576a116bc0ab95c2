"""The methods: what proposes, what they need, since which vLLM, and what they cost.

Names are the command line's. They are vLLM's own but for ``p-eagle``, which vLLM spells ``eagle3`` with
``parallel_drafting``, and ``none``. Async scheduling and model runners: vLLM 0.32.0, vllm/config/vllm.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from mpctl.methods.version_limits import FLOORS, Floor

Needs = Literal["none", "head", "model", "optional"]


@dataclass(frozen=True)
class Method:
    """A way to propose tokens.

    ``needs_draft``: nothing; a head trained for exactly this target; a smaller model; or optional, when the
    weights may be in the target's own checkpoint. ``always_drafts`` is False where a step may carry no proposal:
    vLLM's acceptance length then overstates the gain and coverage decides. ``forwards``: draft passes in one step.
    ``engine_method`` is what vLLM calls it, None for ``none``.
    """

    name: str
    engine_method: str | None
    summary: str
    proposes: str
    needs_draft: Needs = "none"
    defaults: tuple[tuple[str, int | bool], ...] = ()
    defaults_source: str = ""
    always_drafts: bool = True
    disables_async_scheduling: bool = False
    parallel_draft: bool = False
    v2_runner: bool = True
    v1_runner: bool = True
    forwards: Literal["none", "one", "k"] = "k"
    notes: tuple[str, ...] = ()

    @property
    def floor(self) -> Floor | None:
        """The first vLLM release with it and where that is known from; None where we found no evidence."""
        return FLOORS.get(self.name)

    @property
    def min_vllm(self) -> tuple[int, int, int] | None:
        """The floor's version alone."""
        return self.floor.version if self.floor else None

    @property
    def loads_weights(self) -> bool:
        """Whether weights besides the target's may be loaded."""
        return self.needs_draft != "none"


_NGRAM_DEFAULTS = (("num_speculative_tokens", 5), ("prompt_lookup_max", 4), ("prompt_lookup_min", 2))
_MODELPLANE = "Modelplane example qwen3-8b-speculative-decoding: K 5, lookup 2..4, 2.49x TPOT on copied code"
_K3 = (("num_speculative_tokens", 3),)

_ALL = (
    Method(
        "none",
        None,
        "No speculation: the baseline.",
        "Nothing; every step yields one token per request.",
        always_drafts=False,
        forwards="none",
    ),
    Method(
        "ngram",
        "ngram",
        "Prompt lookup on the CPU: free of weights, good where the output repeats the input.",
        "Finds the last few tokens earlier in the same request and proposes what followed them.",
        defaults=_NGRAM_DEFAULTS,
        defaults_source=_MODELPLANE,
        always_drafts=False,
        disables_async_scheduling=True,
        forwards="none",
        notes=(
            "Host lookup and the loss of async scheduling cost about 8 % per step (A10G, concurrency 1).",
            "Loses on novel text: 0.85x in the Alauda guide's chat workload, 0.75x at temperature 1 on a CPU.",
        ),
    ),
    Method(
        "ngram_gpu",
        "ngram_gpu",
        "Prompt lookup on the GPU: as ngram, but keeps async scheduling.",
        "The same lookup as ngram, vectorised over the batch on the GPU.",
        defaults=_NGRAM_DEFAULTS,
        defaults_source=_MODELPLANE + " (same settings as ngram)",
        always_drafts=False,
        forwards="none",
        notes=("An acceptance of 1.22 % was reported where ngram did better (vLLM #37150).",),
    ),
    Method(
        "suffix",
        "suffix",
        "Suffix trees over this and earlier requests: repetitive agents and edits.",
        "Matches the longest suffix in trees of the prompt and of past responses; K varies with the match.",
        defaults_source="vLLM 0.32.0: K up to suffix_decoding_max_tree_depth (24), 10000 cached requests",
        always_drafts=False,
        disables_async_scheduling=True,
        v2_runner=False,
        forwards="none",
        notes=(
            "The image must hold arctic-inference; the engine refuses to start without it.",
            "Earlier answers are replayed: a second pass over the same prompts is not a measurement.",
            "Slow above 20 concurrent requests in the field (ArcticInference #185).",
        ),
    ),
    Method(
        "eagle3",
        "eagle3",
        "EAGLE-3 head: one extra layer trained for the target; the usual first choice for chat.",
        "A head reads the target's hidden states and drafts K tokens one after the other.",
        needs_draft="head",
        defaults=_K3,
        defaults_source="Alauda guide (K 3 on Llama-3.1-8B) and vLLM's acceptance test (K 3)",
        notes=(
            "A head that does not match the target starts and serves, with very low acceptance (Alauda guide).",
            "The head's KV and its own embedding shrink the KV pool: about a third on Qwen3-32B (Ruiz logs).",
        ),
    ),
    Method(
        "p-eagle",
        "eagle3",
        "P-EAGLE head: EAGLE-3 that drafts all K tokens in one pass.",
        "A head trained for parallel drafting fills K masked positions at once.",
        needs_draft="head",
        defaults=(("num_speculative_tokens", 5), ("parallel_drafting", True)),
        defaults_source="P-EAGLE model cards: K 5 (gpt-oss-120b) to 7 (gpt-oss-20b)",
        parallel_draft=True,
        v2_runner=False,
        forwards="one",
        notes=("Falls off a cliff with JSON schema requests (vLLM #42004).",),
    ),
    Method(
        "eagle",
        "eagle",
        "EAGLE head of the first generation.",
        "A head reads the target's last hidden state and drafts K tokens one after the other.",
        needs_draft="head",
        defaults=_K3,
        defaults_source="vLLM #20780: EAGLE-LLaMA3.1-Instruct-8B measured at K 3",
        notes=("Prefer eagle3 where a head exists: 2.60 against 2.29 accepted at K 3 (Llama-3.1-8B, MT-Bench).",),
    ),
    Method(
        "draft_model",
        "draft_model",
        "A small model of the same family drafts for a large one.",
        "A complete smaller model decodes K tokens, which the target verifies in one pass.",
        needs_draft="model",
        defaults=_K3,
        defaults_source="vLLM PR #24322 (K 3..4 measured); best K falls from 5 to 2 with concurrency (Ruiz logs)",
        notes=(
            "The draft's KV shares the pool: 69 232 tokens became 32 528 with Qwen3-1.7B under Qwen3-32B.",
            "Rarely pays on targets of 8B and below: the draft costs 15 to 40 % of a target pass.",
        ),
    ),
    Method(
        "mtp",
        "mtp",
        "Multi-token prediction layers that ship with the target.",
        "Extra layers in the target's own checkpoint (or an assistant checkpoint) draft K tokens.",
        needs_draft="optional",
        defaults=(("num_speculative_tokens", 1),),
        defaults_source="vLLM recipes: K 1..5, most models carry one layer; K above that repeats the layer",
        notes=("Negative at high batch: +3.4 % at 1, -23 % at 256 (Qwen3.8 recipe).",),
    ),
    Method(
        "medusa",
        "medusa",
        "Medusa heads: K heads, one token each.",
        "Independent heads on the target's last hidden state propose positions 1..K at once.",
        needs_draft="head",
        defaults=(("num_speculative_tokens", 5),),
        defaults_source="vLLM 0.32.0 MedusaConfig: 5 heads when the checkpoint does not say",
        disables_async_scheduling=True,
        v2_runner=False,
        forwards="one",
        notes=("Old checkpoints; EAGLE-3 heads accept more.",),
    ),
    Method(
        "mlp_speculator",
        "mlp_speculator",
        "MLP speculator: named by vLLM's configuration, but no current engine runs it.",
        "A small MLP proposes tokens from the last hidden state (V0 engine only).",
        needs_draft="head",
        defaults_source="the checkpoint's n_predict",
        disables_async_scheduling=True,
        v2_runner=False,
        v1_runner=False,
        notes=("vLLM 0.32.0 accepts the configuration and then has no proposer for it.",),
    ),
    Method(
        "dflash",
        "dflash",
        "DFlash: a block-diffusion draft that fills K tokens in one pass.",
        "A drafter denoises a block of K masked tokens at once.",
        needs_draft="head",
        defaults=(("num_speculative_tokens", 7),),
        defaults_source="speculators' DFlash cards: K 7 (blocks of 8); z-lab's blocks of 16 use K 15",
        parallel_draft=True,
        forwards="one",
    ),
    Method(
        "dspark",
        "dspark",
        "DSpark: parallel block drafting with confidence scheduling.",
        "A drafter (or stages inside the target's checkpoint) proposes a block of K tokens in one pass.",
        needs_draft="optional",
        defaults=(("num_speculative_tokens", 7),),
        defaults_source="deepseek-ai/dspark_*_block7 cards: K equals the trained block size, 7",
        parallel_draft=True,
        v1_runner=False,
        forwards="one",
    ),
)

METHODS: Mapping[str, Method] = MappingProxyType({method.name: method for method in _ALL})

# vLLM methods we read but do not roll out: user code, and a tool that writes hidden states to disk.
UNMANAGED = frozenset({"custom_class", "extract_hidden_states"})
