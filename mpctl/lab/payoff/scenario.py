"""A question to the model: a target with a draft on GPUs under a load, turned into the roofline's figures.

Weights: the embedding is not read by a step, unless it is the output matrix, too. Heads are sized by the layers they
have (SpecForge's configurations and speculators' documentation; P-EAGLE 4, DFlash and DSpark 5 layers).

Acceptance per position is of any K, from what was measured or published. ``rates[i]``: the share of drafts whose first
i + 1 tokens were all accepted. With it, tokens per step are exact: 1 + coverage * sum of rates.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from mpctl.estimate.memory import (
    DEFAULT_UTILISATION,
    OVERHEAD_GIB,
    WORKSPACE_BUFFERS,
    Range,
    default_sequences,
)
from mpctl.estimate.shape import GIB, Gpu, Shape
from mpctl.json_types import JsonView
from mpctl.lab.payoff.roofline import Drafting, Serving
from mpctl.methods import METHODS
from mpctl.methods.versions import Version

Origin = Literal["measured", "published", "class"]

_TOLERANCE = 0.03  # of a published acceptance length against its own rates: both are rounded

# Share of steps in which a lookup finds something to propose, by class of traffic.
_COVERAGE = {"code": 0.3, "chat": 0.2, "math": 0.2, "summary": 0.3, "edits": 0.6, "agents": 0.4}
TRAFFIC = tuple(_COVERAGE)
LOOKUP_DECAY = (
    0.8  # from one position of a lookup to the next (SpecDecode-Bench's traces: 0.56 to 0.97)
)
_THINKING = 0.5  # of that coverage: what a model thinks is new text


@dataclass(frozen=True)
class Acceptance:
    """``rates`` per position over drafts, ``coverage``: drafts over steps. ``origin``: how it is known; ``drafts``:
    how many stand behind a measurement, None when unknown. ``deviation`` of a class: of the logarithm of its accepted
    tokens, between systems."""

    rates: tuple[float, ...]
    coverage: float = 1.0
    origin: Origin = "measured"
    drafts: int | None = None
    deviation: float = 0.0

    def tokens_per_step(self, k: int) -> float:
        """Tokens that one step yields at ``k``."""
        return 1 + self.coverage_at(k) * sum(self.at(k))

    def coverage_at(self, k: int) -> float:
        """The coverage at another K: the same part of the answers is drafted, in more steps by shorter drafts."""
        if self.coverage >= 1:
            return 1.0
        drafted = self.coverage * (1 + sum(self.rates)) / (1 + sum(self.at(k)))
        return drafted / (drafted + 1 - self.coverage)

    def at(self, k: int) -> tuple[float, ...]:
        """The rates of ``k`` positions: those known, then each the last conditional rate times the one before."""
        measured = list(self.rates[:k])
        if len(measured) < k and measured:
            last = (
                measured[-1] / measured[-2]
                if len(measured) > 1 and measured[-2] > 0
                else measured[-1]
            )
            while len(measured) < k:
                measured.append(measured[-1] * min(last, 1.0))
        return tuple(measured)


def check_rates(rates: Sequence[float], length: float | None = None) -> str | None:
    """Return what is wrong with rates: outside 0..1, rising, or another acceptance length than theirs; else None."""
    if not rates:
        return "no rate is given"
    if any(not 0 <= rate <= 1 for rate in rates):
        return "every rate must be from 0 to 1"
    if any(later > earlier + 1e-9 for earlier, later in pairwise(rates)):
        return "rates must not rise: each is the share of drafts accepted up to that position"
    if length is not None and abs(1 + sum(rates) - length) > max(_TOLERANCE * length, 0.02):
        return (
            f"acceptance length {length:g} contradicts the rates, which give {1 + sum(rates):.2f}"
        )
    return None


def from_length(length: float, k: int) -> tuple[float, ...]:
    """Rates of independent acceptances that give ``length`` tokens at ``k``."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if sum(middle**i for i in range(k + 1)) < length:
            low = middle
        else:
            high = middle
    return tuple(low ** (i + 1) for i in range(k))


# Bytes of a parameter as it is stored; four bits with their scales.
PRECISIONS = {
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "int4": 0.56,
    "awq": 0.56,
    "gptq": 0.56,
    "mxfp4": 0.56,
}
PRECISIONS["nvfp4"] = 0.56
_SPELLINGS = {"4bit": "int4", "w4a16": "int4", "8bit": "int8", "w8a8": "int8"}


def precision_of(names: str, shape: Shape) -> str:
    """The precision that a quantization or a model's name says, else that of the published checkpoint, else bf16."""
    words = re.split(r"[^a-z0-9]+", names.lower())
    words = [_SPELLINGS.get(word, word) for word in words]
    return next((known for known in PRECISIONS if known in words), shape.precision or "bf16")


DRAFT_VOCAB = 32000  # of EAGLE-3 heads, where their files do not say


@dataclass(frozen=True)
class Weights:
    """The weights of a model over all GPUs. GB read per step: ``dense_gb``, and ``expert_gb`` for all experts together.
    ``output_b``: billions of parameters of the output matrix, part of ``active_b``. ``window_gb``, ``state_gb``: of one
    request, whatever its context."""

    dense_gb: float
    active_b: float
    kv_bytes: float
    layers: int
    hidden: int
    expert_gb: float = 0.0
    experts: int = 1
    experts_per_token: int = 1
    output_b: float = 0.0
    window_gb: float = 0.0
    state_gb: float = 0.0

    @property
    def total_gb(self) -> float:
        """GB read by a step that uses every expert."""
        return self.dense_gb + self.expert_gb


def params_of(shape: Shape) -> float:
    """Billions of parameters: as stated, else by the dimensions of a dense model."""
    if shape.params_b is not None:
        return shape.params_b
    embeddings = shape.vocab * shape.hidden * (1 if shape.tied else 2)
    return (shape.layers * _layer(shape) + embeddings) / 1e9


def _layer(shape: Shape) -> float:
    """Parameters of one dense layer."""
    width, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return (
        2 * shape.hidden * width
        + 2 * shape.hidden * kv
        + 3 * shape.hidden * (shape.intermediate or 3 * shape.hidden)
    )


def target_weights(
    shape: Shape, *, bytes_per_param: float = 2.0, kv_element_bytes: float = 2.0
) -> Weights:
    """The target's. A mixture of experts without its active parameters counts as dense."""
    total = params_of(shape) * 1e9
    embedding = 0 if shape.tied else shape.vocab * shape.hidden
    kv = shape.kv_elements() * kv_element_bytes
    active = (shape.active_params_b or total / 1e9) * 1e9
    expert = 0.0
    if shape.experts and shape.experts_per_token and shape.active_params_b:
        expert = (total - active) / (shape.experts - shape.experts_per_token) * shape.experts
    dense = total - embedding - expert
    return Weights(
        dense_gb=dense * bytes_per_param / 1e9,
        active_b=max(active - embedding, 1.0) / 1e9,
        kv_bytes=kv,
        layers=shape.layers,
        hidden=shape.hidden,
        expert_gb=expert * bytes_per_param / 1e9,
        experts=shape.experts or 1,
        experts_per_token=shape.experts_per_token or 1,
        output_b=min(shape.vocab * shape.hidden, max(active - embedding, 1.0)) / 1e9,
        window_gb=shape.window_elements() * kv_element_bytes / 1e9,
        state_gb=shape.state_mb / 1e3,
    )


def head_weights(
    target: Shape, method: str, *, vocab: int | None = None, params_b: float | None = None
) -> Weights:
    """A head of ``method`` on ``target``; ``params_b``: without its embedding, where it is known."""
    row = METHODS[method]
    layers, reads_three = row.head_layers or 1, row.head_inputs == 3
    width, kv = target.heads * target.head_dim, target.kv_heads * target.head_dim
    own_vocab = vocab or (DRAFT_VOCAB if reads_three else target.vocab)
    inputs = 3 if reads_three else 2
    body = layers * _layer(target) + inputs * target.hidden**2
    if reads_three and not row.drafts_in_one_pass:  # its layer reads the embedding beside the state
        body += target.hidden * (width + 2 * kv)
    params = params_b * 1e9 if params_b is not None else body + target.hidden * own_vocab
    kv_bytes = 2 * layers * target.kv_heads * target.head_dim * 2
    output = min(target.hidden * own_vocab, params) / 1e9
    return Weights(params * 2 / 1e9, params / 1e9, kv_bytes, layers, target.hidden, output_b=output)


# PARD is a draft model that fills all K places in one pass; to vLLM it is a setting and no method.
_PARD = "pard"
LOOKUPS = tuple(row.name for row in METHODS.values() if row.is_lookup)
# Methods that need neither weights nor a GPU of their own: always worth a question.
FREE = tuple(name for name in LOOKUPS if not METHODS[name].needs_gpu)
DRAFT_MODELS = (*(row.name for row in METHODS.values() if row.needs_draft == "model"), _PARD)
_ONE_PASS = tuple(
    row.name for row in METHODS.values() if row.drafts_in_one_pass or row.one_head_per_token
)
PARALLEL = (*_ONE_PASS, _PARD)  # one pass drafts all K tokens
_OLD_HEADS = (0, 11, 0)  # vLLM before it drafted with its full graphs
# vLLM schedules asynchronously beside a draft since 0.14 (#31998): never with lookups on the host.
_ASYNC_SINCE = (0, 14, 0)
# Of the most that an engine took beside weights and KV, what does not grow with its sequences (logs in
# mpctl.estimate.memory: 1.6 GiB with one of them, 5.9 with 1024).
_FIXED_GIB, _MOST_SEQUENCES = 1.9, 1024
_SMALLER = ("fp8", "int4")  # precisions to serve a target in that does not fit
_MORE_GPUS = (2, 4, 8, 16)


@dataclass(frozen=True)
class Scenario:
    """A question. ``draft``: a draft model's shape; heads are sized from the target, ``draft_params_b`` and
    ``draft_vocab``. ``precision`` of the target. ``pool`` and ``draft_pool``: tokens of the KV pool without and with
    the draft, estimated as ranges where None. ``utilisation``, ``max_num_seqs``, ``max_model_len``: the engine's
    settings, None where it decides itself. ``engine``: vLLM's version, None is a current one. ``requests``: of the
    whole run, where it was short."""

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
    utilisation: float = DEFAULT_UTILISATION
    max_num_seqs: int | None = None
    max_model_len: int | None = None
    engine: Version | None = None
    unfitted: str = ""  # flags of the engine that the fit does not know
    requests: float = math.inf

    @property
    def batch(self) -> float:
        """Requests that a request finds at its side: in a short run, the mean over its waves, of which the last is
        smaller. No more than the engine takes at once."""
        if math.isinf(self.requests) or self.concurrency >= self.requests:
            return min(self.concurrency, self.requests, self.sequences)
        waves, last = divmod(self.requests, self.concurrency)
        return min((waves * self.concurrency**2 + last**2) / self.requests, self.sequences)

    @property
    def sequences(self) -> int:
        """Requests that the engine takes at once: as set, else its default on this GPU."""
        return self.max_num_seqs or default_sequences(self.gpu.name, self.gpu.usable_gib)

    @property
    def longest(self) -> float:
        """Tokens that the pool must hold for the engine to start: of the longest request, as far as it is known."""
        return max(self.max_model_len or 0.0, self.prompt + self.output)

    @property
    def weights(self) -> Weights:
        """The target's."""
        width = PRECISIONS[self.precision]
        if self.weights_gb is not None:  # as stored, over the parameters
            width = self.weights_gb / max(self.target.params_b or self.weights_gb / width, 1e-9)
        return target_weights(
            self.target, bytes_per_param=width, kv_element_bytes=self.kv_element_bytes
        )

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
        return head_weights(
            self.target, self.method, vocab=self.draft_vocab, params_b=self.draft_params_b
        )

    def tflops(self) -> float:
        """Dense TFLOPS of one GPU at the target's precision."""
        of_fp8 = self.precision == "fp8" and self.gpu.fp8_tflops is not None
        return self.gpu.fp8_tflops if of_fp8 and self.gpu.fp8_tflops else self.gpu.bf16_tflops

    @property
    def stored_gb(self) -> float:
        """GB of the target's weights, with the embedding."""
        if self.weights_gb is not None:
            return self.weights_gb
        embedding = 0 if self.target.tied else self.target.vocab * self.target.hidden * 2 / 1e9
        return self.weights.total_gb + embedding

    @property
    def overhead_gib(self) -> Range:
        """GiB of one GPU that the engine takes beside weights and KV."""
        grown = (OVERHEAD_GIB[1] - _FIXED_GIB) * min(self.sequences / _MOST_SEQUENCES, 1.0)
        return Range(OVERHEAD_GIB[0], _FIXED_GIB + grown)

    @property
    def token_bytes(self) -> float:
        """KV bytes of one token on one GPU, with its part of what a request keeps whatever its length. Every GPU holds
        at least one head, and all of a compressed KV."""
        weights, split = (
            self.weights,
            1 if self.target.latent else min(self.gpus, self.target.kv_heads),
        )
        fixed = (weights.window_gb + weights.state_gb) * 1e9 / self.gpus
        return weights.kv_bytes / split + fixed / (self.prompt + self.output / 2)

    def room(self) -> Range:
        """GiB of one GPU that remain for the KV pool without a draft; below 0 where the weights do not fit."""
        free = self.gpu.usable_gib * self.utilisation - self.stored_gb * 1e9 / GIB / self.gpus
        return Range(free - self.overhead_gib.high, free - self.overhead_gib.low)

    def pool_ranges(self) -> tuple[Range, Range]:
        """Tokens of the KV pool without and with the draft. What an engine logged is one figure. An estimate holds a
        longest request at least: the engine would not start otherwise."""
        target_bytes, draft, least = self.token_bytes, self.draft_weights, self.longest
        ends = (
            [self.pool] * 2
            if self.pool is not None
            else [gib * GIB / target_bytes for gib in (self.room().low, self.room().high)]
        )
        before = (
            Range(*(max(end, least) for end in ends))
            if self.pool is None
            else Range(ends[0], ends[1])
        )
        if self.draft_pool is not None:
            return before, Range(self.draft_pool, self.draft_pool)
        if draft is None:
            return before, before
        # A head with the target's vocabulary may use its output matrix.
        shared = (
            draft.output_b * 2e9 if self.method not in DRAFT_MODELS and self._shares_output else 0.0
        )
        row = 4 * self.sequences * self.target.vocab if self.sequences > 1 else 0
        most, fewest = (
            row * buffers + draft.total_gb * 1e9 / self.gpus
            for buffers in reversed(WORKSPACE_BUFFERS)
        )
        taken = (most, fewest - shared / self.gpus)
        added = draft.kv_bytes / self.gpus
        after = [
            (end * target_bytes - gone) / (target_bytes + added)
            for end, gone in zip(ends, taken, strict=True)
        ]
        return before, Range(*(max(end, least) for end in after))

    @property
    def _shares_output(self) -> bool:
        row = METHODS.get(self.method)
        return self.draft_vocab is None and (row is None or row.head_inputs != 3)

    def pools(self) -> tuple[float, float]:
        """The middle of each range, as a factor."""
        before, after = self.pool_ranges()
        return math.sqrt(before.low * before.high), math.sqrt(after.low * after.high)

    def pool_cases(self) -> tuple[Scenario, Scenario, Scenario]:
        """The question with the least, the middle and the most of both pools."""
        before, after = self.pool_ranges()
        low, high = (
            replace(self, pool=pool, draft_pool=draft)
            for pool, draft in ((before.low, after.low), (before.high, after.high))
        )
        middle = self.pools()
        return low, replace(self, pool=middle[0], draft_pool=middle[1]), high


@dataclass(frozen=True)
class Refusal:
    """The reason that a method has no figure, and a hint to get one. ``gpus``: as many would hold the target and its
    draft by tensor parallelism."""

    reason: str
    hint: str | None = None
    gpus: int | None = None


def misfit(cell: Scenario) -> Refusal | None:
    """Return why an engine could not start, at the optimistic end of what it takes; None where it could. A pool that
    an engine logged speaks for the target."""
    need = cell.longest * cell.token_bytes / GIB
    if cell.pool is None and cell.room().high < need:
        return Refusal(_arithmetic(cell, need), *_what_fits(cell, _holds))
    draft = cell.draft_weights
    if draft is None or cell.draft_pool is not None or cell.pool_ranges()[1].high > cell.longest:
        return None
    return Refusal(
        f"the draft leaves no room: {draft.total_gb * 1e9 / GIB / cell.gpus:.1f} GiB of draft on each GPU and its "
        f"workspace take what one request of {cell.longest:,.0f} tokens needs ({need:.2f} GiB)",
        *_what_fits(
            cell, lambda other: _holds(other) and other.pool_ranges()[1].high > other.longest
        ),
    )


def _holds(cell: Scenario) -> bool:
    return cell.room().high >= cell.longest * cell.token_bytes / GIB


def _arithmetic(cell: Scenario, need: float) -> str:
    weights, beside = cell.stored_gb * 1e9 / GIB / cell.gpus, cell.overhead_gib.low
    usable = cell.gpu.usable_gib * cell.utilisation
    on = cell.gpu.name if cell.gpus == 1 else f"each of {cell.gpus} {cell.gpu.name}"
    return (
        f"does not fit: {weights:.1f} GiB of {cell.precision} weights, {beside:.1f} GiB of workspace at least and "
        f"{need:.2f} GiB for one request of {cell.longest:,.0f} tokens ({cell.token_bytes / 1024:.0f} KiB each) are "
        f"{weights + beside + need:.1f} GiB; {on} gives vLLM {usable:.1f} ({cell.utilisation:g} of "
        f"{cell.gpu.usable_gib:g})"
    )


def _what_fits(cell: Scenario, fits: Callable[[Scenario], bool]) -> tuple[str, int | None]:
    """The smallest change of each kind that makes room, as text: GPUs, precision, length of a request; and the GPUs."""
    bare = replace(cell, pool=None, draft_pool=None)
    ways = []
    gpus = next((n for n in _MORE_GPUS if n > cell.gpus and fits(replace(bare, gpus=n))), None)
    if gpus is not None:
        ways.append(f"--tensor-parallel-size={gpus}")
    for precision in _SMALLER:
        if PRECISIONS[precision] < PRECISIONS[cell.precision] and fits(
            replace(bare, precision=precision, weights_gb=None)
        ):
            ways.append(f"{precision} weights")
            break
    length = (
        int(cell.room().high * GIB / cell.token_bytes) // 1024 * 1024 if cell.pool is None else 0
    )
    if length >= max(cell.prompt + cell.output, 1024) and fits(replace(bare, max_model_len=length)):
        ways.append(f"--max-model-len={length}")
    text = "what fits: " + ", or ".join(ways) if ways else "use a larger GPU or a smaller model"
    return text, gpus


def serving_of(cell: Scenario) -> Serving:
    """The target's side."""
    weights = cell.weights
    return Serving(
        dense_gb=weights.dense_gb,
        expert_gb=weights.expert_gb,
        experts=float(max(weights.experts, 2)),
        experts_per_token=float(weights.experts_per_token),
        active_b=weights.active_b,
        kv_bytes=weights.kv_bytes,
        window_gb=weights.window_gb,
        state_gb=weights.state_gb,
        layers=float(weights.layers),
        hidden=float(weights.hidden),
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


def drafting_of(cell: Scenario) -> Drafting:
    """The draft's side."""
    chosen = cell.k
    draft, lookup = cell.draft_weights, cell.method in LOOKUPS
    parallel = cell.method in PARALLEL
    is_head = draft is not None and cell.method not in DRAFT_MODELS
    old_head = _older(cell.engine, _OLD_HEADS)
    return Drafting(
        k=float(chosen),
        tokens_per_step=cell.acceptance.tokens_per_step(chosen),
        coverage=cell.acceptance.coverage_at(chosen) if lookup and chosen else 1.0,
        passes=0.0 if draft is None else 1.0 if parallel else float(chosen),
        masked=float(chosen - 1) if parallel else 0.0,
        gb=draft.total_gb if draft else 0.0,
        active_b=draft.active_b if draft else 0.0,
        output_b=draft.output_b if draft else 0.0,
        kv_bytes=draft.kv_bytes if draft else 0.0,
        layers=float(draft.layers) if draft else 0.0,
        hidden=float(draft.hidden) if draft else 0.0,
        model_layers=float(draft.layers) if draft and not is_head else 0.0,
        head=float(is_head and not old_head),
        head_old=float(is_head and old_head),
        lookup=float(lookup),
        waits=float(_loses_async(cell.method, cell.engine)),
        pool=cell.pools()[1] if chosen else math.inf,
    )


def _older(engine: Version | None, than: Version) -> bool:
    return engine is not None and engine < than


def _loses_async(method: str, engine: Version | None) -> bool:
    """Return whether a draft costs the engine its asynchronous scheduling."""
    if _older(engine, _ASYNC_SINCE):
        return False
    row = METHODS.get(DRAFT_MODELS[0] if method == _PARD else method)
    return row is not None and (
        row.disables_async_scheduling or _older(engine, row.async_scheduling_since or _ASYNC_SINCE)
    )


def is_known(method: str) -> bool:
    """Return whether the model has terms for a method."""
    row = METHODS.get(method)
    return method in (*LOOKUPS, *DRAFT_MODELS) or (
        row is not None and (row.head_layers > 0 or row.one_head_per_token)
    )


LOOKUP, POOL, BEYOND, NEAR, BELOW = (
    "n-gram",
    "pool-bound",
    "beyond the knee",
    "up to the knee",
    "below a quarter knee",
)


def regime_of(cell: Scenario, load: float, *, bound: bool) -> str:
    """The regime of a cell; ``load``: tokens per step over the knee."""
    if cell.method in LOOKUPS:
        return LOOKUP
    if bound:
        return POOL
    if load > 1:
        return BEYOND
    return NEAR if load > 0.25 else BELOW


def family_of(method: str) -> str:
    """The methods that are accepted alike."""
    return "lookup" if method in LOOKUPS else "draft-model" if method in DRAFT_MODELS else "head"


def class_acceptance(
    method: str, traffic: str, k: int, classes: JsonView, *, thinking: bool = False
) -> Acceptance:
    """The acceptance that a class of traffic reached in published tables (``classes``): for screening only."""
    family = family_of(method)
    deviation = classes[family]["deviation"]
    rates = class_rates(family, classes[family][traffic], k)
    if family != "lookup":
        return Acceptance(rates, origin="class", deviation=deviation)
    coverage = _COVERAGE[traffic]
    drafted = tuple(min(rate / coverage, 1.0) for rate in rates)
    return Acceptance(
        drafted, coverage * (_THINKING if thinking else 1.0), origin="class", deviation=deviation
    )


def class_rates(family: str, figure: float, k: int) -> tuple[float, ...]:
    """Rates of a class of traffic: of a lookup over all steps, from that of the first token on; of others by the
    acceptance of a token, which is the same in every position."""
    if family == "lookup":
        return tuple(figure * LOOKUP_DECAY**i for i in range(k))
    return tuple(figure ** (i + 1) for i in range(k))


# The most and least of a question's figures; what lies outside is a slip of units or of a key.
_RANGES = {
    "k": (1, 64),
    "concurrency": (1, 100_000),
    "prompt_tokens": (1, 10_000_000),
    "output_tokens": (1, 1_000_000),
    "target.params_b": (0.01, 10_000),
    "gpu.bandwidth_gb_s": (5, 30_000),
    "gpu.tflops": (0.1, 50_000),
    "gpu.memory_gib": (1, 2_000),
}
_UNITS = {
    "gpu.bandwidth_gb_s": "GB/s, 1 TB/s is 1000",
    "gpu.tflops": "dense TFLOPS",
    "gpu.memory_gib": "GiB",
}


def fault(
    cell: Scenario, ks: Sequence[int], concurrency: Sequence[float]
) -> tuple[str, str] | None:
    """Return a field of a question that cannot be right, named as --cell names it, and why; None where all may be."""
    figures = {
        "prompt_tokens": [cell.prompt],
        "output_tokens": [cell.output],
        "k": ks,
        "concurrency": concurrency,
    }
    figures |= {
        "gpu.bandwidth_gb_s": [cell.gpu.bandwidth_gb_s],
        "gpu.tflops": [cell.gpu.bf16_tflops],
    }
    figures |= {"gpu.memory_gib": [] if math.isinf(cell.gpu.usable_gib) else [cell.gpu.usable_gib]}
    figures |= {"target.params_b": [params_of(cell.target)]}
    for field, values in figures.items():
        least, most = _RANGES[field]
        if wrong := next((value for value in values if not least <= value <= most), None):
            unit = f" ({_UNITS[field]})" if field in _UNITS else ""
            return field, f"{wrong:g} is outside {least:g} to {most:,}{unit}"
    return _contradiction(cell)


def _contradiction(cell: Scenario) -> tuple[str, str] | None:
    """Two facts that cannot both be right."""
    shape, coverage = cell.target, cell.acceptance.coverage
    if shape.experts and shape.experts <= (shape.experts_per_token or 0):
        return (
            "target.experts",
            f"{shape.experts} experts must be more than the {shape.experts_per_token} of a token",
        )
    if shape.heads % cell.gpus:
        return "gpus", f"{shape.heads} attention heads cannot be split over {cell.gpus} GPUs"
    if not 0 <= coverage <= 1:
        return "acceptance.coverage", f"{coverage:g} is no share from 0 to 1"
    if coverage < 1 and cell.method not in LOOKUPS:
        return (
            "acceptance.coverage",
            f"{cell.method} proposes in every step: coverage belongs to {', '.join(LOOKUPS)}",
        )
    for arm, pool in (("baseline", cell.pool), ("candidate", cell.draft_pool)):
        if pool is not None and pool < cell.prompt + cell.output:
            return (
                f"pool_tokens.{arm}",
                f"{pool:,.0f} tokens hold no request of {cell.prompt + cell.output:,.0f}",
            )
    if cell.pool is not None and cell.draft_pool is not None and cell.draft_pool > 1.1 * cell.pool:
        return (
            "pool_tokens.candidate",
            f"{cell.draft_pool:,.0f} tokens are more than the baseline's {cell.pool:,.0f}",
        )
    return None
