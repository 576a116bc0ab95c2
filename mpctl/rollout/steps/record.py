"""Record the service as a revision: as found, as promoted, as restored."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mpctl.errors import MpctlError
from mpctl.methods import Spec
from mpctl.rollout.context import Context
from mpctl.rollout.ledger import live_revisions, recorded_revisions
from mpctl.rollout.operation import Operation, StepResult
from mpctl.rollout.plan import Plan
from mpctl.rollout.revision import Manifest, Revision
from mpctl.rollout.steps.measure import measurement
from mpctl.watch.reference import RECORD as REFERENCE
from mpctl.watch.reference import Reference


@dataclass(frozen=True)
class Recorded(StepResult):
    """The revision that holds the live service, and how many tokens the KV cache of its engine holds."""

    revision: int
    kv_pool_tokens: int | None = None


def record_baseline(context: Context, operation: Operation) -> Recorded:
    """Check that the service is as the plan found it; its revision was recorded with the plan.

    Raises:
        MpctlError: the service was changed after the plan was made.
    """
    live, plan = context.platform.read(), operation.plan
    if Manifest.of(live.text) != plan.baseline:
        raise MpctlError(
            f"service {live.name} was changed after the plan was made",
            hint="run the command again to plan from the service as it is now",
        )
    context.progress.step("record", f"the service is recorded as revision {plan.baseline.number}")
    return Recorded(plan.baseline.number, context.platform.state(plan.baseline_arm).kv_pool_tokens)


def record_promoted(context: Context, operation: Operation) -> Recorded:
    """Record the promoted service as a revision, and what was measured of it as the reference of ``mpctl watch``."""
    stored = _as_stored(context, operation.plan)
    _keep_reference(context, operation)
    why = f"promoted by {operation.id}"
    return Recorded(revision_of(context, stored, operation.id, why=why, spec=operation.plan.spec).number)


def _keep_reference(context: Context, operation: Operation) -> None:
    """Without it the service is promoted all the same, and the watch reports that it has nothing to compare with."""
    if operation.plan.spec is None:
        return
    try:
        reference = Reference.of(measurement(context, operation).run(), operation.plan.spec)
    except MpctlError as error:
        context.progress.note(f"no reference for the watch: {error.message}")
        return
    if reference is not None:
        context.store.save_all(operation.id, {REFERENCE: reference.to_record()})


def record_restarted(context: Context, operation: Operation) -> Recorded:
    """Record the service with its fresh engines as a revision."""
    stored, why = _as_stored(context, operation.plan), f"restarted by {operation.id}"
    return Recorded(revision_of(context, stored, operation.id, why=why, spec=operation.plan.spec).number)


def record_restored(context: Context, operation: Operation) -> Recorded:
    """Record the restored service as the newest revision, unless it already is."""
    plan = operation.plan
    _note_other_configs(context, plan.restores or plan.goal.number)
    stored, why = _as_stored(context, plan), f"rollback to revision {plan.goal.number}"
    return Recorded(revision_of(context, stored, operation.id, why=why, spec=plan.spec).number)


def _note_other_configs(context: Context, number: int) -> None:
    """Name what shaped the pods of the restored revision and has changed since: the manifest does not hold it."""
    now = context.platform.configs()
    then = next((r.configs for r in context.store.revisions() if r.number == number), ()) if now else ()
    if then and then != now:
        changed = ", ".join(config for config in now if config not in then) or "fewer configs"
        context.progress.note(f"revision {number} is restored, but its pods start with other configs: {changed}")


def _as_stored(context: Context, plan: Plan) -> Manifest:
    """The planned manifest with what admission adds to it now: the newest revision is what is live, or the next
    rollback would take it for another writer's change."""
    live = context.platform.read()
    return Manifest.of(live.text) if context.platform.added_fields(plan.arm, live) else plan.goal


def revision_of(
    context: Context, manifest: Manifest, operation_id: str, *, why: str, spec: Spec | None, live: bool = True
) -> Manifest:
    """The manifest with the number of its revision, recorded now where there is none.

    ``live``: the service runs it, so the revision must be the newest of those that were live; a plan's goal may be any
    revision with that text.
    """
    revisions, entries = context.store.revisions(), context.store.entries()
    newest = max(live_revisions(entries), default=0) if live else 0
    known = [r.number for r in revisions if r.digest == manifest.digest and r.number >= newest]
    if known:
        return replace(manifest, number=max(known))
    revision = Revision(
        # One that is lost keeps its number.
        number=max({r.number for r in revisions} | recorded_revisions(entries), default=0) + 1,
        text=manifest.text,
        created=context.clock.now().isoformat(timespec="seconds"),
        who=context.who,
        why=why,
        spec=spec,
        operation=operation_id,
        configs=context.platform.configs(),
    )
    context.store.add_revision(revision)
    return replace(manifest, number=revision.number)
