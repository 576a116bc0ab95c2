"""Plan a service: every method asked for, checked, fitted and predicted, the best first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mpctl.app.change import Change, prepare
from mpctl.app.change.check import Load
from mpctl.app.change.resolve import Target, load_catalogue, resolve_target
from mpctl.app.change.source import Source
from mpctl.app.plan.evidence import Evidence, Lengths, acceptance_for, gather, lengths_of
from mpctl.app.plan.result import MethodPlan, Needs, Refusal, ServicePlan, cost_of, read_price_list
from mpctl.app.requests import PlanRequest
from mpctl.app.session.base import Session
from mpctl.errors import InputError, Refused
from mpctl.estimate import target_name_of
from mpctl.estimate.facts import served_numbers
from mpctl.estimate.memory import Estimate, read_log
from mpctl.estimate.payoff.advice import advice, schedule
from mpctl.estimate.payoff.cell import DRAFT_MODELS, FREE, Cell, is_known
from mpctl.estimate.payoff.constants import fitted
from mpctl.estimate.payoff.evidence import CPU
from mpctl.estimate.payoff.grid import table, what_changes
from mpctl.estimate.shape import Shape
from mpctl.estimate.table import Gpu, find_gpu, gpus, model_shape
from mpctl.methods import METHODS, parse_version
from mpctl.report.prices import Prices


def needs_of(source: Source, change: Change, target: Target) -> Needs:
    """The needs of a side-by-side rollout, which is the default."""
    per_replica = served_numbers(target.service, target.checkpoint.facts).tensor_parallel
    plan = change.staging
    staging = "no second artifact" if plan is None else f"{plan.mode}: {plan.reason}"
    notes = ["side by side: the service goes on; a second engine runs while the gate measures"]
    if isinstance(source, Session):
        started = source.start_time().removeprefix("; ")
        notes += [started] if started else []
    notes.append("without free GPUs: --strategy in-place, with downtime of an engine start")
    return Needs(per_replica, staging, tuple(notes))


_KS = (1, 2, 3, 4, 5, 6, 7)
# A desktop processor of this decade; only what is measured says more.
_PROCESSOR = Gpu(CPU, 8.0, 30.0, 0.5)
_NO_SHAPE = "give its dimensions: --target-listing FILE (docs/how-to/drafts.md), or ask with --cell FILE"


@dataclass(frozen=True)
class _Known:
    """The facts that all methods of a plan share. ``name``: of the target; ``logged``: tokens of the serving engine's
    pool."""

    source: Source
    request: PlanRequest
    target: Target
    name: str | None
    gpu: Gpu | None
    lengths: Lengths
    evidence: Evidence
    prices: Prices
    logged: int | None


def run(source: Source, request: PlanRequest) -> ServicePlan:
    """Plan every method asked for; ``all``: each that the target has a draft for.

    Raises:
        InputError: the request cannot be used.
    """
    target = resolve_target(source, listing=request.speculation.target_listing, ask_hub=False, kserve=None)
    name = target_name_of(target.service, target.name)
    methods = _methods(request, name)
    evidence = gather(source, request, methods)
    known = _Known(
        source=source,
        request=request,
        target=target,
        name=name,
        gpu=_gpu(source, request, evidence),
        lengths=lengths_of(request, evidence),
        evidence=evidence,
        prices=read_price_list(request.prices),
        logged=read_log(source.engine_log() or "").tokens,
    )
    lengths = known.lengths
    return ServicePlan(
        name=source.name,
        namespace=source.namespace,
        target=known.name or "unknown",
        gpu=known.gpu.name if known.gpu else "unknown",
        prompt=lengths.prompt,
        output=lengths.output,
        methods=tuple(sorted((_method(known, method) for method in methods), key=lambda made: made.rank)),
        notes=(*lengths.notes, *evidence.notes),
    )


def _methods(request: PlanRequest, target: str | None) -> tuple[str, ...]:
    """The methods asked for; of ``all`` those that load nothing and those with a published draft."""
    if request.methods != ("all",):
        return request.methods
    catalogue = load_catalogue(request.speculation.catalogue)
    try:
        drafts = catalogue.of(target) if target else ()
    except InputError:
        drafts = ()
    published = {draft.method for draft in drafts if draft.unsuitable(draft.method, None) is None}
    return tuple(name for name in METHODS if name in published or name in FREE)


def _gpu(source: Source, request: PlanRequest, evidence: Evidence) -> Gpu | None:
    """Return the named GPU, else the GPU that the service was measured on or that it runs on.

    Raises:
        InputError: the GPU named is not in the table.
    """
    named = request.speculation.gpu
    if named is not None:
        gpu = find_gpu(named)
        if gpu is None and named.upper() != CPU:
            raise InputError(
                f"{named!r} is not in the table",
                field="--gpu",
                hint=f"known: {', '.join(gpus())}; another one: describe it in a file for --cell",
            )
        return gpu or _PROCESSOR
    for device in (*evidence.devices, source.gpu()):
        gpu = find_gpu(device)
        if gpu is not None:
            return gpu
    logged = read_log(source.engine_log() or "").device
    return _PROCESSOR if logged == CPU or any(_is_processor(device) for device in evidence.devices) else None


def _is_processor(device: str) -> bool:
    return any(word in device.lower() for word in ("cpu", "xeon", "epyc", "ryzen", "core(tm)", "neoverse", "processor"))


def _method(known: _Known, method: str) -> MethodPlan:
    request, evidence, target = known.request, known.evidence, known.target
    # Of a processor's memory nothing is in the table.
    gpu = None if known.gpu in (None, _PROCESSOR) else known.gpu.name
    asked = replace(request.speculation, method=method, gpu=gpu)
    try:
        change = prepare(known.source, asked, Load(max(request.concurrency)))
    except Refused as refused:
        return MethodPlan(method, None, refusal=Refusal(refused.message, refused.hint))
    made = MethodPlan(method, change, needs=needs_of(known.source, change, target))
    cell = _cell(known, change)
    if isinstance(cell, Refusal):
        return replace(made, refusal=cell)
    pairs, posterior = evidence.pairs_of(method), fitted()
    grid = table(cell, request.concurrency, _ks(request, change, cell), posterior, pairs)
    last = grid.choices[-1]
    rate = evidence.tokens_per_s.get(last.concurrency)
    return replace(
        made,
        grid=grid,
        evidence=evidence.describe(method, cell.acceptance),
        learned=evidence.learned(cell, posterior, pairs),
        changes=what_changes(last.entry, posterior, pairs),
        cost=cost_of(last, cell.gpu.name, cell.gpus, known.prices, tokens_per_s=rate),
        advice=advice(cell, classes=known.lengths.classes, temperature=request.temperature),
        schedule=schedule(grid.choices, cell.engine),
        assumed=() if cell.pool is not None else ("KV pool estimated from the GPU's specification",),
    )


def _ks(request: PlanRequest, change: Change, cell: Cell) -> Sequence[int]:
    """The K asked for, else 1 to 7; the mean length where the method decides on each draft's."""
    if request.ks:
        return request.ks
    if METHODS[change.spec.method].k_from == "method" and cell.acceptance.origin == "measured":
        return (len(cell.acceptance.rates),)
    return tuple(sorted({*_KS, *((change.spec.k,) if change.spec.k else ())}))


def _cell(known: _Known, change: Change) -> Cell | Refusal:
    """The question to the model, or what is missing for it."""
    request, target, gpu, evidence = known.request, known.target, known.gpu, known.evidence
    method, lengths = change.spec.method, known.lengths
    if not is_known(method):
        return Refusal(f"the model has no term for {method}", "measure it with a bench")
    shape = (target.checkpoint.facts.shape if target.checkpoint.facts else None) or model_shape(known.name)
    if shape is None:
        return Refusal(f"the dimensions of {known.name or 'the target'} are unknown", _NO_SHAPE)
    if gpu is None:
        return Refusal("the GPU is unknown", f"--gpu names it: {', '.join(gpus())}")
    draft = _draft_shape(change) if method in DRAFT_MODELS else None
    if method in DRAFT_MODELS and draft is None:
        return Refusal(
            f"the dimensions of the draft {change.draft_name} are unknown", "--draft-listing FILE names them"
        )
    k = request.ks[0] if request.ks else change.spec.k or 5
    acceptance = acceptance_for(request, change, evidence, k)
    if acceptance is None:
        hint = (
            "measure it with --measure; name a class to screen: --traffic code; or give rates: --acceptance 0.7,0.5,0.3"
        )
        return Refusal(f"nothing is known of how much {method} is accepted", hint)
    numbers = served_numbers(target.service, target.checkpoint.facts)
    pools = evidence.pools.get(method) or _pools(change.checked.memory, known.logged)
    facts = target.checkpoint.facts
    quantised = facts.quantization if facts and facts.quantization not in (None, "none") else None
    return Cell(
        target=shape,
        gpu=gpu,
        method=method,
        k=k,
        concurrency=float(request.concurrency[0]),
        prompt=lengths.prompt,
        output=lengths.output,
        acceptance=acceptance,
        gpus=numbers.tensor_parallel,
        draft=draft,
        precision=_precision(quantised, known.name),
        kv_element_bytes=float(numbers.kv_element_bytes),
        pool=pools[0],
        draft_pool=pools[1],
        engine=parse_version(target.engine),
    )


def _draft_shape(change: Change) -> Shape | None:
    return change.draft_shape or model_shape(change.selection.draft or change.spec.draft)


def _precision(quantised: str | None, name: str | None) -> str:
    text = f"{quantised or ''} {name or ''}".lower()
    return next((dtype for dtype in ("fp8", "awq", "gptq", "mxfp4", "nvfp4", "int8", "int4") if dtype in text), "bf16")


def _pools(memory: Estimate | None, logged: int | None) -> tuple[float | None, float | None]:
    """The middle of the estimate; what the engine logged without one, or where its pessimistic end is empty."""
    if memory is None:
        return logged, None
    before, after = memory.before, memory.after
    if min(before.low, after.low) <= 0:
        return logged, None
    return (before.low + before.high) / 2, (after.low + after.high) / 2
