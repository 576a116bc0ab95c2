"""IAM documents as plain values; ``jsonencode`` is not needed for the JSON artefact and HCL export is a
courtesy.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from infra.templates import entries, filled

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


def written(entry: str, **values: object) -> str:
    """The policy *entry* of policies.yaml with *values* in it."""
    statements = entries(Path(__file__).with_suffix(".yaml"))[entry]
    return document(*filled(statements, values))


def key_policy(account: str, region: str, log_groups: Sequence[str]) -> str:
    """The policy of a cluster's key, which encrypts the log groups of these names."""
    groups = [f"arn:aws:logs:{region}:{account}:log-group:{name}" for name in log_groups]
    return written("key", account=account, region=region, log_groups=groups)


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


def read_buckets(buckets: Sequence[str], keys: Sequence[str] = ()) -> str:
    """Read-only on these buckets, for downloading models; *keys* encrypt what is in them."""
    arns = [f"arn:aws:s3:::{bucket}" for bucket in buckets]
    return document(
        allow(["s3:ListBucket", "s3:GetBucketLocation"], arns),
        allow(["s3:GetObject"], [f"{arn}/*" for arn in arns]),
        *([allow(["kms:Decrypt"], list(keys))] if keys else []),
    )
