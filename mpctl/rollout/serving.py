"""The spec that the live engine runs, by its own arguments: for a rollback's report, and to decide on one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mpctl.errors import Conflict, InputError, MpctlError
from mpctl.manifest import speculation_of
from mpctl.manifest.merge.restore import kept_fields, own_changes
from mpctl.methods import Spec, from_config
from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation
from mpctl.rollout.ports import Arm, ArmState, Platform
from mpctl.rollout.revision import text_digest
from mpctl.rollout.steps.verify import Verified


@dataclass(frozen=True)
class Restored:
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
        config: Mapping[str, Any] | None = speculation_of(state.argv)
    except InputError:
        return None
    return from_config(config)


def live_spec(platform: Platform) -> Spec | None:
    """The speculation of the live service by its engine's own arguments; None where none can be read."""
    return spec_served(platform.state(Arm(platform.read().text)))


def require_restored(context: Context, operation: Operation) -> Restored:
    """Read the live service after a rollback and compare it with the plan.

    Raises:
        Conflict: the service has another manifest, or its engine other arguments, than the rollback restored.
        MpctlError: no engine runs to confirm it.
    """
    plan, live = operation.plan, context.platform.read()
    verified = operation.result("verify", Verified)
    digest = text_digest(live.text)
    number = plan.restores or plan.goal.number
    as_left = digest in (plan.goal.digest, verified.digest if verified else "")
    if not as_left and own_changes(plan.goal.text, live.text):
        raise Conflict(
            f"{operation.id} restored revision {number}, but service {live.name} was changed since",
            hint=f"{live.command('diff')} shows the change; the same command again restores it",
        )
    serving = spec_served(context.platform.state(Arm(live.text)))
    if serving is None:
        raise MpctlError(
            f"{operation.id} restored revision {number}, but no engine of {live.name} can confirm it",
            hint=f"{live.command('status')} shows its engines",
        )
    if plan.spec is not None and serving != plan.spec:
        raise Conflict(
            f"{operation.id} restored revision {number}, but the engine of {live.name} runs "
            f"{serving.describe()}, expected {plan.spec.describe()}",
            hint="stop whatever else starts this engine, then run the same command again",
        )
    added = verified.added if verified else ()
    if as_left and not plan.restores:
        return Restored(serving, added, revision=number)
    recorded = next((r.text for r in context.store.revisions() if r.number == number), plan.goal.text)
    preserved = tuple(path for path in kept_fields(recorded, live.text) if path not in added)
    return Restored(serving, added, preserved, number)
