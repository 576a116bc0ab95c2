"""Managed clusters of EKS and GKE: ``mpctl connect``, ``capacity`` and ``credential``."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from typing import IO, TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from mpctl import commands
from mpctl.app.environment_requests import CapacityRequest, CloudClusterRef, ConnectRequest
from mpctl.app.option import Option
from mpctl.cli.command import OUTPUT, command
from mpctl.cli.context import CliContext
from mpctl.cli.printer import paragraph
from mpctl.errors import Refused, Undecided

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mpctl.app.cluster.clouds import CapacityOutcome, Connection
    from mpctl.estimate.capacity import Fit

_ANSWERS = {
    "fits": "fits now",
    "resize": "fits after the pool grows",
    "no": "does not fit",
    "unknown": "undecided: not everything could be checked",
}
_OBJECTS = Option(
    "--objects",
    "listing",
    type=click.File(),
    metavar="FILE|-",
    help="Nodes and devices as kubectl lists them, see Examples (default: no GPU is free).",
)


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


@command("capacity", _cluster(), CapacityRequest, _OBJECTS, OUTPUT)
def capacity(context: CliContext, /, request: CapacityRequest, *, listing: IO[str] | None) -> None:
    """Decide whether a rollout fits: free GPUs, pool limits, zones and quota.

    \b
    Examples:
      kubectl get nodes,resourceslices,resourceclaims -A -o json | mpctl capacity eks/us-east-1/serving --objects -

    Exit code 0: it fits, now or after the pool grows; 9: it does not; 6: not everything could be checked.
    """
    from mpctl.app.cluster.clouds import assess_capacity

    request = replace(request, cluster=_typed(request.cluster))
    if listing is not None:
        request = replace(request, objects=listing.read(), objects_file=listing.name)
    outcome = assess_capacity(request)
    context.emit(
        "Capacity",
        record=lambda: _record(outcome),
        names=lambda: [outcome.fit.verdict],
        table=lambda _wide: "\n".join(_lines(outcome.fit)),
    )
    _require_fit(outcome.fit, accept_unchecked=request.accept_unchecked)


def _require_fit(fit: Fit, *, accept_unchecked: bool) -> None:
    if fit.verdict == "no":
        raise Refused("the rollout does not fit", hint="try --strategy in-place, or fewer --gpus per replica")
    if fit.verdict == "unknown" and not accept_unchecked:
        raise Undecided(
            "cannot decide whether the rollout fits",
            hint="check what is listed as not checked, then add --accept-unchecked",
        )


def _record(outcome: CapacityOutcome) -> dict[str, Any]:
    return {**asdict(outcome.fit), "pool": asdict(outcome.pool) if outcome.pool else None}


def _lines(fit: Fit) -> Iterator[str]:
    yield _ANSWERS[fit.verdict]
    lines = (*fit.reasons, *(f"not checked: {subject}" for subject in fit.unchecked))
    yield from (paragraph(line, "  ", "    ") for line in lines)


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
