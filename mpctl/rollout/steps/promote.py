"""Make an arm the service, wait for it, and end or retain the other arms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mpctl.errors import MpctlError
from mpctl.experiment.answer_sets import hot_prefix, sentinels_of
from mpctl.experiment.answers import AnswerCheck
from mpctl.experiment.workload import Workload
from mpctl.manifest import redacted
from mpctl.rollout.context import Context
from mpctl.rollout.operation import NoResult, Operation, StepResult
from mpctl.rollout.plan import Kind, Plan
from mpctl.rollout.ports import Arm
from mpctl.rollout.revision import Manifest
from mpctl.rollout.steps.baseline import RecordedRevision, record_revision
from mpctl.rollout.steps.candidate import Meanwhile, await_ready
from mpctl.rollout.steps.measure import records_of
from mpctl.rollout.steps.traffic import RouteReturn, redirected, route_of
from mpctl.watch.reference import RECORD as REFERENCE
from mpctl.watch.reference import Reference
from mpctl.watch.sentinel import RECORD as SENTINELS
from mpctl.watch.sentinel import Sentinels, prefix_digest


@dataclass(frozen=True)
class PromotionResult(StepResult):
    """The digest of the manifest that is live now."""

    digest: str


def promote(context: Context, operation: Operation) -> PromotionResult:
    """Make the arm the service: its manifest is the live one, and it gets the traffic."""
    plan = operation.plan
    context.progress.step(operation.begun, f"routing the service to {plan.spec_text}")
    serves = (
        redirected(operation) or plan.kind is Kind.RESTART
    )  # a retained baseline outlives a restart
    context.platform.promote(
        plan.arm, expect=plan.arms, downtime=plan.downtime, candidate_serves=serves
    )
    return PromotionResult(plan.goal.digest)


@dataclass(frozen=True)
class SettlingResult(StepResult):
    """The arm that every pod runs, with its engine's own arguments."""

    arm: str
    argv: tuple[str, ...] = ()


def settle(
    context: Context, operation: Operation, *, meanwhile: Meanwhile | None = None
) -> SettlingResult:
    """Wait until the written service serves, then restore what was only set for the change. ``meanwhile``: as with
    :func:`await_ready`."""
    plan = operation.plan
    context.progress.step(
        "settle",
        f"waiting until every pod runs {plan.spec_text}, at most {plan.ready_timeout_s:.0f} s",
    )
    state = await_ready(
        context, plan.arm, plan.ready_timeout_s, name=plan.name_of(plan.arm), meanwhile=meanwhile
    )
    context.platform.restore_strategy(plan.arm)
    return SettlingResult(state.id, redacted(state.argv or ()))


def settle_behind_retained(context: Context, operation: Operation) -> SettlingResult:
    """Settle as :func:`settle` does, while the retained baseline has the traffic and may stop."""
    return settle(context, operation, meanwhile=RouteReturn(context, operation).check)


@dataclass(frozen=True)
class RetirementResult(StepResult):
    """The baseline's arm where it was retained, otherwise None."""

    retained: str | None = None


def retire(context: Context, operation: Operation) -> RetirementResult:
    """Stop the other arms, unless they are retained for an instant rollback."""
    if operation.plan.keep_baseline:
        return RetirementResult(operation.plan.baseline_arm.id)
    context.progress.step("retire", "stopping the other engine once it has answered its requests")
    context.engines.stop_all_except(operation.plan.arm)
    return RetirementResult()


def stop_copy(context: Context, operation: Operation) -> NoResult:
    """Stop the copy of the baseline, which was only measured."""
    context.progress.step("retire", "stopping the copy of the baseline")
    context.engines.stop(operation.plan.measured_baseline)
    return NoResult()


def stop_replaced(context: Context, operation: Operation) -> NoResult:
    """Stop the engine that a restart replaced; a retained baseline stays."""
    context.progress.step(
        "retire", "stopping the replaced engine once it has answered its requests"
    )
    context.engines.stop(operation.plan.baseline_arm)
    return NoResult()


def release(context: Context, operation: Operation) -> NoResult:
    """Stop the baseline that an earlier rollout retained; its GPUs are needed."""
    context.progress.step("release", "stopping the baseline that was retained before")
    context.engines.stop_all_except(operation.plan.baseline_arm)
    return NoResult()


@dataclass(frozen=True)
class RetentionResult(StepResult):
    """The arm that is retained; None with the reason where it could not be started."""

    arm: str | None = None
    reason: str = ""


def keep_baseline(context: Context, operation: Operation) -> RetentionResult:
    """Start the baseline again beside the promoted service. Without capacity for it the rollout stands all the same: a
    rollback then takes an engine start."""
    plan = operation.plan
    arm = plan.baseline_arm
    context.progress.step(
        "keep-baseline", f"starting {plan.baseline_text} again, retained for an instant rollback"
    )
    try:
        context.router.start_retained(arm, route_of(operation))
        await_ready(context, arm, plan.ready_timeout_s, name="the retained baseline")
    except MpctlError as error:
        context.progress.note(
            f"the baseline is not retained, a rollback takes an engine start: {error.message}"
        )
        try:
            context.engines.stop(arm)
        except MpctlError as running:
            stop = f"{context.command('retire')} stops it"
            context.progress.note(f"it still runs beside the service: {running.message}; {stop}")
        return RetentionResult(None, error.message)
    return RetentionResult(arm.id)


def leave_service(context: Context, operations: Sequence[Operation]) -> None:
    """Leave the service as it is: record it, restore the route as the first of the operations found it, stop the
    candidate, unpin the autoscaler as the last one found it."""
    operation = operations[0]
    plan = operation.plan
    text = context.platform.live_text()
    if text is not None:
        for other in reversed(operations):
            for manifest in (other.plan.goal, other.plan.baseline):
                if manifest.text:
                    context.platform.restore_strategy(Arm(manifest.text))
        text = context.platform.read().text
    context.progress.step(
        "abandon", "leaving the service as it is" if text is not None else "the service is gone"
    )
    if text is not None and all(r.text != text for r in context.store.revisions()):
        record_revision(
            context,
            Manifest.of(text),
            operation.id,
            why=f"as {operation.id} was abandoned",
            spec=None,
        )
    if plan.route is not None:
        for line in context.router.unshift(plan.route):
            context.progress.note(line)
    context.engines.stop_all_except(Arm(plan.baseline.text if text is None else text))
    if (scaling := operations[-1].scaling) is not None:
        for line in context.scaler.unpin(scaling):
            context.progress.note(line)


def record_promoted(context: Context, operation: Operation) -> RecordedRevision:
    """Record the promoted service as a revision, and what was measured of it as the reference of ``mpctl watch``."""
    stored = _as_stored(context, operation.plan)
    _keep_references(context, operation)
    return _record(context, operation, stored, f"promoted by {operation.id}")


def _keep_references(context: Context, operation: Operation) -> None:
    """Keep what was measured as the reference of the watch. Where that fails, the service is promoted all the same, and
    the watch reports that it has nothing to compare with."""
    if operation.plan.spec is None:
        return
    try:
        records = records_of(context, operation)
        run = records.run()
        reference = Reference.of(run, operation.plan.spec)
    except MpctlError as error:
        context.progress.note(f"no reference for the watch: {error.message}")
        return
    if reference is not None:
        context.store.save_all(operation.id, {REFERENCE: reference.to_record()})
    if run.answers is not None:
        _keep_sentinels(context, operation, records.workload, run.answers)


def _keep_sentinels(
    context: Context, operation: Operation, workload: Workload, check: AnswerCheck
) -> None:
    """Record which answers of the baseline no rounding changes. Without them the watch asks the service itself."""
    prefix = hot_prefix(workload.prompts)
    settled = {
        ask.digest: digest
        for ask in sentinels_of(prefix)
        if (digest := check.settled.get(ask.digest))
    }
    if not settled:
        context.progress.note(
            "no sentinel for the watch: none of its answers is far from every tie"
        )
    elif prefix and not context.store.seal(prefix):
        context.progress.note(
            "no sentinel for the watch: mpctl may write no Secret mpctl-sentinels, to keep the system prompt in"
        )
    else:
        created = context.clock.now().isoformat(timespec="seconds")
        sentinels = Sentinels(created, operation.plan.engine, True, settled, prefix_digest(prefix))
        context.store.save_all(operation.id, {SENTINELS: sentinels.to_record()})


def record_restarted(context: Context, operation: Operation) -> RecordedRevision:
    """Record the service with its fresh engines as a revision."""
    stored = _as_stored(context, operation.plan)
    return _record(context, operation, stored, f"restarted by {operation.id}")


def record_restored(context: Context, operation: Operation) -> RecordedRevision:
    """Record the restored service as the newest revision, unless it already is."""
    plan = operation.plan
    _note_other_configs(context, plan.rollback.restored_revision or plan.goal.number)
    stored = _as_stored(context, plan)
    return _record(context, operation, stored, f"rollback to revision {plan.goal.number}")


def _record(context: Context, operation: Operation, stored: Manifest, why: str) -> RecordedRevision:
    spec = operation.plan.spec
    revision = record_revision(context, stored, operation.id, why=why, spec=spec)
    return RecordedRevision(revision.number)


def _note_other_configs(context: Context, number: int) -> None:
    """Name what shaped the pods of the restored revision and has changed since: the manifest does not hold it."""
    now = context.platform.configs()
    then = (
        next((r.configs for r in context.store.revisions() if r.number == number), ())
        if now
        else ()
    )
    if then and then != now:
        changed = ", ".join(config for config in now if config not in then) or "fewer configs"
        context.progress.note(
            f"revision {number} is restored, but its pods start with other configs: {changed}"
        )


def _as_stored(context: Context, plan: Plan) -> Manifest:
    """The planned manifest with what admission adds to it now: the newest revision is what is live, or the next
    rollback would take it for another writer's change."""
    live = context.platform.read()
    return Manifest.of(live.text) if context.platform.added_fields(plan.arm, live) else plan.goal
