"""``mpctl local up``: start a service from its manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mpctl.cli.options import name_argument, option, shared_options, timeout_option
from mpctl.cli.session import Session, Settings, make_session, read_file
from mpctl.errors import MpctlError
from mpctl.platform.local.desired import Process
from mpctl.platform.local.engine import check_model, notes, python_of
from mpctl.platform.local.processes import identify
from mpctl.rollout.ports import Arm
from mpctl.rollout.steps import await_ready
from mpctl.service import load, select


@click.command("up")
@name_argument
@click.option("-f", "--filename", required=True, metavar="FILE", help="Manifest; - for standard input.")
@option("--port", type=click.IntRange(1, 65535), default=None, help="Port of the service; default: a free one.")
@option("--vllm", default=None, metavar="COMMAND", help="vllm command or its python; default: of this environment.")
@option("--lifeline", type=int, default=None, metavar="PID", help="Take the service down when this process ends.")
@click.option("--no-wait", is_flag=True, help="Do not wait until it answers.")
@timeout_option("10m")
@shared_options
@click.pass_context
def command(ctx: click.Context, /, name: str | None, filename: str, **options: Any) -> None:
    """Start a service from its manifest: KServe InferenceService or Modelplane ModelDeployment.

    The container's arguments are run as they are, with a loopback address of our own; image and resources are ignored.
    """
    settings = Settings.of(ctx, options)
    text = read_file(filename, "the manifest")
    service = select(load(text, file=filename), name)
    cwd = Path.cwd()
    check_model(service, cwd)
    python = python_of(options["vllm"])
    session = make_session(settings, settings.namespace or service.namespace or "default", service.name)
    existed = session.platform.exists()
    lifeline = _lifeline(options["lifeline"])
    with session.store.lease("local up"):
        desired = session.platform.create(text, port=options["port"], cwd=str(cwd), python=python, lifeline=lifeline)
        for note in () if existed else notes(service):
            settings.terminal.note(f"note: {note}")
        if not options["no_wait"]:
            _wait(session, Arm(text), options["timeout"], remove_on_failure=not existed)
    settings.terminal.note(f"service {session.namespace}/{session.name} is up at http://127.0.0.1:{desired.port}/v1")


def _wait(session: Session, arm: Arm, timeout_s: float, *, remove_on_failure: bool) -> None:
    session.terminal.step("ready", f"waiting for {session.name}, at most {timeout_s:.0f} s")
    try:
        with session.world() as world:
            await_ready(world, arm, timeout_s)
    except MpctlError:
        if remove_on_failure:
            session.platform.remove()
        raise


def _lifeline(pid: int | None) -> Process | None:
    if pid is None:
        return None
    process = identify(pid)
    if process is None:
        raise MpctlError(f"--lifeline: there is no process {pid}")
    return process
