"""The enumerations that the provider packages do not carry and that cost an evening when they are wrong.

Key: element and argument path; value: what the API takes. From the AWS and Google API references; the taint
effects differ from the ones in a pod spec on purpose (`NO_SCHEDULE` here, `NoSchedule` there).
"""

from __future__ import annotations

TAINT_EFFECTS = frozenset({"NO_SCHEDULE", "NO_EXECUTE", "PREFER_NO_SCHEDULE"})

GPU_DRIVER = (
    "google_container_node_pool.node_config.guest_accelerator.gpu_driver_installation_config"
)

ENUMS: dict[str, frozenset[str]] = {
    "aws_eks_node_group.ami_type": frozenset(
        {
            "AL2023_x86_64_STANDARD",
            "AL2023_ARM_64_STANDARD",
            "AL2023_x86_64_NVIDIA",
            "AL2023_ARM_64_NVIDIA",
            "AL2023_x86_64_NEURON",
            "BOTTLEROCKET_x86_64",
            "BOTTLEROCKET_ARM_64",
            "BOTTLEROCKET_x86_64_NVIDIA",
            "BOTTLEROCKET_ARM_64_NVIDIA",
            "CUSTOM",
        }
    ),
    "aws_eks_node_group.capacity_type": frozenset({"ON_DEMAND", "SPOT", "CAPACITY_BLOCK"}),
    "aws_eks_node_group.taint.effect": TAINT_EFFECTS,
    "aws_eks_node_group.update_config.update_strategy": frozenset({"DEFAULT", "MINIMAL"}),
    "aws_eks_cluster.access_config.authentication_mode": frozenset(
        {"API", "API_AND_CONFIG_MAP", "CONFIG_MAP"}
    ),
    "aws_eks_cluster.upgrade_policy.support_type": frozenset({"STANDARD", "EXTENDED"}),
    "aws_eks_cluster.enabled_cluster_log_types": frozenset(
        {"api", "audit", "authenticator", "controllerManager", "scheduler"}
    ),
    "aws_eks_addon.resolve_conflicts_on_create": frozenset({"NONE", "OVERWRITE"}),
    "aws_eks_addon.resolve_conflicts_on_update": frozenset({"NONE", "OVERWRITE", "PRESERVE"}),
    "aws_launch_template.metadata_options.http_tokens": frozenset({"optional", "required"}),
    "aws_vpc_endpoint.vpc_endpoint_type": frozenset(
        {"Gateway", "Interface", "GatewayLoadBalancer"}
    ),
    "google_container_node_pool.node_config.taint.effect": TAINT_EFFECTS,
    f"{GPU_DRIVER}.gpu_driver_version": frozenset(
        {"DEFAULT", "LATEST", "INSTALLATION_DISABLED", "GPU_DRIVER_VERSION_UNSPECIFIED"}
    ),
    "google_container_node_pool.node_config.workload_metadata_config.mode": frozenset(
        {"MODE_UNSPECIFIED", "GCE_METADATA", "GKE_METADATA"}
    ),
    "google_container_node_pool.autoscaling.location_policy": frozenset({"BALANCED", "ANY"}),
    "google_container_cluster.release_channel.channel": frozenset(
        {"UNSPECIFIED", "RAPID", "REGULAR", "STABLE", "EXTENDED"}
    ),
    "google_container_cluster.datapath_provider": frozenset(
        {"DATAPATH_PROVIDER_UNSPECIFIED", "LEGACY_DATAPATH", "ADVANCED_DATAPATH"}
    ),
    "google_container_cluster.maintenance_policy.maintenance_exclusion.exclusion_options.scope": frozenset(
        {"NO_UPGRADES", "NO_MINOR_UPGRADES", "NO_MINOR_OR_NODE_UPGRADES"}
    ),
    "google_container_cluster.networking_mode": frozenset({"VPC_NATIVE", "ROUTES"}),
}
