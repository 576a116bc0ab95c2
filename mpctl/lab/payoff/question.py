"""The file of ``mpctl plan --cell``: questions about targets, drafts and GPUs that need not exist here.

docs/how-to/will-it-pay.md has every field. What a name does not say is given as a mapping; what is left out is assumed,
and the answer says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import asdict

from mpctl import commands
from mpctl.errors import InputError
from mpctl.estimate.memory import DEFAULT_UTILISATION
from mpctl.estimate.shape import Gpu, Shape, find_gpu, gpus, model_shape
from mpctl.json_types import Json
from mpctl.lab.payoff.published_evidence import MeasuredPair, published_classes
from mpctl.lab.payoff.scenario import (
    DRAFT_MODELS,
    LOOKUPS,
    PRECISIONS,
    TRAFFIC,
    Acceptance,
    Origin,
    Scenario,
    check_rates,
    class_acceptance,
    fault,
    from_length,
    is_known,
    misfit,
    precision_of,
)
from mpctl.methods import parse_version
from mpctl.methods.versions import Version
from mpctl.yaml_lines import Node, document, near

PROMPT, OUTPUT = 150.0, 250.0  # tokens, where a question leaves them out

# (draft, target, method, K) -> what is published of it
Published = Callable[[str | None, str | None, str, int], Acceptance | None]

_GPU_HINT = (
    "describe it: gpu: {name: X, memory_gib: 24, bandwidth_gb_s: 600, tflops: 70, nvlink: false}"
)
_MODEL_HINT = (
    "describe it: {key}: {{name: org/model, layers: 36, hidden: 4096, heads: 32, kv_heads: 8, head_dim: 128, "
    "vocab: 151936, intermediate: 12288, params_b: 8.2}}"
)
_NUMBERS_HINT = "a number, or a list: {key}: [1, 4]"
_RATES_HINT = (
    "measure it: acceptance: {per_position: [0.7, 0.5, 0.3]} (vLLM logs 'Per-position acceptance rate'), "
    "or screen: acceptance: {traffic: code}"
)


_HINTS = {
    "target": _MODEL_HINT.format(key="target"),
    "gpu": _GPU_HINT,
    "k": _NUMBERS_HINT.format(key="k"),
    "concurrency": _NUMBERS_HINT.format(key="concurrency"),
}

_Positive = Annotated[float, Meta(gt=0, le=1e15)]
_Whole = Annotated[int, Meta(ge=1, le=10_000_000)]
_K = Annotated[int, Meta(ge=1, le=64)]
_Requests = Annotated[float, Meta(ge=1, le=100_000)]
_Gigabytes = Annotated[float, Meta(gt=0.1, le=10_000)]
_Utilisation = Annotated[float, Meta(gt=0, le=1)]
_Sequences = Annotated[int, Meta(ge=1, le=100_000)]
_Length = Annotated[int, Meta(ge=1, le=100_000_000)]
_Tokens = Annotated[int, Meta(ge=0, le=10**12)]


_GPU_NAMES = {"bf16_tflops": "tflops", "usable_gib": "memory_gib"}


class _Model(Struct, kw_only=True, forbid_unknown_fields=True):
    """The dimensions of a model that mpctl's table does not have."""

    layers: _Whole
    hidden: _Whole
    heads: _Whole
    vocab: _Whole
    name: str | None = None
    kv_heads: _Whole | None = None
    head_dim: _Whole | None = None
    intermediate: _Whole | None = None
    params_b: _Positive | None = None
    active_params_b: _Positive | None = None
    experts: _Whole | None = None
    experts_per_token: _Whole | None = None
    hybrid: bool = False
    tied: bool = False

    def shape(self) -> Shape:
        fields = {name: value for name, value in asdict(self).items() if name != "name"}
        fields["kv_heads"] = self.kv_heads or self.heads
        fields["head_dim"] = self.head_dim or max(self.hidden // self.heads, 1)
        return Shape(**fields)


class _Head(Struct, forbid_unknown_fields=True):
    """A head that drafts."""

    name: str | None = None
    params_b: _Positive | None = None
    vocab: _Whole | None = None


class _Gpu(Struct, kw_only=True, rename=_GPU_NAMES, forbid_unknown_fields=True):
    """A GPU that mpctl's table does not have."""

    bandwidth_gb_s: _Positive
    bf16_tflops: _Positive
    name: str = "unnamed GPU"
    usable_gib: _Positive = math.inf
    fp8_tflops: _Positive | None = None
    nvlink: bool = False


class _Acceptance(Struct, rename={"origin": "from"}, forbid_unknown_fields=True):
    """The acceptance: rates, a length, tokens per step, or a class of traffic."""

    origin: Literal["own", "published"] = "own"
    coverage: Annotated[float, Meta(gt=0, le=1)] | None = None
    drafts: _Tokens | None = None
    length: _Positive | None = None
    tokens_per_step: _Positive | None = None
    k: _K | None = None
    per_position: tuple[float, ...] = ()
    traffic: str | None = None
    thinking: bool = False


class _Pools(Struct, forbid_unknown_fields=True):
    """Tokens of the KV pool without and with the draft, as the engine logged them."""

    baseline: _Positive | None = None
    candidate: _Positive | None = None


class _Pair(Struct, kw_only=True, forbid_unknown_fields=True):
    """Two arms that were measured."""

    concurrency: _Requests
    k: _K | None = None
    throughput_ratio: _Positive | None = None
    time_per_token_ratio: _Positive | None = None


class _Cell(Struct, kw_only=True, forbid_unknown_fields=True):
    """A question as the file has it."""

    method: str
    target: str | Json
    gpu: str | Json
    k: _K | list[_K]
    concurrency: _Requests | list[_Requests]
    draft: str | Json | None = None
    acceptance: _Acceptance | None = None
    prompt_tokens: _Positive | None = None
    output_tokens: _Positive | None = None
    pool_tokens: _Pools = field(default_factory=_Pools)
    gpus: Annotated[int, Meta(ge=1, le=1024)] = 1
    precision: str | None = None
    kv_cache: Literal["bf16", "fp16", "fp8"] = "bf16"
    weights_gb: _Gigabytes | None = None
    gpu_memory_utilization: _Utilisation = DEFAULT_UTILISATION
    max_num_seqs: _Sequences | None = None
    max_model_len: _Length | None = None
    engine: str | float | None = None
    requests: Annotated[float, Meta(ge=1)] = math.inf
    measured: tuple[_Pair, ...] = ()
    id: str | None = None
    note: Any = None


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


def read_questions(
    text: str, file: str, published: Published
) -> tuple[Question | Unanswerable, ...]:
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
            questions.append(
                Unanswerable(str(node.body.get("id", f"cell-{number}")), error.message, error.hint)
            )
    top.done()
    if not questions:
        raise top.error("cells", "holds no cell")
    if len(errors) == len(questions):
        raise errors[0]
    return tuple(questions)


def _question(node: Node, default_id: str, published: Published) -> Question:
    raw = node.read(_Cell, _HINTS)
    assumed: list[str] = []
    method, ks, concurrency = (
        raw.method,
        _listed(node, "k", raw.k),
        _listed(node, "concurrency", raw.concurrency),
    )
    if not is_known(method):
        raise node.error(
            "method",
            f"the model has no term for {method!r}",
            f"{commands.line('methods')} lists the methods",
        )
    name, target = _model(node, "target")
    gpu = _gpu(node, raw.gpu)
    draft_name, draft, head = _draft(node, raw.draft, method)
    scenario = Scenario(
        target=target,
        gpu=gpu,
        method=method,
        k=ks[0],
        concurrency=concurrency[0],
        prompt=_or_assumed("prompt_tokens", raw.prompt_tokens, PROMPT, assumed),
        output=_or_assumed("output_tokens", raw.output_tokens, OUTPUT, assumed),
        acceptance=_acceptance(
            node, raw.acceptance, method, ks[0], lambda k: published(draft_name, name, method, k)
        ),
        gpus=raw.gpus,
        draft=draft,
        draft_params_b=head.params_b,
        draft_vocab=head.vocab,
        precision=_precision(node, raw.precision, name, target, assumed),
        kv_element_bytes=1.0 if raw.kv_cache == "fp8" else 2.0,
        weights_gb=raw.weights_gb,
        pool=raw.pool_tokens.baseline,
        draft_pool=raw.pool_tokens.candidate,
        utilisation=raw.gpu_memory_utilization,
        max_num_seqs=raw.max_num_seqs,
        max_model_len=raw.max_model_len,
        engine=_version(node, raw.engine),
        requests=raw.requests,
    )
    wrong = fault(scenario, ks, concurrency)
    if wrong is not None:
        raise node.error(*wrong)
    unfit = misfit(scenario)
    if unfit is not None:
        raise node.error("target", f"{name or 'the target'} {unfit.reason}", unfit.hint)
    if scenario.pool is None:
        kind = (
            "unlimited, as the GPU's memory is not given"
            if math.isinf(gpu.usable_gib)
            else "estimated"
        )
        assumed.append(f"KV pool {kind}: pool_tokens takes what the engine logged")
    acceptance = scenario.acceptance
    if acceptance.origin == "measured" and len(acceptance.rates) < max(ks):
        assumed.append(f"rates after position {len(acceptance.rates)} fall on as the last two do")
    pairs = tuple(_pair(node, pair, method, ks[0]) for pair in raw.measured)
    return Question(
        raw.id or default_id, scenario, tuple(ks), tuple(concurrency), pairs, tuple(assumed)
    )


def _listed(node: Node, key: str, numbers: float | list[Any]) -> list[Any]:
    if numbers == []:
        raise node.error(key, "holds no number")
    return numbers if isinstance(numbers, list) else [numbers]


def _precision(
    node: Node, precision: str | None, name: str | None, target: Shape, assumed: list[str]
) -> str:
    """The given precision, else that of the target's name or of its published checkpoint."""
    if precision is not None:
        return node.choice("precision", tuple(PRECISIONS))
    precision = precision_of((name or "").rpartition("/")[2], target)
    if precision != "bf16":
        assumed.append(f"precision {precision}, by the target's name")
    return precision


def _model(node: Node, key: str) -> tuple[str | None, Shape]:
    """A model by name or by its dimensions."""
    if isinstance(node.body[key], str):
        name = node.text(key)
        shape = model_shape(name)
        if shape is None:
            raise node.error(
                key,
                f"the dimensions of {name} are not in mpctl's table",
                _MODEL_HINT.format(key=key),
            )
        return name, shape
    inner = node.node(key)
    model = inner.read(_Model)
    if model.experts and model.experts <= (model.experts_per_token or 0):
        raise inner.error(
            "experts", f"{model.experts} must be more than the {model.experts_per_token} of a token"
        )
    if model.experts and None in (model.active_params_b, model.params_b, model.experts_per_token):
        raise inner.error(
            "experts", "needs params_b, active_params_b and experts_per_token beside it"
        )
    return model.name, model.shape()


def _draft(
    node: Node, draft: str | Json | None, method: str
) -> tuple[str | None, Shape | None, _Head]:
    """The draft's name, the shape of a draft model, and a head."""
    if method in DRAFT_MODELS:
        if draft is None:
            raise node.error(
                "draft",
                f"{method} needs the draft's name or dimensions",
                _MODEL_HINT.format(key="draft"),
            )
        return *_model(node, "draft"), _Head()
    head = node.node("draft").read(_Head) if isinstance(draft, dict) else _Head(draft)
    return head.name, None, head


def _gpu(node: Node, gpu: str | Json) -> Gpu:
    if isinstance(gpu, str):
        listed = find_gpu(gpu)
        if listed is None:
            close = near(gpu, gpus())
            raise node.error(
                "gpu",
                f"{gpu!r} is not in mpctl's table{close}",
                f"{_GPU_HINT}; or {', '.join(gpus())}",
            )
        return listed
    return Gpu(
        **asdict(
            node.node("gpu").read(_Gpu, dict.fromkeys(("bandwidth_gb_s", "tflops"), _GPU_HINT))
        )
    )


def _acceptance(
    node: Node,
    asked: _Acceptance | None,
    method: str,
    k: int,
    published: Callable[[int], Acceptance | None],
) -> Acceptance:
    if asked is None:
        acceptance = published(k)
        if acceptance is None:
            raise node.error(
                "acceptance", f"nothing is known of how much {method} is accepted", _RATES_HINT
            )
        return acceptance
    inner, k = node.node("acceptance"), asked.k or k
    origin: Origin = "measured" if asked.origin == "own" else "published"
    coverage, length, drafts = asked.coverage or 1.0, asked.length, asked.drafts or None
    if asked.traffic is not None and (asked.per_position or length or asked.tokens_per_step):
        raise inner.error(
            "traffic", "rates and a class of traffic are both given", "keep one of them"
        )
    if asked.per_position:
        if any(rate > 1 for rate in asked.per_position):
            raise inner.error("per_position", "rates are shares from 0 to 1: 72.9 % is 0.729")
        wrong = check_rates(asked.per_position, length)
        if wrong is not None:
            raise inner.error("per_position", wrong)
        return Acceptance(asked.per_position, coverage, origin, drafts)
    if length is not None and method in LOOKUPS and asked.coverage is None:
        raise inner.error(
            "length",
            f"an acceptance length of {method} says nothing without its coverage",
            "give coverage (drafts over steps), or tokens_per_step",
        )
    if asked.tokens_per_step is not None:
        length = 1 + (asked.tokens_per_step - 1) / coverage
    if length is not None:
        if not 1 <= length <= k + 1:
            raise inner.error("length", f"{length:g} tokens are not possible with K = {k}")
        return Acceptance(from_length(length, k), coverage, origin, drafts)
    if asked.traffic is None:
        raise node.error("acceptance", "holds neither rates nor a class of traffic", _RATES_HINT)
    traffic = inner.choice("traffic", TRAFFIC)
    return class_acceptance(method, traffic, k, published_classes(), thinking=asked.thinking)


def _pair(node: Node, pair: _Pair, method: str, k: int) -> MeasuredPair:
    if pair.throughput_ratio is None and pair.time_per_token_ratio is None:
        raise node.error("measured", "a pair needs throughput_ratio or time_per_token_ratio")
    most = (pair.k or k) + 1
    for name in ("throughput_ratio", "time_per_token_ratio"):
        ratio = getattr(pair, name)
        if ratio is not None and not 1 / (most * 10) <= ratio <= (
            most if name == "throughput_ratio" else 10
        ):
            raise node.error(f"measured.{name}", f"{ratio:g} is not possible with K = {most - 1}")
    return MeasuredPair(
        method=method,
        k=pair.k or k,
        concurrency=pair.concurrency,
        throughput=pair.throughput_ratio,
        time_per_token=pair.time_per_token_ratio,
        source="the question",
    )


def _or_assumed(key: str, value: float | None, default: float, assumed: list[str]) -> float:
    if value is None:
        assumed.append(f"{key} {default:g}")
    return value or default


def _version(node: Node, engine: str | float | None) -> Version | None:
    version = None if engine is None else parse_version(str(engine))
    if engine is not None and version in (None, (0, 0, 0)):
        raise node.error("engine", f"{engine!r} is not a version of vLLM", "engine: 0.19.1")
    return version
