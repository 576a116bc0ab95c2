"""Options that name a managed cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from mpctl.cli.options.types import option

if TYPE_CHECKING:
    from mpctl.app.requests import CloudClusterRef

R = TypeVar("R")
_PLACES = ("region", "project", "location")


def cluster_options(function: Callable[..., R]) -> Callable[..., R]:
    """Declare CLUSTER and the options that say where a bare name is; the command gets one ``cluster`` reference."""

    @wraps(function)
    def call(*args: Any, cluster: str, profile: str | None, **given: Any) -> R:
        places = {place: given.pop(place) for place in _PLACES}
        return function(*args, cluster=_reference(cluster, profile, places), **given)

    decorated: Callable[..., R] = call
    for decorate in (
        _option("--profile", "NAME", "EKS: profile of the AWS configuration (default: AWS's own)."),
        _option("--location", "ZONE|REGION", "GKE: location of a CLUSTER given by its bare name."),
        _option("--project", "ID", "GKE: project of a CLUSTER given by its bare name."),
        _option("--region", "REGION", "EKS: region of a CLUSTER given by its bare name."),
        click.argument("cluster", metavar="CLUSTER"),
    ):
        decorated = decorate(decorated)
    return decorated


def _option(name: str, metavar: str, text: str) -> Callable[[Any], Any]:
    return option(name, section="Cluster", metavar=metavar, help=text)


def _reference(name: str, profile: str | None, places: dict[str, str | None]) -> CloudClusterRef:
    """Return the cluster that argument and options name.

    A place from the environment or a settings file only completes a bare name: it never contradicts a full one, which
    is what kubectl passes to `mpctl credential`.
    """
    from mpctl.app.requests import CloudClusterRef

    if "/" in name:
        ctx = click.get_current_context()
        places = {k: v for k, v in places.items() if ctx.get_parameter_source(k) is ParameterSource.COMMANDLINE}
    return CloudClusterRef(name, profile=profile, **places)
