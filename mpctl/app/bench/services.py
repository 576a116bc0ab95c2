"""Measure services as they serve, or one side by side with an engine that has another speculation."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mpctl.app.bench.arms import INTERRUPTED, Arms
from mpctl.app.bench.side_by_side import open_side_by_side
from mpctl.app.console import Console
from mpctl.app.power import recorded_noise
from mpctl.app.requests import BenchRequest
from mpctl.app.session.base import Session, who
from mpctl.app.session.load_client import place_load
from mpctl.app.session.open import open_session
from mpctl.app.session.place import Place
from mpctl.app.workload import loader_for
from mpctl.errors import MpctlError
from mpctl.experiment.arm import BASELINE, CANDIDATE
from mpctl.methods import from_config
from mpctl.rollout.context import Context
from mpctl.rollout.measurement import Target
from mpctl.rollout.ports import Arm


@contextmanager
def open_services(place: Place, console: Console, request: BenchRequest) -> Iterator[Arms]:
    """Open the services of a request; starts nothing yet.

    Raises:
        InputError: a service is not found.
        Conflict: a retained baseline occupies the place of the candidate.
    """
    session = open_session(place, console, request.service)
    place_client(session, request)
    with session.context(interrupted=INTERRUPTED) as context:
        if request.speculation is not None:
            yield open_side_by_side(session, context, request, request.speculation)
            return
        sessions = {BASELINE: session}
        if request.candidate:
            sessions[CANDIDATE] = open_session(place, console, request.candidate)
        yield _serving(context, sessions)


def place_client(session: Session, request: BenchRequest) -> None:
    """Choose where the load client of a measurement runs; in a cluster each user has one of their own."""
    asked = request.measurement
    session.load = place_load(asked.load, asked.load_pods, session.platform.name)
    session.scope = f"bench-{hashlib.sha256(who().encode()).hexdigest()[:6]}"


def _serving(context: Context, sessions: dict[str, Session]) -> Arms:
    manifests = [f"{s.title} {s.platform.read().text}" for s in sessions.values()]
    return Arms(
        identity="\n".join([*manifests, f"load {sessions[BASELINE].load}"]),
        names=tuple(sessions),
        meter=context.meter,
        load=loader_for(sessions[BASELINE]),
        target=lambda arm: _target(sessions[arm]),
        noise=lambda: recorded_noise(sessions[BASELINE]),
        speculates=CANDIDATE in sessions and sessions[CANDIDATE].service().speculation() is not None,
    )


def _target(session: Session) -> Target:
    """Return the arm that serves now.

    Raises:
        MpctlError: the service does not answer.
    """
    live = session.platform.read()
    state = session.platform.state(Arm(live.text))
    if state.endpoint is None:
        raise MpctlError(
            f"{session.title} does not answer: {state.message or state.phase.value}",
            hint=session.command("status"),
        )
    config: dict[str, Any] | None = session.service().speculation()
    spec = from_config(config).describe()
    return Target(state.endpoint, spec, state.argv or (), state.kv_pool_tokens)
