"""A question to the model: a target with a draft on GPUs under a load. Turned into the roofline's figures."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mpctl.estimate.payoff.acceptance import Acceptance
from mpctl.estimate.payoff.roofline import Drafting, Serving
from mpctl.estimate.payoff.weights import PRECISIONS, Weights, head_weights, target_weights
from mpctl.estimate.shape import GIB, Shape
from mpctl.estimate.table import Gpu
from mpctl.methods import METHODS
from mpctl.methods.versions import Version

# PARD is a draft model that fills all K places in one pass; to vLLM it is a setting and no method.
_PARD = "pard"
LOOKUPS = tuple(row.name for row in METHODS.values() if row.is_lookup)
# Methods that need neither weights nor a GPU of their own: always worth a question.
FREE = tuple(name for name in LOOKUPS if not METHODS[name].needs_gpu)
DRAFT_MODELS = (*(row.name for row in METHODS.values() if row.needs_draft == "model"), _PARD)
_ONE_PASS = tuple(row.name for row in METHODS.values() if row.drafts_in_one_pass or row.one_head_per_token)
PARALLEL = (*_ONE_PASS, _PARD)  # one pass drafts all K tokens
_OLD_HEADS = (0, 11, 0)  # vLLM before it drafted with its full graphs
_OLD_LOOKUP = (0, 14, 0)  # vLLM before async scheduling, which lookups on the host lose
_UTILISATION = 0.9
# GiB for activations, graphs and libraries, by the default number of sequences on a small and on a large GPU (logs in
# mpctl.estimate.memory), and the sampler's buffers that a draft adds.
_OVERHEAD_GIB = (1.6, 3.5)
_SEQUENCES = (256, 1024)
_BUFFERS = 3.5
_LARGE_GIB = 70


@dataclass(frozen=True)
class Cell:
    """One question. ``draft``: a draft model's shape; heads are sized from the target, ``draft_params_b`` and
    ``draft_vocab``. ``precision`` of the target. ``pool`` and ``draft_pool``: tokens of the KV pool without and with
    the draft, estimated where None. ``engine``: vLLM's version, None is a current one. ``draft_slowdown``: how many
    times longer a pass of the draft takes. ``requests``: of the whole run, where it was short."""

    target: Shape
    gpu: Gpu
    method: str
    k: int
    concurrency: float
    prompt: float
    output: float
    acceptance: Acceptance
    gpus: int = 1
    draft: Shape | None = None
    draft_params_b: float | None = None
    draft_vocab: int | None = None
    precision: str = "bf16"
    kv_element_bytes: float = 2.0
    weights_gb: float | None = None
    pool: float | None = None
    draft_pool: float | None = None
    engine: Version | None = None
    draft_slowdown: float = 1.0
    requests: float = math.inf

    @property
    def batch(self) -> float:
        """Requests that a request finds at its side: in a short run, the mean over its waves, of which the last is
        smaller."""
        if math.isinf(self.requests) or self.concurrency >= self.requests:
            return min(self.concurrency, self.requests)
        waves, last = divmod(self.requests, self.concurrency)
        return (waves * self.concurrency**2 + last**2) / self.requests

    @property
    def weights(self) -> Weights:
        """The target's."""
        width = PRECISIONS[self.precision]
        if self.weights_gb is not None:  # as stored, over the parameters
            width = self.weights_gb / max(self.target.params_b or self.weights_gb / width, 1e-9)
        return target_weights(self.target, bytes_per_param=width, kv_element_bytes=self.kv_element_bytes)

    @property
    def draft_weights(self) -> Weights | None:
        """The draft's; None where nothing is loaded."""
        if self.method in LOOKUPS:
            return None
        if self.method in DRAFT_MODELS and self.draft is not None:
            return target_weights(self.draft)
        row = METHODS.get(self.method)
        if row is not None and row.one_head_per_token:
            # One residual block and one output matrix for every token.
            size = self.k * (self.target.hidden**2 + self.target.hidden * self.target.vocab) / 1e9
            return Weights(size * 2, size, 0.0, 1, self.target.hidden)
        return head_weights(self.target, self.method, vocab=self.draft_vocab, params_b=self.draft_params_b)

    def tflops(self) -> float:
        """Dense TFLOPS of one GPU at the target's precision."""
        of_fp8 = self.precision == "fp8" and self.gpu.fp8_tflops is not None
        return self.gpu.fp8_tflops if of_fp8 and self.gpu.fp8_tflops else self.gpu.bf16_tflops

    def pools(self) -> tuple[float, float]:
        """Tokens of the KV pool without and with the draft; estimated where they are unknown."""
        own, draft = self.weights, self.draft_weights
        large = self.gpu.usable_gib >= _LARGE_GIB
        room = (self.gpu.usable_gib * _UTILISATION - _OVERHEAD_GIB[large]) * self.gpus * GIB - _stored_gb(self) * 1e9
        pool = self.pool if self.pool is not None else max(room / own.kv_bytes, self.prompt + self.output)
        if self.draft_pool is not None:
            return pool, self.draft_pool
        if draft is None:
            return pool, pool
        workspace = _BUFFERS * 4 * _SEQUENCES[large] * self.target.vocab
        taken = draft.total_gb * 1e9 + workspace * self.gpus
        free = pool * own.kv_bytes - taken
        return pool, max(free / (own.kv_bytes + draft.kv_bytes), self.prompt + self.output)


def _stored_gb(cell: Cell) -> float:
    """GB of the target's weights with the embedding."""
    embedding = 0 if cell.target.tied else cell.target.vocab * cell.target.hidden * 2 / 1e9
    return cell.weights.total_gb + embedding


def serving_of(cell: Cell) -> Serving:
    """The target's side."""
    own = cell.weights
    return Serving(
        dense_gb=own.dense_gb,
        expert_gb=own.expert_gb,
        experts=float(max(own.experts, 2)),
        experts_per_token=float(own.experts_per_token),
        active_b=own.active_b,
        kv_bytes=own.kv_bytes,
        layers=float(own.layers),
        hidden=float(own.hidden),
        bandwidth_gb_s=cell.gpu.bandwidth_gb_s,
        tflops=cell.tflops(),
        tensor_parallel=float(cell.gpus),
        nvlink=float(cell.gpu.nvlink),
        concurrency=cell.batch,
        prompt=float(cell.prompt),
        output=float(cell.output),
        pool=cell.pools()[0],
        arriving=max(1 - cell.concurrency / cell.requests, 0.0),
    )


def drafting_of(cell: Cell) -> Drafting:
    """The draft's side."""
    chosen = cell.k
    draft, lookup = cell.draft_weights, cell.method in LOOKUPS
    keeps_async = lookup and not METHODS[cell.method].disables_async_scheduling
    old_lookup = keeps_async or _older(cell.engine, _OLD_LOOKUP)
    parallel = cell.method in PARALLEL
    is_head = draft is not None and cell.method not in DRAFT_MODELS
    old_head = _older(cell.engine, _OLD_HEADS)
    return Drafting(
        k=float(chosen),
        tokens_per_step=cell.acceptance.tokens_per_step(chosen),
        coverage=cell.acceptance.coverage_at(chosen) if lookup and chosen else 1.0,
        passes=0.0 if draft is None else 1.0 if parallel else float(chosen),
        masked=float(chosen - 1) if parallel else 0.0,
        slowdown=cell.draft_slowdown,
        gb=draft.total_gb if draft else 0.0,
        active_b=draft.active_b if draft else 0.0,
        output_b=draft.output_b if draft else 0.0,
        kv_bytes=draft.kv_bytes if draft else 0.0,
        model_layers=float(draft.layers) if draft and not is_head else 0.0,
        head=float(is_head and not old_head),
        head_old=float(is_head and old_head),
        lookup=float(lookup and not old_lookup),
        lookup_old=float(lookup and old_lookup),
        pool=cell.pools()[1] if chosen else math.inf,
    )


def _older(engine: Version | None, than: Version) -> bool:
    return engine is not None and engine < than


def is_known(method: str) -> bool:
    """Return whether the model has terms for a method."""
    row = METHODS.get(method)
    return method in (*LOOKUPS, *DRAFT_MODELS) or (row is not None and (row.head_layers > 0 or row.one_head_per_token))
