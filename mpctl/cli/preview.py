"""What would be done, for ``--dry-run``: the same for every operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpctl.cli.change import unified
from mpctl.errors import InputError

if TYPE_CHECKING:
    from mpctl.app.session.base import Session
    from mpctl.cli.terminal import Terminal
    from mpctl.rollout.plan import Plan


def require_client(dry_run: str, platform: str) -> None:
    """Refuse a dry run that this platform cannot make.

    Raises:
        InputError: it asks for a server.
    """
    if dry_run == "server" and platform == "local":
        raise InputError(
            "the local platform has no server to ask", field="--dry-run", hint="--dry-run=client makes the same checks"
        )


def show_preview(session: Session, terminal: Terminal, plan: Plan, explanation: str, output: str) -> None:
    """Print the change to the manifest and what would happen."""
    live = session.platform.read().text
    diff = unified(live, plan.text, (f"{session.name} (live)", f"{session.name} ({plan.spec})"))
    if output in ("json", "yaml"):
        body = {
            "metadata": {"name": session.name, "namespace": session.namespace},
            "spec": {
                "kind": plan.kind.value,
                "strategy": plan.strategy.value,
                "speculation": plan.spec,
                "baseline": plan.baseline_spec,
                "planDigest": plan.digest(),
            },
            "diff": diff,
        }
        terminal.record("Preview", body, output)
    elif output == "name":
        terminal.result(f"{session.namespace}/{session.name}")
    elif diff:
        terminal.result(diff)
    terminal.note(f"dry run: {explanation}; nothing was done")
