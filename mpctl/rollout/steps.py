"""The steps of an operation. Each takes the world and the operation so far, acts idempotently, and returns what it
found out.

What a step returns is written to the ledger, so it is small and JSON; whole measurements go to the store beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mpctl.errors import MpctlError
from mpctl.measure.block import Block, BlockError
from mpctl.measure.counters import CounterError
from mpctl.measure.gate import assess
from mpctl.measure.summary import BASELINE, CANDIDATE, Comparison
from mpctl.measure.workload import Workload, block_order
from mpctl.rollout.operation import Kind, Operation, Strategy
from mpctl.rollout.ports import Arm, ArmState, Endpoint, Phase
from mpctl.rollout.records import Revision, text_digest
from mpctl.service import redacted

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
    return {"revision": _record(world, operation, plan.baseline, why="as found", spec=plan.baseline_spec)}


def start(world: World, operation: Operation) -> dict[str, Any]:
    """Start the arm beside the one that serves."""
    world.progress.step("start", f"starting {operation.plan.spec} beside the serving engine")
    world.platform.start(operation.plan.arm)
    if operation.plan.kind is Kind.ROLLOUT:
        world.meter.prepare()
    return {"arm": operation.plan.arm.id}


def replace(world: World, operation: Operation) -> dict[str, Any]:
    """Stop the serving arm and start the other in its place."""
    world.progress.step("switch", f"switching to {operation.plan.spec}; the service is down until it is ready")
    world.platform.replace(operation.plan.arm)
    return {"arm": operation.plan.arm.id}


def wait_ready(world: World, operation: Operation) -> dict[str, Any]:
    """Wait until the arm answers a real completion, with the arguments of its manifest."""
    plan = operation.plan
    world.progress.step("ready", f"waiting for {plan.arm.id}, at most {plan.ready_timeout_s:.0f} s")
    if plan.kind is Kind.ROLLBACK and world.platform.state(plan.arm.id).phase in (Phase.FAILED, Phase.ABSENT):
        # Its start is done, but an earlier attempt saw it fail; unless it is started afresh the way back stays stuck.
        again = world.platform.replace if plan.strategy is Strategy.IN_PLACE else world.platform.start
        again(plan.arm)
    state = await_ready(world, plan.arm, plan.ready_timeout_s)
    return {"arm": state.id, "argv": list(redacted(state.argv or ()))}


def await_ready(world: World, arm: Arm, timeout_s: float) -> ArmState:
    """Poll until the arm is ready and has answered once.

    Raises:
        MpctlError: it failed, or was not ready in time; the engine's own last words are in the message.
    """
    started = world.clock.now()
    while True:
        state = world.platform.state(arm.id)
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
                hint=world.platform.describe_failure(arm.id),
            )
        if waited > timeout_s:
            raise MpctlError(
                f"{arm.id} was not ready within {timeout_s:.0f} s: {state.message}",
                hint="give it longer with --timeout, or read its log; " + world.platform.describe_failure(arm.id),
            )
        world.progress.update(f"{state.message or 'starting'} ({waited:.0f} s)")
        world.clock.sleep(POLL_S)


def measure_alternating(world: World, operation: Operation) -> dict[str, Any]:
    """Send the same prompts to both arms in alternating blocks."""
    order = block_order((BASELINE, CANDIDATE), _workload(world, operation).repeats)
    return _measure(world, operation, order)


def measure_baseline(world: World, operation: Operation) -> dict[str, Any]:
    """All blocks of the baseline, before it is switched off."""
    return _measure(world, operation, block_order((BASELINE,), _workload(world, operation).repeats))


def measure_candidate(world: World, operation: Operation) -> dict[str, Any]:
    """All blocks of the candidate, which runs in the baseline's place."""
    return _measure(world, operation, block_order((CANDIDATE,), _workload(world, operation).repeats))


def _measure(world: World, operation: Operation, order: tuple[tuple[str, int], ...]) -> dict[str, Any]:
    workload = _workload(world, operation)
    arms = {BASELINE: operation.plan.baseline_arm, CANDIDATE: operation.plan.arm}
    names = []
    warm: set[str] = set()
    for number, (arm, repeat) in enumerate(order, start=1):
        name = f"block-{arm}-{repeat}"
        if world.store.load(operation.id, name) is None:
            world.progress.step("measure", f"block {number} of {len(order)}: {arm}")
            endpoint = _endpoint(world, arms[arm])
            if arm not in warm and workload.warmup:
                world.meter.run(endpoint, workload.warmup_prompts, workload)
                warm.add(arm)
            block = run_block(world, endpoint, workload, arm=arm, repeat=repeat)
            world.store.save(operation.id, name, block.to_record())
            world.progress.update(f"block {number} of {len(order)}: {arm} {block.throughput:.0f} tok/s")
        names.append(name)
    return {"blocks": names}


def run_block(world: World, endpoint: Endpoint, workload: Workload, *, arm: str, repeat: int) -> Block:
    """One block with the counters read around it.

    Raises:
        MpctlError: the client's result or the counters cannot be used.
    """
    try:
        before = world.meter.counters(endpoint)
        result = world.meter.run(endpoint, workload.slice(repeat), workload)
        after = world.meter.counters(endpoint)
        return Block.from_bench(result, arm=arm, repeat=repeat, before=before, after=after)
    except (BlockError, CounterError) as error:
        raise MpctlError(
            f"block {repeat} of the {arm} cannot be used: {error}", hint="run the rollout again"
        ) from error


def judge(world: World, operation: Operation) -> dict[str, Any]:
    """Ask the gate."""
    verdict = assess(comparison(world, operation), operation.plan.policy)
    world.progress.step("judge", verdict.outcome.value)
    return verdict.to_record()


def comparison(world: World, operation: Operation) -> Comparison:
    """What was measured so far, paired."""
    found = []
    for repeat in range(_workload(world, operation).repeats):
        for arm in (BASELINE, CANDIDATE):
            record = world.store.load(operation.id, f"block-{arm}-{repeat}")
            if record is not None:
                found.append(Block.from_record(record))
    return Comparison.of(found)


def adopt(world: World, operation: Operation) -> dict[str, Any]:
    """Make the arm the service: its manifest is the live one, and it gets the traffic."""
    plan = operation.plan
    world.progress.step(operation.begun, f"routing the service to {plan.spec}")
    world.platform.adopt(plan.arm, expect=(text_digest(plan.baseline), text_digest(plan.text)))
    return {"digest": text_digest(plan.text)}


def retire(world: World, operation: Operation) -> dict[str, Any]:
    """Stop the other arms, unless they are kept for an instant way back."""
    if operation.plan.keep_baseline:
        return {"kept": operation.plan.baseline_arm.id}
    world.progress.step("retire", "stopping the other engine")
    world.platform.retire(operation.plan.arm)
    return {}


def verify(world: World, operation: Operation) -> dict[str, Any]:
    """Prove the end state: manifest byte for byte, route, and the running engine's own arguments.

    Raises:
        MpctlError: any of the three is not as planned.
    """
    plan = operation.plan
    world.progress.step("verify", "comparing the service with the plan")
    live = world.platform.read()
    if live.text != plan.text:
        raise MpctlError(f"service {live.name} is not byte for byte what was written")
    state = world.platform.state(plan.arm.id)
    if live.routed != plan.arm.id or state.phase is not Phase.READY or not state.matches:
        raise MpctlError(
            f"service {live.name} does not run as written: routed to {live.routed}, {state.id} is {state.phase.value}"
        )
    return {"digest": text_digest(live.text), "argv": list(redacted(state.argv or ()))}


def record_promoted(world: World, operation: Operation) -> dict[str, Any]:
    """Keep the promoted service as a revision of its own."""
    plan = operation.plan
    return {"revision": _record(world, operation, plan.text, why=f"promoted by {operation.id}", spec=plan.spec)}


def record_restored(world: World, operation: Operation) -> dict[str, Any]:
    """Keep the restored service as the newest revision, unless it already is."""
    plan = operation.plan
    spec = next((r.spec for r in world.store.revisions() if r.text == plan.text), plan.spec)
    target = "" if plan.target is None else f" to revision {plan.target}"
    return {"revision": _record(world, operation, plan.text, why=f"rollback{target}", spec=spec)}


def _record(world: World, operation: Operation, text: str, *, why: str, spec: str) -> int:
    revisions = world.store.revisions()
    if revisions and revisions[-1].digest == text_digest(text):
        return revisions[-1].number
    revision = Revision(
        number=len(revisions) + 1,
        text=text,
        created=world.clock.now().isoformat(timespec="seconds"),
        who=world.who,
        why=why,
        spec=spec,
        operation=operation.id,
    )
    world.store.add_revision(revision)
    return revision.number


def _endpoint(world: World, arm: Arm) -> Endpoint:
    state = world.platform.state(arm.id)
    if state.phase is not Phase.READY or state.endpoint is None:
        raise MpctlError(
            f"{arm.id} stopped while it was measured: {state.message or state.phase.value}",
            hint=world.platform.describe_failure(arm.id),
        )
    return state.endpoint


def _workload(world: World, operation: Operation) -> Workload:
    record = world.store.load(operation.plan.workload, "workload")
    if record is None:
        raise MpctlError(f"the workload of {operation.id} is gone", hint="mpctl rollback restores the service")
    return Workload.from_record(record)
