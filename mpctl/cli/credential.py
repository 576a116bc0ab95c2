"""``mpctl credential CLUSTER``: kubectl's exec credential plugin. Hidden, because people never type it."""

from __future__ import annotations

import os
import sys

import click

from mpctl.cli.clouds import cluster_options, named
from mpctl.errors import Refused


@click.command("credential", hidden=True)
@cluster_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    cluster: str,
    region: str | None,
    project: str | None,
    location: str | None,
    profile: str | None,
) -> None:
    """Print a short-lived token for kubectl, in the form of an ExecCredential.

    The token goes to standard output, for the program that asked; it is not shown on a terminal.
    """
    from mpctl.cloud.reach import exec_credential, open_cloud

    target = named(ctx, cluster, region=region, project=project, location=location)
    if sys.stdout.isatty():
        raise Refused("The token is for kubectl and not printed on a terminal", hint="mpctl connect sets kubectl up")
    click.echo(exec_credential(open_cloud(target, profile=profile).token(), os.environ))
