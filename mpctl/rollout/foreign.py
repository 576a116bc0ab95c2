"""Rollbacks of a service that another writer changed meanwhile: what mpctl changed is restored, the rest is kept."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from mpctl.errors import Conflict
from mpctl.manifest import masked
from mpctl.manifest.merge.items import MISSING
from mpctl.manifest.merge.restore import Clash, ClashError, merge
from mpctl.methods import Spec
from mpctl.rollout.decide import Act, Decision, History, confirmed, in_place_of
from mpctl.rollout.plan import Plan
from mpctl.rollout.ports import Live
from mpctl.rollout.revision import Manifest, Revision


def keep_foreign_changes(decision: Decision, live: Live, history: History, *, serving: Spec | None) -> Decision:
    """The same rollback from the live manifest, which another writer may have changed.

    ``live``: without what an operation set for its duration. A rollback with nothing to restore is ALREADY.

    Raises:
        Conflict: the fields to restore were changed; the message shows the difference of those fields alone. Or there
            is nothing to restore and the engine runs otherwise.
    """
    operation = decision.operation
    if operation is not None:
        if is_known(operation.plan, live.text):
            return decision
        plan = in_place_of(operation, why=f"{operation.id} continued over a foreign change")
        return Decision(Act.OPEN, plan=keeping(plan, live, history.revisions, newest=history.recorded))
    if decision.plan is None or decision.plan.overwrites:
        return decision
    plan = decision.plan
    if plan.undoes is not None:
        return replace(decision, plan=keeping(plan, live, history.revisions, newest=history.recorded))
    revision = next(r for r in history.revisions if r.number == plan.goal.number)
    recorded = history.recorded or revision
    start = replace(plan, baseline=Manifest.of(recorded.text, recorded.number))
    merged = keeping(start, live, history.revisions)
    if merged.goal.text == live.text and live.text != revision.text:
        confirmed(live, replace(revision, text=live.text), serving)
        return Decision(Act.ALREADY, preserved=merged.keeps)
    return replace(decision, plan=replace(merged, baseline=Manifest.of(live.text)))


def keeping(plan: Plan, live: Live, revisions: Iterable[Revision], *, newest: Revision | None = None) -> Plan:
    """The rollback from the live manifest where that is another writer's.

    ``plan``: its ``baseline`` is the manifest that mpctl wrote last; ``newest``: the service as it was recorded last.

    Raises:
        Conflict: the fields to restore were changed.
    """
    if is_known(plan, live.text):
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
        restores=plan.restores or plan.goal.number,
        keeps=merged.preserved,
        instant=False,  # the retained baseline is another arm than the merged one
    )


def _differences(goal: str, live: str) -> tuple[Clash, ...]:
    """The fields to restore as they were and are, where nothing of the operation was ever live."""
    try:
        merge(goal, live, goal, [goal])
    except ClashError as error:
        return error.clashes
    return ()


def is_known(plan: Plan, text: str) -> bool:
    """Return whether a live manifest is one that the operation starts from or writes."""
    return text in (plan.baseline.text, plan.goal.text)


def _conflict(live: Live, clashes: Iterable[Clash]) -> Conflict:
    clashes = tuple(clashes)
    paths = ", ".join(clash.path for clash in clashes)
    lines = [
        line
        for clash in clashes
        for line in (clash.path, f"- {_shown(clash.recorded)}", f"+ {_shown(clash.live)}")
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
