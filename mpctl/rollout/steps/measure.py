"""Warm the candidate up, measure the arms of an operation round by round, and ask the gate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from mpctl.errors import InputError, MpctlError
from mpctl.experiment.answers import Level
from mpctl.experiment.block import BASELINE, CANDIDATE
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import CounterError, Window
from mpctl.experiment.prompt_files import Prompt, text_of
from mpctl.experiment.round_answers import RoundAnswers
from mpctl.experiment.workload import Workload
from mpctl.gate.first_position import MISMATCH_HINT, FirstPosition, misses_in_all
from mpctl.gate.rule import Outcome
from mpctl.gate.verdict import Verdict
from mpctl.methods import Spec
from mpctl.rollout.arm_engines import ArmEngines, MeasuredEngine
from mpctl.rollout.context import Context
from mpctl.rollout.measurement import MeasuredRounds, Measurement
from mpctl.rollout.measurement_records import MeasurementRecords, load_record
from mpctl.rollout.operation import Operation, StepResult
from mpctl.rollout.plan import Kind
from mpctl.rollout.ports import Arm, Endpoint, LoadOrder, Phase, Store
from mpctl.rollout.steps.candidate import await_ready
from mpctl.safe_text import conceal

_ANSWERS = 8  # of the warm-up that are judged one by one


def measure_alternating(context: Context, operation: Operation) -> MeasuredRounds:
    """Send the same prompts to both arms in alternating blocks, round by round, until the gate has decided."""
    return measurement(context, operation).measure()


def measure_baseline(context: Context, operation: Operation) -> MeasuredRounds:
    """All rounds of the baseline, before it is switched off."""
    return measurement(context, operation).measure((BASELINE,))


def measure_candidate(context: Context, operation: Operation) -> MeasuredRounds:
    """Rounds of the candidate, which runs in the baseline's place, until the gate has decided."""
    return measurement(context, operation).measure((CANDIDATE,))


def measurement(
    context: Context, operation: Operation, engines: ArmEngines | None = None
) -> Measurement:
    """The measurement of an operation. ``engines``: other ones than those that run side by side."""
    return Measurement(
        engines or engines_of(context, operation),
        answers=context.round_answers.setdefault(operation.id, RoundAnswers()),
        fidelity=operation.plan.fidelity,
    )


def records_of(context: Context, operation: Operation) -> MeasurementRecords:
    """The records of an operation's measurement."""
    return MeasurementRecords.of(operation, workload_of(context, operation), context.store)


def engines_of(
    context: Context, operation: Operation, *, baseline: Arm | None = None
) -> ArmEngines:
    """The engines of an operation's arms, which run side by side. ``baseline``: another one than the measured."""
    plan, records = operation.plan, records_of(context, operation)
    arms = {
        BASELINE: (baseline or plan.measured_baseline, plan.baseline_spec),
        CANDIDATE: (plan.arm, plan.spec),
    }

    def engine_of(name: str) -> MeasuredEngine:
        try:
            return measured_engine(context, *arms[name], name=f"the {name}")
        except MpctlError as error:  # the last lines of an engine's log may quote what was sent
            conceal(error, map(text_of, records.workload.prompts))
            raise

    return ArmEngines(records, context.meter, context.progress, engine_of, context.warm)


def measured_engine(
    context: Context, arm: Arm, spec: Spec | None, *, name: str = "the service"
) -> MeasuredEngine:
    """Return the engine of an arm that is ready. ``name``: of the arm in messages.

    Raises:
        MpctlError: the arm is not ready, or no longer.
    """
    state = context.engines.state(arm)
    if state.phase is not Phase.READY or state.endpoint is None:
        gone = (
            "its manifest was changed, or its engine was replaced or deleted"
            if state.phase is Phase.ABSENT
            else state.phase.value
        )
        raise MpctlError(
            f"{name} stopped while it was measured: {state.message or gone}",
            hint=context.engines.describe_failure(arm),
        )
    return MeasuredEngine(
        state.endpoint,
        spec,
        state.argv or (),
        state.kv_pool_tokens,
        find_device=partial(context.engines.device, arm),
        model_revision=pinned_revision(state.argv or ()),
        image=state.image,
    )


def pinned_revision(argv: tuple[str, ...]) -> str:
    """The revision of the target's repository in an engine's arguments; empty where none is pinned."""
    for position, word in enumerate(argv):
        if word == "--revision":
            return next(iter(argv[position + 1 :]), "")
        if word.startswith("--revision="):
            return word.partition("=")[2]
    return ""


def workload_of(context: Context, operation: Operation) -> Workload:
    """The stored workload that the plan names, with the prompts that are at hand.

    Raises:
        MpctlError: it no longer exists.
    """
    workload = stored_workload(context.store, operation)
    if workload is None:
        hint = f"{context.command('rollback')} restores the service"
        raise MpctlError(f"the workload of {operation.id} is gone", hint=hint)
    return workload.with_prompts(context.prompts_of)


def stored_workload(store: Store, operation: Operation | None) -> Workload | None:
    """The workload that an operation's plan names; None where it has none, it is gone, or there is no operation."""
    if operation is None:
        return None
    return load_record(store, operation.plan.workload, "workload", Workload.from_record)


def require_prompts(context: Context, operation: Operation) -> None:
    """Refuse to continue a rollout that still measures when its prompts are not at hand: no record keeps them.

    Raises:
        InputError: the message names the class and the option.
    """
    plan = operation.plan
    if (
        plan.kind is not Kind.ROLLOUT
        or operation.failure
        or verdict_of(operation)
        or not plan.workload
    ):
        return
    workload = stored_workload(context.store, operation)
    if workload is not None and (missing := workload.with_prompts(context.prompts_of).missing):
        files = [word for name in missing for word in ("--prompts", f"{name}=FILE")]
        again, rollback = context.command("resume", *files), context.command("rollback")
        raise InputError(
            f"{operation.id} still measures, and its prompts of {', '.join(missing)} are stored as digests only",
            field="--prompts",
            hint=f"give the same files again: {again}; {rollback} restores the service without them",
        )


@dataclass(frozen=True)
class MatchResult(StepResult):
    """Drafts of the warm-up, the acceptance rate at the first position, and the gate's outcome on them."""

    prompts: int
    drafts: int
    accepted: int | None
    rate: float | None
    limit: float
    outcome: Outcome


def check_match(context: Context, operation: Operation) -> MatchResult:
    """Warm the candidate up and ask the gate about the first-position acceptance of its draft.

    Raises:
        MpctlError: the draft does not match its target, so the rollout is undone; or the counters cannot be read.
    """
    plan = operation.plan
    context.progress.step(
        "match",
        f"does {plan.draft} fit {plan.target_model}: first-position acceptance on a warm-up",
    )
    workload = workload_of(context, operation)
    endpoint = measured_engine(context, plan.arm, plan.spec, name="the candidate").endpoint
    match, sent = FirstPosition.of(plan.policy), 0
    for cell, prompts in _warmups(workload):
        match += FirstPosition.of(
            plan.policy, _drafted(context, endpoint, cell, prompts, workload.max_tokens)
        )
        sent += len(prompts)
        context.progress.update(match.describe())
    if match.outcome is Outcome.FAIL:
        answers = []
        # Their drafts resemble each other.
        (cell, _), *_ = _warmups(workload)
        prompts = workload.spare_prompts(_ANSWERS) or workload.warmup_prompts(cell)
        for number in range(_ANSWERS):
            prompt = prompts[number % len(prompts)]
            answers.append(_drafted(context, endpoint, cell, (prompt,), workload.max_tokens))
            match += FirstPosition.of(plan.policy, answers[-1])
            sent += 1
        context.progress.update(match.describe())
    if match.outcome is Outcome.FAIL and misses_in_all(answers, plan.policy):
        target = plan.target_model or endpoint.model
        raise MpctlError(
            match.describe_mismatch(draft=plan.draft, target=target), hint=MISMATCH_HINT
        )
    if match.outcome is not Outcome.PASS:
        context.progress.note(f"{plan.draft}: {match.describe()}; the measurement decides")
    return MatchResult(sent, match.drafts, match.accepted, match.rate, match.limit, match.outcome)


def _warmups(workload: Workload) -> list[tuple[Cell, tuple[Prompt, ...]]]:
    """The warm-up prompts of every class of traffic, one after the other and greedy."""
    warmups = []
    for kind in workload.traffic:
        cell = next(c for c in workload.cells if c.traffic == kind.name)
        if prompts := workload.warmup_prompts(cell):
            warmups.append((replace(cell, temperature=0.0, rate=None, concurrency=1), prompts))
    return warmups


def _drafted(
    context: Context, endpoint: Endpoint, cell: Cell, prompts: tuple[Prompt, ...], max_tokens: int
) -> Window:
    try:
        sent = context.meter.send(endpoint, LoadOrder(prompts, cell, max_tokens))
        return Window.between(sent.before, sent.after)
    except CounterError as error:
        raise MpctlError(f"the warm-up cannot be read: {error}", hint=error.hint) from error


@dataclass
class _Turns:
    """``ready``: the engine of an arm that is ready; ``running``: the arm whose turn it is; empty where a command that
    was interrupted left it open."""

    context: Context
    operation: Operation
    ready: Callable[[str], MeasuredEngine]
    running: str = ""
    starts: int = 0

    def engine_of(self, name: str) -> MeasuredEngine:
        """Return the arm's engine, started alone on the GPU unless it is its turn already."""
        if name != self.running:
            self._start(name)
        return replace(self.ready(name), start=self.starts)

    def _start(self, name: str) -> None:
        plan, engines = self.operation.plan, self.context.engines
        arms = {BASELINE: plan.measured_baseline, CANDIDATE: plan.arm}
        self.running, self.starts = "", self.starts + 1
        what = "the copy of the baseline" if name == BASELINE else plan.spec_text
        self.context.progress.step("turn", f"engine start {self.starts}: {what} has the GPU now")
        engines.stop(arms[CANDIDATE if name == BASELINE else BASELINE])
        engines.start(arms[name])
        await_ready(self.context, arms[name], plan.ready_timeout_s)
        self.running = name


def engines_in_turns(context: Context, operation: Operation) -> ArmEngines:
    """The engines of arms that take turns on one GPU; reaching an arm gives it the turn."""
    engines = engines_of(context, operation)
    return replace(engines, engine_of=_Turns(context, operation, engines.engine_of).engine_of)


def measure_turns(context: Context, operation: Operation) -> MeasuredRounds:
    """Send the same prompts to both arms, one block of a fresh engine each, until the gate has decided."""
    return measurement(context, operation, engines_in_turns(context, operation)).measure()


@dataclass(frozen=True)
class AnswersResult(StepResult):
    """Requests to each arm before any speed, and answers scored. ``verdict``: of answers that decide by themselves."""

    requests: int
    scored: int
    level: Level
    verdict: Verdict | None = None


@dataclass(frozen=True)
class JudgementResult(StepResult):
    """The gate's verdict on the measured rounds."""

    verdict: Verdict


def verdict_of(operation: Operation) -> Verdict | None:
    """The gate's verdict on an operation; None while it has not judged."""
    judged: JudgementResult | AnswersResult | None = operation.result(
        "judge", JudgementResult
    ) or operation.result("answers", AnswersResult)
    return None if judged is None else judged.verdict


def judge(context: Context, operation: Operation) -> JudgementResult:
    """Ask the gate, once and for all, about the rounds that were measured."""
    records = records_of(context, operation)
    _, verdict = records.interim(records.rounds())
    context.progress.step("judge", verdict.outcome.value)
    return JudgementResult(verdict)
