"""The cluster layer: network, control plane, node pools, identities. One class a cloud, the same outputs."""

from __future__ import annotations

from dataclasses import asdict, replace

from constructs import Construct

from infra import builder
from infra.aws import eks, policies
from infra.aws import network as aws_network
from infra.aws import pools as aws_pools
from infra.gcp import gke
from infra.gcp import network as gcp_network
from infra.gcp import pools as gcp_pools
from infra.pools import PoolPlan
from stacks.base import Plan, Stack, labels
from stacks.fleet import InferenceCluster, NodePool
from stacks.machines import longest_drain_s, machines
from stacks.settings.environment import Network
from stacks.settings.maintenance import Maintenance, stamp

SYSTEM_DISK_GB = 60
# Regions where many accounts lack one of the zones a to c: letters are mapped per account (AWS, "Regions and Zones").
UNEVEN_REGIONS = frozenset(
    {"ap-northeast-1", "ap-northeast-2", "ca-central-1", "sa-east-1", "us-west-1"}
)
AwsNetwork = aws_network.Network | aws_network.ExistingNetwork
LETTERS = "abcdefg"  # of zones; the network has a block for each
POOL_LABEL = "modelplane.ai/pool"  # Modelplane pins workers to a pool by this label


class EksCluster(Stack):
    """EKS with managed node groups."""

    def __init__(self, scope: Construct, plan: Plan) -> None:
        super().__init__(scope, plan, "cluster")
        self.cloud_provider()
        settings, cluster = plan.settings, plan.cluster
        account = builder.data(self, "aws_caller_identity", "main")
        key = eks.encryption_key(self, plan.name, cluster.region, account)
        network = self.network(account, key)
        control = eks.Cluster(
            self,
            eks.ClusterPlan(
                name=plan.name,
                account=account["account_id"],
                region=cluster.region,
                version=plan.minor,
                subnets=[subnet["id"] for subnet in network.fixed],
                public_cidrs=settings.access.public_cidrs,
                private_cidrs=settings.access.private_cidrs,
                admins=settings.access.admins,
                viewers=settings.access.viewers,
                log_days=settings.log_days,
                deletion_protection=settings.deletion_protection,
                addons={name: pin.version for name, pin in plan.versions.pins["addons"].items()},
            ),
            key,
        )
        groups = self.pools(control, network)
        control.late_addons(
            groups[:1], shared_models=settings.shared_models, disk_key=settings.disk_keys.eks
        )
        control.pod_role(
            "autoscaler",
            policies.written("autoscaler", cluster=plan.name),
            "kube-system",
            "cluster-autoscaler",
        )
        if settings.monitoring.logs:
            control.engine_logs(key)
        self.bucket_readers(control)
        volume = None
        if settings.shared_models:
            volume = aws_pools.model_volume(
                self, plan.name, network.vpc, plan.cidr, network.subnets, key
            )
        if settings.budget:
            self.budget()
        builder.output(self, "cluster_name", control.element["name"])
        builder.output(self, "cluster_endpoint", control.element["endpoint"])
        builder.output(self, "cluster_ca", control.element["certificate_authority[0].data"])
        builder.output(self, "model_volume", volume["id"] if volume else "")
        publish_next(self)

    def network(self, account: builder.Element, key: builder.Element) -> AwsNetwork:
        """A VPC of the cluster's own, or the one that exists."""
        plan, settings = self.plan, self.plan.settings
        if plan.existing and plan.existing.aws:
            given = plan.existing.aws
            for pool in plan.cluster.pools:
                if missing := [zone for zone in pool.zones if zone not in given.subnets]:
                    raise plan.existing.place.error(
                        f"pool {pool.name} is in {', '.join(missing)}, and no subnet is named there",
                        f"existing.{plan.cluster.name}.subnets",
                        "add a private subnet of that zone",
                    )
            return aws_network.ExistingNetwork(self, given.vpc, given.subnets)
        network_plan = aws_network.NetworkPlan(
            name=plan.name,
            account=account["account_id"],
            region=plan.cluster.region,
            cidr=settings.network.cidr,
            zones=zones(plan.cluster, settings.network),
            fixed=fixed_zones(plan.cluster, settings.network),
            egress=settings.network.egress,
            flow_logs=settings.network.flow_logs,
            log_days=settings.log_days,
        )
        return aws_network.Network(self, network_plan, key)

    def pools(self, control: eks.Cluster, network: AwsNetwork) -> list[builder.Element]:
        before = [*network.ready, *control.ready, *control.node_attachments]
        pools = aws_pools.Pools(self, control.element, control.node_role, network, before)
        return [pools.add(plan) for plan in pool_plans(self.plan)]

    def bucket_readers(self, control: eks.Cluster) -> None:
        """Service accounts that fetch from S3 get read access to their buckets, and nothing else."""
        # One role an account: EKS takes one association for a namespace and an account.
        for account, buckets in buckets_of(self.plan, "s3").items():
            name = f"models_{account.replace('-', '_')}"
            control.pod_role(
                name,
                policies.read_buckets(buckets, self.plan.settings.disk_keys.eks_models),
                self.plan.settings.namespace,
                account,
            )

    def budget(self) -> None:
        budget = self.plan.settings.budget
        assert budget is not None
        notice = {
            "comparison_operator": "GREATER_THAN",
            "threshold_type": "PERCENTAGE",
            "subscriber_email_addresses": list(budget.emails),
        }
        builder.resource(
            self,
            "aws_budgets_budget",
            "monthly",
            name=f"{self.plan.name}-monthly",
            budget_type="COST",
            time_unit="MONTHLY",
            limit_amount=str(budget.monthly),
            limit_unit="USD",
            cost_filter=[{"name": "TagKeyValue", "values": [f"user:cluster${self.plan.name}"]}],
            notification=[
                {**notice, "notification_type": "ACTUAL", "threshold": 80},
                {**notice, "notification_type": "FORECASTED", "threshold": 100},
            ],
        )


class GkeCluster(Stack):
    """GKE Standard, private and regional."""

    def __init__(self, scope: Construct, plan: Plan) -> None:
        super().__init__(scope, plan, "cluster")
        self.cloud_provider()
        settings, cluster = plan.settings, plan.cluster
        assert plan.project is not None
        project = builder.data(self, "google_project", "main", project_id=plan.project)
        network = self.network()
        control = gke.Cluster(
            self,
            gke.ClusterPlan(
                name=plan.name,
                project=plan.project,
                region=cluster.region,
                version=plan.minor,
                # Empty: GKE takes three zones of the region. GPU pools name their own; the system pool must
                # not follow them into a single one.
                zones=settings.network.zones,
                public_cidrs=settings.access.public_cidrs,
                private_cidrs=settings.access.private_cidrs,
                dns_endpoint=settings.access.dns_endpoint,
                deletion_protection=settings.deletion_protection,
                labels=labels(plan.tags),
                maintenance=maintenance_policy(settings.maintenance),
                log_days=settings.log_days,
            ),
            network,
            project["number"],
        )
        before = self.disk_key(project["number"])
        pools = gcp_pools.Pools(self, control.element, control.nodes, before)
        for pool in pool_plans(plan):
            pools.add(pool)
        self.bucket_readers(control, project["number"])
        if settings.budget and settings.budget.billing_account:
            self.budget(settings.budget.billing_account, project["number"])
        builder.output(self, "cluster_name", control.element["name"])
        builder.output(self, "cluster_endpoint", self.gke_server(control.element))
        builder.output(
            self,
            "cluster_ca",
            control.element["master_auth[0].cluster_ca_certificate"],
            sensitive=True,
        )
        builder.output(self, "model_volume", network.network["name"])
        publish_next(self)

    def network(self) -> gcp_network.Network | gcp_network.ExistingNetwork:
        """A network of the cluster's own, or the one that exists."""
        plan, settings = self.plan, self.plan.settings
        if plan.existing and plan.existing.google:
            given = plan.existing.google
            ranges = (given.pods, given.services, given.control_plane)
            return gcp_network.ExistingNetwork(
                self, plan.cluster.region, given.network, given.subnetwork, ranges
            )
        network_plan = gcp_network.NetworkPlan(
            name=plan.name,
            region=plan.cluster.region,
            cidr=settings.network.cidr,
            egress=settings.network.egress,
            flow_logs=settings.network.flow_logs,
        )
        return gcp_network.Network(self, network_plan)

    def disk_key(self, project_number: str) -> list[builder.Element]:
        """Use of the key by Compute Engine for disks and by Filestore for shared models, where one is given."""
        settings = self.plan.settings
        if not settings.disk_keys.gke:
            return []
        agents = {"disks": "compute-system"} | (
            {"models": "cloud-filer"} if settings.shared_models else {}
        )
        return [
            builder.resource(
                self,
                "google_kms_crypto_key_iam_member",
                name,
                crypto_key_id=settings.disk_keys.gke,
                role="roles/cloudkms.cryptoKeyEncrypterDecrypter",
                member=f"serviceAccount:service-{project_number}@{agent}.iam.gserviceaccount.com",
            )
            for name, agent in agents.items()
        ]

    def bucket_readers(self, control: gke.Cluster, project_number: str) -> None:
        """Service accounts that fetch from GCS may read their buckets; Workload Identity names them without a
        Google account between.
        """
        pool = f"projects/{project_number}/locations/global/workloadIdentityPools/{self.plan.project}.svc.id.goog"
        for account, buckets in buckets_of(self.plan, "gs").items():
            for bucket in buckets:
                builder.resource(
                    self,
                    "google_storage_bucket_iam_member",
                    f"models_{account}_{bucket}".replace("-", "_").replace(".", "_"),
                    bucket=bucket,
                    role="roles/storage.objectViewer",
                    member=f"principal://iam.googleapis.com/{pool}/subject/ns/{self.plan.settings.namespace}/sa/{account}",
                    # The pool appears with the project's first cluster that asks for it.
                    depends_on=[control.element],
                )

    def budget(self, account: str, project_number: str) -> None:
        budget = self.plan.settings.budget
        assert budget is not None
        # Without channels a budget writes to the billing administrators alone.
        channels = [
            builder.resource(
                self,
                "google_monitoring_notification_channel",
                f"budget_{index}",
                project=self.plan.project,
                display_name=f"Budget of {self.plan.name}: {email}",
                type="email",
                labels={"email_address": email},
            )
            for index, email in enumerate(budget.emails)
        ]
        builder.resource(
            self,
            "google_billing_budget",
            "monthly",
            billing_account=account,
            display_name=f"{self.plan.name} monthly",
            budget_filter={
                "projects": [
                    f"projects/{project_number}"
                ],  # the API gives numbers back; an id would differ for ever
                "labels": {"cluster": self.plan.name},
            },
            # Without a currency the amount is in that of the billing account, the only one that the API takes.
            amount={"specified_amount": {"units": str(budget.monthly)}},
            threshold_rules=[
                {"threshold_percent": 0.8},
                {"threshold_percent": 1.0, "spend_basis": "FORECASTED_SPEND"},
            ],
            all_updates_rule={
                "monitoring_notification_channels": [channel["id"] for channel in channels]
            },
        )


def maintenance_policy(maintenance: Maintenance) -> dict[str, object]:
    """GKE's weekly window, and the times in which it upgrades nothing or less."""
    start, end = maintenance.first
    policy: dict[str, object] = {
        "recurring_window": {
            "start_time": start,
            "end_time": end,
            "recurrence": maintenance.recurrence,
        }
    }
    if maintenance.exclusions:
        policy["maintenance_exclusion"] = [
            {
                "exclusion_name": exclusion.name,
                "start_time": stamp(exclusion.start),
                "end_time": stamp(exclusion.end),
                "exclusion_options": {"scope": exclusion.scope},
            }
            for exclusion in maintenance.exclusions
        ]
    return policy


def buckets_of(plan: Plan, scheme: str) -> dict[str, list[str]]:
    """The buckets that each service account reads."""
    by_account: dict[str, set[str]] = {}
    for service in plan.settings.services:
        for artifact in service.artifacts:
            if artifact.scheme == scheme:
                by_account.setdefault(service.service_account, set()).add(
                    artifact.uri.split("/")[2]
                )
    return {account: sorted(buckets) for account, buckets in sorted(by_account.items())}


def publish_next(stack: Stack) -> None:
    """The next command, for users who deployed this layer alone."""
    builder.output(
        stack,
        "next_step",
        "MPCTL_LAYERS=platform cdktf deploy",
        description="Charts on this cluster",
    )


def fixed_zones(cluster: InferenceCluster, network: Network) -> list[str]:
    """The two zones of the control plane, the NAT gateway and the system nodes: the first two of the settings, else a
    and b. A GPU pool that comes or goes never changes them, because EKS and NAT cannot move.

    Raises:
        InputError: the settings name fewer than two, or they would be guessed in a region where accounts differ in the
            zones they have.
    """
    if len(network.zones) == 1:
        raise network.place.error("EKS needs two zones", "network.zones", "name a second one")
    if not network.zones and cluster.region in UNEVEN_REGIONS:
        raise cluster.place.error(
            f"EKS needs two zones, and accounts differ in the zones of {cluster.region} that they have",
            "network.zones",
            f"set network.zones in the environment (aws ec2 describe-availability-zones --region {cluster.region})",
        )
    return list(network.zones or (f"{cluster.region}a", f"{cluster.region}b"))[:2]


def zones(cluster: InferenceCluster, network: Network) -> dict[str, int]:
    """Every zone that the network spans, with the place of its blocks: by its letter unless the settings say otherwise,
    so that a zone which is added later takes no other zone's addresses. Without zones in the settings a to c are
    spanned from the start, so that a GPU pool usually finds its subnet there.

    Raises:
        InputError: a zone has no block, or another zone's.
    """
    first = network.zones or tuple(f"{cluster.region}{letter}" for letter in "abc")
    spanned = sorted({*first, *(zone for pool in cluster.pools for zone in pool.zones)})
    places: dict[str, int] = {}
    for zone in spanned:
        letter = zone.removeprefix(cluster.region)
        if letter not in tuple(LETTERS):
            raise network.place.error(
                f"{zone} is no availability zone of {cluster.region}: local zones and wavelength zones are not set up",
                "network.zones",
                f"set zones {cluster.region}a to {cluster.region}{LETTERS[-1]}",
            )
        place = network.blocks.get(zone, LETTERS.index(letter))
        if other := next((name for name, taken in places.items() if taken == place), None):
            raise network.place.error(
                f"{zone} and {other} would both have block {place}", "network.blocks"
            )
        places[zone] = place
    return places


def pool_plans(plan: Plan) -> list[PoolPlan]:
    """The system pool, then a GPU pool for each pool of the manifest."""
    settings, eks = plan.settings, plan.cluster.provider == "EKS"
    system = settings.system
    system_pool = PoolPlan(
        name="system",
        machine=system.eks_machine if eks else system.gke_machine,
        disk_gb=SYSTEM_DISK_GB,
        minimum=system.minimum,
        initial=system_nodes(plan),
        maximum=system.maximum,
        zones=() if eks else settings.network.zones,
        drain_s=longest_drain_s(settings),
        disk_key=settings.disk_keys.eks if eks else settings.disk_keys.gke,
        tags=plan.tags if eks else labels(plan.tags),
        image_release=settings.eks_image,
    )
    return [system_pool, *(gpu_pool(plan, pool, system_pool) for pool in plan.cluster.pools)]


def system_nodes(plan: Plan) -> int:
    """Nodes of the system pool at its creation: on GKE one for each zone where its maximum allows it."""
    system = plan.settings.system
    if plan.cluster.provider == "EKS":
        return system.minimum
    return max(system.minimum, min(gcp_pools.ZONES_OF_A_REGION, system.maximum))


def gpu_pool(plan: Plan, pool: NodePool, system_pool: PoolPlan) -> PoolPlan:
    """A pool of the manifest, with what it has in common with the system pool."""
    settings, hardware = plan.settings, pool.hardware
    return replace(
        system_pool,
        name=pool.name,
        machine=hardware.machine,
        disk_gb=hardware.disk_gb,
        disk_type=machines()[plan.cluster.provider][hardware.machine].disk,
        minimum=pool.minimum,
        initial=pool.nodes,
        maximum=pool.maximum,
        zones=pool.zones,
        accelerator=hardware.accelerator,
        gpus=hardware.accelerator_count,
        spot=settings.capacity_type == "SPOT",
        surge=settings.surge,
        secure_boot=settings.secure_boot,
        image_streaming=settings.image_streaming,
        capacity_block=pool.capacity_block,
        reservation=settings.reservations.get(pool.name),
        flex_start=pool.name in settings.flex_start,
        location_policy=settings.location_policy,
        labels={POOL_LABEL: pool.name},
        taints=[asdict(taint) for taint in pool.taints],
    )
