"""``mpctl status``: services, the engines that run, and operations under way. It only reads; lost engines are named,
and the commands that change something bring them back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mpctl import annex, commands
from mpctl.app.option import Option
from mpctl.cli.command import OUTPUT, SELECTION, command, require_no_name, service_argument
from mpctl.cli.context import CliContext
from mpctl.cli.printer import Result, columns, paragraph, render

if TYPE_CHECKING:
    from mpctl.app.session.base import Place, Session
    from mpctl.app.session.service_status import Leftover, Status

_REFRESH_S = 1.0


_OPTIONS = (
    Option(
        "-w",
        "--watch",
        type=bool,
        help="Refresh until Ctrl-C: redrawn on a terminal, else on change.",
    ),
    Option(
        "-A", "--all-namespaces", type=bool, help="Services of all namespaces, whatever -n says."
    ),
)


@command("status", service_argument(), *SELECTION, *_OPTIONS, OUTPUT)
def status(
    context: CliContext,
    /,
    name: str | None,
    *,
    selector: str,
    every: bool,
    watch: bool,
    all_namespaces: bool,
) -> None:
    """Show services, the engines that run and operations under way.

    \b
    Examples:
      mpctl status
      mpctl status qwen -w
      mpctl status -l team=search -o json
    """
    require_no_name(name, selector=selector, every=every)
    place = context.place._replace(namespace=None) if all_namespaces else context.place
    if not watch:
        _show_once(context, place, name, everywhere=all_namespaces, labels=selector)
        return
    with context.terminal.screen() as draw:
        while True:
            text = describe(context, place, name, everywhere=all_namespaces, labels=selector)
            draw(text or "no service is up")
            time.sleep(_REFRESH_S)


def _show_once(
    context: CliContext, place: Place, name: str | None, *, everywhere: bool, labels: str
) -> None:
    terminal = context.terminal
    leftovers: list[Leftover] = []
    text = describe(context, place, name, everywhere=everywhere, labels=labels, leftovers=leftovers)
    if text:
        terminal.result(text)
    elif place.platform == "local" and not place.namespace:
        terminal.note("no service is up on this machine")
        terminal.next_command(commands.line("local", "up", "-f", "MANIFEST"))
    else:
        where = f" in namespace {place.namespace}" if place.namespace else ""
        elsewhere = f"{where}; '{commands.line('status', '-A')}' shows all namespaces"
        terminal.note("no service found" + elsewhere * (not everywhere))
    for leftover in leftovers:
        terminal.warn(leftover.text)
    for orphan in find_orphans(place):
        terminal.warn(f"engine of {orphan.arm} (pid {orphan.pid}) {orphan.reason}; {orphan.remedy}")


def describe(
    context: CliContext,
    place: Place,
    name: str | None,
    *,
    everywhere: bool,
    labels: str = "",
    leftovers: list[Leftover] | None = None,
) -> str:
    """The status of the service, or of all, in the format asked for; empty if there is none. ``leftovers``: gets what
    is left of services that are gone."""
    from mpctl.app.session.open import open_sessions, statuses_of

    sessions = open_sessions(
        place, context.terminal, name, everywhere=everywhere, labels=labels, listed=True
    )
    all_services = name is None and not labels
    remains = _leftovers(place, sessions, everywhere=everywhere) if all_services else ()
    if leftovers is not None:
        leftovers += remains
    result = Result(
        "StatusList",
        record=lambda: {
            "items": [status.to_record() for status in statuses_of(sessions)],
            "leftovers": [leftover.to_record() for leftover in remains],
            "orphans": [o.to_record() for o in find_orphans(place)],
        },
        names=lambda: [f"{s.namespace}/{s.name}" for s in sessions],
        table=lambda wide: status_table(statuses_of(sessions), wide=wide),
    )
    return render(context.output, result, context.terminal.page_width)


def _leftovers(
    place: Place, sessions: Sequence[Session], *, everywhere: bool
) -> tuple[Leftover, ...]:
    if place.platform != "kubernetes":
        return ()
    from mpctl.app.session.cluster import find_leftovers

    return find_leftovers(place, sessions, everywhere=everywhere)


def find_orphans(place: Place) -> Sequence[Any]:
    """Engines of this machine without a supervisor; a cluster has none."""
    if place.platform != "local":
        return ()
    return tuple(annex.need("orphans")())


def status_table(services: list[Status], *, wide: bool) -> str:
    """Return the table of services, followed by several engines and the problems of each; empty without services."""
    if not services:
        return ""
    header = ["NAMESPACE", "NAME", "STATE", "SPEC", "REVISION", "URL"]
    rows = [[s.namespace, s.name, s.state, s.spec, str(s.revision or "-"), s.url] for s in services]
    lines = [columns([header, *rows])]
    for status in services:
        lines += _details(status, wide=wide)
    return "\n".join(lines)


def _details(status: Status, *, wide: bool) -> list[str]:
    lines = []
    if status.operation is not None:
        step = status.operation.begun or "between steps"
        words = (
            f"{status.name}: {status.operation.id} ({status.operation.plan.spec_text}) at {step}"
        )
        lines += ["", paragraph(words, "", "  ")]
        if status.holder:
            lines.append(f"  held by {status.holder}")
    if status.arms and (wide or len(status.arms) > 1):
        retire = commands.line("retire", status.name, namespace=status.namespace)
        rows = [
            [
                arm.id,
                arm.phase.value,
                arm.traffic or ("all" if arm.id == status.routed else "none"),
                arm.endpoint.base_url if arm.endpoint else "-",
                str(arm.restarts),
                arm.message
                or (
                    f"retained since {arm.retained_since} ({retire} stops it)"
                    if arm.retained_since
                    else "-"
                ),
            ]
            for arm in status.arms
        ]
        titles = ["ARM", "PHASE", "TRAFFIC", "ENDPOINT", "RESTARTS", "MESSAGE"]
        lines += ["", columns([titles, *rows])]
    return lines + [paragraph(f"problem: {problem}", "", "  ") for problem in status.problems]
