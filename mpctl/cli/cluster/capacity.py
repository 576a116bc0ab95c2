"""``mpctl capacity CLUSTER``: whether a rollout fits a managed cluster."""

from __future__ import annotations

from dataclasses import asdict
from typing import IO, TYPE_CHECKING, Any

import click

from mpctl.cli.cluster.options import cluster_options
from mpctl.cli.context import CliContext
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import output_option, shared_options
from mpctl.cli.options.types import option
from mpctl.cli.printer import paragraph
from mpctl.cli.settings import in_context
from mpctl.errors import Refused, Undecided

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mpctl.app.cluster.capacity import CapacityOutcome
    from mpctl.app.requests import CloudClusterRef
    from mpctl.estimate.capacity import Fit

_ANSWERS = {
    "fits": "fits now",
    "resize": "fits after the pool grows",
    "no": "does not fit",
    "unknown": "undecided: not everything could be checked",
}


@click.command("capacity", cls=SectionedCommand)
@cluster_options
@option(
    "--replicas",
    type=click.IntRange(1),
    default=1,
    help="Additional replicas; a side-by-side rollout needs 1.",
)
@option("--gpus", type=click.IntRange(1), default=1, help="GPUs per replica.")
@option("--pool", metavar="NAME", help="GPU pool (default: the only one).")
@option(
    "--objects",
    type=click.File(),
    metavar="FILE|-",
    help="Nodes and devices as kubectl lists them, see Examples (default: no GPU is free).",
)
@option("--accept-unchecked", is_flag=True, help="Count what could not be checked as capacity.")
@output_option
@shared_options
@in_context
def command(
    context: CliContext,
    /,
    *,
    cluster: CloudClusterRef,
    objects: IO[str] | None,
    **needs: Any,
) -> None:
    """Decide whether a rollout fits: free GPUs, pool limits, zones and quota.

    \b
    Examples:
      kubectl get nodes,resourceslices,resourceclaims -A -o json | mpctl capacity eks/us-east-1/serving --objects -

    Exit code 0: it fits, now or after the pool grows; 9: it does not; 6: not everything could be checked.
    """
    from mpctl.app.cluster.capacity import run
    from mpctl.app.requests import CapacityRequest

    request = CapacityRequest(
        cluster,
        objects=objects.read() if objects else None,
        objects_file=objects.name if objects else "-",
        **needs,
    )
    outcome = run(request)
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
