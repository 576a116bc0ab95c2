"""Measure a service side by side with an engine that is started for the measurement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mpctl.app.bench.arms import Arms
from mpctl.app.change import prepare
from mpctl.app.change.check import Load
from mpctl.app.power import recorded_noise
from mpctl.app.requests import BenchRequest, SpeculationRequest
from mpctl.app.session.base import Session
from mpctl.app.workload import loader_for
from mpctl.errors import Conflict, InputError
from mpctl.experiment.arm import BASELINE, CANDIDATE
from mpctl.rollout.context import Context
from mpctl.rollout.operation import open_operation
from mpctl.rollout.ports import Arm, Phase
from mpctl.rollout.steps.measure import target_of
from mpctl.rollout.steps.ready import await_ready


def open_side_by_side(
    session: Session, context: Context, request: BenchRequest, speculation: SpeculationRequest
) -> Arms:
    """Return the serving engine and a second one with the speculation asked for; starts nothing yet.

    Raises:
        InputError: the service runs that speculation already.
        Refused: a preflight check refuses the change.
        Conflict: a retained baseline occupies the only place next to the service.
    """
    require_no_retained(session)
    measurement = request.measurement
    load = Load(max(measurement.concurrency or (1,)), max(measurement.temperatures))
    change = prepare(session, speculation, load)
    change.report(session.console)
    change.require_allowed()
    live, arm = Arm(change.old_text), Arm(change.new_text)
    if live == arm:
        raise InputError(f"{session.title} already runs {change.spec.describe()}", field="--spec")
    for note in session.platform.check(arm, side_by_side=True):
        session.console.note(f"note: {note}")
    specs = {BASELINE: (live, change.old_spec.describe()), CANDIDATE: (arm, change.spec.describe())}
    return Arms(
        identity=f"{session.title} {live.manifest}\n{arm.manifest}\nload {session.load}",
        names=(BASELINE, CANDIDATE),
        meter=context.meter,
        load=loader_for(session),
        target=lambda name: target_of(context, *specs[name], name=f"the {name}"),
        noise=lambda: recorded_noise(session),
        speculates=change.spec.config() is not None,
        running=lambda: running(session, context, arm, request.ready_timeout_s),
    )


def require_no_retained(session: Session) -> None:
    """Refuse to start an engine that would replace a retained baseline, and with it the instant rollback.

    Raises:
        Conflict: the service has a retained baseline.
    """
    retained = session.platform.retained_baseline()
    if retained is not None:
        raise Conflict(
            f"{session.title} has a retained baseline for an instant rollback",
            hint=f"'{session.command('retire')}' deletes it",
        )


@contextmanager
def running(session: Session, context: Context, arm: Arm, timeout_s: float) -> Iterator[None]:
    """Run the candidate during the block, and stop it at the end unless it ran before.

    Raises:
        Conflict: the service has an unfinished operation or a retained baseline, or another command changes it.
    """
    with session.store.lease("bench"):
        unfinished = open_operation(session.store.entries())
        if unfinished is not None:
            resume, rollback = session.command("resume"), session.command("rollback")
            raise Conflict(
                f"{unfinished.id} of {session.title} is unfinished",
                hint=f"'{resume}' continues it, '{rollback}' restores the service",
            )
        require_no_retained(session)  # a rollout may have ended since the first check
        record = f"started-{arm.id}"
        begun = session.store.load("bench", record) or {}
        ours = context.platform.state(arm).phase is Phase.ABSENT or bool(begun.get("running"))
        try:
            if ours:  # recorded first: after a kill the next command stops the engine
                session.store.save("bench", record, {"running": True})
            session.console.step("start", "starting the candidate side by side with the serving engine")
            context.platform.start(arm)
            context.meter.prepare()
            await_ready(context, arm, timeout_s, name="the candidate")
            yield
        finally:
            if ours:
                session.console.step("stop", "stopping the candidate")
                context.platform.stop(arm)
                session.store.save("bench", record, {"running": False})
