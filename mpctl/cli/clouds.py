"""What the commands that talk to a cloud share: how a cluster is named, and how it is opened."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mpctl.cli.options.types import option

if TYPE_CHECKING:
    from mpctl.cloud.cluster import Cluster

F = TypeVar("F", bound=Callable[..., Any])


def cluster_options(function: F) -> F:
    """CLUSTER and the flags that say where a bare name is."""
    for decorate in (
        option("--profile", default=None, metavar="NAME", help="EKS: profile of the AWS configuration."),
        option("--location", default=None, metavar="ZONE|REGION", help="GKE: where NAME is."),
        option("--project", default=None, metavar="ID", help="GKE: the project of NAME."),
        option("--region", default=None, metavar="REGION", help="EKS: the region of NAME."),
        click.argument("cluster", metavar="CLUSTER"),
    ):
        function = decorate(function)
    return function


def named(ctx: click.Context, cluster: str, **places: str | None) -> Cluster:
    """The cluster that argument and flags name. A place from the environment or a file only completes a bare name: it
    is no contradiction to a full one, which is what kubectl hands to `mpctl credential`."""
    from click.core import ParameterSource

    from mpctl.cloud.cluster import parse_cluster

    if "/" in cluster:
        typed = ParameterSource.COMMANDLINE
        places = {name: place for name, place in places.items() if ctx.get_parameter_source(name) is typed}
    return parse_cluster(cluster, **places)


def now() -> datetime:
    """The machine's clock."""
    return datetime.now(UTC)
