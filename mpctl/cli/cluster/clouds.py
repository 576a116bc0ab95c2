"""Managed clusters of EKS and GKE: ``mpctl connect`` and ``credential``."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from mpctl import commands
from mpctl.app.environment_requests import CloudClusterRef, ConnectRequest
from mpctl.cli.command import OUTPUT, command
from mpctl.cli.context import CliContext
from mpctl.errors import Refused

if TYPE_CHECKING:
    from mpctl.app.cluster.clouds import Connection


def _cluster() -> click.Argument:
    return click.Argument(["name"], metavar="CLUSTER")


def _typed(cluster: CloudClusterRef) -> CloudClusterRef:
    """The cluster without places that nobody typed, if its name is a full one: a place from the environment or a
    settings file only completes a bare name, and never contradicts what kubectl passes to ``mpctl credential``."""
    if "/" not in cluster.name:
        return cluster
    ctx = click.get_current_context()
    places = ("region", "project", "location")
    typed = [place for place in places if ctx.get_parameter_source(place) is ParameterSource.COMMANDLINE]
    return CloudClusterRef(cluster.name, profile=cluster.profile, **{place: getattr(cluster, place) for place in typed})


@command("connect", _cluster(), ConnectRequest, OUTPUT)
def connect(context: CliContext, /, request: ConnectRequest) -> None:
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
    from mpctl.app.cluster.clouds import connect as enter

    shared = {name: context.shared[name] for name in ("kubeconfig", "context", "namespace")}
    connection = enter(replace(request, cluster=_typed(request.cluster), **shared))
    done = "wrote" if connection.changed else "unchanged:"
    context.emit(
        "Connection",
        record=lambda: _connection_record(connection),
        names=lambda: [connection.context],
        table=lambda _wide: f"{done} context {connection.context} in {connection.file}",
    )
    if connection.backup:
        context.terminal.note(f"backup of the previous file: {connection.backup}")
    context_flag = "" if connection.current else f"--context {connection.context} "
    context.terminal.note(f"next: kubectl {context_flag}get nodes")


def _connection_record(connection: Connection) -> dict[str, Any]:
    return {
        "server": connection.server,
        "context": connection.context,
        "file": str(connection.file),
        "changed": connection.changed,
        "current": connection.current,
    }


@command("credential", _cluster(), CloudClusterRef, shared=False, hidden=True)
def credential(request: CloudClusterRef) -> None:
    """Print a short-lived token for kubectl, in the form of an ExecCredential.

    The token goes to standard output, for the program that asked for it, and never to a terminal.
    """
    from mpctl.app.cluster.clouds import credential as token_of

    if sys.stdout.isatty():
        raise Refused(
            "the token is for kubectl and not printed on a terminal",
            hint=f"'{commands.line('connect', 'CLUSTER')}' configures kubectl",
        )
    click.echo(token_of(_typed(request)))
