"""Plan the training of a head: what free methods bring, whether the prompts suffice, what it costs and may gain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mpctl.app.change.resolve import resolve_target
from mpctl.app.planned_workload import read_traffic
from mpctl.app.session.base import Session, Source
from mpctl.errors import InputError
from mpctl.estimate.shape import find_gpu, gpus, model_shape
from mpctl.experiment.counters import CounterError, Counters, Window
from mpctl.experiment.prompt_files import Prompt, text_of
from mpctl.json_types import Json
from mpctl.lab.drafts.order import Split
from mpctl.lab.drafts.requests import DraftPlanRequest
from mpctl.lab.drafts.training_cost import Cost, Device, Gain, Sizes, TrainingLoad, cost_of
from mpctl.lab.payoff.scenario import FREE, PRECISIONS, head_weights, precision_of, target_weights
from mpctl.lab.plan.evidence import earlier_measurements
from mpctl.lab.plan.measure import replay_transcripts
from mpctl.lab.requests import PlanRequest
from mpctl.methods import METHODS, Spec, from_config

_CHARACTERS = 4.0  # of a token of English text or code
_STATES = 4  # hidden states that are kept per token: three layers' and the last one's
_SALT = "plan"  # nothing of a plan is stored


@dataclass(frozen=True)
class TrainingPlan:
    """A plan. ``gpu`` and ``cost`` None where target or GPU are unknown, with the reason in ``missing``."""

    service: str
    method: str
    target: str
    gain: Gain
    gpu: str | None
    cost: Cost | None
    missing: tuple[str, ...]

    @property
    def refusals(self) -> tuple[str, ...]:
        """Reasons not to train."""
        return self.gain.refusals()

    def to_record(self) -> Json:
        """A JSON object."""
        gain = self.gain
        cost = None if self.cost is None else {
            "gpuHours": round(self.cost.gpu_hours, 3),
            "collectSeconds": round(self.cost.collect_s),
            "trainSeconds": round(self.cost.train_s),
            "diskGib": round(self.cost.disk_gib, 2),
        }  # fmt: skip
        return {
            "service": self.service,
            "method": self.method,
            "target": self.target,
            "gpu": self.gpu,
            "trainingConversations": gain.conversations,
            "freeMethods": {name: round(tokens, 3) for name, tokens in gain.free.items()},
            "tokensPerStep": {
                "now": gain.now,
                "reference": gain.reference,
                "predicted": gain.refreshed,
            },
            "cost": cost,
            "missing": list(self.missing),
            "refusals": list(self.refusals),
        }


def plan_training(source: Source, request: DraftPlanRequest) -> TrainingPlan:
    """Plan the training of a head for a service.

    Raises:
        InputError: no method of heads is named or serves, or a file cannot be used.
    """
    config: Json | None = source.service().speculation()
    spec = from_config(config)
    method = trained_method(request.method, spec)
    split = Split.of(read_prompts(request.prompts), _SALT)
    gain = Gain(
        now=request.now or (_tokens_now(source) if spec.method == method else None),
        reference=request.reference or _reference(source, method, spec),
        free=_free(source, request),
        conversations=len(split.training),
    )
    tokens = (
        sum(len(text_of(prompt)) for prompt in split.training) / len(split.training) / _CHARACTERS
    )
    target = resolve_target(source, listing=None, ask_hub=False, kserve=None)
    facts = target.checkpoint.facts
    shape = (facts.shape if facts else None) or model_shape(target.model)
    gpu, missing = find_gpu(request.gpu or source.gpu()), []
    if request.gpu is not None and gpu is None:
        raise InputError(
            f"{request.gpu!r} is not in the table",
            field="--gpu",
            hint=f"known: {', '.join(gpus())}",
        )
    if shape is None:
        missing.append(
            f"GPU hours and disk: the dimensions of {target.model or 'the target'} are unknown"
        )
    if gpu is None:
        missing.append("GPU hours: the GPU is unknown, --gpu names it")
    if gain.refreshed is None:
        missing.append(
            "gain: tokens per step now and of a good head are not both known (--now, --reference)"
        )
    if not gain.free:
        missing.append("what free methods bring: --transcripts FILE replays them")
    cost = None
    if shape is not None and gpu is not None:
        precision = PRECISIONS[precision_of(target.model or "", shape)]
        weights, head = (
            target_weights(shape, bytes_per_param=precision),
            head_weights(shape, method),
        )
        sizes = Sizes(weights.active_b, head.active_b, weights.total_gb, _STATES, shape.hidden)
        work = TrainingLoad(len(split.training), tokens, request.answer_tokens)
        cost = cost_of(method, sizes, work, Device(gpu.bf16_tflops, gpu.bandwidth_gb_s))
    name = "/".join(filter(None, (source.namespace, source.name)))
    return TrainingPlan(
        name,
        method,
        target.model or "unknown",
        gain,
        gpu.name if gpu else None,
        cost,
        tuple(missing),
    )


def trained_method(named: str | None, serving: Spec) -> str:
    """Return the method of the head to train: as named, else the one that serves.

    Raises:
        InputError: it has no head that is trained for one target.
    """
    method = named or serving.method
    row = METHODS.get(method)
    trainable = [name for name, each in METHODS.items() if each.head_layers]
    if row is None or not row.head_layers:
        raise InputError(
            f"{method} has no head to train",
            field="--spec",
            hint=f"methods with heads: {', '.join(trainable)}",
        )
    return method


def read_prompts(files: tuple[str, ...]) -> tuple[Prompt, ...]:
    """Read the prompts of files, in their order.

    Raises:
        InputError: no file is named, or one cannot be used.
    """
    if not files:
        raise InputError(
            "names the prompts of your traffic", field="--prompts", hint="--prompts traffic.jsonl"
        )
    return tuple(prompt for text in files for prompt in read_traffic(text).prompts)


def _free(source: Source, request: DraftPlanRequest) -> dict[str, float]:
    if request.transcripts is None:
        return {}
    free_methods = PlanRequest(
        methods=FREE, transcripts=request.transcripts, tokenizer=request.tokenizer
    )
    replayed = replay_transcripts(source, free_methods).measured
    return {
        name: acceptance.tokens_per_step(len(acceptance.rates))
        for name, (acceptance, _) in replayed.items()
    }


def _reference(source: Source, method: str, spec: Spec) -> float | None:
    """Tokens per step of the service's last rollout of the method."""
    if not isinstance(source, Session):
        return None
    measured = earlier_measurements(source, ()).measured.get(method)
    return (
        None if measured is None else measured[0].tokens_per_step(spec.k or len(measured[0].rates))
    )


def _tokens_now(source: Source) -> float | None:
    """Tokens per step of the engines that serve, since they started."""
    return None if not isinstance(source, Session) else tokens_per_step(source.counters().engines)


def tokens_per_step(engines: Mapping[str, Counters]) -> float | None:
    """Tokens per drafted step over engines since they started; None where none has drafted."""
    drafts = accepted = 0.0
    for counters in engines.values():
        try:
            start = Counters(0, drafts=0, draft_tokens=0, accepted=0, started=counters.started)
            window = Window.between(start, counters)
        except CounterError:
            continue
        drafts, accepted = drafts + (window.drafts or 0.0), accepted + (window.accepted or 0.0)
    return 1 + accepted / drafts if drafts else None
