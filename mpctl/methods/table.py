"""The methods: one row each, and nothing about a method anywhere else but its drafts in the catalogue.

Names are the command line's. They are vLLM's own but for ``p-eagle``, which vLLM spells ``eagle3`` with
``parallel_drafting``, and ``none``. Async scheduling and model runners: vLLM 0.32.0, vllm/config/vllm.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from mpctl.methods.method import DraftVariant, KeyGroup, Method, ReleaseFloor

_DRAFT: frozenset[KeyGroup] = frozenset({"draft"})
_LOOKUP: frozenset[KeyGroup] = frozenset({"lookup"})
# Modelplane example qwen3-8b-speculative-decoding: K 5, lookup 2..4, 2.49x TPOT on copied code
_LOOKUP_DEFAULTS = (
    ("num_speculative_tokens", 5),
    ("prompt_lookup_max", 4),
    ("prompt_lookup_min", 2),
)
_ESTIMATED = (
    0,
    33,
    0,
)  # adaptive verification by acceptance estimated from the draft's probabilities
_K3 = (("num_speculative_tokens", 3),)
_V1_ALONE = "Only Model Runner V1 runs it, which vLLM 0.33 calls deprecated: a later release may not have it."
_HOST = "Async scheduling is off, as the proposer needs the last tokens on the host: about 8 % per step (A10G)."
_COVERAGE = (
    "It proposes in some steps only, so acceptance length overstates the gain: "
    "read tokens per step and coverage."
)

_ROWS = (
    Method("none", None, "No speculation: the baseline."),
    Method(
        "ngram",
        "ngram",
        "Prompt lookup on the CPU: free of weights, good where the output repeats the input.",
        defaults=_LOOKUP_DEFAULTS,
        floor=ReleaseFloor(
            (0, 9, 0), "vLLM #16883: no effect on the V1 engine in 0.8.3 and 0.8.4; docs v0.9.1"
        ),
        key_groups=_LOOKUP,
        aliases=("[ngram]",),
        disables_async_scheduling=True,
        published_ratios=True,
        notes=(
            _HOST,
            _COVERAGE,
            "It loses on novel text: 0.85x in the Alauda guide's chat workload, 0.75x at temperature 1 on a CPU.",
        ),
    ),
    Method(
        "ngram_gpu",
        "ngram_gpu",
        "Prompt lookup on the GPU: as ngram, but keeps async scheduling.",
        defaults=_LOOKUP_DEFAULTS,
        floor=ReleaseFloor((0, 18, 0), "vLLM PR #29184, release notes v0.18.0"),
        key_groups=_LOOKUP,
        needs_gpu=True,
        published_ratios=True,
        notes=(
            _COVERAGE,
            "An acceptance of 1.22 % was reported where ngram did better (vLLM #37150).",
        ),
    ),
    Method(
        "suffix",
        "suffix",
        "Suffix trees over this and earlier requests: repetitive agents and edits.",
        # defaults: vLLM 0.32.0: K up to suffix_decoding_max_tree_depth (24), 10000 cached requests
        floor=ReleaseFloor((0, 12, 0), "vLLM PR #25784"),
        key_groups=frozenset({"trees"}),
        remembers_answers=True,
        code_licence="Apache-2.0, patent notice",  # vLLM's and arctic-inference's; the patent was granted 2026-03-10
        notice="US patent 12,572,745 covers suffix lookup combined with a draft model; have it checked",
        k_from="method",
        disables_async_scheduling=True,
        busy_above=20,
        v2_runner=False,
        notes=(
            "The image must hold arctic-inference (0.1.1), which mpctl cannot see; without it the engine exits.",
            _HOST,
            _COVERAGE,
            "Earlier answers are replayed: a second pass over the same prompts is not a measurement.",
            _V1_ALONE,
            "It slowed down above 20 concurrent requests in the field (ArcticInference #185, #47).",
        ),
    ),
    Method(
        "eagle3",
        "eagle3",
        "EAGLE-3 head: one extra layer trained for the target; the usual first choice for chat.",
        needs_draft="head",
        # Alauda guide (K 3 on Llama-3.1-8B) and vLLM's acceptance test (K 3)
        defaults=_K3,
        floor=ReleaseFloor((0, 9, 0), "vLLM PR #16937 (April 2025); docs v0.9.1"),
        adaptive_since=_ESTIMATED,
        key_groups=_DRAFT,
        parallel_drafting="optional",
        name_marker=(2, "eagle3"),
        checkpoint="eagle3",
        for_one_target=True,
        positions_stretched_since=(0, 32, 0),
        max_model_len_fails=True,
        prompt_states=True,
        head_layers=1,
        head_inputs=3,
        published_ratios=True,
        notes=(
            "A head that does not match the target starts and serves, with very low acceptance (Alauda guide).",
            "The head's KV and its own embedding shrink the KV pool: about a third on Qwen3-32B (Ruiz logs).",
        ),
    ),
    Method(
        "p-eagle",
        "eagle3",
        "P-EAGLE head: EAGLE-3 that drafts all K tokens in one pass.",
        needs_draft="head",
        # P-EAGLE model cards: K 5 (gpt-oss-120b) to 7 (gpt-oss-20b)
        defaults=(("num_speculative_tokens", 5), ("parallel_drafting", True)),
        floor=ReleaseFloor((0, 16, 0), "vLLM PR #32887; vLLM blog 2026-03-13"),
        key_groups=_DRAFT,
        parallel_drafting="required",
        checkpoint="eagle3",
        for_one_target=True,
        positions_stretched_since=(0, 32, 0),
        max_model_len_fails=True,
        prompt_states=True,
        v2_runner=False,
        head_layers=4,
        head_inputs=3,
        notes=(
            "Throughput falls off a cliff with JSON schema requests (vLLM #42004): use eagle3 for such a service.",
            _V1_ALONE,
        ),
    ),
    Method(
        "eagle",
        "eagle",
        "EAGLE head of the first generation.",
        needs_draft="head",
        # vLLM #20780: EAGLE-LLaMA3.1-Instruct-8B measured at K 3
        defaults=_K3,
        floor=ReleaseFloor((0, 9, 0), "vLLM docs v0.9.1, features/spec_decode"),
        adaptive_since=_ESTIMATED,
        key_groups=_DRAFT,
        parallel_drafting="optional",
        name_marker=(1, "eagle-"),
        checkpoint="eagle",
        for_one_target=True,
        positions_stretched_since=(0, 32, 0),
        prompt_states=True,
        head_layers=1,
        published_ratios=True,
        notes=(
            "Prefer eagle3 where a head exists: 2.60 against 2.29 accepted at K 3 (Llama-3.1-8B, MT-Bench).",
        ),
    ),
    Method(
        "draft_model",
        "draft_model",
        "A small model of the same family drafts for a large one.",
        needs_draft="model",
        # vLLM PR #24322 (K 3..4 measured); best K falls from 5 to 2 with concurrency (Ruiz logs)
        defaults=_K3,
        floor=ReleaseFloor(
            (0, 15, 0), "vLLM PR #24322, merged 2026-01-19; #31883: refused in 0.13"
        ),
        adaptive_since=_ESTIMATED,
        key_groups=_DRAFT,
        own_keys=("use_heterogeneous_vocab",),
        async_scheduling_since=(0, 28, 0),  # vLLM PR #48341
        parallel_drafting="optional",
        checkpoint="model",
        published_ratios=True,
        notes=(
            "The draft's KV shares the pool: 69 232 tokens became 32 528 with Qwen3-1.7B under Qwen3-32B.",
            "It rarely pays on targets of 8B and below: the draft costs 15 to 40 % of a target pass.",
        ),
    ),
    Method(
        "mtp",
        "mtp",
        "Multi-token prediction layers that ship with the target.",
        needs_draft="optional",
        # vLLM recipes: K 1..5, most models carry one layer; K above that repeats the layer
        defaults=(("num_speculative_tokens", 1),),
        floor=ReleaseFloor(
            (0, 11, 0), "vLLM PR #25232: one name for every model; earlier engines know *_mtp only"
        ),
        adaptive_since=_ESTIMATED,
        key_groups=_DRAFT,
        own_keys=("index_share_for_mtp_iteration",),
        k_from="draft",
        alias_suffix="_mtp",
        checkpoint="mtp",
        foreign_logprobs="vllm #53488",
        prompt_states=True,
        target_layers=True,
        prefix_caching_crashes=True,
        head_layers=1,
        notes=(
            "Negative at high batch: +3.4 % at 1, -23 % at 256 (Qwen3.8 recipe).",
            "vLLM 0.33 takes only K 1 for Parse 3.5, and drafts for DeepSeek V4.1 with dspark alone.",
        ),
    ),
    Method(
        "medusa",
        "medusa",
        "Medusa heads: K heads, one token each.",
        needs_draft="head",
        # vLLM 0.32.0 MedusaConfig: 5 heads when the checkpoint does not say
        defaults=(("num_speculative_tokens", 5),),
        floor=ReleaseFloor(
            (0, 10, 0), "vLLM PR #18541 thread (June 2025): the V1 engine has Medusa, limited"
        ),
        ceiling=ReleaseFloor((0, 33, 0), "the wheel of vLLM 0.33.0 has no Medusa"),
        key_groups=_DRAFT,
        checkpoint="medusa",
        for_one_target=True,
        draft_positions=False,
        one_head_per_token=True,
        disables_async_scheduling=True,
        v2_runner=False,
        notes=(_HOST, "Old checkpoints; EAGLE-3 heads accept more."),
    ),
    Method(
        "mlp_speculator",
        "mlp_speculator",
        "MLP speculator: named by vLLM's configuration, but no current engine runs it.",
        needs_draft="head",
        # defaults: the checkpoint's n_predict
        key_groups=_DRAFT,
        k_from="method",
        checkpoint="mlp_speculator",
        disables_async_scheduling=True,
        v1_runner=False,
        v2_runner=False,
        ceiling=ReleaseFloor((0, 33, 0), "the wheel of vLLM 0.33.0 has no MLP speculator"),
        notes=("vLLM 0.32.0 has no proposer for it; it ended with the V0 engine.",),
    ),
    Method(
        "dflash",
        "dflash",
        "DFlash: a block-diffusion draft that fills K tokens in one pass.",
        needs_draft="head",
        # speculators' DFlash cards: K 7 (blocks of 8); z-lab's blocks of 16 use K 15
        defaults=(("num_speculative_tokens", 7),),
        floor=ReleaseFloor((0, 20, 0), "z-lab DFlash cards and vLLM release notes"),
        adaptive_since=_ESTIMATED,
        key_groups=_DRAFT,
        parallel_drafting="implied",
        name_marker=(3, "dflash"),
        checkpoint="dflash",
        async_scheduling_since=(0, 31, 0),  # vLLM #58065; 0.30 refuses it
        variants=(
            DraftVariant("DFlash2", ("DFlash2DraftModel", "DFlash2BeamDraftModel"), (0, 33, 0)),
            DraftVariant("LiLiCorr", ("LiLiCorrDraftModel",), (0, 33, 0), k_below_block=True),
            DraftVariant(
                "XPress",
                ("Qwen3XPressModel", "DFlashQwen3XPressModel"),
                (0, 33, 0),
                own_keys=("xpress_topc",),
            ),
        ),
        for_one_target=True,
        prompt_states=True,
        notes=(
            "DFlash2, LiLiCorr and XPress heads need vLLM 0.33 and Model Runner V2; elsewhere they run as plain ones.",
        ),
        head_layers=5,
    ),
    Method(
        "dspark",
        "dspark",
        "DSpark: parallel block drafting with confidence scheduling.",
        needs_draft="optional",
        # deepseek-ai/dspark_*_block7 cards: K equals the trained block size, 7
        defaults=(("num_speculative_tokens", 7),),
        key_groups=_DRAFT,
        own_keys=("dspark_draft_topk",),
        adaptive_since=(0, 32, 0),
        own_confidence=True,
        parallel_drafting="implied",
        k_from="draft",
        name_marker=(4, "dspark"),
        checkpoint="dspark",
        for_one_target=True,
        prompt_states=True,
        v1_runner=False,
        head_layers=5,
    ),
)

METHODS: Mapping[str, Method] = MappingProxyType({row.name: row for row in _ROWS})

# vLLM methods we read but do not roll out: user code, and a tool that writes hidden states to disk.
UNMANAGED = frozenset({"custom_class", "extract_hidden_states"})
