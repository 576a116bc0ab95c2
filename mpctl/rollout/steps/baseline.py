"""Record the service as a revision, and pin its autoscaler for the time of an operation."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mpctl.errors import MpctlError
from mpctl.methods import Spec
from mpctl.rollout.context import Context
from mpctl.rollout.ledger import live_revisions, recorded_revisions
from mpctl.rollout.operation import NoResult, Operation, StepResult
from mpctl.rollout.revision import Manifest, Revision


@dataclass(frozen=True)
class RecordedRevision(StepResult):
    """The revision that holds the live service, and how many tokens the KV cache of its engine holds."""

    revision: int
    kv_pool_tokens: int | None = None


def record_baseline(context: Context, operation: Operation) -> RecordedRevision:
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
    return RecordedRevision(
        plan.baseline.number, context.engines.state(plan.baseline_arm).kv_pool_tokens
    )


def record_revision(
    context: Context,
    manifest: Manifest,
    operation_id: str,
    *,
    why: str,
    spec: Spec | None,
    live: bool = True,
) -> Manifest:
    """Record a manifest as a revision unless one has its text, and return it with the revision's number.

    ``live``: the service runs it, so only the newest revision that was live counts; a plan's goal may be any revision
    with that text.
    """
    revisions, entries = context.store.revisions(), context.store.entries()
    newest = max(live_revisions(entries), default=0) if live else 0
    same_text = [r.number for r in revisions if r.digest == manifest.digest and r.number >= newest]
    if same_text:
        return replace(manifest, number=max(same_text))
    revision = Revision(
        # A revision that is lost keeps its number.
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


@dataclass(frozen=True)
class UnpinResult(StepResult):
    """Fields of the autoscaler that were left as they are because another writer changed them."""

    left: tuple[str, ...] = ()


def pin(context: Context, operation: Operation) -> NoResult:
    """Pin the autoscaler, which would answer measurements and new pods with more pods."""
    scaling = operation.scaling
    assert scaling is not None  # else there is no such step
    context.progress.step("pin", f"pinning the autoscaler at {scaling['replicas']}")
    context.scaler.pin(scaling)
    return NoResult()


def unpin(context: Context, operation: Operation) -> UnpinResult:
    """Restore the autoscaler as it was before the operation."""
    scaling = operation.scaling
    assert scaling is not None
    context.progress.step("unpin", "unpinning the autoscaler")
    unrestored = context.scaler.unpin(scaling)
    for line in unrestored:
        context.progress.note(line)
    return UnpinResult(unrestored)
