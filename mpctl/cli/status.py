"""``mpctl status``: services, what really runs, and what is under way."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import click

from mpctl.cli.options import name_argument, output_option, shared_options
from mpctl.cli.session import Session, Settings, known_services, make_session, open_session
from mpctl.cli.terminal import Terminal, columns
from mpctl.platform.local.engine import read_service
from mpctl.platform.local.orphans import Orphan, find_orphans
from mpctl.rollout.operation import Operation, open_operation
from mpctl.rollout.ports import ArmState, Phase
from mpctl.speculation import from_config

_REFRESH_S = 1.0


@dataclass(frozen=True)
class Status:
    """One service as it is. ``truth``: what the running engine says, beside what the manifest says."""

    namespace: str
    name: str
    spec: str
    revision: int | None
    url: str
    routed: str | None
    arms: tuple[ArmState, ...]
    operation: Operation | None
    holder: str | None
    problems: tuple[str, ...]

    @property
    def state(self) -> str:
        """One word: of the arm that gets the traffic, unless an operation is open."""
        if self.operation is not None:
            return "Progressing" if self.holder else "Interrupted"
        serving = next((a for a in self.arms if a.id == self.routed), None)
        return serving.phase.value if serving else Phase.ABSENT.value

    def to_record(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "metadata": {"name": self.name, "namespace": self.namespace},
            "status": {
                "state": self.state,
                "speculation": self.spec,
                "revision": self.revision,
                "url": self.url,
                "routed": self.routed,
                "arms": [
                    {
                        "id": a.id,
                        "phase": a.phase.value,
                        "endpoint": a.endpoint.base_url if a.endpoint else None,
                        "argumentsMatch": a.matches,
                        "restarts": a.restarts,
                        "message": a.message,
                        "command": list(a.argv or ()),
                    }
                    for a in self.arms
                ],
                "operation": self.operation.id if self.operation else None,
                "step": self.operation.begun if self.operation else None,
                "heldBy": self.holder,
                "problems": list(self.problems),
            },
        }


def read_status(session: Session) -> Status:
    """Everything known of one service."""
    desired = session.platform.desired()
    arms = tuple(session.platform.state(arm_id) for arm_id in desired.arms)
    revisions = session.store.revisions()
    operation = open_operation(session.store.entries())
    holder = session.store.holder()
    service = read_service(desired.text, session.name)
    present: dict[str, Any] | None = service.speculation()
    problems = [f"{a.id}: {a.message}" for a in arms if a.phase is Phase.FAILED]
    problems += [f"{a.id} runs with other arguments than its manifest" for a in arms if a.argv and not a.matches]
    problems += [p for p in [session.platform.router_error()] if p]
    if operation is not None and holder is None:
        problems.append(f"{operation.id} was interrupted: mpctl resume goes on, mpctl rollback undoes")
    return Status(
        namespace=session.namespace,
        name=session.name,
        spec=from_config(present).describe(),
        revision=next((r.number for r in reversed(revisions) if r.text == desired.text), None),
        url=f"http://127.0.0.1:{desired.port}/v1",
        routed=desired.route,
        arms=arms,
        operation=operation,
        holder=holder,
        problems=tuple(problems),
    )


@click.command("status")
@name_argument
@click.option("-w", "--watch", is_flag=True, help="Go on showing it until Ctrl-C.")
@output_option("table", "wide", "json", "yaml", "name")
@shared_options
@click.pass_context
def command(ctx: click.Context, /, name: str | None, watch: bool, output: str, **shared: Any) -> None:
    """Show services, what really runs and what is under way."""
    settings = Settings.of(ctx, shared)
    if not watch:
        show(settings, name, output)
        return
    last = ""
    while True:
        text = render(_sessions(settings, name), wide=output == "wide")
        if settings.terminal.live:
            click.clear()
            settings.terminal.result(text)
        elif text != last:
            settings.terminal.result(text)
        last = text
        time.sleep(_REFRESH_S)


def show(settings: Settings, name: str | None, output: str) -> None:
    """Print the status once."""
    sessions = _sessions(settings, name)
    orphans = find_orphans()
    terminal = settings.terminal
    if output in ("json", "yaml"):
        body = {
            "items": [read_status(s).to_record() for s in sessions],
            "orphans": [dict(o.__dict__) for o in orphans],
        }
        terminal.record("StatusList", body, output)
    elif output == "name":
        for session in sessions:
            terminal.result(f"{session.namespace}/{session.name}")
    elif sessions:
        terminal.result(render(sessions, wide=output == "wide"))
    else:
        terminal.note("no service is up on this machine; mpctl local up -f MANIFEST starts one")
    warn_of(terminal, orphans)


def warn_of(terminal: Terminal, orphans: tuple[Orphan, ...]) -> None:
    """Name engines that nobody looks after."""
    for orphan in orphans:
        terminal.warn(f"engine of {orphan.arm} (pid {orphan.pid}) {orphan.reason}; mpctl local down --orphans stops it")


def render(sessions: list[Session], *, wide: bool) -> str:
    """A table of services, then their engines and problems."""
    found = [read_status(s) for s in sessions]
    header = ["NAMESPACE", "NAME", "STATE", "SPEC", "REVISION", "URL"]
    rows = [[s.namespace, s.name, s.state, s.spec, str(s.revision or "-"), s.url] for s in found]
    lines = [columns([header, *rows])]
    for status in found:
        if status.operation is not None:
            step = status.operation.begun or "between steps"
            lines.append(f"\n{status.name}: {status.operation.id} ({status.operation.plan.spec}) at {step}")
            if status.holder:
                lines.append(f"  held by {status.holder}")
        if wide or len(status.arms) > 1:
            lines.append("")
            lines.append(columns([["ARM", "PHASE", "TRAFFIC", "ENDPOINT", "RESTARTS", "MESSAGE"], *_arm_rows(status)]))
        lines += [f"problem: {problem}" for problem in status.problems]
    return "\n".join(lines)


def _arm_rows(status: Status) -> list[list[str]]:
    return [
        [
            arm.id,
            arm.phase.value,
            "all" if arm.id == status.routed else "none",
            arm.endpoint.base_url if arm.endpoint else "-",
            str(arm.restarts),
            arm.message or "-",
        ]
        for arm in status.arms
    ]


def _sessions(settings: Settings, name: str | None) -> list[Session]:
    if name is not None:
        return [open_session(settings, name)]
    return [make_session(settings, namespace, found) for namespace, found in known_services(settings.namespace)]
