"""Storage classes of a cluster: one for disks, one for a volume that every node mounts.

They belong to the platform layer: Prometheus needs a disk, and a new EKS cluster has no default class.
"""

from __future__ import annotations

from typing import Any

from infra.templates import filled
from stacks.base import Plan
from stacks.clouds import CLOUDS
from stacks.manifests import Document
from stacks.services.documents import named
from stacks.services.objects import UID

DISK = "mpctl-disk"
SHARED = "mpctl-shared"


def storage_classes(plan: Plan, volume: str) -> list[Document]:
    """A class for one node's disk, and one that every node mounts when the environment shares models."""
    cloud = CLOUDS[plan.cluster.provider]
    keys = plan.settings.disk_keys
    key = keys.eks if plan.cluster.provider == "EKS" else keys.gke
    made = [storage_class(DISK, cloud.disk_class, volume)]
    if key:
        made[0]["parameters"][cloud.disk_key_parameter] = key
    if plan.settings.shared_models:
        made.append(storage_class(SHARED, cloud.shared_class, volume))
        if key and cloud.shared_key_parameter:
            made[1]["parameters"][cloud.shared_key_parameter] = key
    return made


def storage_class(name: str, facts: Any, volume: str) -> Document:
    return named(
        "StorageClass",
        "storage.k8s.io/v1",
        name,
        None,
        provisioner=facts["provisioner"],
        parameters=filled(facts["parameters"], {"volume": volume, "uid": str(UID)}),
        # A disk is made where its first pod lands. Shared models are slow to fetch again, so they outlive a claim.
        volumeBindingMode="WaitForFirstConsumer",
        reclaimPolicy="Retain" if name == SHARED else "Delete",
        allowVolumeExpansion=facts["provisioner"] != "efs.csi.aws.com",
    )
