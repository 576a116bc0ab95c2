"""``mpctl status``: services, what really runs, and what is under way. It only looks: what is lost is
named, and brought back by the commands that change something."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from mpctl.cli.options import name_argument, option, output_option, shared_options
from mpctl.cli.settings import Settings

if TYPE_CHECKING:
    from mpctl.cli.session import Session
    from mpctl.platform.local.orphans import Orphan

_REFRESH_S = 1.0


@click.command("status")
@name_argument
@option("-w", "--watch", is_flag=True, help="Go on showing it until Ctrl-C: on a terminal redrawn, else on change.")
@option("-A", "--all-namespaces", is_flag=True, help="Services of all namespaces, whatever -n says.")
@output_option
@shared_options
@click.pass_context
def command(ctx: click.Context, /, name: str | None, watch: bool, output: str, **shared: Any) -> None:
    """Show services, what really runs and what is under way.

    \b
    Examples:
      mpctl status
      mpctl status qwen -w
      mpctl status -o json
    """
    settings = Settings.of(ctx, shared)
    everywhere = shared["all_namespaces"]
    if everywhere:
        settings = settings._replace(namespace=None)
    if not watch:
        show(settings, name, output, everywhere=everywhere)
        return
    with settings.terminal.screen() as draw:
        while True:
            draw(describe(settings, name, output, everywhere=everywhere) or "no service is up")
            time.sleep(_REFRESH_S)


def show(settings: Settings, name: str | None, output: str, *, everywhere: bool = False) -> None:
    """Print the status once."""
    text = describe(settings, name, output, everywhere=everywhere)
    terminal = settings.terminal
    if text:
        terminal.result(text)
    elif settings.platform == "local":
        terminal.note("no service is up on this machine")
        terminal.next_command("local up -f MANIFEST")
    else:
        terminal.note("there is no InferenceService here; -A looks in all namespaces")
    for orphan in orphans(settings):
        terminal.warn(f"engine of {orphan.arm} (pid {orphan.pid}) {orphan.reason}; {orphan.remedy}")


def describe(settings: Settings, name: str | None, output: str, *, everywhere: bool = False) -> str:
    """The status of the service, or of all, in the format asked for; empty if there is none."""
    from mpctl.cli.look import table
    from mpctl.cli.terminal import document

    sessions = sessions_of(settings, name, everywhere=everywhere)
    if output == "name":
        return "\n".join(f"{s.namespace}/{s.name}" for s in sessions)
    found = [s.status() for s in sessions]
    if output in ("json", "yaml"):
        body = {"items": [s.to_record() for s in found], "orphans": [o.to_record() for o in orphans(settings)]}
        return document("StatusList", body, output)
    return table(found, wide=output == "wide") if found else ""


def orphans(settings: Settings) -> tuple[Orphan, ...]:
    """Engines of this machine that nobody looks after; a cluster has none."""
    if settings.platform != "local":
        return ()
    from mpctl.platform.local.orphans import find_orphans

    return tuple(find_orphans())


def sessions_of(settings: Settings, name: str | None, *, everywhere: bool = False) -> Sequence[Session]:
    """The service asked for, or all."""
    from mpctl.cli.session import known_services, make_session, open_session

    if name is not None:
        return [open_session(settings, name)]
    if settings.platform == "kubernetes":
        from mpctl.cli.cluster_session import cluster_sessions

        return cluster_sessions(settings, everywhere=everywhere)
    return [make_session(settings, namespace, found) for namespace, found in known_services(settings.namespace)]
