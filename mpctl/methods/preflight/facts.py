"""Facts about a service before anything is changed. None means unknown, never "no"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

DraftKind: TypeAlias = str  # the ``checkpoint`` of a method's row
# A quantisation format of many schemes: the same name on both sides says nothing of bits.
NAMES_NO_SCHEME = "compressed-tensors"


@dataclass(frozen=True)
class Facts:
    """Facts for :func:`preflight_findings`, filled from the service, the cluster and the checkpoints.

    Versions are texts as found (an image tag will do). ``served_context`` is max_model_len as served,
    ``draft_context`` the draft's max_position_embeddings. ``quantization`` is "none" for unquantised weights.
    ``thinking`` is True where the chat template thinks by default. ``async_scheduling``: the command line sets it.
    ``argv`` is the engine's command line.
    ``plain_secrets``: variables and flags with a secret in plain text. ``target_name`` is organisation/model.
    ``draft_expects_hidden``: width of the target's hidden states a head was built for. ``draft_reads_vocab``: size of
    the vocabulary the draft reads; ``draft_vocab``: how many tokens a head may propose; ``draft_map_rows``: length of
    its table from those to the target's tokens. ``draft_trained_for``: the target a head's configuration names.
    ``target_mtp_layers``: how many layers of the target's own checkpoint draft. ``medusa_heads``: how many heads
    the draft holds. ``draft_mask_token``: its configuration names a token that fills the places drafted in one pass.
    ``draft_architectures`` and ``draft_block_size``: as the draft's configuration has them.
    ``device``: what the engine runs on, "CPU" or "GPU"; ``gpu``: the GPU's name.
    """

    engine_version: str | None = None
    kserve_version: str | None = None
    draft_kind: DraftKind | None = None
    served_context: int | None = None
    draft_context: int | None = None
    tensor_parallel: int | None = None
    data_parallel: int | None = None
    target_params_b: float | None = None
    draft_params_b: float | None = None
    target_family: str | None = None
    draft_family: str | None = None
    target_name: str | None = None
    target_tokenizer_digest: str | None = None
    draft_tokenizer_digest: str | None = None
    target_added_tokens_digest: str | None = None
    draft_added_tokens_digest: str | None = None
    target_template_digest: str | None = None
    draft_template_digest: str | None = None
    target_hidden: int | None = None
    draft_expects_hidden: int | None = None
    target_vocab: int | None = None
    draft_reads_vocab: int | None = None
    draft_vocab: int | None = None
    draft_map_rows: int | None = None
    draft_trained_for: str | None = None
    target_mtp_layers: int | None = None
    medusa_heads: int | None = None
    draft_mask_token: bool | None = None
    draft_architectures: tuple[str, ...] | None = None
    draft_block_size: int | None = None
    target_is_moe: bool | None = None
    thinking: bool | None = None
    enable_lora: bool | None = None
    prefix_caching: bool | None = None
    async_scheduling: bool | None = None
    kv_cache_dtype: str | None = None
    draft_kv_cache_dtype: str | None = None
    quantization: str | None = None
    draft_quantization: str | None = None
    temperature: float | None = None
    v2_runner: bool | None = None
    device: str | None = None
    gpu: str | None = None
    uses_storage_uris: bool | None = None
    argv: tuple[str, ...] | None = None
    plain_secrets: tuple[str, ...] = ()
    concurrency: int | None = None
