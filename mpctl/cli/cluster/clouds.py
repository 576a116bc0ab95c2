"""Managed clusters of EKS and GKE: ``mpctl connect`` and ``credential``."""

from __future__ import annotations

import sys
from dataclasses import replace

import click

from mpctl import commands
from mpctl.app.environment_requests import ConnectRequest
from mpctl.cli.command import command
from mpctl.cli.context import CliContext
from mpctl.errors import Refused


@command("connect", click.Argument(["cluster"]), ConnectRequest)
def connect(context: CliContext, /, request: ConnectRequest) -> None:
    """Print a kubeconfig for an EKS or GKE cluster. It holds no secret.

    \b
    Examples:
      mpctl connect eks/us-east-1/serving > serving.kubeconfig
      mpctl connect eks/us-east-1/serving --profile prod > serving.kubeconfig
      mpctl connect gke/my-project/us-central1/serving -n inference > serving.kubeconfig
      export KUBECONFIG=serving.kubeconfig:~/.kube/config

    --context names its entries (default: CLUSTER), --namespace the namespace that kubectl starts in. kubectl then asks
    `mpctl credential` for a short-lived token at each call.
    """
    from mpctl.app.cluster.clouds import kubeconfig

    shared = {name: context.shared[name] for name in ("context", "namespace")}
    context.terminal.result(kubeconfig(replace(request, **shared)))


@command("credential", click.Argument(["cluster"]), ConnectRequest, shared=False, hidden=True)
def credential(request: ConnectRequest) -> None:
    """Print a short-lived token for kubectl, in the form of an ExecCredential.

    The token goes to standard output, for the program that asked for it, and never to a terminal.
    """
    from mpctl.app.cluster.clouds import credential as token_of

    if sys.stdout.isatty():
        raise Refused(
            "the token is for kubectl and not printed on a terminal",
            hint=f"'{commands.line('connect', 'CLUSTER')}' configures kubectl",
        )
    click.echo(token_of(request))
