"""Record the service as a revision: as found, as promoted, as restored."""

from __future__ import annotations

from typing import Any

from mpctl.errors import MpctlError
from mpctl.rollout.context import Context
from mpctl.rollout.ledger import recorded_revisions
from mpctl.rollout.operation import Operation
from mpctl.rollout.plan import Plan
from mpctl.rollout.revision import Revision, text_digest


def record_baseline(context: Context, operation: Operation) -> dict[str, Any]:
    """Keep the service as it is, unless the newest revision is exactly that."""
    live = context.platform.read()
    plan = operation.plan
    if text_digest(live.text) != text_digest(plan.baseline):
        raise MpctlError(
            f"service {live.name} was changed after the plan was made",
            hint="run the command again to plan from the service as it is now",
        )
    context.progress.step("record", "keeping the service as it is")
    number = record_revision(context, operation, plan.baseline, why="as found", spec=plan.baseline_spec)
    pool = context.platform.state(plan.baseline_arm).kv_pool_tokens
    return {"revision": number} | ({"kvPoolTokens": pool} if pool else {})


def keep_foreign(context: Context, operation: Operation) -> dict[str, Any]:
    """Keep the service as it is when no revision has it: a rollback must not lose what somebody else wrote."""
    live = context.platform.read()
    plan = operation.plan
    known = {r.text for r in context.store.revisions()} | {plan.text}
    if live.text in known or live.text != plan.baseline or (plan.undoes and not plan.overwrites):
        return {}
    return {
        "revision": record_revision(context, operation, live.text, why="as found before the rollback", spec="as found")
    }


def record_promoted(context: Context, operation: Operation) -> dict[str, Any]:
    """Keep the promoted service as a revision of its own."""
    plan = operation.plan
    text = _as_stored(context, plan)
    return {"revision": record_revision(context, operation, text, why=f"promoted by {operation.id}", spec=plan.spec)}


def record_restored(context: Context, operation: Operation) -> dict[str, Any]:
    """Keep the restored service as the newest revision, unless it already is."""
    plan = operation.plan
    spec = next((r.spec for r in context.store.revisions() if r.text == plan.text), plan.spec)
    target = "" if plan.target is None else f" to revision {plan.target}"
    return {
        "revision": record_revision(context, operation, _as_stored(context, plan), why=f"rollback{target}", spec=spec)
    }


def _as_stored(context: Context, plan: Plan) -> str:
    """The planned manifest with what admission adds to it now: the newest revision is what is live, or the next
    rollback would take it for somebody's change."""
    live = context.platform.read()
    return live.text if context.platform.added_fields(plan.arm, live) else plan.text


def record_revision(context: Context, operation: Operation, text: str, *, why: str, spec: str) -> int:
    revisions = context.store.revisions()
    if revisions and revisions[-1].digest == text_digest(text):
        return revisions[-1].number
    revision = Revision(
        # One that is lost keeps its number.
        number=max({r.number for r in revisions} | recorded_revisions(context.store.entries()), default=0) + 1,
        text=text,
        created=context.clock.now().isoformat(timespec="seconds"),
        who=context.who,
        why=why,
        spec=spec,
        operation=operation.id,
    )
    context.store.add_revision(revision)
    return revision.number
