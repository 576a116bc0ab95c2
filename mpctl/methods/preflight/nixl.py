"""The compatibility hash that prefill and decode pods compare before one reads the other's KV cache through NIXL.

Source: vLLM 0.32.0, ``compute_nixl_compatibility_hash`` in ``nixl/metadata.py``; vLLM 0.33.0 has the same factors. A
mismatch refuses every request's KV cache, and the decode pod fills the prompt again or fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from mpctl.methods.versions import parse_version, show

# NIXL_CONNECTOR_VERSION, by the release.
_CONNECTOR = MappingProxyType({"0.32.0": 14, "0.33.0": 15})
_DTYPES = MappingProxyType({"half": "float16", "float": "float32"})


@dataclass(frozen=True)
class KvEnd:
    """An engine that exchanges KV cache. None: unknown, or left to the engine."""

    engine: str | None = None  # its release; an image reference will do
    model: str | None = None
    dtype: str | None = None  # of the weights while they are served
    cache_dtype: str = "auto"
    hybrid_manager: bool | None = None  # manages layers whose KV cache differs
    backend: str | None = None  # of attention
    push: bool = False  # prefill writes; else decode reads
    kv_heads: int | None = None
    head_size: int | None = None
    layers: int | None = None


def factors(end: KvEnd) -> dict[str, object]:
    """The known factors of an engine's hash, by vLLM's names, without its draft's: both ends get the same draft."""
    version = parse_version(end.engine)
    release = None if version is None else show(version)
    dtype = None if end.dtype is None else f"torch.{_DTYPES.get(end.dtype, end.dtype)}"
    deciding = {
        "vllm_version": release,
        "nixl_connector_version": _CONNECTOR.get(release or ""),
        "model": end.model,
        "dtype": dtype,
        "num_kv_heads": end.kv_heads,
        "head_size": end.head_size,
        "num_hidden_layers": end.layers,
        "attn_backend_name": end.backend,
        "cache_dtype": end.cache_dtype,
        "is_hma_enabled": end.hybrid_manager,
        "transfer_mode": "push" if end.push else "pull",
    }
    return {name: value for name, value in deciding.items() if value is not None}


def differences(prefill: KvEnd, decode: KvEnd) -> tuple[str, ...]:
    """The factors that two engines with the same speculative setting are known to differ in, with both values."""
    ours, theirs = factors(prefill), factors(decode)
    return tuple(
        f"{name} {ours[name]} and {theirs[name]}"
        for name in ours
        if name in theirs and ours[name] != theirs[name]
    )
