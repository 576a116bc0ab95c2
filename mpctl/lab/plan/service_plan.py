"""Plan a service: every method asked for, checked, fitted and predicted, the best first."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from mpctl import commands
from mpctl.app.change import Change, prepare
from mpctl.app.change.check import Load
from mpctl.app.change.resolve import UnchangedService, load_catalogue, resolve_target
from mpctl.app.change.source import UnservedModel
from mpctl.app.requests import SpeculationRequest
from mpctl.app.session.base import Session, Source
from mpctl.errors import InputError, MpctlError, Refused
from mpctl.estimate.facts import facts_of, served_numbers
from mpctl.estimate.memory import read_log
from mpctl.estimate.shape import GIB, Gpu, Shape, find_gpu, gpus, model_shape, nearest_models
from mpctl.json_types import Json
from mpctl.lab.payoff.grid import entry_record, table
from mpctl.lab.payoff.published_evidence import CPU, fitted
from mpctl.lab.payoff.scenario import (
    DRAFT_MODELS,
    FREE,
    Acceptance,
    Refusal,
    Scenario,
    fault,
    is_known,
    misfit,
    precision_of,
)
from mpctl.lab.payoff.schedule import schedule
from mpctl.lab.plan.caches import LostHits, lost_hits
from mpctl.lab.plan.evidence import acceptance_for, gather, lengths_of
from mpctl.lab.plan.result import MethodPlan, Needs, ServicePlan
from mpctl.lab.requests import PlanRequest
from mpctl.methods import METHODS, parse_version

_KS = (1, 2, 3, 4, 5, 6, 7)
# A desktop processor of this decade; only what is measured says more.
_PROCESSOR = Gpu(CPU, math.inf, 30.0, 0.5)  # its KV pool is a setting of its own
_PROCESSORS = ("cpu", "xeon", "epyc", "ryzen", "core(tm)", "neoverse", "processor")
# Flags that keep weights elsewhere than on the GPUs of tensor parallelism.
_RANKS = ("pipeline-parallel-size", "data-parallel-size", "prefill-context-parallel-size")
# Flags that the fit does not know: they spread a target over other GPUs or to the host's memory, or every published
# engine runs without them, which replays CUDA graphs.
_OFFLOAD = "cpu-offload-gb"
_SPREADS = (*_RANKS, "decode-context-parallel-size", "enable-expert-parallel", _OFFLOAD)
_EAGER = "enforce-eager"
_NO_SHAPE = "give its dimensions: MPCTL_TARGET_LISTING=FILE (docs/how-to/drafts.md), or ask with --cell FILE"


def run(
    source: Source, request: PlanRequest, progress: Callable[[str], None] = lambda _: None
) -> ServicePlan:
    """Plan every method asked for; ``all``: each that the target has a draft for. ``progress``: called with each.

    Raises:
        InputError: the request cannot be used.
    """
    asked = request.speculation
    target = resolve_target(
        source,
        listing=asked.target_listing,
        ask_hub=False,
        kserve=None,
        release=asked.engine_version,
    )
    methods = (
        request.methods if request.methods != ("all",) else _all_methods(request, target.model)
    )
    planner = Planner(source, request, target, methods)
    plans: list[MethodPlan] = []
    for method in methods:
        progress(f"{method}, {len(plans) + 1} of {len(methods)} methods")
        plans.append(planner.method(method))
    return ServicePlan(
        name=source.name,
        namespace=source.namespace,
        target=target.model or "unknown",
        gpu=planner.gpu.name if planner.gpu else "unknown",
        prompt=planner.lengths.prompt,
        output=planner.lengths.output,
        methods=tuple(sorted(plans, key=lambda plan: plan.rank)),
        notes=(*planner.lengths.notes, *planner.evidence.notes),
    )


def run_request(
    name: str | None,
    file: str | None,
    request: PlanRequest,
    open_source: Callable[[str | None, str | None], Source],
    progress: Callable[[str], None] = lambda _: None,
) -> ServicePlan:
    """Plan a service, the one of a manifest file, or a model that nobody serves. Without ``methods`` those that
    ``speculation.method`` names, separated by commas; ``all`` where it names none.

    Raises:
        InputError: the request cannot be used.
    """
    named = request.speculation.method or "all"
    methods = request.methods or tuple(filter(None, map(str.strip, named.split(","))))
    if "auto" in methods:
        raise InputError(
            "auto is a choice of rollout", field="--spec", hint="--spec all compares the methods"
        )
    request = replace(request, methods=methods)
    if name is not None and file is None and "/" in name:  # no name of a service has a slash
        return run_for_model(name, request, progress)
    return run(open_source(name, file), request, progress)


def run_for_model(
    model: str, request: PlanRequest, progress: Callable[[str], None] = lambda _: None
) -> ServicePlan:
    """Plan a model of the hub that nobody serves, on as few GPUs as hold it: a note says so where one does not.

    Raises:
        InputError: the request cannot be used.
    """
    plan = run(UnservedModel(model), request, progress)
    gpus = max((method.refusal.gpus or 1 for method in plan.methods if method.refusal), default=1)
    if gpus == 1:
        return plan
    note = f"--tensor-parallel-size={gpus} assumed: {model} does not fit one {plan.gpu}"
    plan = run(UnservedModel(model, gpus), request, progress)
    return replace(plan, notes=(note, *plan.notes))


def plan_change(
    source: Source, speculation: SpeculationRequest, change: Change, concurrency: tuple[int, ...]
) -> MethodPlan:
    """Plan a change that is prepared already.

    Raises:
        InputError: the request cannot be used.
    """
    method, k = change.spec.method, change.spec.k
    request = PlanRequest((method,), speculation, concurrency, (k,) if k else ())
    return Planner(source, request, change.target, request.methods).predict(change)


def predict_rollout(
    session: Session, speculation: SpeculationRequest, change: Change, concurrency: tuple[int, ...]
) -> Json | None:
    """Show and return the plan's prediction of a change before it is measured; None if the plan has no figure.

    A prediction is never in the way of a rollout: what prevents it is left to the plan to say.
    """
    if change.spec.is_none or not concurrency:
        return None
    try:
        grid = plan_change(session, speculation, change, concurrency).grid
    except MpctlError:
        return None
    if grid is None:
        return None
    answers = [entry_record(choice.entry) for choice in grid.choices]
    last, level = answers[-1], grid.choices[-1].entry.level
    ratio = last["throughputRatio"]
    session.console.note(
        f"the plan predicts a throughput ratio of {ratio['value']:.2f} [{ratio['low']:.2f}-{ratio['high']:.2f}] at "
        f"concurrency {last['concurrency']:g} ({level}: {last['call']})"
    )
    return {"level": level, "answers": answers}


def choose_best(
    session: Session, speculation: SpeculationRequest, concurrency: tuple[int, ...]
) -> SpeculationRequest:
    """Show and return the change with the plan's best method that gains at the highest concurrency, with its K, for
    ``--spec auto``.

    Raises:
        Refused: no method has a figure and passes the preflight, or none is predicted to gain.
    """
    plan = run(session, PlanRequest(("all",), replace(speculation, method=""), concurrency or (1,)))
    gaining = (
        method
        for method in plan.methods
        if not method.refused and method.last and method.last.entry.prediction.throughput.value > 1
    )
    best = next(gaining, plan.best)
    if best is None or best.last is None or best.change is None:
        reasons = "; ".join(
            f"{method.method}: {method.refusal.reason}" for method in plan.methods if method.refusal
        )
        raise Refused(
            f"{session.title}: the plan has no figure for any method ({reasons or 'each is refused by the preflight'})",
            hint=f"{session.command('plan', '--spec', 'all')} says what is missing; or name a method with --spec",
        )
    ratio = best.last.entry.prediction.throughput
    if ratio.value <= 1:
        raise Refused(
            f"{session.title}: the best method, {best.method}, is predicted to lose (throughput ratio {ratio.text()})",
            hint=f"--spec {best.method} measures it all the same",
        )
    settings = speculation.settings
    fixed = best.change.spec.k is not None
    if fixed and not any(text.startswith("num_speculative_tokens=") for text in settings):
        settings = (*settings, f"num_speculative_tokens={best.last.k}")
    session.console.note(
        f"auto: {' '.join((best.method, *settings))}, predicted throughput ratio {ratio.text()}"
    )
    return replace(speculation, method=best.method, settings=settings)


def _sized(target: UnchangedService, flag: str) -> int:
    """The number that a flag of the engine has; 1 without the flag, 0 where it has another value or none."""
    value = target.service.whole_command.get(flag)
    if flag == _OFFLOAD:  # GiB, of which any spreads the weights
        return 0 if value and value.strip("0.") else 1
    if value is None:
        return int(not target.service.whole_command.has(flag))
    return max(int(value), 1) if value.isdecimal() else 0


def _gpus_of(target: UnchangedService) -> int:
    """The GPUs of a replica, over all of its ranks."""
    return math.prod(_sized(target, flag) or 1 for flag in ("tensor-parallel-size", *_RANKS))


def _all_methods(request: PlanRequest, target: str | None) -> tuple[str, ...]:
    """The methods that load nothing and those with a published draft."""
    catalogue = load_catalogue(request.speculation.catalogue)
    try:
        drafts = catalogue.of(target) if target else ()
    except InputError:
        drafts = ()
    published = {draft.method for draft in drafts if draft.unsuitable(draft.method, None) is None}
    return tuple(name for name in METHODS if name in published or name in FREE)


class Planner:
    """Plans methods of one service by the facts that they share."""

    def __init__(
        self, source: Source, request: PlanRequest, target: UnchangedService, methods: Sequence[str]
    ) -> None:
        self._source, self._request, self._target = source, request, target
        self._log = read_log(source.engine_log() or "")
        self.evidence = gather(source, request, methods)
        self.gpu = self._gpu()
        self.lengths = lengths_of(request, self.evidence)

    def _gpu(self) -> Gpu | None:
        """Return the named GPU, else the GPU that the service was measured on or that it runs on.

        Raises:
            InputError: the GPU named is not in the table.
        """
        name, devices = self._request.speculation.gpu, self.evidence.devices
        if name is not None:
            gpu = find_gpu(name)
            if gpu is None and name.upper() != CPU:
                raise InputError(
                    f"{name!r} is not in the table",
                    field="--gpu",
                    hint=f"known: {', '.join(gpus())}; another one: describe it in a file for --cell",
                )
            return gpu or _PROCESSOR
        # Where it runs now, then where it was measured last.
        for device in (self._source.gpu(), *reversed(devices)):
            gpu = find_gpu(device)
            if gpu is not None:
                return gpu
        processor = any(word in device.lower() for device in devices for word in _PROCESSORS)
        return _PROCESSOR if processor or self._log.device == CPU else None

    def method(self, method: str) -> MethodPlan:
        """Prepare a method's change and predict it."""
        # Of a processor's memory nothing is in the table.
        gpu = None if self.gpu in (None, _PROCESSOR) else self.gpu.name
        speculation = replace(self._request.speculation, method=method, gpu=gpu)
        try:
            change = prepare(self._source, speculation, Load(max(self._request.concurrency)))
        except Refused as refused:
            return MethodPlan(method, None, refusal=Refusal(refused.message, refused.hint))
        return self.predict(change)

    def predict(self, change: Change) -> MethodPlan:
        """Predict a prepared change, with its needs."""
        request, evidence, method = self._request, self.evidence, change.spec.method
        plan = MethodPlan(method, change, needs=self._needs(change))
        cell = self._cell(change)
        if isinstance(cell, Refusal):
            return replace(plan, refusal=cell)
        if request.ks:
            ks: Sequence[int] = request.ks
        elif METHODS[method].k_from == "method" and cell.acceptance.origin == "measured":
            ks = (
                len(cell.acceptance.rates),
            )  # the mean length: the method decides on each draft's
        else:
            ks = sorted({*_KS, change.spec.k or 1})
        pairs, posterior = evidence.pairs_of(method), fitted()
        grid = table(cell, request.concurrency, ks, posterior, pairs)
        return replace(
            plan,
            grid=grid,
            evidence=evidence.describe(method, cell.acceptance),
            learned=evidence.learned(cell, posterior, pairs),
            schedule=schedule(grid.choices, cell.engine),
            caches=self._lost_hits(cell),
            assumed=()
            if cell.pool is not None
            else (f"KV pool estimated, {cell.pool_ranges()[0].text('tokens')}",),
        )

    def _lost_hits(self, cell: Scenario) -> LostHits | None:
        """The hits of the prefix cache that a method costs, by the share that the service's users have."""
        service, source = self._target.service, self._source
        if not facts_of(service, target=self._target.checkpoint.facts).prefix_caching:
            return None
        block = service.whole_command.get("block-size")
        return lost_hits(
            cell,
            fitted(),
            share=source.counters().prefix_hit_share if isinstance(source, Session) else None,
            block=int(block) if block and block.isdecimal() else None,
            connector=service.whole_command.get("kv-transfer-config") is not None,
        )

    def _needs(self, change: Change) -> Needs:
        """The needs of a side-by-side rollout, which is the default."""
        per_replica = _gpus_of(self._target)
        staging = (
            "no second artifact"
            if change.staging is None
            else f"{change.staging.mode}: {change.staging.reason}"
        )
        notes = ["side by side: the service goes on; a second engine runs while the gate measures"]
        if isinstance(self._source, Session) and (
            start := self._source.start_time().removeprefix("; ")
        ):
            notes.append(start)
        notes.append("without free GPUs: --strategy in-place, with downtime of an engine start")
        return Needs(per_replica, staging, tuple(notes))

    def _cell(self, change: Change) -> Scenario | Refusal:
        """The question to the model, or what is missing for it."""
        request, target, method = self._request, self._target, change.spec.method
        facts = target.checkpoint.facts
        if not is_known(method):
            return Refusal(f"the model has no term for {method}", "measure it with a bench")
        shape = (facts.shape if facts else None) or model_shape(target.model)
        if shape is None:
            near = nearest_models(target.model)
            return Refusal(
                f"the dimensions of {target.model or 'the target'} are unknown",
                f"the nearest that are known: {', '.join(near)}; or {_NO_SHAPE}"
                if near
                else _NO_SHAPE,
            )
        if self.gpu is None:
            return Refusal("the GPU is unknown", f"--gpu names it: {', '.join(gpus())}")
        draft = None
        if method in DRAFT_MODELS:
            draft = change.draft_shape or model_shape(change.selection.draft or change.spec.draft)
            if draft is None:
                hint = "MPCTL_DRAFT_LISTING=FILE names them"
                return Refusal(f"the dimensions of the draft {change.draft_name} are unknown", hint)
        k = request.ks[0] if request.ks else change.spec.k or 5
        thinking = facts_of(target.service, target=facts).thinking is True
        acceptance = acceptance_for(request, change, self.evidence, k, thinking=thinking)
        if acceptance is None:
            return Refusal(
                f"nothing is known of how much {method} is accepted",
                "measure it with --measure; name a class to screen: --traffic code; or give rates: --acceptance "
                "0.7,0.5,0.3",
            )
        cell = self._scenario(method, k, self.gpu, (shape, draft), acceptance)
        wrong = fault(cell, request.ks or (k,), request.concurrency)
        if wrong is not None:
            field, reason = wrong
            if field == "target.params_b":
                words = [
                    "plan",
                    "Qwen/Qwen3-8B",
                    "--spec",
                    "all",
                    "--gpu",
                    "L4",
                    "--traffic",
                    "code",
                ]
                return Refusal(
                    f"{target.model} is no language model of a size that is served",
                    f"try '{commands.line(*words)}'",
                )
            raise InputError(reason, field=f"--{field.rpartition('.')[2].replace('_', '-')}")
        refusal = None if cell.unfitted.removeprefix(f"--{_EAGER}") else misfit(cell)
        return (
            cell
            if refusal is None
            else replace(refusal, reason=f"{target.model or 'the target'} {refusal.reason}")
        )

    def _scenario(
        self,
        method: str,
        k: int,
        gpu: Gpu,
        shapes: tuple[Shape, Shape | None],
        acceptance: Acceptance,
    ) -> Scenario:
        """The cell of the first concurrency, as the service is configured. ``shapes``: of target and draft."""
        request, target, facts = self._request, self._target, self._target.checkpoint.facts
        numbers = served_numbers(target.service, facts)
        pool, draft_pool = self.evidence.pools.get(method, (self._log.tokens, None))
        converted = target.service.whole_command.get("quantization")
        weights = facts.weight_gib if facts and not converted else None
        return Scenario(
            target=shapes[0],
            gpu=gpu,
            method=method,
            k=k,
            concurrency=float(request.concurrency[0]),
            prompt=self.lengths.prompt,
            output=self.lengths.output,
            acceptance=acceptance,
            gpus=_gpus_of(target),
            draft=shapes[1],
            precision=precision_of(
                f"{converted} {facts and facts.quantization} {target.model}", shapes[0]
            ),
            kv_element_bytes=float(numbers.element_bytes),
            weights_gb=weights and weights * GIB / 1e9,
            pool=pool,
            draft_pool=draft_pool,
            utilisation=numbers.utilisation,
            max_num_seqs=numbers.max_num_seqs,
            max_model_len=numbers.max_model_len,
            engine=parse_version(target.engine),
            unfitted=", ".join(
                f"--{flag}" for flag in (_EAGER, *_SPREADS) if _sized(target, flag) != 1
            ),
        )
