"""An EKS control plane that DRA workloads can use, and the identities of its components.

Access entries instead of the aws-auth ConfigMap, secrets encrypted with a key of our own, all five
control-plane logs, no extended support bought by accident (upgrade policy STANDARD). Pod Identity over
IRSA: one trust policy for every component, no OIDC provider to keep.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from constructs import Construct

from infra.aws import network, policies
from infra.builder import Element, data, resource

LOGS = ["api", "audit", "authenticator", "controllerManager", "scheduler"]
ADMIN = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
VIEW = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy"  # everything but Secrets
NODE_POLICIES = (
    "AmazonEKSWorkerNodePolicy",
    "",  # was the VPC CNI's, which has an identity now; the others keep their addresses in states
    "AmazonEC2ContainerRegistryPullOnly",
    "AmazonSSMManagedInstanceCore",
)
# Needed, with the VPC CNI, before a node can become Ready; the others wait for nodes, or their pods would never be
# scheduled.
EARLY_ADDONS = ("kube-proxy", "eks-pod-identity-agent")
# The VPC CNI enforces NetworkPolicy objects only when told so; without this ours would be decoration.
ADDON_SETTINGS: Mapping[str, object] = {"vpc-cni": {"enableNetworkPolicy": "true"}}


@dataclass(frozen=True)
class ClusterPlan:
    """Settings of an EKS cluster."""

    name: str
    account: str
    region: str
    version: str
    subnets: Sequence[str]
    public_cidrs: Sequence[str]
    private_cidrs: Sequence[str]
    admins: Sequence[str]
    viewers: Sequence[str]
    log_days: int
    deletion_protection: bool
    addons: Mapping[str, str]


class Cluster(Construct):
    """``element`` is the cluster, ``node_role`` its nodes' identity; pools wait for ``ready`` and
    ``node_attachments``.
    """

    def __init__(self, scope: Construct, plan: ClusterPlan, key: Element) -> None:
        super().__init__(scope, "cluster")
        self.plan = plan
        logs = resource(
            self,
            "aws_cloudwatch_log_group",
            "control_plane",
            name=log_group(plan.name),
            retention_in_days=plan.log_days,
            kms_key_id=key["arn"],
        )
        role = self.role(
            "cluster",
            policies.trust("eks.amazonaws.com", account=plan.account),
            ("AmazonEKSClusterPolicy",),
        )
        before = [
            *self.attachments,
            resource(
                self,
                "aws_iam_role_policy",
                "cluster",
                name="secrets",
                role=role["id"],
                policy=policies.written("use_key", key=key["arn"]),
            ),
        ]
        self.node_role = self.role("node", policies.trust("ec2.amazonaws.com"), NODE_POLICIES)
        self.node_attachments = self.attachments
        public = bool(plan.public_cidrs)
        self.element = resource(
            self,
            "aws_eks_cluster",
            "main",
            name=plan.name,
            version=plan.version,
            role_arn=role["arn"],
            # EKS makes an access entry for whoever creates the cluster when asked to; with administrators named
            # in the settings that would be a second entry for one of them (409), or an administrator nobody named.
            access_config={
                "authentication_mode": "API",
                "bootstrap_cluster_creator_admin_permissions": not plan.admins,
            },
            bootstrap_self_managed_addons=False,
            deletion_protection=plan.deletion_protection,
            enabled_cluster_log_types=LOGS,
            encryption_config={"provider": {"key_arn": key["arn"]}, "resources": ["secrets"]},
            upgrade_policy={"support_type": "STANDARD"},
            vpc_config={
                "subnet_ids": list(plan.subnets),
                "endpoint_private_access": True,
                "endpoint_public_access": public,
                "public_access_cidrs": list(plan.public_cidrs) if public else None,
            },
            # The log group comes first, or EKS makes one without retention; deletion wants its permissions
            # to the end.
            depends_on=[logs, *before],
        )
        for index, principal in enumerate(plan.admins):
            self.access(f"admin_{index}", principal, ADMIN)
        for index, principal in enumerate(plan.viewers):
            self.access(f"viewer_{index}", principal, VIEW)
        for index, block in enumerate(plan.private_cidrs):
            self.reach(index, block)
        trust = policies.pod_identity_trust(plan.account)
        cni = self.role("vpc_cni", trust, ("AmazonEKS_CNI_Policy",))
        # Not by the node's role, whose rights every pod in the host's network has.
        network_addon = self.addon("vpc-cni", role=("aws-node", cni), after=self.attachments)
        self.ready = [network_addon, *(self.addon(name) for name in EARLY_ADDONS)]

    def role(self, name: str, trust: str, managed: Sequence[str]) -> Element:
        """A role with AWS-managed policies attached; the attachments are kept for ordering."""
        made = resource(
            self,
            "aws_iam_role",
            name,
            name=role_name(f"{self.plan.name}-{name.replace('_', '-')}"),
            assume_role_policy=trust,
        )
        self.attachments = [
            resource(
                self,
                "aws_iam_role_policy_attachment",
                f"{name}_{index}",
                role=made["name"],
                policy_arn=f"arn:aws:iam::aws:policy/{policy}",
            )
            for index, policy in enumerate(managed)
            if policy
        ]
        return made

    def reach(self, index: int, block: str) -> None:
        """The private endpoint lets only members of the cluster's own group in; a VPN's addresses are none."""
        resource(
            self,
            "aws_vpc_security_group_ingress_rule",
            f"api_{index}",
            security_group_id=self.element["vpc_config[0].cluster_security_group_id"],
            description="Kubernetes API from a private network",
            cidr_ipv4=block,
            ip_protocol="tcp",
            from_port=443,
            to_port=443,
        )

    def access(self, name: str, principal: str, policy: str) -> None:
        """Give a principal one of the access policies of EKS in the whole cluster."""
        entry = resource(
            self,
            "aws_eks_access_entry",
            name,
            cluster_name=self.element["name"],
            principal_arn=principal,
            type="STANDARD",
        )
        resource(
            self,
            "aws_eks_access_policy_association",
            name,
            cluster_name=self.element["name"],
            principal_arn=principal,
            policy_arn=policy,
            access_scope={"type": "cluster"},
            depends_on=[entry],
        )

    def addon(
        self, name: str, *, role: tuple[str, Element] | None = None, after: Sequence[Element] = ()
    ) -> Element:
        """An EKS add-on; *role* is its service account and identity."""
        pinned = self.plan.addons.get(name, "default")
        settings = ADDON_SETTINGS.get(name)
        address = name.replace("-", "_")
        return resource(
            self,
            "aws_eks_addon",
            address,
            cluster_name=self.element["name"],
            addon_name=name,
            # Without a version EKS never updates an add-on; asked for by the cluster's minor, it follows an upgrade.
            addon_version=self.default_version(name, address) if pinned == "default" else pinned,
            configuration_values=json.dumps(settings, sort_keys=True) if settings else None,
            pod_identity_association=[{"service_account": role[0], "role_arn": role[1]["arn"]}]
            if role
            else None,
            resolve_conflicts_on_create="OVERWRITE",
            resolve_conflicts_on_update="OVERWRITE",
            depends_on=after,
        )

    def default_version(self, name: str, address: str) -> str:
        """The version that AWS recommends for the minor which the control plane runs."""
        return data(
            self,
            "aws_eks_addon_version",
            address,
            addon_name=name,
            kubernetes_version=self.element["version"],
            most_recent=False,
        )["version"]

    def late_addons(
        self, nodes: Sequence[Element], *, shared_models: bool, disk_key: str | None = None
    ) -> None:
        """Add-ons whose pods need nodes."""
        self.addon("coredns", after=nodes)
        # Node repair acts on conditions of the node; those of GPUs come from this agent.
        self.addon("eks-node-monitoring-agent", after=nodes)
        ebs = self.role(
            "ebs_csi",
            policies.pod_identity_trust(self.plan.account),
            ("service-role/AmazonEBSCSIDriverPolicy",),
        )
        if disk_key:
            policy = policies.written("use_disk_key", key=disk_key)
            resource(
                self,
                "aws_iam_role_policy",
                "ebs_csi",
                name="disk-key",
                role=ebs["id"],
                policy=policy,
            )
        self.addon("aws-ebs-csi-driver", role=("ebs-csi-controller-sa", ebs), after=nodes)
        if shared_models:
            efs = self.role(
                "efs_csi",
                policies.pod_identity_trust(self.plan.account),
                ("service-role/AmazonEFSCSIDriverPolicy",),
            )
            self.addon("aws-efs-csi-driver", role=("efs-csi-controller-sa", efs), after=nodes)

    def engine_logs(self, key: Element) -> None:
        """The log group of the engines, and the identity of the collector that writes to it."""
        group = resource(
            self,
            "aws_cloudwatch_log_group",
            "engines",
            name=engine_log_group(self.plan.name),
            retention_in_days=self.plan.log_days,
            kms_key_id=key["arn"],
        )
        policy = policies.written("write_logs", group=group["arn"])
        self.pod_role("engine_logs", policy, "kube-system", "engine-logs")

    def pod_role(self, name: str, policy: str, namespace: str, account: str) -> Element:
        """A role with one policy of ours, given to one service account."""
        made = self.role(name, policies.pod_identity_trust(self.plan.account), ())
        resource(
            self,
            "aws_iam_role_policy",
            name,
            name=name.replace("_", "-"),
            role=made["id"],
            policy=policy,
        )
        resource(
            self,
            "aws_eks_pod_identity_association",
            name,
            cluster_name=self.element["name"],
            namespace=namespace,
            service_account=account,
            role_arn=made["arn"],
        )
        return made


def role_name(name: str) -> str:
    """*name* within the 64 characters that IAM allows, still different for different names."""
    return (
        name if len(name) <= 64 else f"{name[:55]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    )


def log_group(cluster: str) -> str:
    """The name EKS writes control-plane logs to; it cannot be chosen."""
    return f"/aws/eks/{cluster}/cluster"


def engine_log_group(cluster: str) -> str:
    """Where the logs of a cluster's engines go."""
    return f"/aws/eks/{cluster}/engines"


def encryption_key(scope: Construct, name: str, region: str, account: Element) -> Element:
    """One key for secrets, logs and the model volume of a cluster. Disks of nodes are encrypted with the account's
    key for EBS, or with a given one: a key of ours would need a grant for Auto Scaling's service-linked role, which not
    every account has.
    """
    policy = policies.key_policy(
        account["account_id"],
        region,
        (log_group(name), engine_log_group(name), network.flow_log_group(name)),
    )
    key = resource(
        scope,
        "aws_kms_key",
        "main",
        description=f"Secrets, logs and model volume of {name}",
        enable_key_rotation=True,
        deletion_window_in_days=30,
        policy=policy,
    )
    resource(scope, "aws_kms_alias", "main", name=f"alias/{name}", target_key_id=key["id"])
    return key
