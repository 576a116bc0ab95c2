"""Differences of the clouds above the cluster, in one table: charts and manifests read it and never ask
which cloud it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stacks.services.objects import UID


@dataclass(frozen=True)
class Cloud:
    """Facts of one cloud, each with its reason beside the value below."""

    driver_root: str
    node_feature_discovery: bool
    critical_pods_quota: bool
    driver_installer: bool
    cluster_autoscaler: bool
    core_dns: bool
    internal_gateway: Mapping[str, str]
    idle_timeout: tuple[str, int] | None
    disk_class: Mapping[str, Any]
    disk_key_parameter: str
    shared_key_parameter: str | None
    driver_on_host: bool
    shared_class: Mapping[str, Any]


CLOUDS = {
    "EKS": Cloud(
        # The AL2023 NVIDIA image installs the driver into the root filesystem.
        driver_root="/",
        # Labels GPU nodes by PCI class, so that nodes made outside these stacks are found by the driver too.
        node_feature_discovery=True,
        # EKS admits critical pods in every namespace.
        critical_pods_quota=False,
        # The image carries the driver.
        driver_installer=False,
        # GKE has its own; Karpenter provisions for DRA only behind an alpha gate.
        cluster_autoscaler=True,
        core_dns=True,
        # Without it the load balancer of a Gateway faces the internet, and an engine has no authentication of its own.
        internal_gateway={"service.beta.kubernetes.io/aws-load-balancer-internal": "true"},
        # The Classic Load Balancer of a Service closes a connection that is silent for 60 s, as one behind a queue is;
        # 4000 s is the most it takes.
        idle_timeout=("service.beta.kubernetes.io/aws-load-balancer-connection-idle-timeout", 4000),
        disk_class={
            "provisioner": "ebs.csi.aws.com",
            "parameters": {"type": "gp3", "encrypted": "true"},
        },
        disk_key_parameter="kmsKeyId",
        # The file system itself has the cluster's key; folders in it have none.
        shared_key_parameter=None,
        # The NVIDIA runtime, which is the image's default, brings the driver's libraries into a container that may ask.
        driver_on_host=False,
        # Access points give every claim a folder of its own, owned by the user that fetches and serves.
        shared_class={
            "provisioner": "efs.csi.aws.com",
            "parameters": {
                "provisioningMode": "efs-ap",
                "fileSystemId": "{volume}",
                "directoryPerms": "750",
                "uid": str(UID),
                "gid": str(UID),
                "basePath": "/models",
            },
        },
    ),
    "GKE": Cloud(
        # Container-Optimized OS has a read-only root; the installer puts the driver here.
        driver_root="/home/kubernetes/bin/nvidia",
        # Its PCI label does not appear on L4 nodes (modelplane #229); the pool's own label does the work.
        node_feature_discovery=False,
        # GKE refuses system-node-critical pods in namespaces without a quota for that class (modelplane
        # #202).
        critical_pods_quota=True,
        # Automatic driver installation is not supported together with DRA (GKE, "Prepare GKE infrastructure
        # for DRA").
        driver_installer=True,
        cluster_autoscaler=False,
        core_dns=False,
        internal_gateway={"networking.gke.io/load-balancer-type": "Internal"},
        # A passthrough load balancer forwards packets; keep-alive packets of the gateway keep its table's entries.
        idle_timeout=None,
        disk_class={"provisioner": "pd.csi.storage.gke.io", "parameters": {"type": "pd-balanced"}},
        disk_key_parameter="disk-encryption-kms-key",
        shared_key_parameter="instance-encryption-kms-key",  # gcp-filestore-csi-driver, pkg/csi_driver/controller.go
        # No NVIDIA runtime: the exporter mounts the driver's folder.
        driver_on_host=True,
        shared_class={
            "provisioner": "filestore.csi.storage.gke.io",
            "parameters": {"tier": "zonal", "network": "{volume}"},
        },
    ),
}
