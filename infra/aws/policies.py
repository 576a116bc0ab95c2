"""IAM documents as plain values; ``jsonencode`` is not needed for the JSON artefact and HCL export is a
courtesy.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

VERSION = "2012-10-17"


def document(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": VERSION, "Statement": list(statements)}, sort_keys=True)


def allow(
    actions: Sequence[str], resources: Sequence[str], **statement_fields: Any
) -> dict[str, Any]:
    return {
        "Effect": "Allow",
        "Action": list(actions),
        "Resource": list(resources),
        **statement_fields,
    }


def trust(service: str, *actions: str, account: str | None = None) -> str:
    """Let *service* assume the role, for resources of *account* alone where the service says whose they are: without
    it another account's resource could make the service act for it here (the confused deputy, IAM user guide).
    """
    statement: dict[str, Any] = {
        "Effect": "Allow",
        "Principal": {"Service": service},
        "Action": list(actions or ("sts:AssumeRole",)),
    }
    if account is not None:
        statement["Condition"] = {"StringEquals": {"aws:SourceAccount": account}}
    return document(statement)


def pod_identity_trust(account: str) -> str:
    """EKS Pod Identity: the agent assumes the role and tags the session with cluster, namespace and
    account.
    """
    return trust("pods.eks.amazonaws.com", "sts:AssumeRole", "sts:TagSession", account=account)


def autoscaler(cluster: str) -> str:
    """Permissions of cluster-autoscaler, its writes limited to this cluster by the tag EKS puts on its groups."""
    read = [
        "autoscaling:DescribeAutoScalingGroups",
        "autoscaling:DescribeAutoScalingInstances",
        "autoscaling:DescribeLaunchConfigurations",
        "autoscaling:DescribeScalingActivities",
        "autoscaling:DescribeTags",
        "ec2:DescribeImages",
        "ec2:DescribeInstanceTypes",
        "ec2:DescribeLaunchTemplateVersions",
        "ec2:GetInstanceTypesFromInstanceRequirements",
        "eks:DescribeNodegroup",
    ]
    owned = {"StringEquals": {f"aws:ResourceTag/k8s.io/cluster-autoscaler/{cluster}": "owned"}}
    write = ["autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"]
    return document(allow(read, ["*"]), allow(write, ["*"], Condition=owned))


def key_policy(account: str, region: str, log_groups: Sequence[str]) -> str:
    """The account administers the key; CloudWatch Logs may use it for these groups only."""
    groups = [f"arn:aws:logs:{region}:{account}:log-group:{name}" for name in log_groups]
    logs = {
        "Effect": "Allow",
        "Principal": {"Service": f"logs.{region}.amazonaws.com"},
        "Action": [
            "kms:Encrypt",
            "kms:Decrypt",
            "kms:ReEncrypt*",
            "kms:GenerateDataKey*",
            "kms:Describe*",
        ],
        "Resource": "*",
        "Condition": {"ArnEquals": {"kms:EncryptionContext:aws:logs:arn": groups}},
    }
    root = {
        "Effect": "Allow",
        "Principal": {"AWS": f"arn:aws:iam::{account}:root"},
        "Action": "kms:*",
        "Resource": "*",
    }
    return document(root, logs)


def use_key(key_arn: str) -> str:
    """Permissions of the control plane on the key that encrypts secrets."""
    return document(
        allow(["kms:Encrypt", "kms:Decrypt", "kms:ListGrants", "kms:DescribeKey"], [key_arn])
    )


def use_disk_key(key_arn: str) -> str:
    """Permissions of the EBS driver on the key of its volumes; the grant is only for attaching a volume."""
    use = [
        "kms:Encrypt",
        "kms:Decrypt",
        "kms:ReEncrypt*",
        "kms:GenerateDataKey*",
        "kms:DescribeKey",
    ]
    grant = {"Condition": {"Bool": {"kms:GrantIsForAWSResource": "true"}}}
    return document(allow(use, [key_arn]), allow(["kms:CreateGrant"], [key_arn], **grant))


def flow_logs(group_arn: str) -> str:
    actions = [
        "logs:CreateLogStream",
        "logs:PutLogEvents",
        "logs:DescribeLogGroups",
        "logs:DescribeLogStreams",
    ]
    return document(allow(actions, [group_arn, f"{group_arn}:*"]))


# Actions of a deploy and a destroy by service; reads are allowed as a whole.
DEPLOY = {
    "ec2": "*Vpc* *Subnet* *InternetGateway *NatGateway *RouteTable *Route *SecurityGroup* *Address *LaunchTemplate* "
    "*FlowLogs *Tags RunInstances",
    "eks": "*",
    "elasticfilesystem": "*FileSystem* *MountTarget* TagResource UntagResource ListTagsForResource",
    "iam": "*Role *RolePolicy *RolePolicies *InstanceProfilesForRole UpdateAssumeRolePolicy CreateServiceLinkedRole",
    "kms": "CreateKey DescribeKey ScheduleKeyDeletion *KeyPolicy *Alias ListAliases EnableKeyRotation CreateGrant "
    "GetKeyRotationStatus TagResource UntagResource ListResourceTags Decrypt GenerateDataKey",
    "logs": "*LogGroup* *RetentionPolicy AssociateKmsKey CreateLogDelivery DeleteLogDelivery TagResource UntagResource "
    "ListTagsForResource",
    "budgets": "ModifyBudget ViewBudget TagResource ListTagsForResource",
    "ssm": "GetParameter",
    "sts": "GetCallerIdentity",
}
# One of each, which a deploy without it stops at.
PROBES = (
    "ec2:CreateVpc",
    "ec2:CreateNatGateway",
    "ec2:CreateLaunchTemplate",
    "eks:CreateCluster",
    "eks:CreateNodegroup",
    "iam:CreateRole",
    "iam:PassRole",
    "kms:CreateKey",
    "logs:CreateLogGroup",
    "elasticfilesystem:CreateFileSystem",
)


def deployer() -> str:
    """The policy of who deploys and destroys the cluster layer; later layers need rights in the cluster alone."""
    actions = [
        f"{service}:{action}" for service, names in DEPLOY.items() for action in names.split()
    ]
    reads = ["ec2:Describe*", "ec2:Get*", "iam:Get*", "iam:List*", "servicequotas:GetServiceQuota"]
    return document(allow([*reads, *actions], ["*"]))


def read_buckets(buckets: Sequence[str], keys: Sequence[str] = ()) -> str:
    """Read-only on these buckets, for downloading models; *keys* encrypt what is in them."""
    arns = [f"arn:aws:s3:::{bucket}" for bucket in buckets]
    return document(
        allow(["s3:ListBucket", "s3:GetBucketLocation"], arns),
        allow(["s3:GetObject"], [f"{arn}/*" for arn in arns]),
        *([allow(["kms:Decrypt"], list(keys))] if keys else []),
    )
