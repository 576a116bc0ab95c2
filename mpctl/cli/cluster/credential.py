"""``mpctl credential CLUSTER``: kubectl's exec credential plugin. Hidden, because kubectl calls it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from mpctl import commands
from mpctl.cli.cluster.options import cluster_options
from mpctl.errors import Refused

if TYPE_CHECKING:
    from mpctl.app.requests import CloudClusterRef


@click.command("credential", hidden=True)
@cluster_options
def command(*, cluster: CloudClusterRef) -> None:
    """Print a short-lived token for kubectl, in the form of an ExecCredential.

    The token goes to standard output, for the program that asked for it, and never to a terminal.
    """
    from mpctl.app.cluster.access import credential

    if sys.stdout.isatty():
        raise Refused(
            "the token is for kubectl and not printed on a terminal",
            hint=f"'{commands.line('connect', 'CLUSTER')}' configures kubectl",
        )
    click.echo(credential(cluster))
