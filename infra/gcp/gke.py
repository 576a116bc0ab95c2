"""A private, VPC-native GKE Standard cluster without node auto-provisioning, which DRA does not support.

Dataplane V2 enforces NetworkPolicy; Workload Identity is the only identity of pods; GKE's managed
Prometheus is off because kube-prometheus-stack is the one source of the rules.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from constructs import Construct

from infra.builder import Element, resource
from infra.gcp.network import ExistingNetwork, Network

NODE_ROLES = ("roles/container.defaultNodeServiceAccount", "roles/artifactregistry.reader")
WEBHOOK_PORTS = ["6443", "8443", "9443"]
COMPONENTS = ["SYSTEM_COMPONENTS", "WORKLOADS", "APISERVER", "SCHEDULER", "CONTROLLER_MANAGER"]


@dataclass(frozen=True)
class ClusterPlan:
    """Settings of a GKE cluster."""

    name: str
    project: str
    region: str
    version: str
    zones: Sequence[str]
    public_cidrs: Sequence[str]
    private_cidrs: Sequence[str]
    dns_endpoint: bool
    deletion_protection: bool
    labels: Mapping[str, str]
    maintenance: Mapping[str, object]
    log_days: int


class Cluster(Construct):
    """``element`` is the cluster, ``nodes`` the service account of its nodes."""

    def __init__(
        self,
        scope: Construct,
        plan: ClusterPlan,
        network: Network | ExistingNetwork,
        project_number: str,
    ) -> None:
        super().__init__(scope, "cluster")
        self.plan = plan
        key, grant = self.key(project_number)
        self.nodes = resource(
            self,
            "google_service_account",
            "nodes",
            account_id=f"{shortened(plan.name)}-nodes",
            display_name=f"Nodes of {plan.name}",
        )
        member = f"serviceAccount:{self.nodes['email']}"
        grants = [
            resource(
                self,
                "google_project_iam_member",
                f"nodes_{index}",
                project=plan.project,
                role=role,
                member=member,
            )
            for index, role in enumerate(NODE_ROLES)
        ]
        public = bool(plan.public_cidrs)
        blocks = [
            {"cidr_block": block, "display_name": f"allowed-{index}"}
            for index, block in enumerate([*plan.public_cidrs, *plan.private_cidrs])
        ]
        self.element = resource(
            self,
            "google_container_cluster",
            "main",
            name=plan.name,
            project=plan.project,
            location=plan.region,
            node_locations=list(plan.zones) or None,
            min_master_version=plan.version,
            release_channel={"channel": "REGULAR"},
            deletion_protection=plan.deletion_protection,
            resource_labels=dict(plan.labels),
            # Pools are their own resources; the pool GKE insists on is removed at once.
            remove_default_node_pool=True,
            initial_node_count=1,
            node_config={
                "service_account": self.nodes["email"],
                "shielded_instance_config": {
                    "enable_secure_boot": True,
                    "enable_integrity_monitoring": True,
                },
                "workload_metadata_config": {"mode": "GKE_METADATA"},
            },
            network=network.network["id"],
            subnetwork=network.subnet["id"],
            networking_mode="VPC_NATIVE",
            datapath_provider="ADVANCED_DATAPATH",
            enable_intranode_visibility=True,
            ip_allocation_policy={
                "cluster_secondary_range_name": network.pods,
                "services_secondary_range_name": network.services,
            },
            private_cluster_config={
                "enable_private_nodes": True,
                "enable_private_endpoint": not public,
                "master_ipv4_cidr_block": network.control_plane,
            },
            # Google's front end checks the caller's rights before a request comes to the control plane.
            control_plane_endpoints_config={
                "dns_endpoint_config": {"allow_external_traffic": plan.dns_endpoint}
            },
            # Present even when empty: without the block every address may try.
            master_authorized_networks_config={
                "cidr_blocks": blocks,
                "gcp_public_cidrs_access_enabled": False,
            },
            master_auth={"client_certificate_config": {"issue_client_certificate": False}},
            workload_identity_config={"workload_pool": f"{plan.project}.svc.id.goog"},
            database_encryption={"state": "ENCRYPTED", "key_name": key["id"]},
            enable_shielded_nodes=True,
            enable_legacy_abac=False,
            binary_authorization={"evaluation_mode": "PROJECT_SINGLETON_POLICY_ENFORCE"},
            addons_config={
                "gcs_fuse_csi_driver_config": {"enabled": True},
                "gcp_filestore_csi_driver_config": {"enabled": True},
                "gce_persistent_disk_csi_driver_config": {"enabled": True},
            },
            logging_config={"enable_components": COMPONENTS},
            monitoring_config={
                "enable_components": ["SYSTEM_COMPONENTS"],
                "managed_prometheus": {"enabled": False},
            },
            cost_management_config={"enabled": True},
            maintenance_policy=dict(plan.maintenance),
            depends_on=[grant, *grants],
            # The version is a floor: GKE's channel moves the control plane on, and the provider upgrades it only when
            # it is below (google/services/container/resource_container_cluster.go), never back.
            lifecycle={"ignore_changes": ["node_config"]},
        )
        self.logs()
        # GKE's own rule lets the control plane reach 443 and 10250 of private nodes only; webhooks and
        # aggregated APIs of the charts listen elsewhere, and a call to them would time out.
        resource(
            self,
            "google_compute_firewall",
            "webhooks",
            name=f"{plan.name}-webhooks",
            network=network.network["id"],
            direction="INGRESS",
            source_ranges=[network.control_plane],
            target_service_accounts=[self.nodes["email"]],
            allow=[{"protocol": "tcp", "ports": WEBHOOK_PORTS}],
        )

    def logs(self) -> None:
        """Keep the cluster's logs as long as the settings say, in a bucket of its own and nowhere else: the project's
        default bucket keeps 30 days, and what goes to both is billed twice.
        """
        plan = self.plan
        own = f'resource.labels.cluster_name="{plan.name}" AND resource.labels.location="{plan.region}"'
        bucket = resource(
            self,
            "google_logging_project_bucket_config",
            "main",
            project=plan.project,
            location=plan.region,
            bucket_id=plan.name,
            retention_days=plan.log_days,
            description=f"Logs of {plan.name}",
        )
        sink = resource(
            self,
            "google_logging_project_sink",
            "main",
            name=plan.name,
            project=plan.project,
            destination=f"logging.googleapis.com/projects/{plan.project}/locations/{plan.region}/buckets/{plan.name}",
            filter=own,
            # A bucket of the same project needs no right of its own (Cloud Logging, "Route logs to supported
            # destinations").
            unique_writer_identity=True,
            depends_on=[bucket],
        )
        # Of the project's default sink (Logging API, projects.exclusions).
        resource(
            self,
            "google_logging_project_exclusion",
            "main",
            name=plan.name,
            project=plan.project,
            description=f"Logs of {plan.name} are in its own bucket",
            filter=own,
            depends_on=[sink],
        )

    def key(self, project_number: str) -> tuple[Element, Element]:
        """A key for secrets, usable by GKE's own service agent only. A key ring can never be deleted."""
        ring = resource(
            self,
            "google_kms_key_ring",
            "main",
            name=self.plan.name,
            location=self.plan.region,
            project=self.plan.project,
        )
        key = resource(
            self,
            "google_kms_crypto_key",
            "secrets",
            name="secrets",
            key_ring=ring["id"],
            rotation_period="7776000s",
            lifecycle={"prevent_destroy": self.plan.deletion_protection},
        )
        agent = f"serviceAccount:service-{project_number}@container-engine-robot.iam.gserviceaccount.com"
        grant = resource(
            self,
            "google_kms_crypto_key_iam_member",
            "gke",
            crypto_key_id=key["id"],
            role="roles/cloudkms.cryptoKeyEncrypterDecrypter",
            member=agent,
        )
        return key, grant


def shortened(name: str) -> str:
    """At most 24 characters of *name*, still different for different names: account ids end at 30."""
    return (
        name if len(name) <= 24 else f"{name[:17]}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"
    )
