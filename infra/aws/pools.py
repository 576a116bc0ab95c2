"""Managed node groups and the shared model volume.

GPU pools: the AL2023 NVIDIA image has driver and toolkit but no device plugin, which is what the DRA driver
wants. Minimum 1, because cluster-autoscaler cannot predict the ResourceSlices of an AWS node that does not
exist yet, so a pool at zero never grows for a pod with a claim. The autoscaler owns ``desired_size`` after
creation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from constructs import Construct

from infra.aws.network import ExistingNetwork, Network
from infra.builder import Element, data, resource
from infra.pools import PoolPlan, timeouts
from mpctl.errors import InputError

GPU_IMAGE = "AL2023_x86_64_NVIDIA"
SYSTEM_IMAGE = "AL2023_x86_64_STANDARD"
# Where AWS publishes the newest image release of a minor (EKS user guide, "Retrieve recommended Amazon Linux AMI IDs").
RELEASES = {
    GPU_IMAGE: "amazon-linux-2023/x86_64/nvidia",
    SYSTEM_IMAGE: "amazon-linux-2023/x86_64/standard",
}
# gp3 gives 125 MB/s unless asked: an engine image of 10 GB and 17 GB of weights would take four minutes to write.
# 3000 IOPS, which are included, carry up to 750 MB/s (EBS user guide, "General Purpose SSD volumes").
GPU_DISK_MB_S = 500
PRESENT = {"nvidia.com/gpu.present": "true"}
# The condition of a short DCGM outage, or of one while the node boots, is never cleared, and repair would replace a
# sound node after ten minutes (aws/eks-node-monitoring-agent #266). Faults of a GPU itself have reasons of their own.
NOT_REPAIRED = {
    "node_monitoring_condition": "AcceleratedHardwareReady",
    "node_unhealthy_reason": "DCGMError",
    "min_repair_wait_time_mins": 10,
    "repair_action": "NoAction",
}
# Of a version update; a group that is deleted or replaced gets about five minutes.
DRAIN_LIMIT_S = 15 * 60
LONGEST_PREFIX = 37  # of a node group's name (aws provider, node_group_name_prefix)


class Pools(Construct):
    """The node groups of one cluster."""

    def __init__(
        self,
        scope: Construct,
        cluster: Element,
        role: Element,
        network: Network | ExistingNetwork,
        ready: Sequence[Element],
    ) -> None:
        super().__init__(scope, "pools")
        self.cluster = cluster
        self.role = role
        self.network = network
        self.ready = ready
        self._releases: dict[str, str] = {}

    def add(self, plan: PoolPlan) -> Element:
        if plan.gpus and plan.minimum < 1:
            raise InputError(
                f"pool {plan.name} may not shrink to zero nodes on EKS: without a running node there is no "
                "ResourceSlice, and cluster-autoscaler cannot tell that a new node would satisfy a claim",
                field="minNodeCount",
                hint="set minNodeCount: 1",
            )
        name, reserved = plan.address, plan.capacity_block or plan.reservation
        block = {"market_type": "capacity-block"} if plan.capacity_block else None
        subnets = [self.network.subnets[zone] for zone in plan.zones] or self.network.fixed
        template = resource(
            self,
            "aws_launch_template",
            name,
            name=f"{self.cluster['name']}-{plan.name}",
            update_default_version=True,
            # With a launch template the disk size belongs here, not in the node group.
            block_device_mappings=[
                {
                    "device_name": "/dev/xvda",
                    "ebs": {
                        "volume_size": plan.disk_gb,
                        "volume_type": "gp3",
                        **({"throughput": GPU_DISK_MB_S} if plan.gpus else {}),
                        "encrypted": "true",  # with the account's key for EBS, or the given one
                        **({"kms_key_id": plan.disk_key} if plan.disk_key else {}),
                        "delete_on_termination": "true",
                    },
                }
            ],
            # One hop: a pod cannot take the node's credentials; every component here has Pod Identity.
            metadata_options={
                "http_endpoint": "enabled",
                "http_tokens": "required",
                "http_put_response_hop_limit": 1,
            },
            instance_market_options=block,
            instance_type=plan.machine if plan.capacity_block else None,
            capacity_reservation_specification=(
                {"capacity_reservation_target": {"capacity_reservation_id": reserved}}
                if reserved
                else None
            ),
            # The provider's default tags stop at the template; machines and disks are what costs.
            tag_specifications=[
                {"resource_type": kind, "tags": {**plan.tags, "Name": plan.name}}
                for kind in ("instance", "volume")
            ],
        )
        image = GPU_IMAGE if plan.gpus else SYSTEM_IMAGE
        return resource(
            self,
            "aws_eks_node_group",
            name,
            cluster_name=self.cluster["name"],
            # A prefix, so that a changed pool can be made beside the old one: with a fixed name there would be no GPU
            # until the new group is up.
            node_group_name_prefix=f"{plan.name[: LONGEST_PREFIX - 1]}-",
            # Without these a group keeps the minor and the image of its first day, whatever the control plane runs.
            version=self.cluster["version"],
            release_version=plan.image_release or self.release(image),
            node_role_arn=self.role["arn"],
            subnet_ids=[subnet["id"] for subnet in subnets],
            ami_type=image,
            capacity_type="CAPACITY_BLOCK" if block else "SPOT" if plan.spot else "ON_DEMAND",
            instance_types=None if block else [plan.machine],
            labels={**(PRESENT if plan.gpus else {}), **plan.labels},
            taint=plan.all_taints or None,
            scaling_config={
                "min_size": plan.minimum,
                "desired_size": plan.initial,
                "max_size": plan.maximum,
            },
            # By default EKS adds nodes before it drains old ones, for which there must be quota; MINIMAL drains first.
            update_config={
                "max_unavailable": 1,
                **({} if plan.surge and not reserved else {"update_strategy": "MINIMAL"}),
            },
            node_repair_config={
                "enabled": True,
                **({"node_repair_config_overrides": [NOT_REPAIRED]} if plan.gpus else {}),
            },
            launch_template={"id": template["id"], "version": template["latest_version"]},
            timeouts=timeouts(plan.maximum, plan.drain_s, DRAIN_LIMIT_S),
            depends_on=self.ready,
            lifecycle={
                "create_before_destroy": True,
                "ignore_changes": ["scaling_config[0].desired_size"],
            },
        )

    def release(self, image: str) -> str:
        """The newest release of *image* for the minor of the control plane, read at every plan."""
        address = "gpu_image" if image == GPU_IMAGE else "system_image"
        if image not in self._releases:
            path = release_parameter(self.cluster["version"], image)
            parameter = data(self, "aws_ssm_parameter", address, name=path)
            # The provider marks every parameter as a secret; this one is public.
            self._releases[image] = f"${{nonsensitive({parameter.expression('value')})}}"
        return self._releases[image]


def release_parameter(minor: str, image: str) -> str:
    """The public SSM parameter with the newest release of an image."""
    return f"/aws/service/eks/optimized-ami/{minor}/{RELEASES[image]}/recommended/release_version"


def model_volume(
    scope: Construct,
    name: str,
    vpc: Element,
    cidr: str,
    subnets: Mapping[str, Element],
    key: Element,
) -> Element:
    """EFS for models that every node mounts, reachable from the VPC only."""
    group = resource(
        scope,
        "aws_security_group",
        "models",
        name=f"{name}-models",
        description="NFS from the nodes",
        vpc_id=vpc["id"],
        tags={"Name": f"{name}-models"},
    )
    resource(
        scope,
        "aws_vpc_security_group_ingress_rule",
        "models",
        security_group_id=group["id"],
        description="NFS from the VPC",
        cidr_ipv4=cidr,
        ip_protocol="tcp",
        from_port=2049,
        to_port=2049,
    )
    volume = resource(
        scope,
        "aws_efs_file_system",
        "models",
        creation_token=f"{name}-models",
        encrypted=True,
        kms_key_id=key["arn"],
        throughput_mode="elastic",
        tags={"Name": f"{name}-models"},
    )
    for subnet in subnets.values():
        resource(
            scope,
            "aws_efs_mount_target",
            subnet.name,
            file_system_id=volume["id"],
            subnet_id=subnet["id"],
            security_groups=[group["id"]],
        )
    return volume
