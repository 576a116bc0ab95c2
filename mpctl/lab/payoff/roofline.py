"""Time of a decoding step on a GPU, from bandwidth, compute and the KV pool: a roofline in milliseconds.

Every figure may be a number or an array: one call computes a cell, a table, or a cell under many sets of constants.
docs/explanation/payoff.md explains the terms; mpctl/lab/payoff/constants.json holds the fitted constants.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Real = Any  # float or NDArray[np.float64]; arithmetic is the same
Constants = Mapping[str, Real]

# Requests differ in length, so a pool limits the batch before its mean use is 1: where, and over which width.
_FULL, _FULL_WIDTH = 0.95, 0.03
_UNEVEN = 0.5  # requests of equal length end together, and their successors' prompts wait for each other; less so here
# In a run of one wave, requests that accept more end earlier: the batch that a request finds at its side, over the
# clients. Per-request times that lie within a third of their mean give this.
_DRAINED = 0.88
_ROUNDS = 8  # of the fixed point of batch and time per token; it converges in four
_NVLINK_BANDWIDTH, _NVLINK_LATENCY = 12.0, 0.4  # over a link without peer-to-peer access


@dataclass(frozen=True)
class Serving:
    """A target on its GPUs under a load.

    Weights in GB, read once per step: ``dense_gb``, and ``expert_gb`` for all of ``experts``, of which every token uses
    ``experts_per_token``. ``active_b``: billions of parameters that compute one token. ``kv_bytes``: of one token on
    all GPUs together. ``window_gb`` and ``state_gb``: of one request, whatever its context; a state is written once per
    token, too. ``bandwidth_gb_s`` and ``tflops`` of one GPU. ``pool``: tokens of the KV pool. ``arriving``:
    share of the requests whose prompts are processed while others decode; 1 in a steady state, 0 if all start together.
    """

    dense_gb: Real
    expert_gb: Real
    experts: Real
    experts_per_token: Real
    active_b: Real
    kv_bytes: Real
    window_gb: Real
    state_gb: Real
    layers: Real
    hidden: Real
    bandwidth_gb_s: Real
    tflops: Real
    tensor_parallel: Real
    nvlink: Real
    concurrency: Real
    prompt: Real
    output: Real
    pool: Real
    arriving: Real


@dataclass(frozen=True)
class Drafting:
    """The proposer of ``k`` tokens and its acceptance.

    ``tokens_per_step``: with the target's own. ``coverage``: share of steps with a proposal. ``passes`` of the draft,
    the first over every token of the target's step, the others over one token per request, each reading ``gb`` of
    weights and computing with ``active_b`` billion parameters, of which the output matrix (``output_b``) yields one
    token per request; ``masked``: places per request that a pass fills beside them. ``layers`` of ``hidden``: of the
    draft; ``model_layers``: of a draft model, 0 for a head. ``head``, ``head_old``: 1 for a head on a current or an old
    engine; ``lookup``: 1 for a lookup; ``waits``: 1 where the engine schedules a step only after the one before, which
    it does not without the draft. ``pool``: tokens of the KV pool with the draft.
    """

    k: Real
    tokens_per_step: Real
    coverage: Real
    passes: Real
    masked: Real
    gb: Real
    active_b: Real
    output_b: Real
    kv_bytes: Real
    layers: Real
    hidden: Real
    model_layers: Real
    head: Real
    head_old: Real
    lookup: Real
    waits: Real
    pool: Real


NO_DRAFT = Drafting(0, 1.0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, np.inf)


@dataclass(frozen=True)
class Timing:
    """An arm: ``tpot_ms`` per output token, ``rate`` in tokens per millisecond, ``batch`` requests that decode at
    once, ``step_ms`` of the target, ``load``: tokens per step over the knee; ``bound``: the KV pool limits the batch;
    ``host``: the share of the step that is neither bandwidth nor compute."""

    tpot_ms: Real
    rate: Real
    batch: Real
    step_ms: Real
    load: Real
    bound: NDArray[np.bool_]
    host: Real


def timing(serving: Serving, drafting: Drafting, constants: Constants) -> Timing:
    """The steady state of one arm under a closed loop of ``concurrency`` requests."""
    s, c = serving, constants
    context = s.prompt + s.output / 2
    pool = np.minimum(s.pool, drafting.pool)
    full = s.concurrency * context / pool
    bound = 1 / (1 + np.exp(np.minimum((_FULL - full) / _FULL_WIDTH, 50.0)))
    drained = np.where((np.asarray(drafting.k) > 0) & (np.asarray(s.arriving) <= 0), _DRAINED, 1.0)
    clients, fit = s.concurrency * drained, np.maximum(pool / context, 1.0)
    most = np.minimum(clients, fit)
    batch = most
    for _ in range(_ROUNDS):
        step, tokens, prefill, memory, compute = _step(s, drafting, c, batch, bound)
        extra = _draft_ms(s, drafting, c, batch, tokens + prefill) + np.where(
            np.asarray(drafting.k) > 0, c["e0"], 0.0
        )
        tpot = (step + extra) / drafting.tokens_per_step
        wave = (
            c["wave"]
            * np.where(np.asarray(drafting.k) > 0, _UNEVEN, 1.0)
            * np.maximum(batch - 1, 0.0)
            / 2
        )
        first = c["kt"] * (step + extra) + prefill_ms(s, c) * (1 + wave)
        decoding = clients * s.output * tpot / (s.output * tpot + first)
        batch = np.maximum(np.minimum(decoding, fit), np.minimum(most, 1.0))
    knee = _knee(s, c, memory)
    host = 1 - _overlapped(memory, compute, c) / step
    return Timing(tpot, batch / tpot, batch, step, tokens / knee, np.asarray(full > _FULL), host)


def _step(
    s: Serving, d: Drafting, c: Constants, batch: Real, bound: Real
) -> tuple[Real, Real, Real, Real, Real]:
    """Milliseconds of a step of the target, tokens that it verifies, prompt tokens beside them, and its times for
    memory and compute."""
    per_request = 1 + d.k * d.coverage
    tokens = batch * per_request
    arrivals = s.arriving * np.maximum(batch - 1, 0) * d.tokens_per_step / s.output
    prefill = arrivals * s.prompt * c["mpf"]
    again = (
        bound * (c["pool"] - 1) * prefill
    )  # of requests that lost their place; hides behind nothing
    memory = _memory_ms(s, c, batch, batch * (1 + c["rho"] * (per_request - 1)), tokens)
    per_token = 2 * s.active_b / (c["ec"] * s.tflops * s.tensor_parallel)
    often = np.minimum(arrivals, 1.0)  # steps with a prompt; without one, a step is shorter
    prompts = prefill / np.maximum(often, 1e-9) * per_token
    compute = tokens * per_token
    calm, mixed = _overlapped(memory, compute, c), _overlapped(memory, compute + prompts, c)
    step = c["t0"] + c["treq"] * batch + calm + often * (mixed - calm) + again * per_token
    prefill = prefill + again
    return (
        step + _link_ms(s, c, tokens + prefill, s.layers, s.hidden),
        tokens,
        prefill,
        memory,
        compute + prefill * per_token,
    )


def _overlapped(memory: Real, compute: Real, c: Constants) -> Real:
    """Time of reading and computing at once; the share ``ov`` of computing does not hide behind reading."""
    return ((memory + c["ov"] * compute) ** c["p"] + compute ** c["p"] + 1e-12) ** (1 / c["p"])


def _memory_ms(s: Serving, c: Constants, batch: Real, routed: Real, tokens: Real) -> Real:
    """Time to read the weights, the batch's keys and values, windows and states, which every one of ``tokens`` writes
    anew; ``routed`` tokens choose experts of their own."""
    share = 1 - (1 - s.experts_per_token / s.experts) ** routed
    kv_gb = c["kv"] * batch * (s.prompt + s.output / 2) * s.kv_bytes / 1e9
    kept_gb = batch * (s.window_gb + s.state_gb) + tokens * s.state_gb
    return (
        1e3
        * (s.dense_gb + s.expert_gb * share + kv_gb + kept_gb)
        / (c["eb"] * s.bandwidth_gb_s * s.tensor_parallel)
    )


def prefill_ms(s: Serving, c: Constants) -> Real:
    """Time to compute the prompt of one request."""
    return s.prompt * 2 * s.active_b / (c["ec"] * s.tflops * s.tensor_parallel)


def _link_ms(s: Serving, c: Constants, tokens: Real, layers: Real, hidden: Real) -> Real:
    """Time of the all-reduces of tensor parallelism: two per layer, of the target or of a draft."""
    several = np.asarray(s.tensor_parallel) > 1
    speed = c["link"] * np.where(np.asarray(s.nvlink) > 0, _NVLINK_BANDWIDTH, 1.0)
    latency = c["lat"] * np.where(np.asarray(s.nvlink) > 0, _NVLINK_LATENCY, 1.0)
    share = 2 * (s.tensor_parallel - 1) / s.tensor_parallel
    moved_mb = tokens * 2 * layers * hidden * 2 * share / 1e6
    return np.where(several, moved_mb / speed + 2 * layers * latency, 0.0)


def _draft_ms(s: Serving, d: Drafting, c: Constants, batch: Real, step_tokens: Real) -> Real:
    """Time of all passes of the draft in one step. The first follows the target through ``step_tokens``: those that it
    verified, accepted or not, and the prompts beside them."""
    kv_gb = c["kv"] * batch * (s.prompt + s.output / 2) * d.kv_bytes / 1e9
    memory = 1e3 * (d.gb + kv_gb) / (c["eb"] * s.bandwidth_gb_s * s.tensor_parallel)
    speed = c["ec"] * s.tflops * s.tensor_parallel
    outputs = batch * (1 + d.masked) * 2 * d.output_b / speed
    per_token = 2 * (d.active_b - d.output_b) / speed
    fixed = d.head * c["od"] + d.head_old * c["od_old"] + d.model_layers * c["ol"]

    def one_pass(tokens: Real) -> Real:
        return (
            _overlapped(memory, tokens * per_token + outputs, c)
            + fixed
            + _link_ms(s, c, tokens, d.layers, d.hidden)
        )

    first = np.minimum(d.passes, 1.0) * one_pass(step_tokens + batch * d.masked)
    later = np.maximum(d.passes - 1.0, 0.0) * one_pass(batch)
    lookup = d.lookup * (c["ng"] + c["ngB"] * batch)
    return first + later + lookup + d.waits * c["sync"]


def _knee(s: Serving, c: Constants, memory: Real) -> Real:
    """Tokens per step at which computing takes as long as reading."""
    return np.maximum(memory * c["ec"] * s.tflops * s.tensor_parallel / (2 * s.active_b), 1e-9)


@dataclass(frozen=True)
class Ratios:
    """Candidate over baseline: throughput above 1 and time per token below 1 are better.

    ``load``, ``bound`` and ``host`` as in Timing."""

    throughput: Real
    time_per_token: Real
    load: Real
    bound: NDArray[np.bool_]
    host: Real
    baseline: Timing
    candidate: Timing


def ratios(serving: Serving, drafting: Drafting, constants: Constants) -> Ratios:
    """Throughput ratio and time-per-token ratio, candidate over baseline."""
    base, spec = timing(serving, NO_DRAFT, constants), timing(serving, drafting, constants)
    tail = np.where(np.asarray(serving.concurrency) > 1, constants["tail"], 1.0)
    throughput = spec.rate / base.rate * tail
    return Ratios(
        throughput,
        spec.tpot_ms / base.tpot_ms,
        spec.load,
        spec.bound | base.bound,
        base.host,
        base,
        spec,
    )
