"""Start an arm, side by side with the serving one or in its place, and wait until it has answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mpctl.errors import MpctlError
from mpctl.manifest import redacted
from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation, StepResult
from mpctl.rollout.plan import Kind, Strategy
from mpctl.rollout.ports import Arm, ArmState, Phase
from mpctl.rollout.steps.baseline import RecordedRevision


@dataclass(frozen=True)
class StartResult(StepResult):
    """The arm that was started."""

    arm: str


def start(context: Context, operation: Operation) -> StartResult:
    """Start the arm beside the one that serves."""
    plan = operation.plan
    context.progress.step("start", f"starting {plan.spec_text} beside the serving engine")
    context.engines.start(plan.arm)
    if plan.kind is Kind.ROLLOUT:
        context.meter.prepare()
    return StartResult(plan.arm.id)


def start_copy(context: Context, operation: Operation) -> StartResult:
    """Start a copy of the baseline beside the service, which keeps its users."""
    copy = operation.plan.measured_baseline
    context.progress.step("start", "starting a copy of the baseline without users")
    context.engines.start(copy)
    return StartResult(copy.id)


def switch(context: Context, operation: Operation) -> StartResult:
    """Stop the serving arm and start the other in its place."""
    plan = operation.plan
    stays_up = context.platform.replaces_pods_itself and not plan.downtime
    down = (
        "the old engine stops when the new one is ready"
        if stays_up
        else "the service is down meanwhile"
    )
    context.progress.step("switch", f"switching to {plan.spec_text}; {down}")
    context.platform.replace(plan.arm, expect=plan.arms, downtime=plan.downtime)
    return StartResult(plan.arm.id)


POLL_S = 0.5
Meanwhile = Callable[[], None]  # called with each poll of a wait


@dataclass(frozen=True)
class ReadinessResult(StepResult):
    """The arm, its engine's own arguments, and how many tokens its KV cache and the baseline's hold."""

    arm: str
    argv: tuple[str, ...] = ()
    kv_pool_tokens: int | None = None
    baseline_kv_pool_tokens: int | None = None


def wait_ready(context: Context, operation: Operation) -> ReadinessResult:
    """Wait until the arm answers a real completion, with the arguments of its manifest."""
    plan = operation.plan
    context.progress.step(
        "ready", f"waiting for {plan.name_of(plan.arm)}, at most {plan.ready_timeout_s:.0f} s"
    )
    if plan.kind is Kind.ROLLBACK and context.engines.state(plan.arm).phase in (
        Phase.FAILED,
        Phase.ABSENT,
    ):
        # Its start is done, but an earlier attempt saw it fail; unless it is started afresh the rollback stays stuck.
        if plan.strategy is Strategy.IN_PLACE:
            context.platform.replace(plan.arm, expect=plan.arms, downtime=plan.downtime)
        else:
            context.engines.start(plan.arm)
    state = await_ready(context, plan.arm, plan.ready_timeout_s, name=plan.name_of(plan.arm))
    recorded = operation.result("record", RecordedRevision) if plan.kind is Kind.ROLLOUT else None
    pool, baseline = state.kv_pool_tokens, recorded.kv_pool_tokens if recorded else None
    if pool and baseline:
        change = f"{pool:,} tokens, baseline {baseline:,} ({pool / baseline - 1:+.1%})"
        context.progress.note(f"KV pool by the engines' own logs: {change}")
    return ReadinessResult(state.id, redacted(state.argv or ()), pool, baseline)


def wait_copy_ready(context: Context, operation: Operation) -> ReadinessResult:
    """Wait until the copy of the baseline answers."""
    plan = operation.plan
    context.progress.step(
        "ready", f"waiting for the copy of the baseline, at most {plan.ready_timeout_s:.0f} s"
    )
    state = await_ready(
        context, plan.measured_baseline, plan.ready_timeout_s, name="the copy of the baseline"
    )
    return ReadinessResult(state.id, redacted(state.argv or ()), state.kv_pool_tokens)


def await_ready(
    context: Context,
    arm: Arm,
    timeout_s: float,
    *,
    name: str = "the engine",
    meanwhile: Meanwhile | None = None,
) -> ArmState:
    """Poll until the arm is ready and has answered once.

    ``timeout_s`` is for one engine. Engines of an arm start one after the other, so the time starts again with each
    that gets ready, and with the end of an old one that finishes its requests first. ``name``: of the arm in messages.

    Raises:
        MpctlError: it failed, or was not ready in time; the engine's own last words are in the message.
    """
    started = context.clock.now()
    most = 0
    while True:
        if meanwhile is not None:
            meanwhile()
        state = context.engines.state(arm)
        if state.pods_ready > most or state.draining:
            most, started = max(most, state.pods_ready), context.clock.now()
        waited = (context.clock.now() - started).total_seconds()
        if state.phase is Phase.READY and state.endpoint is not None:
            if not state.matches:
                raise MpctlError(
                    f"{name} runs with other arguments than its manifest: {' '.join(redacted(state.argv or ()))}",
                    hint="stop whatever else starts this engine",
                )
            context.meter.complete(state.endpoint)
            return state
        if state.phase in (Phase.FAILED, Phase.ABSENT):
            raise MpctlError(
                f"{name} did not start: {state.message or 'not found'}",
                hint=context.engines.describe_failure(arm),
            )
        if waited > timeout_s:
            raise MpctlError(
                f"{name} was not ready within {timeout_s:.0f} s: {state.message}",
                hint="give it longer with --timeout, or read its log; "
                + context.engines.describe_failure(arm),
            )
        context.progress.update(f"{state.message or 'starting'} ({waited:.0f} s)")
        context.clock.sleep(POLL_S)
