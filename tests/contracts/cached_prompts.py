"""Reads workloads from stdin and prints what vLLM's cache manager finds of each prompt. Run in a process of its own."""

import json
import sys

import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
)
from vllm.v1.request import Request

TOKENS = 65_536


def groups(unit, *, hybrid):
    attention = FullAttentionSpec(block_size=unit, num_kv_heads=1, head_size=1, dtype=torch.float32)
    mamba = MambaSpec(
        block_size=unit, shapes=((1, 1),), dtypes=(torch.float32,), mamba_cache_mode="all"
    )
    specs = (attention, mamba) if hybrid else (attention,)
    return [KVCacheGroupSpec([f"layer {number}"], spec) for number, spec in enumerate(specs)]


def counted(prompts, unit, *, hybrid):
    """The tokens that are found of each prompt, one request after the other."""
    config = KVCacheConfig(
        num_blocks=4096, kv_cache_tensors=[], kv_cache_groups=groups(unit, hybrid=hybrid)
    )
    manager = KVCacheManager(config, TOKENS, scheduler_block_size=unit, hash_block_size=unit)
    hasher, hits = get_request_block_hasher(unit, sha256), []
    for number, prompt in enumerate(prompts):
        request = Request(
            str(number), prompt, SamplingParams(max_tokens=1), None, block_hasher=hasher
        )
        blocks, held, _ = manager.get_computed_blocks(request)
        manager.allocate_slots(request, len(prompt) - held, held, blocks)
        request.num_computed_tokens = len(prompt)
        manager.free(request)
        hits.append(held)
    return hits


if __name__ == "__main__":
    init_none_hash(sha256)
    json.dump([counted(**workload) for workload in json.load(sys.stdin)], sys.stdout)
