"""Measure the arms of an operation round by round."""

from __future__ import annotations

from functools import partial

from mpctl.errors import InputError, MpctlError
from mpctl.experiment.arm import BASELINE, CANDIDATE
from mpctl.experiment.workload import Workload
from mpctl.quotations import conceal
from mpctl.rollout.context import Context
from mpctl.rollout.measurement import Measured, Measurement, Target, load_record
from mpctl.rollout.operation import Operation
from mpctl.rollout.plan import Kind
from mpctl.rollout.ports import Arm, Phase, Store


def measure_alternating(context: Context, operation: Operation) -> Measured:
    """Send the same prompts to both arms in alternating blocks, round by round, until the gate has decided."""
    return measurement(context, operation).measure()


def measure_baseline(context: Context, operation: Operation) -> Measured:
    """All rounds of the baseline, before it is switched off."""
    return measurement(context, operation).measure((BASELINE,))


def measure_candidate(context: Context, operation: Operation) -> Measured:
    """Rounds of the candidate, which runs in the baseline's place, until the gate has decided."""
    return measurement(context, operation).measure((CANDIDATE,))


def measurement(context: Context, operation: Operation) -> Measurement:
    """The measurement of an operation; its records are stored under the operation's id."""
    plan = operation.plan
    targets = {BASELINE: (plan.measured_baseline, plan.baseline_text), CANDIDATE: (plan.arm, plan.spec_text)}
    workload = workload_of(context, operation)

    def target(name: str) -> Target:
        try:
            return target_of(context, *targets[name], name=f"the {name}")
        except MpctlError as error:  # the last lines of an engine's log may quote what was sent
            conceal(error, (prompt for traffic in workload.traffic for prompt in traffic.prompts))
            raise

    return Measurement(
        id=operation.id,
        created=operation.opened_at,
        who=operation.who,
        workload=workload,
        policy=plan.policy,
        store=context.store,
        meter=context.meter,
        progress=context.progress,
        target=target,
        placement=plan.placement,
        users=plan.users,
    )


def target_of(context: Context, arm: Arm, spec: str, *, name: str = "the service") -> Target:
    """An arm that is ready, to be measured. ``name``: of the arm in messages.

    Raises:
        MpctlError: it is not ready, or no longer.
    """
    state = context.platform.state(arm)
    if state.phase is not Phase.READY or state.endpoint is None:
        raise MpctlError(
            f"{name} stopped while it was measured: {state.message or state.phase.value}",
            hint=context.platform.describe_failure(arm),
        )
    return Target(
        state.endpoint,
        spec,
        state.argv or (),
        state.kv_pool_tokens,
        find_device=partial(context.platform.device, arm),
        model_revision=pinned_revision(state.argv or ()),
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


def stored_workload(store: Store, operation: Operation) -> Workload | None:
    """The workload that an operation's plan names; None where it has none, or it is gone."""
    return load_record(store, operation.plan.workload, "workload", Workload.from_record)


def require_prompts(context: Context, operation: Operation) -> None:
    """Refuse to continue a rollout that still measures when its prompts are not at hand: no record keeps them.

    Raises:
        InputError: the message names the class and the option.
    """
    plan = operation.plan
    if plan.kind is not Kind.ROLLOUT or operation.failure or "judge" in operation.done or not plan.workload:
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
