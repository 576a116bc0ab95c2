"""Costs of a cluster per hour and month at list prices. Pure.

Traffic, logs, snapshots and models on a shared volume are left out, and said so: they depend on use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.aws.network import ENDPOINTS
from infra.templates import entries
from stacks.base import Plan
from stacks.cluster import SYSTEM_DISK_GB, system_nodes

HOURS_A_MONTH = 730  # 365 * 24 / 12


@dataclass(frozen=True)
class Cost:
    """One item. ``hour``: US dollars with the nodes there are at first; ``hour_at_most``: with all pools at their
    maximum; None where the price is not known."""

    item: str
    hour: float | None
    hour_at_most: float | None


def prices() -> dict[str, Any]:
    """The shipped price table."""
    return entries(Path(__file__).with_name("prices.yaml"))


def costs(plan: Plan) -> tuple[Cost, ...]:
    """Every item of one cluster with all its layers."""
    table, settings = prices()[plan.cluster.provider], plan.settings
    eks = plan.cluster.provider == "EKS"
    spot = settings.capacity_type == "SPOT"
    disk_hour = table["disk_gb_month"] / HOURS_A_MONTH
    system = settings.system
    machine = system.eks_machine if eks else system.gke_machine
    first = system_nodes(plan)
    disks = first * SYSTEM_DISK_GB + settings.monitoring.storage_gb
    disks_at_most = system.maximum * SYSTEM_DISK_GB + settings.monitoring.storage_gb
    made = [Cost("control plane", table["control_plane_hour"], table["control_plane_hour"])]
    for pool in plan.cluster.pools:
        made.append(
            nodes(
                f"pool {pool.name}",
                table,
                pool.hardware.machine,
                pool.nodes,
                pool.maximum,
                spot=spot,
            )
        )
        disks += pool.nodes * pool.hardware.disk_gb
        disks_at_most += pool.maximum * pool.hardware.disk_gb
    made.append(nodes("system pool", table, machine, first, system.maximum, spot=False))
    made.append(Cost("disks of nodes and Prometheus", disks * disk_hour, disks_at_most * disk_hour))
    made.append(way_out(plan, table))
    made.append(
        Cost(
            "load balancer of the gateway", table["load_balancer_hour"], table["load_balancer_hour"]
        )
    )
    return tuple(made)


def nodes(
    item: str, table: Mapping[str, Any], machine: str, first: int, most: int, *, spot: bool
) -> Cost:
    """Nodes of one machine type."""
    row = table["machines"].get(machine, {})
    hour = row.get("spot") if spot else row.get("hour")
    label = f"{item}: {first} to {most} x {machine}" + (" (spot)" if spot else "")
    return Cost(label, None, None) if hour is None else Cost(label, first * hour, most * hour)


def way_out(plan: Plan, table: Mapping[str, Any]) -> Cost:
    """The NAT gateway, or the private endpoints that stand for it."""
    if plan.settings.network.egress == "nat":
        return Cost("NAT gateway", table["nat_hour"], table["nat_hour"])
    zones = max(2, len({zone for pool in plan.cluster.pools for zone in pool.zones}))
    hour = len(ENDPOINTS) * zones * table["endpoint_hour"]
    return Cost(f"{len(ENDPOINTS)} private endpoints in {zones} zones", hour, hour)


def lines(costs: tuple[Cost, ...], provider: str) -> Iterator[str]:
    """The table that people read."""
    table = prices()
    known = [cost for cost in costs if cost.hour is not None]
    first, most = (sum(getattr(cost, name) for cost in known) for name in ("hour", "hour_at_most"))
    label = "sum" if len(known) == len(costs) else "sum of what is known"
    yield row("COST (USD)", "AN HOUR", "A MONTH", "AT MOST")
    for cost in (*costs, Cost(label, first, most)):
        month, at_most = (money(hour, HOURS_A_MONTH) for hour in (cost.hour, cost.hour_at_most))
        yield row(cost.item, money(cost.hour), month, at_most)
    yield f"List prices of {table[provider]['where']}, {table['as_of']}; sources in stacks/preflight/prices.yaml."
    yield "Traffic, logs, backups and shared model volumes are not in it."


def row(item: str, hour: str, month: str, at_most: str) -> str:
    """One line: per hour and month with the first nodes, per month with all pools at their maximum."""
    return f"{item:<46}{hour:>10}{month:>10}{at_most:>11}"


def money(hour: float | None, hours: int = 1) -> str:
    """Dollars, or a dash where the price is not known."""
    return "-" if hour is None else f"{hour * hours:.2f}" if hours == 1 else f"{hour * hours:,.0f}"
