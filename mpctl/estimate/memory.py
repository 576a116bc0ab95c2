"""The KV pool with and without a draft: what the engine will have, and what it logged.

Pool in tokens = KV bytes available on one GPU / (the target's KV bytes per token + the draft's). Given the logged KV
memory this is within 0.3 % of nine logged configurations (tomasruizt/vllm-scripts at d94d714; tests). How much
memory is left for KV is less certain: a draft takes its loaded size, and the sampler's workspace grows. The two
configurations logged with and without a draft give 2.28 GiB at 1024 sequences of 151936 logits and 0.36 GiB at 256 of
128256, three to four float32 buffers of max-num-seqs * vocabulary; with one sequence none was seen. So an estimate is
a range.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mpctl.estimate.shape import GIB, Shape
from mpctl.json_types import Json
from mpctl.methods.preflight.preflight_rule import Finding

SOURCE = "pool = KV bytes / (target + draft KV per token); seven logged pools within 0.3 % (tomasruizt/vllm-scripts)"
# Float32 buffers of max-num-seqs * vocabulary that speculation adds, at least and at most.
WORKSPACE_BUFFERS = (3.0, 4.0)
# Memory beside weights and KV that engines without a draft used for activations, graphs and libraries: 1.42 GiB
# (two H100, 256 sequences) and 1.62 (one H100, one sequence) to 5.86 (one H100-94, 1024 sequences); same logs.
OVERHEAD_GIB = (1.4, 5.9)
BLOCK = 16  # tokens; vLLM's default block
DEFAULT_UTILISATION = 0.92  # vLLM 0.32; 0.9 before
DEFAULT_SEQUENCES = (256, 1024)  # vLLM's --max-num-seqs on small and on large GPUs


_HALF = 0.5  # share of the pool whose loss is a warning
_REMEDY = (
    "raise --gpu-memory-utilization, lower --max-num-seqs or --max-model-len (docs/explanation/memory.md says in "
    "which order), or use a smaller draft or a larger GPU"
)


class NotEstimated(Exception):
    """The KV pool cannot be estimated; the message says what is not known."""


@dataclass(frozen=True)
class KvLog:
    """The KV cache as an engine logged it at start; None where it did not. Memory in GiB, of one worker."""

    device: str | None = None
    tokens: int | None = None
    available_gib: float | None = None


_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_TOKENS = re.compile(r"(\w+)(?: \+ host)? KV cache size: ([\d,]+) tokens")
_AVAILABLE = re.compile(r"Available KV cache memory: ([\d.]+) GiB")


def read_log(text: str) -> KvLog:
    """The last start in a vLLM log. Wording of 0.10 to 0.32; ``GPU KV cache size`` or ``CPU KV cache size``."""
    plain = _COLOUR.sub("", text)
    size = _last(_TOKENS, plain)
    available = _last(_AVAILABLE, plain)
    return KvLog(
        device=size[1] if size else None,
        tokens=int(size[2].replace(",", "") or 0) if size else None,
        available_gib=float(available[1]) if available else None,
    )


def kv_pool_tokens(log_text: str) -> int | None:
    """Tokens of the KV pool as the engine logged them at its last start; None where it has not."""
    return read_log(log_text).tokens


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    match = None
    for match in pattern.finditer(text):  # noqa: B007 - the last one counts: a restart logs again
        pass
    return match


def pool_tokens(available_bytes: float, target_bytes: int, draft_bytes: int = 0) -> int:
    """Whole blocks of tokens that fit in ``available_bytes``; the others are KV bytes per token on one GPU."""
    blocks = int(available_bytes // ((target_bytes + draft_bytes) * BLOCK))
    return max(blocks, 0) * BLOCK


@dataclass(frozen=True)
class Range:
    """A range from the pessimistic to the optimistic end."""

    low: float
    high: float

    def text(self, unit: str = "") -> str:
        """``12,000 to 14,000 tokens``, or one figure when both ends are equal."""
        low, high = f"{self.low:,.0f}", f"{self.high:,.0f}"
        return (low if low == high else f"{low} to {high}") + (f" {unit}" if unit else "")


@dataclass(frozen=True)
class DraftMemory:
    """Memory that a draft adds on one GPU: loaded GiB, KV bytes per token; ``known``: the source of the size."""

    loaded_gib: float
    kv_bytes: int
    known: str = "from its files"


@dataclass(frozen=True)
class Served:
    """Settings that serve the target: GiB of one GPU, share of it vLLM may use, sequences, tokens of one request.

    ``max_model_len`` None: unknown. ``max_num_seqs`` None: the engine decides by its GPU, and that is not known.
    """

    max_model_len: int | None
    gpu_gib: float | None = None
    utilisation: float = DEFAULT_UTILISATION
    max_num_seqs: int | None = None
    tensor_parallel: int = 1
    element_bytes: int = 2


def default_sequences(gpu: str, gib: float) -> int:
    """Default --max-num-seqs of a server (vLLM 0.32.0, EngineArgs.get_batch_defaults); ``gib`` of ``gpu``."""
    return DEFAULT_SEQUENCES[gib >= 160 or (gib >= 70 and "a100" not in gpu.lower())]


@dataclass(frozen=True)
class Estimate:
    """Pools in tokens before and after. ``basis``: the engine's own
    log, or specifications.
    """

    before: Range
    after: Range
    draft: DraftMemory
    served: Served
    basis: str

    @property
    def lost(self) -> Range:
        """Share of the pool that goes, 0 to 1."""
        low = 1 - self.after.high / self.before.high if self.before.high else 0.0
        high = 1 - self.after.low / self.before.low if self.before.low else 1.0
        return Range(max(min(low, high), 0.0), min(max(low, high), 1.0))

    def text(self) -> str:
        """A line for people."""
        lost = Range(self.lost.low * 100, self.lost.high * 100)
        before, after = self.before.text("tokens"), self.after.text("tokens")
        return (
            f"KV pool {before} before, {after} after "
            f"(estimate, {lost.text()} % less): the draft takes {self.draft.loaded_gib:.2f} GiB "
            f"and {self.draft.kv_bytes:,} bytes per token; by {self.basis}"
        )


def estimate(
    target: Shape,
    draft: DraftMemory,
    served: Served,
    *,
    log: KvLog | None = None,
    target_gib: float | None = None,
) -> Estimate:
    """The pool before and after ``draft`` joins.

    ``log``: of the engine that serves without the draft. ``target_gib``: the target's loaded weights on all GPUs
    together. On a CPU the KV space is a setting of its own, so the draft's weights take nothing from it. The service
    is taken to run, so its pool holds one longest request.

    Raises:
        NotEstimated: the longest request is unknown; neither a log nor GPU and weights are known; they leave no room
            for the target alone; or some layers of the target keep a window or a state, and share the pool in
            another way.
    """
    if served.max_model_len is None:
        raise NotEstimated("the longest request is not known; --max-model-len names it")
    if target.hybrid:
        raise NotEstimated(
            "some of the target's layers keep a window or a state, or it compresses its KV"
        )
    per_token = target.kv_bytes_per_token(
        tensor_parallel=served.tensor_parallel, element_bytes=served.element_bytes
    )
    workspace = _workspace(target, served)
    if log is not None and log.tokens:
        start = Range(
            log.available_gib or log.tokens * per_token / GIB,
            log.available_gib or log.tokens * per_token / GIB,
        )
        before, basis = Range(log.tokens, log.tokens), "the running engine's log"
        if log.device == "CPU":
            after = pool_tokens(start.low * GIB, per_token, draft.kv_bytes)
            return Estimate(before, Range(after, after), draft, served, basis)
    elif served.gpu_gib is None:
        raise NotEstimated("neither the engine's log nor its GPU is known; --gpu names it")
    elif target_gib is None:
        raise NotEstimated("how much the target's weights take once they are loaded is not known")
    else:
        weights = target_gib / served.tensor_parallel
        room = served.gpu_gib * served.utilisation - weights
        least = served.max_model_len * per_token / GIB
        if room - OVERHEAD_GIB[0] < least:
            raise NotEstimated(
                f"by specifications {served.gpu_gib:g} GiB hold {weights:.1f} GiB of weights and no request of "
                f"{served.max_model_len:,} tokens even without the draft"
            )
        start = Range(max(room - OVERHEAD_GIB[1], least), room - OVERHEAD_GIB[0])
        before = Range(*(pool_tokens(gib * GIB, per_token) for gib in (start.low, start.high)))
        basis = "specifications"
    remaining = Range(
        start.low - draft.loaded_gib - workspace.high, start.high - draft.loaded_gib - workspace.low
    )
    after_range = Range(
        *(
            pool_tokens(max(gib, 0) * GIB, per_token, draft.kv_bytes)
            for gib in (remaining.low, remaining.high)
        )
    )
    return Estimate(before, after_range, draft, served, basis)


def _workspace(target: Shape, served: Served) -> Range:
    """GiB of the sampler's float32 buffers; none was seen with one sequence."""
    if served.max_num_seqs == 1:
        return Range(0, 0)
    few, many = (served.max_num_seqs,) * 2 if served.max_num_seqs is not None else DEFAULT_SEQUENCES
    row = target.vocab * 4 / GIB
    return Range(few * row * WORKSPACE_BUFFERS[0], many * row * WORKSPACE_BUFFERS[1])


def memory_findings(estimate: Estimate) -> tuple[Finding, ...]:
    """Return the findings about an estimate: refuse when not one longest request fits, warn when the pool halves."""
    longest = estimate.served.max_model_len or 0
    pools = estimate.text()
    if estimate.after.high < longest:
        reason = f"{pools}; one request may have {longest:,} tokens, so the engine would not start"
        return (Finding("kv-pool-too-small", "refuse", reason, SOURCE, _REMEDY),)
    if estimate.after.low < longest:
        reason = f"{pools}; one request may have {longest:,}"
        return (Finding("kv-pool", "warn", reason, SOURCE, _REMEDY),)
    if estimate.lost.low >= _HALF:
        return (Finding("kv-pool", "warn", pools, SOURCE, _REMEDY),)
    todo = "nothing to change; compare with the engine's own log after the start"
    return (Finding("kv-pool", "note", pools, SOURCE, todo),)


def pool_record(memory: Estimate | None) -> Json | None:
    """The KV pool in tokens without and with the draft, from the pessimistic to the optimistic end."""
    if memory is None:
        return None
    before, after = memory.before, memory.after
    return {
        "before": [before.low, before.high],
        "after": [after.low, after.high],
        "basis": memory.basis,
    }
