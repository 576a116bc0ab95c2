"""``mpctl status``: services, what really runs, and what is under way. It only looks: what is lost is
named, and brought back by the commands that change something."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from mpctl.cli.options.shared import name_argument, output_option, shared_options
from mpctl.cli.options.types import option
from mpctl.cli.printer import columns, document
from mpctl.cli.settings import Settings

if TYPE_CHECKING:
    from mpctl.app.session.status import Status
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
        settings = settings._replace(place=settings.place._replace(namespace=None))
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
    elif settings.place.platform == "local":
        terminal.note("no service is up on this machine")
        terminal.next_command("local up -f MANIFEST")
    else:
        terminal.note("there is no InferenceService here; -A looks in all namespaces")
    for orphan in orphans(settings):
        terminal.warn(f"engine of {orphan.arm} (pid {orphan.pid}) {orphan.reason}; {orphan.remedy}")


def describe(settings: Settings, name: str | None, output: str, *, everywhere: bool = False) -> str:
    """The status of the service, or of all, in the format asked for; empty if there is none."""
    from mpctl.app.session.open import open_sessions

    sessions = open_sessions(settings.place, settings.terminal, name, everywhere=everywhere)
    if output == "name":
        return "\n".join(f"{s.namespace}/{s.name}" for s in sessions)
    found = [s.status() for s in sessions]
    if output in ("json", "yaml"):
        body = {"items": [s.to_record() for s in found], "orphans": [o.to_record() for o in orphans(settings)]}
        return document("StatusList", body, output)
    return status_table(found, wide=output == "wide") if found else ""


def orphans(settings: Settings) -> tuple[Orphan, ...]:
    """Engines of this machine that nobody looks after; a cluster has none."""
    if settings.place.platform != "local":
        return ()
    from mpctl.platform.local.orphans import find_orphans

    return tuple(find_orphans())


def status_table(found: list[Status], *, wide: bool) -> str:
    """Services, then the engines and problems of those that have something to say."""
    header = ["NAMESPACE", "NAME", "STATE", "SPEC", "REVISION", "URL"]
    rows = [[s.namespace, s.name, s.state, s.spec, str(s.revision or "-"), s.url] for s in found]
    lines = [columns([header, *rows])]
    for status in found:
        if status.operation is not None:
            step = status.operation.begun or "between steps"
            lines.append(f"\n{status.name}: {status.operation.id} ({status.operation.plan.spec}) at {step}")
            if status.holder:
                lines.append(f"  held by {status.holder}")
        if status.arms and (wide or len(status.arms) > 1):
            lines.append("")
            lines.append(columns([["ARM", "PHASE", "TRAFFIC", "ENDPOINT", "RESTARTS", "MESSAGE"], *_arm_rows(status)]))
        lines += [f"problem: {problem}" for problem in status.problems]
    return "\n".join(lines)


def _arm_rows(status: Status) -> list[list[str]]:
    return [
        [
            arm.id,
            arm.phase.value,
            arm.traffic or ("all" if arm.id == status.routed else "none"),
            arm.endpoint.base_url if arm.endpoint else "-",
            str(arm.restarts),
            arm.message or (f"kept since {arm.retained_since}; mpctl retire lets it go" if arm.retained_since else "-"),
        ]
        for arm in status.arms
    ]
