"""``mpctl doctor``: what a cluster lacks for rollouts, each finding with cause, fix and source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mpctl.cli.options.shared import output_option, shared_options
from mpctl.cli.options.types import option
from mpctl.cli.settings import Settings
from mpctl.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mpctl.cli.terminal import Terminal
    from mpctl.doctor import Finding


@click.command("doctor")
@option("-A", "--all-namespaces", is_flag=True, help="Look at the services of all namespaces.")
@output_option
@shared_options
@click.pass_context
def command(ctx: click.Context, /, *, all_namespaces: bool, output: str, **options: Any) -> int:
    """Look at a cluster and say what stands against rollouts: KServe, GPUs, autoscaling, rights, leftovers.

    Only reads; a user who may see little gets notes on what could not be looked at. Exit code 0: nothing fails (there
    may be warnings); 9: at least one finding does.

    \b
    Examples:
      mpctl doctor                    services of the context's namespace
      mpctl doctor -A -o wide         of all namespaces, with what is in order
      mpctl doctor -o json | jq '.items[] | select(.severity == "fail")'
    """
    settings = Settings.of(ctx, options)
    from mpctl.app.session.base import SystemClock
    from mpctl.app.session.cluster import open_client
    from mpctl.doctor import SEVERITIES, diagnose
    from mpctl.platform.kubernetes.doctor_reader import read_cluster

    client, terminal = open_client(settings.place), settings.terminal
    namespace = None if all_namespaces else settings.place.namespace or client.namespace
    found = diagnose(read_cluster(client, namespace, SystemClock().now()))
    counts = {severity: sum(f.severity == severity for f in found) for severity in SEVERITIES}
    if output in ("json", "yaml"):
        body = {
            "context": client.context,
            "namespace": namespace,
            "summary": counts,
            "items": [dict(f.__dict__) for f in found],
        }
        terminal.record("Diagnosis", body, output)
    elif output == "name":
        for finding in found:
            if finding.severity != "ok":
                terminal.result(finding.id)
    else:
        _show(terminal, [f for f in found if f.severity != "ok" or output == "wide"])
    where = f"namespace {namespace}" if namespace else "all namespaces"
    told = ", ".join(f"{counts[s]} {s}" for s in SEVERITIES)
    terminal.note(f"context {client.context}, {where}: {told}")
    return Refused.exit_code if counts["fail"] else 0


def _show(terminal: Terminal, found: Sequence[Finding]) -> None:
    for finding in found:
        lines = [f"{finding.severity:<5} [{finding.id}] {finding.subject}: {finding.cause}"]
        if finding.fix:
            lines.append(f"      fix: {finding.fix}")
        if finding.source:
            lines.append(f"      source: {finding.source}")
        terminal.result("\n".join(lines))
