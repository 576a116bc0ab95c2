"""Reads workloads from stdin and prints what vLLM's cache manager finds of each prompt. Run in a process of its own."""

import json
import sys
from types import SimpleNamespace

import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
)
from vllm.v1.request import Request

TOKENS = 65_536
CHUNK = 8192


def groups(unit, *, hybrid):
    attention = FullAttentionSpec(block_size=unit, num_kv_heads=1, head_size=1, dtype=torch.float32)
    mamba = MambaSpec(
        block_size=unit, shapes=((1, 1),), dtypes=(torch.float32,), mamba_cache_mode="align"
    )
    specs = (attention, mamba) if hybrid else (attention,)
    return [KVCacheGroupSpec([f"layer {number}"], spec) for number, spec in enumerate(specs)]


def chunk(request, tokens, held, unit):
    """The tokens of a prompt that the scheduler computes next. A hybrid's end where a state is kept."""
    scheduler = SimpleNamespace(
        cache_config=SimpleNamespace(block_size=unit),
        scheduler_config=SimpleNamespace(long_prefill_token_threshold=0),
        block_size=unit,
        max_num_scheduled_tokens=CHUNK,
        hash_block_size=unit,
        mamba_prefill_checkpoint_alignment=None,
        use_eagle_block_drop=False,
        mamba_partial_cache_hit=False,
        mamba_has_prefill_checkpoint_blocks=False,
        mamba_shared_prefix_checkpoint=False,
    )
    return Scheduler._mamba_block_aligned_split(scheduler, request, min(tokens, CHUNK), held)


def counted(prompts, unit, *, hybrid):
    """The tokens that are found of each prompt, one request after the other."""
    config = KVCacheConfig(
        num_blocks=4096,
        kv_cache_tensors=[],
        kv_cache_groups=groups(unit, hybrid=hybrid),
        prefix_cache_retention_interval=0 if hybrid else None,  # 0 is vLLM's default
    )
    manager = KVCacheManager(config, TOKENS, scheduler_block_size=unit, hash_block_size=unit)
    hasher, hits = get_request_block_hasher(unit, sha256), []
    for number, prompt in enumerate(prompts):
        request = Request(
            str(number), prompt, SamplingParams(max_tokens=1), None, block_hasher=hasher
        )
        blocks, held, request.shared_prefix_boundary = manager.get_computed_blocks(request)
        hits.append(held)
        while missing := len(prompt) - held - request.num_computed_tokens:
            manager.new_step_starts()
            count = chunk(request, missing, held, unit) if hybrid else missing
            assert manager.allocate_slots(request, count, held, blocks) is not None
            request.num_computed_tokens += held + count
            blocks, held = None, 0
        manager.free(request)
    return hits


if __name__ == "__main__":
    init_none_hash(sha256)
    json.dump([counted(**workload) for workload in json.load(sys.stdin)], sys.stdout)
