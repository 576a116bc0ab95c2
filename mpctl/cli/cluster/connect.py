"""``mpctl connect CLUSTER``: a kubeconfig entry that works without aws or gcloud."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mpctl.cli.cluster.options import cluster_options
from mpctl.cli.context import CliContext
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import output_option, shared_options
from mpctl.cli.options.types import option
from mpctl.cli.settings import in_context

if TYPE_CHECKING:
    from mpctl.app.cluster.access import Connection
    from mpctl.app.requests import CloudClusterRef


@click.command("connect", cls=SectionedCommand)
@cluster_options
@option("--use", is_flag=True, help="Make the entry the current context (default: only if there is none).")
@output_option
@shared_options
@in_context
def command(context: CliContext, /, *, cluster: CloudClusterRef, use: bool) -> None:
    """Write a kubeconfig entry for an EKS or GKE cluster.

    \b
    Examples:
      mpctl connect eks/us-east-1/serving
      mpctl connect serving --region us-east-1 --profile prod --use
      mpctl connect gke/my-project/us-central1/serving -n inference

    --kubeconfig names the file (default: KUBECONFIG's first, ~/.kube/config), --context the entry (default: the
    cluster's short name), --namespace the one it starts in.

    kubectl then asks `mpctl credential` for a short-lived token at each call. The entry holds no secret, and entries of
    other programs stay unchanged.
    """
    from mpctl.app.cluster.access import connect
    from mpctl.app.requests import ConnectRequest

    shared = context.shared
    request = ConnectRequest(cluster, shared["kubeconfig"], shared["context"], shared["namespace"], use)
    connection = connect(request)
    context.emit(
        "Connection",
        record=lambda: _record(connection),
        names=lambda: [connection.context],
        table=lambda _wide: f"{_done(connection)} context {connection.context} in {connection.file}",
    )
    if connection.backup:
        context.terminal.note(f"backup of the previous file: {connection.backup}")
    context_flag = "" if connection.current else f"--context {connection.context} "
    context.terminal.note(f"next: kubectl {context_flag}get nodes")


def _done(connection: Connection) -> str:
    return "wrote" if connection.changed else "unchanged:"


def _record(connection: Connection) -> dict[str, Any]:
    return {
        "server": connection.server,
        "context": connection.context,
        "file": str(connection.file),
        "changed": connection.changed,
        "current": connection.current,
    }
