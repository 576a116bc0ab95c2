"""The arms of a measurement as values: servers at a URL, services as they serve, or one beside its candidate."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from mpctl.app.bench_requests import BenchRequest
from mpctl.app.change import prepare
from mpctl.app.change.check import Load
from mpctl.app.console import Console
from mpctl.app.requests import SpeculationRequest
from mpctl.app.session.base import Place, Session, choose_load_place, interruptible, who
from mpctl.app.session.open import open_session
from mpctl.errors import Cancelled, Conflict, InputError, MpctlError
from mpctl.experiment.block import BASELINE, CANDIDATE
from mpctl.experiment.counters import CounterError
from mpctl.json_types import Json
from mpctl.manifest import EngineCommand
from mpctl.methods import from_config
from mpctl.platform import http
from mpctl.platform.client import StreamClient
from mpctl.platform.meter import HttpMeter
from mpctl.rollout.arm_engines import MeasuredEngine
from mpctl.rollout.context import Context
from mpctl.rollout.operation import unfinished_operation
from mpctl.rollout.ports import Arm, Demand, Endpoint, Meter, Phase
from mpctl.rollout.steps.candidate import await_ready
from mpctl.rollout.steps.measure import measured_engine

_KEY = "OPENAI_API_KEY"
_INTERRUPTED = Cancelled(
    "interrupted; nothing that serves was changed", hint="the same command continues"
)


@dataclass(frozen=True, slots=True)
class Arms:
    """The arms of a measurement, and how each is reached."""

    identity: str  # of what is measured: the same command continues an interrupted measurement
    names: tuple[str, ...]
    meter: Meter
    engine_of: Callable[[str], MeasuredEngine]
    speculates: bool = True  # the candidate is expected to
    running: Callable[[], AbstractContextManager[None]] = (
        nullcontext  # starts what does not run yet, stops it again
    )
    command: EngineCommand | None = None  # of the service that an arm is to start beside


@contextmanager
def open_servers(console: Console, request: BenchRequest) -> Iterator[Arms]:
    """Open one or two servers; the load client runs on this machine.

    Raises:
        InputError: a URL is invalid, or its server does not answer as vLLM does.
    """
    urls = {BASELINE: request.url}
    if request.candidate:
        urls[CANDIDATE] = request.candidate
    endpoints = {
        arm: find_server(url, request.model, option="--url" if arm == BASELINE else "--candidate")
        for arm, url in urls.items()
    }
    meter = HttpMeter(StreamClient(), str(Path.cwd()))
    try:
        with interruptible(console, lambda: _INTERRUPTED):
            yield Arms(
                identity=" ".join(_process(meter, e) for e in endpoints.values()),
                names=tuple(endpoints),
                meter=meter,
                engine_of=lambda arm: MeasuredEngine(endpoints[arm], None, name=urls[arm]),
                speculates=False,
            )
    finally:
        meter.close()


def _process(meter: Meter, endpoint: Endpoint) -> str:
    """Return the identity of a server's process: a restarted one may be another engine, whose blocks do not mix.

    Raises:
        InputError: the server has no metrics of vLLM.
    """
    try:
        started = meter.counters(endpoint).started
    except CounterError as error:
        raise InputError(f"{endpoint.base_url} has no metrics of vLLM: {error}") from error
    return f"{endpoint.base_url} {endpoint.model} since {started}"


def find_server(url: str, model: str | None, *, option: str = "--url") -> Endpoint:
    """Return the endpoint of a vLLM server, with the first model it lists unless one is named.

    Raises:
        InputError: the URL is invalid, or its server does not answer as vLLM does.
    """
    base, token = _base_of(url, option), os.environ.get(_KEY) or None
    models = _list_models(base, token, option)
    if model is not None and model not in models:
        raise InputError(f"{base} serves {', '.join(models)}, not {model}", field="--model")
    return Endpoint(base, model or models[0], token=token)


def _base_of(url: str, option: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(
            f"{url!r} is not an http or https URL", field=option, hint="http://HOST:PORT"
        )
    if parts.username or parts.password:
        raise InputError(
            "URL with a password would end up in logs",
            field=option,
            hint=f"set {_KEY} for the server's API key",
        )
    return url.rstrip("/").removesuffix("/v1")


def _list_models(base: str, token: str | None, option: str) -> list[str]:
    """Return the names of a server's models."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = http.get(f"{base}/v1/models", headers=headers)
        listed: list[Json] = answer.json().get("data", []) if answer.status == 200 else []
        models = [str(m["id"]) for m in listed]
    except (http.NoAnswer, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{base}/v1/models does not answer as vLLM does: {error}", field=option
        ) from error
    if not models:
        raise InputError(f"{base}/v1/models lists no model (status {answer.status})", field=option)
    return models


def open_side_by_side(
    session: Session, context: Context, request: BenchRequest, speculation: SpeculationRequest
) -> Arms:
    """Return the serving engine and a second one with the speculation asked for; starts nothing yet.

    Raises:
        InputError: the service runs that speculation already.
        Refused: a preflight check refuses the change.
        Conflict: a retained baseline occupies the only place next to the service.
    """
    _require_no_retained(session)
    measurement = request.measurement
    load = Load(max(measurement.concurrency or (1,)), max(measurement.temperatures))
    change = prepare(session, speculation, load)
    change.report(session.console)
    change.require_allowed()
    live, arm = Arm(change.old_text), Arm(change.new_text)
    if live == arm:
        raise InputError(f"{session.title} already runs {change.spec.describe()}", field="--spec")
    (fit,) = session.platform.fits(Demand(arm, side_by_side=True))
    for note in fit.require():
        session.console.note(f"note: {note}")
    specs = {BASELINE: (live, change.old_spec), CANDIDATE: (arm, change.spec)}
    return Arms(
        identity=f"{session.title} {live.manifest}\n{arm.manifest}\nload {session.load_place}",
        names=(BASELINE, CANDIDATE),
        meter=context.meter,
        engine_of=lambda name: measured_engine(context, *specs[name], name=f"the {name}"),
        command=change.before.whole_command,
        speculates=change.spec.config() is not None,
        running=lambda: running(session, context, arm, request.ready_timeout_s),
    )


def _require_no_retained(session: Session) -> None:
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
        unfinished = unfinished_operation(session.store.entries())
        if unfinished is not None:
            resume, rollback = session.command("resume"), session.command("rollback")
            raise Conflict(
                f"{unfinished.id} of {session.title} is unfinished",
                hint=f"'{resume}' continues it, '{rollback}' restores the service",
            )
        _require_no_retained(session)  # a rollout may have ended since the first check
        record = f"started-{arm.id}"
        begun = session.store.load("bench", record) or {}
        ours = context.engines.state(arm).phase is Phase.ABSENT or bool(begun.get("running"))
        try:
            if ours:  # recorded first: after a kill the next command stops the engine
                session.store.save("bench", record, {"running": True})
            session.console.step(
                "start", "starting the candidate side by side with the serving engine"
            )
            context.engines.start(arm)
            context.meter.prepare()
            await_ready(context, arm, timeout_s, name="the candidate")
            yield
        finally:
            if ours:
                session.console.step("stop", "stopping the candidate")
                context.engines.stop(arm)
                session.store.save("bench", record, {"running": False})


@contextmanager
def open_services(place: Place, console: Console, request: BenchRequest) -> Iterator[Arms]:
    """Open the services of a request; starts nothing yet.

    Raises:
        InputError: a service is not found.
        Conflict: a retained baseline occupies the place of the candidate.
    """
    session = open_session(place, console, request.service)
    place_client(session, request)
    with session.context(interrupted=_INTERRUPTED) as context:
        if request.speculation.method:
            yield open_side_by_side(session, context, request, request.speculation)
            return
        sessions = {BASELINE: session}
        if request.candidate:
            sessions[CANDIDATE] = open_session(place, console, request.candidate)
        yield _serving(context, sessions)


def place_client(session: Session, request: BenchRequest) -> None:
    """Choose where the load client of a measurement runs; in a cluster each user has one of their own."""
    measurement = request.measurement
    session.load_place = choose_load_place(measurement.load, session.platform.name)
    session.scope = f"bench-{hashlib.sha256(who().encode()).hexdigest()[:6]}"


def _serving(context: Context, sessions: dict[str, Session]) -> Arms:
    manifests = [f"{s.title} {s.platform.read().text}" for s in sessions.values()]
    return Arms(
        identity="\n".join([*manifests, f"load {sessions[BASELINE].load_place}"]),
        names=tuple(sessions),
        meter=context.meter,
        engine_of=lambda arm: _serving_engine(sessions[arm]),
        speculates=CANDIDATE in sessions
        and sessions[CANDIDATE].service().speculation() is not None,
    )


def _serving_engine(session: Session) -> MeasuredEngine:
    """Return the arm that serves now.

    Raises:
        MpctlError: the service does not answer.
    """
    live = session.platform.read()
    state = session.platform.engines.state(Arm(live.text))
    if state.endpoint is None:
        raise MpctlError(
            f"{session.title} does not answer: {state.message or state.phase.value}",
            hint=session.command("status"),
        )
    config: Json | None = session.service().speculation()
    return MeasuredEngine(
        state.endpoint, from_config(config), state.argv or (), state.kv_pool_tokens
    )
