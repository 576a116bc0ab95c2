"""GKE node pools for system workloads and for L4 GPUs bound through DRA.

A GPU pool needs three labels together: one turns GKE's device plugin off, one lets the DRA driver's plugin
land (its own affinity asks for it), one tells the autoscaler to model ResourceSlices, which is what makes a
pool at zero nodes grow. The driver comes from the installer daemonset: GKE's automatic installation is not
supported with DRA.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from constructs import Construct

from infra.builder import Element, resource
from infra.pools import PoolPlan, timeouts

GPU_LABELS = {
    "gke-no-default-nvidia-gpu-device-plugin": "true",
    "nvidia.com/gpu.present": "true",
    "cloud.google.com/gke-nvidia-gpu-dra-driver": "true",
}
ZONES_OF_A_REGION = 3
DRAIN_LIMIT_S = 3600  # of a node (GKE, "Graceful termination")
LONGEST_NAME = 40  # of a node pool (Google's reference of projects.locations.clusters.nodePools)
SPARE_FIRST = {"max_surge": 1, "max_unavailable": 0}
OLD_FIRST = {"max_surge": 0, "max_unavailable": 1}
# Arguments of node_config whose change makes other nodes; labels and taints change in place.
REPLACING = (
    "machine_type",
    "disk_size_gb",
    "disk_type",
    "image_type",
    "spot",
    "guest_accelerator",
    "shielded_instance_config",
    "boot_disk_kms_key",
    "reservation_affinity",
    "flex_start",
)
# Joined later: part of a pool's name only where set, so that pools made before keep their names.
REPLACING_WHERE_SET = ("gcfs_config",)


class Pools(Construct):
    """The node pools of one cluster."""

    def __init__(
        self, scope: Construct, cluster: Element, account: Element, ready: Sequence[Element]
    ) -> None:
        super().__init__(scope, "pools")
        self.cluster = cluster
        self.account = account
        self.ready = ready

    def add(self, plan: PoolPlan) -> Element:
        """Add a pool that scales between its limits over all its zones together."""
        config = node_config(plan, self.account)
        return resource(
            self,
            "google_container_node_pool",
            plan.address,
            name=pool_name(plan, config),
            cluster=self.cluster["id"],
            node_locations=list(plan.zones) or None,
            initial_node_count=0 if plan.flex_start else per_zone(plan.initial, plan.zones),
            autoscaling={
                "total_min_node_count": plan.minimum,
                "total_max_node_count": plan.maximum,
                "location_policy": "ANY" if plan.flex_start else plan.location_policy,
            },
            management={"auto_repair": not plan.flex_start, "auto_upgrade": True},
            # A spare node first, so that a service with one GPU moves instead of ending. Without quota for it an
            # upgrade would wait for a node that never comes; then the old node goes first.
            upgrade_settings=SPARE_FIRST if plan.surge and not plan.reservation else OLD_FIRST,
            node_config=config,
            timeouts=timeouts(plan.maximum, plan.drain_s, DRAIN_LIMIT_S),
            depends_on=self.ready,
            # The autoscaler owns the count; GKE adds its own taint and labels to what was declared.
            lifecycle={
                "create_before_destroy": True,
                "ignore_changes": ["initial_node_count", "node_config[0].resource_labels"],
            },
        )


def node_config(plan: PoolPlan, account: Element) -> dict[str, object]:
    """The machines of a pool."""
    config: dict[str, object] = {
        "machine_type": plan.machine,
        "disk_size_gb": plan.disk_gb,
        "disk_type": plan.disk_type,
        "image_type": "COS_CONTAINERD",
        "service_account": account["email"],
        "oauth_scopes": ["https://www.googleapis.com/auth/cloud-platform"],
        "spot": plan.spot,
        "labels": {**(GPU_LABELS if plan.gpus else {}), **plan.labels},
        # GKE adds the taint to GPU nodes by itself; written out, so that no version of GKE leaves the pool open.
        "taint": plan.all_taints,
        "resource_labels": dict(plan.tags),
        "metadata": {"disable-legacy-endpoints": "true"},
        "workload_metadata_config": {"mode": "GKE_METADATA"},
        "shielded_instance_config": {
            "enable_secure_boot": plan.secure_boot,
            "enable_integrity_monitoring": True,
        },
        "gvnic": {"enabled": True},
    }
    if plan.reservation:
        config["reservation_affinity"] = {
            "consume_reservation_type": "SPECIFIC_RESERVATION",
            "key": "compute.googleapis.com/reservation-name",
            "values": [plan.reservation],
        }
    if plan.flex_start:
        # GKE, "Run GPU workloads with flex-start": no reservation, no repair, any zone, from zero nodes.
        config |= {
            "flex_start": True,
            "reservation_affinity": {"consume_reservation_type": "NO_RESERVATION"},
        }
    if plan.image_streaming:
        config["gcfs_config"] = {"enabled": True}
    if plan.disk_key:
        config["boot_disk_kms_key"] = plan.disk_key
    if plan.gpus:
        config["guest_accelerator"] = [
            {
                "type": plan.accelerator,
                "count": plan.gpus,
                "gpu_driver_installation_config": {"gpu_driver_version": "INSTALLATION_DISABLED"},
            }
        ]
    return config


def pool_name(plan: PoolPlan, config: Mapping[str, object]) -> str:
    """The pool's name with a digest of what its nodes are: a changed pool is made beside the old one, where a fixed
    name would have to be free first.
    """
    kind = {name: config.get(name) for name in REPLACING}
    kind |= {name: config[name] for name in REPLACING_WHERE_SET if name in config}
    text = json.dumps({**kind, "zones": list(plan.zones)}, sort_keys=True)
    return f"{plan.name[: LONGEST_NAME - 7]}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def per_zone(nodes: int, zones: Sequence[str]) -> int:
    """GKE counts initial nodes per zone; never more than asked for in all. Without zones the pool is in the three
    that GKE chooses for a region.
    """
    return nodes // (len(zones) or ZONES_OF_A_REGION)
