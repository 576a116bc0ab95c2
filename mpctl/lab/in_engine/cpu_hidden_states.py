"""vLLM's connector that writes hidden states to files, for an engine without a GPU: its own copies by a CUDA stream."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save_file
from vllm.distributed.kv_transfer.kv_connector.v1.example_hidden_states_connector import (
    ExampleHiddenStatesConnector,
    extract_from_kv_cache,
)


class _Written:
    """Stands for the CUDA event of a copy that is complete."""

    def query(self) -> bool:
        return True


class CpuHiddenStatesConnector(ExampleHiddenStatesConnector):  # type: ignore[misc]
    """Writes within the step that ends a request."""

    def _submit_async_write(self, pending: Any) -> None:
        places = torch.arange(self._block_size)
        slots = (
            places[None] + torch.tensor(pending.block_ids)[:, None] * self._block_size
        ).flatten()
        assert self._kv_cache is not None  # registered before any step
        states = extract_from_kv_cache(self._kv_cache, slots, len(pending.token_ids)).clone()
        Path(pending.filename).parent.mkdir(parents=True, exist_ok=True)
        save_file(
            {"hidden_states": states, "token_ids": pending.token_ids.clone()}, pending.filename
        )
        lock = self._lock_fds.pop(pending.req_id, None)
        if lock is not None:
            os.close(lock)
        self._req_copy_events[pending.req_id] = cast(Any, _Written())
