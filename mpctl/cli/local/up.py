"""``mpctl local up``: start a service from its manifest."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mpctl.cli.options.shared import name_argument, shared_options, timeout_option
from mpctl.cli.options.types import File, option
from mpctl.cli.settings import Settings
from mpctl.errors import Cancelled, InputError, MpctlError

if TYPE_CHECKING:
    from mpctl.app.session.local import LocalSession
    from mpctl.platform.local.desired import Process

_ADOPTED_S = 10.0


@click.command("up")
@name_argument
@option(
    "-f",
    "--file",
    type=File(),
    metavar="FILE|-",
    help="Manifest; - for standard input. Default: of the service that is up.",
)
@option("--port", type=click.IntRange(1, 65535), help="Port of the service; default: a free one.")
@option("--vllm", metavar="COMMAND", help="vllm command or its python; default: of this environment.")
@option("--lifeline", type=int, metavar="PID", help="Take the service down when this process ends.")
@option("--wait/--no-wait", default=True, help="Whether to wait until it answers.")
@timeout_option("10m")
@shared_options
@click.pass_context
def command(ctx: click.Context, /, name: str | None, file: str | None, **options: Any) -> None:
    """Start a service from its manifest: KServe InferenceService or Modelplane ModelDeployment.

    The container's arguments are run as they are, with a loopback address of our own; image and resources are ignored.
    The same command again finds the service up, and brings back what had been lost of it, as it was last written.

    \b
    Examples:
      mpctl local up -f service.yaml
      mpctl local up qwen -f all.yaml --port 8000 --timeout 20m
      mpctl local up qwen                      after a restart of this machine
    """
    settings = Settings.of(ctx, options)
    from mpctl.app.files import read_file
    from mpctl.app.session.local import LocalSession, open_local
    from mpctl.manifest import load, select
    from mpctl.platform.local.engine import check_model, notes, python_of
    from mpctl.platform.local.platform import check_port

    if file is None:
        live = open_local(settings.place, settings.terminal, name)
        text, name = live.platform.read().text, live.name
        namespace: str | None = live.namespace
    else:
        text, namespace = read_file(file, "the manifest"), settings.place.namespace
    service = select(load(text, file=file or "<live>"), name)
    cwd = Path(live.platform.desired().cwd) if file is None else Path.cwd()
    check_model(service, cwd)
    python = python_of(options["vllm"])
    session = LocalSession(namespace or service.namespace or "default", service.name, settings.terminal)
    existed = session.platform.exists()
    lifeline = _lifeline(options["lifeline"])
    if options["port"] and not existed:
        check_port(options["port"])  # before anything of the service is written
    with session.store.lease("local up"):
        desired = session.platform.create(text, port=options["port"], cwd=str(cwd), python=python, lifeline=lifeline)
        for note in () if existed else notes(service):
            settings.terminal.note(f"note: {note}")
        if options["wait"]:
            _wait(session, text, options["timeout"], remove_on_failure=not existed)
    already = "already " if existed else ""
    word = "is" if options["wait"] else "will be"
    settings.terminal.note(f"{session.title} {word} {already}up at http://127.0.0.1:{desired.port}/v1")
    settings.terminal.next_command(f"rollout {session.name} --spec ngram")


def _wait(session: LocalSession, manifest: str, timeout_s: float, *, remove_on_failure: bool) -> None:
    from mpctl.rollout.ports import Arm
    from mpctl.rollout.steps.ready import await_ready

    session.console.step("ready", f"waiting for {session.name}, at most {timeout_s:.0f} s")
    interrupted = Cancelled(
        f"interrupted; {session.title} goes on starting",
        hint=f"mpctl status {session.name} -w watches it, mpctl local down {session.name} stops it",
    )
    try:
        with session.world(interrupted=interrupted) as world:
            await_ready(world, Arm(manifest), timeout_s)
            end = time.monotonic() + _ADOPTED_S
            while not session.platform.supervised() and time.monotonic() < end:
                time.sleep(0.1)  # an engine found running answers before its new supervisor has opened our port
    except Cancelled:
        raise
    except MpctlError:
        if remove_on_failure:
            session.platform.remove()
        raise


def _lifeline(pid: int | None) -> Process | None:
    from mpctl.platform.local.processes import identify

    if pid is None:
        return None
    process = identify(pid)
    if process is None:
        raise InputError(f"there is no process {pid}", field="--lifeline")
    return process
