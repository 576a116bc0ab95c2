"""What ``mpctl bench`` measures: services, a service and an engine beside it, or servers at a URL."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from mpctl.app.session.load_client import place_load
from mpctl.cli.settings import Settings
from mpctl.errors import Cancelled, Conflict, InputError, MpctlError
from mpctl.experiment.arm import BASELINE, CANDIDATE

if TYPE_CHECKING:
    from mpctl.app.session.base import Session
    from mpctl.app.workload import Loader
    from mpctl.cli.options.speculation import SpeculationOptions
    from mpctl.cli.terminal import Terminal
    from mpctl.rollout.context import Context
    from mpctl.rollout.measurement import Target
    from mpctl.rollout.ports import Arm, Endpoint, Meter

_INTERRUPTED = Cancelled("interrupted; nothing that serves was changed", hint="the same command goes on where it was")


@dataclass(frozen=True)
class Targets:
    """``identity`` names what is measured, so that the same command goes on; ``speculates``: whether the candidate is
    meant to; ``running``: starts what does not run yet, and stops it again."""

    identity: str
    arms: tuple[str, ...]
    meter: Meter
    load: Loader
    target: Callable[[str], Target]
    speculates: bool = True
    running: Callable[[], AbstractContextManager[None]] = nullcontext


@contextmanager
def open_targets(settings: Settings, name: str | None, options: dict[str, Any]) -> Iterator[Targets]:
    """Whatever the options name; nothing is started yet.

    Raises:
        InputError: there is no such service, or a URL that does not answer as vLLM does.
        Conflict: a rollout of the service is unfinished.
    """
    if options["url"]:
        place_load(options["load"], "local")
        with _servers(settings.terminal, options) as targets:
            yield targets
        return
    from mpctl.app.session.base import who
    from mpctl.app.session.open import open_session

    session = open_session(settings.place, settings.terminal, name)
    session.load, session.scope = place_load(options["load"], settings.place.platform), f"bench-{_short(who())}"
    with session.world(interrupted=_INTERRUPTED) as world:
        if options["spec"]:
            yield _beside(session, world, options)
            return
        sessions = {BASELINE: session}
        if options["candidate"]:
            sessions[CANDIDATE] = open_session(settings.place, settings.terminal, options["candidate"])
        yield _services(world, sessions)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]


def _services(world: Context, sessions: dict[str, Session]) -> Targets:
    from mpctl.app.workload import loader_for

    texts = [f"{s.title} {s.platform.read().text}" for s in sessions.values()]
    return Targets(
        identity="\n".join([*texts, f"load {sessions[BASELINE].load}"]),
        arms=tuple(sessions),
        meter=world.meter,
        load=loader_for(sessions[BASELINE]),
        target=lambda arm: _serving(sessions[arm]),
        speculates=CANDIDATE in sessions and sessions[CANDIDATE].service().speculation() is not None,
    )


def _serving(session: Session) -> Target:
    """The arm that serves now."""
    from mpctl.methods import from_config
    from mpctl.rollout.measurement import Target
    from mpctl.rollout.ports import Arm

    live = session.platform.read()
    state = session.platform.state(Arm(live.text))
    if state.endpoint is None:
        raise MpctlError(
            f"{session.title} does not answer: {state.message or state.phase.value}",
            hint=f"mpctl status {session.name}",
        )
    config: dict[str, Any] | None = session.service().speculation()
    spec = from_config(config).describe()
    return Target(state.endpoint, spec, state.argv or (), state.kv_pool_tokens)


def _beside(session: Session, world: Context, options: dict[str, Any]) -> Targets:
    """The service and a second engine with another speculation.

    Raises:
        Conflict: an old engine is kept in the only place there is beside the service.
    """
    from mpctl.app.change import prepare
    from mpctl.app.change.check import Load
    from mpctl.app.workload import loader_for
    from mpctl.cli.options.speculation import speculation_request
    from mpctl.rollout.ports import Arm
    from mpctl.rollout.steps.measure import target_of

    _require_nothing_kept(session)
    load = Load(max(options["concurrency"] or (1,)), max(options["temperature"] or (0.0,)))
    change = prepare(session, speculation_request(cast("SpeculationOptions", options)), load)
    change.report(session.console)
    change.require_allowed()
    live, arm = Arm(change.old_text), Arm(change.new_text)
    if live == arm:
        raise InputError(f"{session.title} already runs {change.spec.describe()}", field="--spec")
    for note in session.platform.check(arm, side_by_side=True):
        session.console.note(f"note: {note}")
    specs = {BASELINE: (live, change.old_spec.describe()), CANDIDATE: (arm, change.spec.describe())}
    return Targets(
        identity=f"{session.title} {live.manifest}\n{arm.manifest}\nload {session.load}",
        arms=(BASELINE, CANDIDATE),
        meter=world.meter,
        load=loader_for(session),
        target=lambda name: target_of(world, *specs[name]),
        speculates=change.spec.config() is not None,
        running=lambda: _started(session, world, arm, options["timeout"]),
    )


def _require_nothing_kept(session: Session) -> None:
    """Starting an engine would remove the kept one, and with it the instant way back, without a word."""
    kept = session.platform.retained_baseline()
    if kept is not None:
        raise Conflict(
            f"{kept.arm} is kept beside {session.title} for an instant way back",
            hint=f"mpctl retire {session.name} lets it go",
        )


@contextmanager
def _started(session: Session, world: Context, arm: Arm, timeout_s: float) -> Iterator[None]:
    """The engine beside the serving one, stopped in the end unless it was there before.

    Raises:
        Conflict: a rollout of the service is unfinished, an old engine is kept, or somebody else works on it.
    """
    from mpctl.rollout.operation import open_operation
    from mpctl.rollout.ports import Phase
    from mpctl.rollout.steps.ready import await_ready

    with session.store.lease("bench"):
        unfinished = open_operation(session.store.entries())
        if unfinished is not None:
            raise Conflict(
                f"{unfinished.id} of {session.title} is unfinished",
                hint="mpctl resume goes on with it, mpctl rollback restores the service",
            )
        _require_nothing_kept(session)  # since we looked, a rollout may have ended that keeps one
        record = f"started-{arm.id}"
        begun = session.store.load("bench", record) or {}
        ours = world.platform.state(arm).phase is Phase.ABSENT or bool(begun.get("running"))
        try:
            if ours:  # written down first: a command that was killed left it to the next one to stop
                session.store.save("bench", record, {"running": True})
            session.console.step("start", "starting the candidate beside the serving engine")
            world.platform.start(arm)
            world.meter.prepare()
            await_ready(world, arm, timeout_s)
            yield
        finally:
            if ours:
                session.console.step("stop", "stopping the engine that was started")
                world.platform.stop(arm)
                session.store.save("bench", record, {"running": False})


@contextmanager
def _servers(terminal: Terminal, options: dict[str, Any]) -> Iterator[Targets]:
    from mpctl.app.session.base import interruptible
    from mpctl.platform.local.client import BenchClient
    from mpctl.platform.local.engine import python_of
    from mpctl.platform.local.meter import LocalMeter
    from mpctl.rollout.measurement import Target

    urls = {BASELINE: options["url"]}
    if options["candidate_url"]:
        urls[CANDIDATE] = options["candidate_url"]
    endpoints = {
        arm: find_server(url, options["model"], option="--url" if arm == BASELINE else "--candidate-url")
        for arm, url in urls.items()
    }
    python, cwd = python_of(options["vllm"]), str(Path.cwd())
    meter = LocalMeter(BenchClient(python, cwd), cwd)

    def load(dataset: str, path: str, count: int) -> tuple[str, ...]:
        client = BenchClient(python, cwd)
        try:
            return client.prompts_of(dataset, path, endpoints[BASELINE].tokenizer, count)
        finally:
            client.close()

    try:
        with interruptible(terminal, lambda: _INTERRUPTED):
            yield Targets(
                identity=" ".join(_process(meter, e) for e in endpoints.values()),
                arms=tuple(endpoints),
                meter=meter,
                load=load,
                target=lambda arm: Target(endpoints[arm], urls[arm]),
                speculates=False,
            )
    finally:
        meter.close()


def _process(meter: Meter, endpoint: Endpoint) -> str:
    """A server as it runs now: started again it may be another engine, whose blocks do not belong to the old ones.

    Raises:
        InputError: it does not tell its metrics.
    """
    from mpctl.experiment.counters import CounterError

    try:
        started = meter.counters(endpoint).started
    except CounterError as error:
        raise InputError(f"{endpoint.base_url} does not tell its metrics as vLLM does: {error}") from error
    return f"{endpoint.base_url} {endpoint.model} since {started}"


def find_server(url: str, model: str | None, *, option: str = "--url") -> Endpoint:
    """The endpoint of a vLLM server, with the model it lists first unless one is named.

    Raises:
        InputError: the URL is none, or nothing answers there as vLLM does.
    """
    from mpctl.platform import http
    from mpctl.rollout.ports import Endpoint

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{url!r} is no http or https address", field=option, hint="http://HOST:PORT")
    if parts.username or parts.password:
        raise InputError(
            "an address with a password ends up in logs", field=option, hint="set OPENAI_API_KEY for the server's key"
        )
    base = url.rstrip("/").removesuffix("/v1")
    token = os.environ.get("OPENAI_API_KEY") or None
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = http.get(f"{base}/v1/models", headers=headers)
        listed = answer.json().get("data", []) if answer.status == 200 else []
        models = {str(m["id"]): str(m.get("root") or "") for m in listed}
    except (http.NoAnswer, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{base}/v1/models does not answer as vLLM does: {error}", field=option) from error
    if not models:
        raise InputError(f"{base}/v1/models lists no model (status {answer.status})", field=option)
    if model is not None and model not in models:
        raise InputError(f"{base} serves {', '.join(models)}, not {model}", field="--model")
    chosen = model or next(iter(models))
    root = models[chosen]
    # Without the files on this machine the client counts no prompt tokens itself; it takes the server's usage records.
    return Endpoint(base, chosen, tokenizer=root if Path(root).is_dir() else "", token=token)
