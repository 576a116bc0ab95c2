"""Rollbacks: what the live service runs, and how another writer's changes to it are kept."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from mpctl.errors import Conflict, InputError
from mpctl.json_types import JsonView
from mpctl.manifest import masked, speculation_of
from mpctl.manifest.merge.differences import MISSING, FieldChange
from mpctl.manifest.merge.three_way import ClashError, kept_fields, merge, own_changes
from mpctl.methods import Spec, from_config
from mpctl.rollout.context import Context
from mpctl.rollout.decide import (
    Act,
    Decision,
    History,
    has_manifest_of,
    replacing_rollback,
    require_confirmed,
)
from mpctl.rollout.operation import Operation
from mpctl.rollout.plan import Plan
from mpctl.rollout.ports import Arm, ArmState, Live, Platform
from mpctl.rollout.revision import Manifest, Revision, text_digest
from mpctl.rollout.steps.verify import VerificationResult


def keep_foreign_changes(
    decision: Decision, live: Live, history: History, *, serving: Spec | None
) -> Decision:
    """The same rollback from the live manifest, which another writer may have changed.

    ``live``: without what an operation set for its duration. A rollback with nothing to restore is ALREADY.

    Raises:
        Conflict: the fields to restore were changed; the message shows the difference of those fields alone. Or there
            is nothing to restore and the engine runs otherwise.
    """
    operation = decision.operation
    if operation is not None:
        if is_own_text(operation.plan, live.text):
            return decision
        plan = replacing_rollback(operation, why=f"{operation.id} continued over a foreign change")
        return Decision(
            Act.OPEN, plan=with_live_changes(plan, live, history.revisions, newest=history.recorded)
        )
    if decision.plan is None or decision.plan.overwrites:
        return decision
    plan = decision.plan
    if plan.rollback.undoes is not None:
        return replace(
            decision, plan=with_live_changes(plan, live, history.revisions, newest=history.recorded)
        )
    revision = next(r for r in history.revisions if r.number == plan.goal.number)
    recorded = history.recorded or revision
    start = replace(plan, baseline=Manifest.of(recorded.text, recorded.number))
    merged = with_live_changes(start, live, history.revisions)
    if merged.goal.text == live.text and live.text != revision.text:
        require_confirmed(live, has_manifest_of(live, revision), revision.spec, serving)
        return Decision(Act.ALREADY, preserved=merged.rollback.kept_fields)
    return replace(decision, plan=replace(merged, baseline=Manifest.of(live.text)))


def with_live_changes(
    plan: Plan, live: Live, revisions: Iterable[Revision], *, newest: Revision | None = None
) -> Plan:
    """The rollback from the live manifest. Where another writer changed that, the goal keeps their changes.

    ``plan``: its ``baseline`` is the manifest that mpctl wrote last; ``newest``: the service as it was recorded last.

    Raises:
        Conflict: the fields to restore were changed.
    """
    if is_own_text(plan, live.text):
        return plan
    try:
        merged = merge(plan.goal.text, live.text, plan.baseline.text, [r.text for r in revisions])
    except ClashError as error:
        unwritten = newest is not None and newest.text == plan.goal.text
        clashes = _differences(plan.goal.text, live.text) if unwritten else ()
        raise _conflict(live, clashes or error.clashes) from error
    if merged.text == plan.goal.text:
        return replace(plan, baseline=Manifest.of(live.text))
    return replace(
        plan,
        baseline=Manifest.of(live.text),
        goal=Manifest.of(merged.text),
        # a live manifest that is to stay has the speculation of the goal, whatever mpctl wrote last
        baseline_spec=plan.spec if merged.text == live.text else plan.baseline_spec,
        rollback=replace(
            plan.rollback,
            restored_revision=plan.rollback.restored_revision or plan.goal.number,
            kept_fields=merged.preserved,
            uses_retained_baseline=False,  # the retained baseline is another arm than the merged one
        ),
    )


def _differences(goal: str, live: str) -> tuple[FieldChange, ...]:
    """The fields to restore as they were and are, where nothing of the operation was ever live."""
    try:
        merge(goal, live, goal, [goal])
    except ClashError as error:
        return error.clashes
    return ()


def is_own_text(plan: Plan, text: str) -> bool:
    """Return whether a live manifest is one that the operation starts from or writes."""
    return text in (plan.baseline.text, plan.goal.text)


def _conflict(live: Live, clashes: Iterable[FieldChange]) -> Conflict:
    clashes = tuple(clashes)
    paths = ", ".join(clash.path for clash in clashes)
    lines = [
        line
        for clash in clashes
        for line in (clash.path, f"- {_shown(clash.before)}", f"+ {_shown(clash.after)}")
        if len(clashes) > 1 or line != clash.path
    ]
    diff = masked("\n".join(["--- as mpctl left it", "+++ live", *lines]))
    return Conflict(
        f"service {live.name}: another writer changed what is to be restored: {paths}\n{diff}",
        hint=f"nothing was changed; '{live.command('rollback', '--exact')}' records the live manifest as a revision "
        "and restores every byte",
    )


def _shown(value: Any) -> str:
    if value is MISSING:
        return "(not set)"
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return " ".join(value)
    return json.dumps(value, sort_keys=True, default=str)


@dataclass(frozen=True)
class RestoredService:
    """A service after a rollback. ``spec``: by its engine's own arguments; ``added``: fields that admission adds;
    ``preserved``: fields that differ from ``revision``, which was restored, because another writer changed them."""

    spec: Spec
    added: tuple[str, ...] = ()
    preserved: tuple[str, ...] = ()
    revision: int = 0


def spec_served(state: ArmState) -> Spec | None:
    """The speculation of a running engine by its own arguments; None where no engine runs or nothing can be read."""
    if not state.argv or not state.matches:
        return None
    try:
        config: JsonView | None = speculation_of(state.argv)
    except InputError:
        return None
    return from_config(config)


def live_spec(platform: Platform) -> Spec | None:
    """The speculation of the live service by its engine's own arguments; None where none can be read."""
    return spec_served(platform.engines.state(Arm(platform.read().text)))


def require_restored(context: Context, operation: Operation) -> RestoredService:
    """Read the live service after a rollback and compare it with the plan.

    Raises:
        Conflict: the service has another manifest, or its engine other arguments, than the rollback restored; or no
            engine runs to confirm it.
    """
    plan, live = operation.plan, context.platform.read()
    verified = operation.result("verify", VerificationResult)
    digest = text_digest(live.text)
    number = plan.rollback.restored_revision or plan.goal.number
    as_left = digest in (plan.goal.digest, verified.digest if verified else "")
    if not as_left and own_changes(plan.goal.text, live.text):
        raise Conflict(
            f"{operation.id} restored revision {number}, but service {live.name} was changed since",
            hint=f"{live.command('diff')} shows the change; the same command again restores it",
        )
    serving = require_confirmed(
        live,
        f"{operation.id} restored revision {number}",
        plan.spec,
        spec_served(context.engines.state(Arm(live.text))),
    )
    added = verified.added if verified else ()
    if as_left and not plan.rollback.restored_revision:
        return RestoredService(serving, added, revision=number)
    recorded = next(
        (r.text for r in context.store.revisions() if r.number == number), plan.goal.text
    )
    preserved = tuple(path for path in kept_fields(recorded, live.text) if path not in added)
    return RestoredService(serving, added, preserved, number)
