"""``mpctl capacity CLUSTER``: will this rollout fit, and what has to grow if not."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from mpctl.cli.clouds import cluster_options, named, now
from mpctl.cli.options.shared import ask_options, output_option, shared_options
from mpctl.cli.options.types import option
from mpctl.cli.settings import terminal_of
from mpctl.errors import InputError, Refused, Undecided

if TYPE_CHECKING:
    from mpctl.cloud.ports import Cloud
    from mpctl.estimate.capacity import GpuNode, Pool

LISTING = "Give the output of: kubectl get nodes,resourceslices,resourceclaims -A -o json"

ANSWERS = {
    "fits": "Fits now",
    "resize": "Fits after the pool grows",
    "no": "Does not fit",
    "unknown": "Cannot be said: something could not be looked up",
}


@click.command("capacity")
@cluster_options
@option(
    "--replicas",
    type=click.IntRange(1),
    default=1,
    help="More replicas than now: 1 for a candidate beside its baseline.",
)
@option("--gpus", type=click.IntRange(1), default=1, help="GPUs of each replica.")
@option("--pool", default=None, metavar="NAME", help="The GPU pool; default: the only one.")
@option("--objects", type=click.File(), metavar="FILE|-", help=LISTING)
@option("--make-room", is_flag=True, help="Enlarge the pool by what is missing, recorded first.")
@option("--give-back", is_flag=True, help="Set the pool back to its size before --make-room.")
@option("--accept-unchecked", is_flag=True, help="Count what could not be looked up as room.")
@ask_options
@output_option
@shared_options
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
    **options: Any,
) -> None:
    """Say whether a rollout fits: free GPUs, pool limits, zones and quota.

    Exit code 0: it fits, now or after the pool grows; 9: it does not; 6: something could not be looked up.

    \b
    Examples:
      kubectl get nodes,resourceslices,resourceclaims -A -o json | mpctl capacity eks/us-east-1/serving --objects -
      mpctl capacity eks/us-east-1/serving --make-room
      mpctl capacity eks/us-east-1/serving --give-back --objects listing.json
    """
    from mpctl.cloud.reach import open_cloud

    if options["make_room"] and options["give_back"]:
        raise InputError("--make-room and --give-back are opposites")
    target = named(ctx, cluster, region=region, project=project, location=location)
    nodes = read_nodes(options["objects"])
    if nodes is None and (options["give_back"] or (options["make_room"] and target.provider == "gke")):
        # Shrinking needs to know what serves; GKE's own count of nodes may be stale, and a size set from it may shrink.
        raise InputError("is needed to change this pool", field="--objects", hint=LISTING)
    cloud = open_cloud(target, profile=profile)
    pool = choose_pool(cloud.pools(), options["pool"])
    if pool and nodes is not None and target.provider == "gke":
        # The container API only knows the initial size; the nodes are the truth.
        pool = replace(pool, size=sum(1 for node in nodes if node.pool == pool.name))
    terminal = terminal_of(ctx, options)
    if options["give_back"]:
        size, changed = _return(cloud, target, pool, nodes or (), options["yes"], terminal)
        return terminal.result(
            f"{'Set back' if changed else 'Already as it was'}: pool {pool and pool.name} has {size} nodes"
        )
    add = _answer(cloud, pool, nodes, options, terminal)
    if options["make_room"] and add and pool:
        from mpctl.cloud.resize import Ledger, make_room

        terminal.confirm(f"Enlarge pool {pool.name} of {target.short} from {pool.size} by {add}?", yes=options["yes"])
        size, changed = make_room(cloud, Ledger(ledger_folder(), target, pool.name), pool, add, now)
        terminal.result(f"{'Set' if changed else 'Already'}: pool {pool.name} goes to {size} nodes")
        terminal.note(f"Back: mpctl capacity {target.short} --pool {pool.name} --give-back --objects FILE")
    return None


def read_nodes(file: IO[str] | None) -> tuple[GpuNode, ...] | None:
    """The GPU nodes in a kubectl listing; None without one."""
    from mpctl.estimate.capacity import gpu_nodes

    if file is None:
        return None
    try:
        return gpu_nodes([json.load(file)])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError("is not a listing of Kubernetes objects", file=file.name, hint=LISTING) from None


def choose_pool(pools: tuple[Pool, ...], name: str | None) -> Pool | None:
    """The pool asked for, or the only one; None when there is no GPU pool at all."""
    names = ", ".join(pool.name for pool in pools)
    if name is not None:
        found = next((pool for pool in pools if pool.name == name), None)
        if found is None:
            raise InputError(f"there is no GPU pool '{name}'", field="--pool", hint=f"There are: {names or 'none'}")
        return found
    if len(pools) > 1:
        raise InputError("there are several GPU pools", field="--pool", hint=f"Name one of: {names}")
    return pools[0] if pools else None


def _answer(cloud: Cloud, pool: Pool | None, nodes: Any, options: dict[str, Any], terminal: Any) -> int:
    """Prints the answer; the number of nodes to add, or the error that its exit code stands for."""
    from mpctl.estimate.capacity import Need, Room, assess_fit

    fit = assess_fit(Need(options["replicas"], options["gpus"]), nodes, pool, cloud.room(pool) if pool else Room())
    if options["output"] == "name":
        terminal.result(fit.verdict)
    elif options["output"] in ("table", "wide"):
        terminal.result("\n".join([ANSWERS[fit.verdict], *(f"  {line}" for line in fit.reasons)]))
        for line in fit.unchecked:
            terminal.result(f"  not checked: {line}")
    else:
        terminal.record("Capacity", {**asdict(fit), "pool": asdict(pool) if pool else None}, options["output"])
    if fit.verdict == "no":
        raise Refused("The rollout does not fit", hint="In place of side by side, or fewer GPUs per replica, may")
    if fit.verdict == "unknown" and not options["accept_unchecked"]:
        raise Undecided(
            "Whether the rollout fits cannot be said",
            hint="Check what is listed as not checked, then --accept-unchecked",
        )
    return fit.add_nodes


def _return(
    cloud: Cloud, target: Any, pool: Pool | None, nodes: tuple[GpuNode, ...], yes: bool, terminal: Any
) -> tuple[int, bool]:
    from mpctl.cloud.resize import Ledger, give_back
    from mpctl.estimate.capacity import assess_return

    if pool is None:
        raise InputError("there is no GPU pool", field="--pool")
    ledger = Ledger(ledger_folder(), target, pool.name)
    last = ledger.last()
    if last and last.event != "returned":
        if reason := assess_return(nodes, pool, last.before):
            raise Refused(reason, hint="End the candidate first, or leave empty nodes to the cluster autoscaler")
        terminal.warn("the cloud chooses which nodes go; pods on them are evicted and start again elsewhere")
        terminal.confirm(f"Set pool {pool.name} of {target.short} back to {last.before} nodes?", yes=yes)
    return give_back(cloud, ledger, pool, now)


def ledger_folder() -> Path:
    """Beside the other state of mpctl."""
    from mpctl.platform.local.files import state_root

    return state_root() / "pools"
