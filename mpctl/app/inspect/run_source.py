"""Find the measurement that a user means: a file of `mpctl bench`, or a rollout of a service."""

from __future__ import annotations

from pathlib import Path

from mpctl.app.bench.recorded import Source, measured_by, rollouts_of
from mpctl.app.bench.run_file import read_run
from mpctl.app.console import Console
from mpctl.app.session.base import Session
from mpctl.app.session.open import open_session
from mpctl.app.session.place import Place
from mpctl.errors import InputError, MpctlError
from mpctl.rollout.operation import Operation


def find_source(place: Place, console: Console, run: str | None, service: str | None) -> Source:
    """Return the measurement of a file, of a named rollout, or of the last rollout that measured.

    Raises:
        InputError: the file is no measurement, or the rollout is not found or measured nothing.
    """
    if run is not None and (run.endswith((".json", ".gz")) or "/" in run or Path(run).is_file()):
        measured = read_run(run)
        if not measured.blocks:
            raise InputError("has no measured block", file=run)
        return Source(measured)
    session = open_session(place, console, service)
    rollouts = rollouts_of(session)
    if run is not None:
        return _of_rollout(session, rollouts, run)
    sources = (measured_by(session, operation) for operation in reversed(rollouts))
    last = next((source for source in sources if source is not None), None)
    if last is None:
        raise InputError(f"{session.title} has no rollout that measured", hint=_measures(session))
    return last


def _measures(session: Session) -> str:
    rollout, bench = session.command("rollout", "--spec", "METHOD"), session.command("bench")
    return f"'{rollout}' and '{bench}' measure"


def _of_rollout(session: Session, rollouts: list[Operation], name: str) -> Source:
    operation = _pick(session, rollouts, name)
    if session.store.load(operation.plan.workload, "workload") is None:
        raise MpctlError(f"workload of {operation.id} of {session.title} not found", hint=_measures(session))
    source = measured_by(session, operation)
    if source is None:
        raise InputError(
            f"{operation.id} of {session.title} measured nothing",
            hint=f"'{session.command('history')}' lists the other rollouts",
        )
    return source


def _pick(session: Session, rollouts: list[Operation], name: str) -> Operation:
    if not rollouts:
        raise InputError(f"{session.title} has no rollout that measured", hint=_measures(session))
    for operation in rollouts:
        if operation.id == name:
            return operation
    listing = ", ".join(o.id for o in rollouts)
    raise InputError(
        f"rollout {name} of {session.title} not found",
        hint=f"rollouts: {listing}; or the path of a file that a bench wrote",
    )
