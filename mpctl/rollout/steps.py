"""The steps of an operation. Each takes the world and the operation so far, acts idempotently, and returns what it
found out.

What a step returns is written to the ledger, so it is small and JSON; whole measurements go to the store beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mpctl.errors import MpctlError
from mpctl.experiment.arm import BASELINE, CANDIDATE
from mpctl.experiment.workload import Workload
from mpctl.manifest import redacted
from mpctl.rollout.measuring import Measurement, Target, load_record
from mpctl.rollout.operation import Kind, Operation, Plan, Strategy
from mpctl.rollout.ports import Arm, ArmState, Phase
from mpctl.rollout.records import Revision, recorded_revisions, text_digest

if TYPE_CHECKING:
    from mpctl.rollout.machine import World

POLL_S = 0.5


def record_baseline(world: World, operation: Operation) -> dict[str, Any]:
    """Keep the service as it is, unless the newest revision is exactly that."""
    live = world.platform.read()
    plan = operation.plan
    if text_digest(live.text) != text_digest(plan.baseline):
        raise MpctlError(
            f"service {live.name} was changed after the plan was made",
            hint="run the command again to plan from the service as it is now",
        )
    world.progress.step("record", "keeping the service as it is")
    number = _record(world, operation, plan.baseline, why="as found", spec=plan.baseline_spec)
    pool = world.platform.state(plan.baseline_arm).kv_pool_tokens
    return {"revision": number} | ({"kvPoolTokens": pool} if pool else {})


def start(world: World, operation: Operation) -> dict[str, Any]:
    """Start the arm beside the one that serves."""
    world.progress.step("start", f"starting {operation.plan.spec} beside the serving engine")
    world.platform.start(operation.plan.arm)
    if operation.plan.kind is Kind.ROLLOUT:
        world.meter.prepare()
    return {"arm": operation.plan.arm.id}


def replace(world: World, operation: Operation) -> dict[str, Any]:
    """Stop the serving arm and start the other in its place."""
    plan = operation.plan
    down = (
        "the old engine goes when the new one is ready" if _stays_up(world, plan) else "the service is down meanwhile"
    )
    world.progress.step("switch", f"switching to {plan.spec}; {down}")
    world.platform.replace(plan.arm, expect=_expected(plan), downtime=plan.downtime)
    return {"arm": plan.arm.id}


def _stays_up(world: World, plan: Plan) -> bool:
    return world.platform.rolls and not plan.downtime


def _expected(plan: Plan) -> tuple[Arm, ...]:
    """What may be live while a plan is carried out."""
    return (plan.baseline_arm, plan.arm)


def pin(world: World, operation: Operation) -> dict[str, Any]:
    """Hold the autoscaler, which would answer measurements and new pods with more pods."""
    scaling = operation.scaling
    assert scaling is not None  # else there is no such step
    world.progress.step("pin", f"holding the autoscaler at {scaling['replicas']}")
    world.scaler.pin(scaling)
    return {}


def unpin(world: World, operation: Operation) -> dict[str, Any]:
    """Put the autoscaler back as it was found."""
    scaling = operation.scaling
    assert scaling is not None
    world.progress.step("unpin", "putting the autoscaler back")
    left = world.scaler.unpin(scaling)
    for line in left:
        world.progress.note(line)
    return {"left": list(left)}


def _nothing() -> None:
    pass


def settle(world: World, operation: Operation, *, meanwhile: Callable[[], None] = _nothing) -> dict[str, Any]:
    """Wait until the written service serves, then take back what was only set for the change. ``meanwhile``: as with
    :func:`await_ready`."""
    plan = operation.plan
    world.progress.step("settle", f"waiting until every pod runs {plan.spec}, at most {plan.ready_timeout_s:.0f} s")
    state = await_ready(world, plan.arm, plan.ready_timeout_s, meanwhile=meanwhile)
    world.platform.settle(plan.arm)
    return {"arm": state.id, "argv": list(redacted(state.argv or ()))}


def keep_foreign(world: World, operation: Operation) -> dict[str, Any]:
    """Keep the service as it is when no revision has it: a rollback must not lose what somebody else wrote."""
    live = world.platform.read()
    plan = operation.plan
    known = {r.text for r in world.store.revisions()} | {plan.text}
    if live.text in known or live.text != plan.baseline or (plan.undoes and not plan.overwrites):
        return {}
    return {"revision": _record(world, operation, live.text, why="as found before the rollback", spec="as found")}


def leave(world: World, operation: Operation, scaling: dict[str, Any] | None) -> None:
    """End an operation without another change to the service: record it, put the route back, remove the candidate,
    free the autoscaler. ``scaling``: as the last that held it did."""
    plan = operation.plan
    text = world.platform.live_text()
    if text is not None:
        for arm in _expected(plan):
            world.platform.settle(arm)
        text = world.platform.read().text
    world.progress.step("abandon", "leaving the service as it is" if text is not None else "the service is gone")
    if text is not None and all(r.text != text for r in world.store.revisions()):
        _record(world, operation, text, why=f"as {operation.id} was abandoned", spec="as found")
    if plan.route is not None:
        for line in world.router.unshift(plan.route):
            world.progress.note(line)
    world.platform.retire(Arm(plan.baseline if text is None else text))
    if scaling is not None:
        for line in world.scaler.unpin(scaling):
            world.progress.note(line)


def wait_ready(world: World, operation: Operation) -> dict[str, Any]:
    """Wait until the arm answers a real completion, with the arguments of its manifest."""
    plan = operation.plan
    world.progress.step("ready", f"waiting for {plan.arm.id}, at most {plan.ready_timeout_s:.0f} s")
    if plan.kind is Kind.ROLLBACK and world.platform.state(plan.arm).phase in (Phase.FAILED, Phase.ABSENT):
        # Its start is done, but an earlier attempt saw it fail; unless it is started afresh the way back stays stuck.
        if plan.strategy is Strategy.IN_PLACE:
            world.platform.replace(plan.arm, expect=_expected(plan), downtime=plan.downtime)
        else:
            world.platform.start(plan.arm)
    state = await_ready(world, plan.arm, plan.ready_timeout_s)
    pools = {"kvPoolTokens": state.kv_pool_tokens}
    if plan.kind is Kind.ROLLOUT:
        baseline = operation.done.get("record", {}).get("kvPoolTokens")
        pools["baselineKvPoolTokens"] = baseline
        if state.kv_pool_tokens and baseline:
            lost = 1 - state.kv_pool_tokens / baseline
            found = f"{state.kv_pool_tokens:,} tokens, baseline {baseline:,} ({-lost:+.1%})"
            world.progress.note(f"KV pool by the engines' own logs: {found}")
    known = {name: tokens for name, tokens in pools.items() if tokens}
    return {"arm": state.id, "argv": list(redacted(state.argv or ())), **known}


def await_ready(world: World, arm: Arm, timeout_s: float, *, meanwhile: Callable[[], None] = _nothing) -> ArmState:
    """Poll until the arm is ready and has answered once. ``timeout_s`` is for one engine: where an arm has several,
    which start one after the other, it begins anew with each that got ready. ``meanwhile`` is called with each poll.

    Raises:
        MpctlError: it failed, or was not ready in time; the engine's own last words are in the message.
    """
    started = world.clock.now()
    most = 0
    while True:
        meanwhile()
        state = world.platform.state(arm)
        if state.pods_ready > most:
            most, started = state.pods_ready, world.clock.now()
        waited = (world.clock.now() - started).total_seconds()
        if state.phase is Phase.READY and state.endpoint is not None:
            if not state.matches:
                raise MpctlError(
                    f"{arm.id} runs with other arguments than its manifest: {' '.join(redacted(state.argv or ()))}",
                    hint="stop whatever else starts this engine",
                )
            world.meter.complete(state.endpoint)
            return state
        if state.phase in (Phase.FAILED, Phase.ABSENT):
            raise MpctlError(
                f"{arm.id} did not start: {state.message or 'it is not there'}",
                hint=world.platform.describe_failure(arm),
            )
        if waited > timeout_s:
            raise MpctlError(
                f"{arm.id} was not ready within {timeout_s:.0f} s: {state.message}",
                hint="give it longer with --timeout, or read its log; " + world.platform.describe_failure(arm),
            )
        world.progress.update(f"{state.message or 'starting'} ({waited:.0f} s)")
        world.clock.sleep(POLL_S)


def measure_alternating(world: World, operation: Operation) -> dict[str, Any]:
    """Send the same prompts to both arms in alternating blocks, round by round, until the gate has decided."""
    return measurement(world, operation).measure()


def measure_baseline(world: World, operation: Operation) -> dict[str, Any]:
    """All rounds of the baseline, before it is switched off."""
    return measurement(world, operation).measure((BASELINE,))


def measure_candidate(world: World, operation: Operation) -> dict[str, Any]:
    """Rounds of the candidate, which runs in the baseline's place, until the gate has decided."""
    return measurement(world, operation).measure((CANDIDATE,))


def measurement(world: World, operation: Operation) -> Measurement:
    """What the operation measures; its blocks are kept under the operation's id."""
    plan = operation.plan
    targets = {BASELINE: (plan.baseline_arm, plan.baseline_spec), CANDIDATE: (plan.arm, plan.spec)}
    return Measurement(
        id=operation.id,
        created=operation.opened_at,
        who=operation.who,
        workload=workload_of(world, operation),
        policy=plan.policy,
        store=world.store,
        meter=world.meter,
        progress=world.progress,
        target=lambda name: target_of(world, *targets[name]),
    )


def target_of(world: World, arm: Arm, spec: str) -> Target:
    """An arm that is ready, to be measured.

    Raises:
        MpctlError: it is not ready, or no longer.
    """
    state = world.platform.state(arm)
    if state.phase is not Phase.READY or state.endpoint is None:
        raise MpctlError(
            f"{arm.id} stopped while it was measured: {state.message or state.phase.value}",
            hint=world.platform.describe_failure(arm),
        )
    return Target(state.endpoint, spec, state.argv or (), state.kv_pool_tokens)


def judge(world: World, operation: Operation) -> dict[str, Any]:
    """Ask the gate, once for all, about the rounds that were measured."""
    measured = measurement(world, operation)
    verdict = measured.look(measured.rounds())
    world.progress.step("judge", verdict.outcome.value)
    return verdict.to_record()


def adopt(world: World, operation: Operation) -> dict[str, Any]:
    """Make the arm the service: its manifest is the live one, and it gets the traffic."""
    plan = operation.plan
    world.progress.step(operation.begun, f"routing the service to {plan.spec}")
    moved = bool(operation.done.get("redirect", {}).get("moved"))
    world.platform.adopt(plan.arm, expect=_expected(plan), downtime=plan.downtime, beside_serves=moved)
    return {"digest": text_digest(plan.text)}


def retire(world: World, operation: Operation) -> dict[str, Any]:
    """Stop the other arms, unless they are kept for an instant way back."""
    if operation.plan.keep_baseline:
        return {"kept": operation.plan.baseline_arm.id}
    world.progress.step("retire", "stopping the other engine")
    world.platform.retire(operation.plan.arm)
    return {}


def verify(world: World, operation: Operation) -> dict[str, Any]:
    """Prove the end state: manifest byte for byte, route, and the running engine's own arguments. What admission adds
    to a manifest by itself, such as a field that a newer KServe defaults, is no difference, and is named.

    Raises:
        MpctlError: any of the three is not as planned.
    """
    plan = operation.plan
    world.progress.step("verify", "comparing the service with the plan")
    live = world.platform.read()
    added = world.platform.added(plan.arm, live)
    if added is None:
        raise MpctlError(f"service {live.name} is not byte for byte what was written")
    for field in added:
        world.progress.note(f"added by admission: {field}; every field that was written is as written")
    state = world.platform.state(plan.arm)
    growing = _grows(operation, state)
    if live.routed != Arm(live.text).id or not state.matches or (state.phase is not Phase.READY and not growing):
        raise MpctlError(
            f"service {live.name} does not run as written: routed to {live.routed}, {state.id} is {state.phase.value}"
        )
    if growing:
        world.progress.note(
            f"the autoscaler asks for more than the {state.pods_ready} pods that serve: {state.message}"
        )
    more = {"added": list(added)} if added else {}
    return {"digest": text_digest(live.text), "argv": list(redacted(state.argv or ())), **more}


def _grows(operation: Operation, state: ArmState) -> bool:
    """Whether all that it waits for are pods that the autoscaler, free again, asked for: as many serve as were held."""
    held = (operation.scaling or {}).get("replicas", 0) if "unpin" in operation.done else 0
    return state.phase is Phase.STARTING and 0 < held <= state.pods_ready


def record_promoted(world: World, operation: Operation) -> dict[str, Any]:
    """Keep the promoted service as a revision of its own."""
    plan = operation.plan
    text = _as_stored(world, plan)
    return {"revision": _record(world, operation, text, why=f"promoted by {operation.id}", spec=plan.spec)}


def record_restored(world: World, operation: Operation) -> dict[str, Any]:
    """Keep the restored service as the newest revision, unless it already is."""
    plan = operation.plan
    spec = next((r.spec for r in world.store.revisions() if r.text == plan.text), plan.spec)
    target = "" if plan.target is None else f" to revision {plan.target}"
    return {"revision": _record(world, operation, _as_stored(world, plan), why=f"rollback{target}", spec=spec)}


def _as_stored(world: World, plan: Plan) -> str:
    """The planned manifest with what admission adds to it now: the newest revision is what is live, or the next
    rollback would take it for somebody's change."""
    live = world.platform.read()
    return live.text if world.platform.added(plan.arm, live) else plan.text


def _record(world: World, operation: Operation, text: str, *, why: str, spec: str) -> int:
    revisions = world.store.revisions()
    if revisions and revisions[-1].digest == text_digest(text):
        return revisions[-1].number
    revision = Revision(
        # One that is lost keeps its number.
        number=max({r.number for r in revisions} | recorded_revisions(world.store.entries()), default=0) + 1,
        text=text,
        created=world.clock.now().isoformat(timespec="seconds"),
        who=world.who,
        why=why,
        spec=spec,
        operation=operation.id,
    )
    world.store.add_revision(revision)
    return revision.number


def workload_of(world: World, operation: Operation) -> Workload:
    """The stored workload that the plan names.

    Raises:
        MpctlError: it is not there any more.
    """
    workload = load_record(world.store, operation.plan.workload, "workload", Workload.from_record)
    if workload is None:
        raise MpctlError(f"the workload of {operation.id} is gone", hint="mpctl rollback restores the service")
    return workload
