"""The file of ``mpctl plan --cell``: questions about targets, drafts and GPUs that need not exist here.

docs/how-to/will-it-pay.md has every field. What a name does not say is given as a mapping; what is left out is assumed,
and the answer says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from mpctl import commands
from mpctl.errors import InputError
from mpctl.estimate.payoff.evidence import MeasuredPair
from mpctl.estimate.payoff.scenario import (
    CLASSES,
    DRAFT_MODELS,
    LOOKUPS,
    PRECISIONS,
    Acceptance,
    Origin,
    Scenario,
    check_rates,
    from_length,
    is_known,
    of_class,
)
from mpctl.estimate.shape import Gpu, Shape, find_gpu, gpus, model_shape
from mpctl.methods import parse_version
from mpctl.methods.versions import Version
from mpctl.yaml_lines import Node, document, near

PROMPT, OUTPUT = 150.0, 250.0  # tokens, where a question leaves them out

# (draft, target, method, K) -> what is published of it
Published = Callable[[str | None, str | None, str, int], Acceptance | None]

_GPU_HINT = "describe it: gpu: {name: X, memory_gib: 24, bandwidth_gb_s: 600, tflops: 70, nvlink: false}"
_MODEL_HINT = (
    "describe it: {key}: {{name: org/model, layers: 36, hidden: 4096, heads: 32, kv_heads: 8, head_dim: 128, "
    "vocab: 151936, intermediate: 12288, params_b: 8.2}}"
)
_RATES_HINT = (
    "measure it: acceptance: {per_position: [0.7, 0.5, 0.3]} (vLLM logs 'Per-position acceptance rate'), "
    "or screen: acceptance: {traffic: code}"
)


@dataclass(frozen=True)
class Question:
    """A cell with the K and concurrencies that are asked for, pairs already measured, and what was assumed."""

    id: str
    cell: Scenario
    ks: tuple[int, ...]
    concurrency: tuple[float, ...]
    pairs: tuple[MeasuredPair, ...]
    assumed: tuple[str, ...]


@dataclass(frozen=True)
class Unanswerable:
    """A question that lacks something: why, and how to give it."""

    id: str
    reason: str
    hint: str | None


def read_questions(text: str, file: str, published: Published) -> tuple[Question | Unanswerable, ...]:
    """The questions of a file: one at its top level, or a list under ``cells``, of which some may lack something.

    Raises:
        InputError: in every question a field is unknown, missing or wrong; with file, line and how to give it.
    """
    top = document(text, file)
    if not top.has("cells"):
        return (_question(top, "cell-1", published),)
    questions: list[Question | Unanswerable] = []
    errors = []
    for number, node in enumerate(top.nodes("cells"), 1):
        try:
            questions.append(_question(node, f"cell-{number}", published))
        except InputError as error:
            errors.append(error)
            questions.append(Unanswerable(str(node.body.get("id", f"cell-{number}")), error.message, error.hint))
    top.done()
    if not questions:
        raise top.error("cells", "holds no cell")
    if len(errors) == len(questions):
        raise errors[0]
    return tuple(questions)


def _question(node: Node, default_id: str, published: Published) -> Question:
    assumed: list[str] = []
    method = node.text("method")
    if not is_known(method):
        raise node.error(
            "method", f"the model has no term for {method!r}", f"{commands.line('methods')} lists the methods"
        )
    name, target = _model(node, "target")
    gpu = _gpu(node)
    ks = tuple(int(k) for k in _numbers(node, "k", low=1, high=64, whole=True))
    concurrency = _numbers(node, "concurrency", low=1, high=100_000)
    draft_name, draft, params_b, vocab = _draft(node, method)
    acceptance = _acceptance(node, method, ks[0], lambda: published(draft_name, name, method, ks[0]))
    pools = node.node("pool_tokens")
    cell = Scenario(
        target=target,
        gpu=gpu,
        method=method,
        k=ks[0],
        concurrency=concurrency[0],
        prompt=_or_assumed(node, "prompt_tokens", PROMPT, assumed),
        output=_or_assumed(node, "output_tokens", OUTPUT, assumed),
        acceptance=acceptance,
        gpus=node.number("gpus", 1, low=1, high=1024),
        draft=draft,
        draft_params_b=params_b,
        draft_vocab=vocab,
        precision=_precision(node, name, assumed),
        kv_element_bytes=1.0 if node.choice("kv_cache", ("bf16", "fp16", "fp8"), "bf16") == "fp8" else 2.0,
        weights_gb=_maybe_number(node, "weights_gb"),
        pool=_maybe_number(pools, "baseline"),
        draft_pool=_maybe_number(pools, "candidate"),
        engine=_version(node),
        requests=_maybe_number(node, "requests") or math.inf,
    )
    pools.done()
    if cell.pool is None:
        kind = "unlimited, as the GPU's memory is not given" if math.isinf(gpu.usable_gib) else "estimated"
        assumed.append(f"KV pool {kind}: pool_tokens takes what the engine logged")
    if acceptance.origin == "measured" and len(acceptance.rates) < max(ks):
        assumed.append(f"rates after position {len(acceptance.rates)} fall on as the last two do")
    pairs = tuple(_pair(pair, method, ks[0]) for pair in node.nodes("measured"))
    identity = node.text("id", default_id)
    node.maybe("note")
    node.done()
    return Question(identity, cell, ks, concurrency, pairs, tuple(assumed))


def _precision(node: Node, name: str | None, assumed: list[str]) -> str:
    """The given precision, else that in the target's name, else bf16."""
    if node.has("precision"):
        return node.choice("precision", tuple(PRECISIONS))
    node.asked.add("precision")
    precision = next(
        (known for known in PRECISIONS if known in (name or "").lower().rpartition("/")[2].split("-")), "bf16"
    )
    if precision != "bf16":
        assumed.append(f"precision {precision}, by the target's name")
    return precision


def _model(node: Node, key: str) -> tuple[str | None, Shape]:
    """A model by name or by its dimensions."""
    if not node.has(key):
        raise node.error(key, "required field is missing", _MODEL_HINT.format(key=key))
    if isinstance(node.body[key], str):
        name = node.text(key)
        shape = model_shape(name)
        if shape is None:
            raise node.error(key, f"the dimensions of {name} are not in mpctl's table", _MODEL_HINT.format(key=key))
        return name, shape
    inner = node.node(key)
    shape = _shape(inner)
    named = inner.maybe("name")
    inner.done()
    return named, shape


def _shape(node: Node) -> Shape:
    whole = {name: node.number(name, high=10_000_000) for name in ("layers", "hidden", "heads", "vocab")}
    kv_heads = node.number("kv_heads", whole["heads"], low=1)
    head_dim = node.number("head_dim", max(whole["hidden"] // max(whole["heads"], 1), 1), low=1)
    if min(whole.values()) < 1:
        raise InputError("every dimension must be above zero", file=node.file, line=node.line, field=node.path)
    experts = node.number("experts", 0) or None
    params, active = _maybe_number(node, "params_b"), _maybe_number(node, "active_params_b")
    if experts and (active is None or params is None or not node.has("experts_per_token")):
        raise node.error("experts", "needs params_b, active_params_b and experts_per_token beside it")
    return Shape(
        **whole,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=node.number("intermediate", 0, high=10_000_000) or None,
        params_b=params,
        hybrid=node.value("hybrid", bool, False),
        tied=node.value("tied", bool, False),
        active_params_b=active,
        experts=experts,
        experts_per_token=node.number("experts_per_token", 0) or None,
    )


def _draft(node: Node, method: str) -> tuple[str | None, Shape | None, float | None, int | None]:
    """The draft's name, the shape of a draft model, a head's billions of parameters and its vocabulary."""
    needs_model = method in DRAFT_MODELS
    if not node.has("draft"):
        node.asked.add("draft")
        if needs_model:
            raise node.error("draft", f"{method} needs the draft's name or dimensions", _MODEL_HINT.format(key="draft"))
        return None, None, None, None
    if needs_model:
        name, shape = _model(node, "draft")
        return name, shape, None, None
    if isinstance(node.body["draft"], str):
        return node.text("draft"), None, None, None
    inner = node.node("draft")
    size, vocab = _maybe_number(inner, "params_b"), inner.number("vocab", 0, high=10_000_000) or None
    named = inner.maybe("name")
    inner.done()
    return named, None, size, vocab


def _gpu(node: Node) -> Gpu:
    if not node.has("gpu"):
        raise node.error("gpu", "required field is missing", _GPU_HINT)
    if isinstance(node.body["gpu"], str):
        name = node.text("gpu")
        gpu = find_gpu(name)
        if gpu is None:
            close = near(name, gpus())
            raise node.error("gpu", f"{name!r} is not in mpctl's table{close}", f"{_GPU_HINT}; or {', '.join(gpus())}")
        return gpu
    inner = node.node("gpu")
    speeds = {key: _maybe_number(inner, key) for key in ("memory_gib", "bandwidth_gb_s", "tflops", "fp8_tflops")}
    for key in ("bandwidth_gb_s", "tflops"):
        if speeds[key] is None:
            raise inner.error(key, "required field is missing", _GPU_HINT)
    made = Gpu(
        inner.text("name", "unnamed GPU"),
        usable_gib=speeds["memory_gib"] or math.inf,
        bandwidth_gb_s=speeds["bandwidth_gb_s"] or 0.0,
        bf16_tflops=speeds["tflops"] or 0.0,
        fp8_tflops=speeds["fp8_tflops"],
        nvlink=inner.value("nvlink", bool, False),
    )
    inner.done()
    return made


def _acceptance(node: Node, method: str, k: int, published: Callable[[], Acceptance | None]) -> Acceptance:
    if not node.has("acceptance"):
        node.asked.add("acceptance")
        acceptance = published()
        if acceptance is None:
            raise node.error("acceptance", f"nothing is known of how much {method} is accepted", _RATES_HINT)
        return acceptance
    inner = node.node("acceptance")
    own: Origin = "measured" if inner.choice("from", ("own", "published"), "own") == "own" else "published"
    coverage = _maybe_number(inner, "coverage") or 1.0
    drafts = inner.number("drafts", 0, high=10**12) or None
    length, per_step = _maybe_number(inner, "length"), _maybe_number(inner, "tokens_per_step")
    at = inner.number("k", k, low=1, high=64)
    rates = _rates(inner)
    traffic = inner.choice("traffic", tuple(CLASSES["head"])) if inner.has("traffic") else None
    inner.done()
    if coverage > 1:
        raise inner.error("coverage", "must be a share of the steps, from 0 to 1")
    if rates:
        wrong = check_rates(rates, length)
        if wrong is not None:
            raise inner.error("per_position", wrong)
        return Acceptance(rates, coverage, own, drafts)
    if length is not None and method in LOOKUPS and not inner.has("coverage"):
        raise inner.error(
            "length",
            f"an acceptance length of {method} says nothing without its coverage",
            "give coverage (drafts over steps), or tokens_per_step",
        )
    if per_step is not None:
        length = 1 + (per_step - 1) / coverage
    if length is not None:
        if not 1 <= length <= at + 1:
            raise inner.error("length", f"{length:g} tokens are not possible with K = {at}")
        return Acceptance(from_length(length, at), coverage, own, drafts)
    if traffic is None:
        raise node.error("acceptance", "holds neither rates nor a class of traffic", _RATES_HINT)
    return class_acceptance(method, traffic, at)


def class_acceptance(method: str, traffic: str, k: int) -> Acceptance:
    """The acceptance that a class of traffic reached in published tables: for screening only."""
    family = "lookup" if method in LOOKUPS else "draft-model" if method in DRAFT_MODELS else "head"
    return Acceptance(of_class(family, traffic, k), origin="class")


def _rates(node: Node) -> tuple[float, ...]:
    node.asked.add("per_position")
    rates = node.body.get("per_position")
    if rates is None:
        return ()
    if not isinstance(rates, list) or any(isinstance(v, bool) or not isinstance(v, int | float) for v in rates):
        raise node.error("per_position", "expected a list of numbers")
    if any(value > 1 for value in rates):
        raise node.error("per_position", "rates are shares from 0 to 1: 72.9 % is 0.729")
    return tuple(float(value) for value in rates)


def _pair(node: Node, method: str, k: int) -> MeasuredPair:
    through, time = _maybe_number(node, "throughput_ratio"), _maybe_number(node, "time_per_token_ratio")
    if through is None and time is None:
        raise node.error("throughput_ratio", "a measured pair needs it, or time_per_token_ratio")
    pair = MeasuredPair(
        method=method,
        k=node.number("k", k, low=1, high=64),
        concurrency=float(node.number("concurrency", low=1)),
        throughput=through,
        time_per_token=time,
        source="the question",
    )
    node.done()
    return pair


def _numbers(node: Node, key: str, *, low: float, high: float, whole: bool = False) -> tuple[float, ...]:
    """One number or a list of them."""
    node.asked.add(key)
    if not node.has(key):
        raise node.error(key, "required field is missing", f"a number, or a list: {key}: [1, 4]")
    given = node.body[key]
    values = list(given) if isinstance(given, list) else [given]
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not low <= value <= high:
            kind = "a whole number" if whole else "a number"
            raise node.error(key, f"{value!r} is not {kind} from {low:g} to {high:g}")
    if not values:
        raise node.error(key, "holds no number")
    return tuple(float(value) for value in values)


def _maybe_number(node: Node, key: str) -> float | None:
    """A number above zero, None where it is not given."""
    node.asked.add(key)
    if not node.has(key):
        return None
    value = node.body[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise node.error(key, f"{value!r} is not a number above zero")
    return float(value)


def _or_assumed(node: Node, key: str, default: float, assumed: list[str]) -> float:
    value = _maybe_number(node, key)
    if value is None:
        assumed.append(f"{key} {default:g}")
    return value or default


def _version(node: Node) -> Version | None:
    node.asked.add("engine")
    if not node.has("engine"):
        return None
    version = parse_version(str(node.body["engine"]))
    if version is None:
        raise node.error("engine", f"{node.body['engine']!r} is not a version of vLLM", "engine: 0.19.1")
    return version
