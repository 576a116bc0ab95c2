"""Planted errors are caught when the resource is constructed, with the right name in the message."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra import builder, schema
from mpctl.errors import InputError

NODE_GROUP: dict[str, Any] = {
    "cluster_name": "c",
    "node_role_arn": "arn",
    "subnet_ids": ["s"],
    "scaling_config": {"min_size": 1, "max_size": 2, "desired_size": 1},
}
GKE_POOL: dict[str, Any] = {"cluster": "c", "node_config": {"machine_type": "g2-standard-8"}}


def planted(base: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """*base* with one mistake; ``None`` takes the argument away."""
    record: dict[str, Any] = json.loads(json.dumps(base))
    *folders, last = path.split(".")
    place = record
    for name in folders:
        place = place.setdefault(name, {})
    if value is None:
        del place[last]
    else:
        place[last] = value
    return record


MISTAKES = [
    (
        "misspelt attribute",
        "aws_eks_node_group",
        NODE_GROUP,
        "ami_typ",
        "AL2023_x86_64_NVIDIA",
        "did you mean ami_type",
    ),
    (
        "misspelt in a block",
        "aws_eks_node_group",
        NODE_GROUP,
        "scaling_config.max",
        3,
        "unknown argument",
    ),
    ("camel case", "aws_eks_node_group", NODE_GROUP, "subnetIds", ["s"], "did you mean subnet_ids"),
    (
        "string for a number",
        "aws_eks_node_group",
        NODE_GROUP,
        "scaling_config.min_size",
        "1",
        "expected number, got str",
    ),
    (
        "bool for a number",
        "aws_eks_node_group",
        NODE_GROUP,
        "disk_size",
        True,
        "expected number, got bool",
    ),
    ("string for a list", "aws_eks_node_group", NODE_GROUP, "subnet_ids", "s", "expected a list"),
    ("number in a list", "aws_eks_node_group", NODE_GROUP, "subnet_ids", [1], "expected string"),
    ("list for a map", "aws_eks_node_group", NODE_GROUP, "labels", ["a"], "expected a block"),
    (
        "wrong enumeration",
        "aws_eks_node_group",
        NODE_GROUP,
        "ami_type",
        "AL2023_X86_NVIDIA",
        "did you mean AL2023_x86_64_NVIDIA",
    ),
    (
        "taint the Kubernetes way",
        "aws_eks_node_group",
        NODE_GROUP,
        "taint",
        [{"key": "k", "effect": "NoSchedule"}],
        "is not one of",
    ),
    (
        "missing argument",
        "aws_eks_node_group",
        NODE_GROUP,
        "node_role_arn",
        None,
        "required argument is missing",
    ),
    (
        "missing in a block",
        "aws_eks_node_group",
        NODE_GROUP,
        "scaling_config.desired_size",
        None,
        "desired_size: required",
    ),
    (
        "missing in a list of blocks",
        "aws_eks_node_group",
        NODE_GROUP,
        "taint",
        [{"key": "k"}],
        "taint.effect: required",
    ),
    (
        "snake case lost by prebuilt classes",
        "aws_launch_template",
        {},
        "block_device_mappings",
        [{"device_name": "/dev/xvda", "ebs": {"volume_sise": 200}}],
        "did you mean volume_size",
    ),
    (
        "GKE driver version",
        "google_container_node_pool",
        GKE_POOL,
        "node_config.guest_accelerator",
        [
            {
                "type": "nvidia-l4",
                "count": 1,
                "gpu_driver_installation_config": {"gpu_driver_version": "DISABLED"},
            }
        ],
        "INSTALLATION_DISABLED",
    ),
    (
        "GKE metadata mode",
        "google_container_node_pool",
        GKE_POOL,
        "node_config.workload_metadata_config",
        {"mode": "GKE"},
        "not one of",
    ),
    (
        "chart without a name",
        "helm_release",
        {"chart": "c", "name": "n"},
        "name",
        None,
        "required argument is missing",
    ),
]


@pytest.mark.parametrize(
    ("what", "type_", "base", "path", "value", "message"), MISTAKES, ids=[m[0] for m in MISTAKES]
)
def test_planted_error_is_caught_at_construction(
    what: str, type_: str, base: dict[str, Any], path: str, value: Any, message: str, stack: Any
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        builder.resource(stack, type_, "planted", **planted(base, path, value))
    assert caught.value.field is not None and caught.value.field.startswith(f"{type_}.planted")
    assert not stack.node.try_find_child("planted"), "nothing may be added to the stack"


def test_the_unplanted_resources_pass(stack: Any) -> None:
    builder.resource(stack, "aws_eks_node_group", "good", **NODE_GROUP)
    builder.resource(stack, "google_container_node_pool", "good", **GKE_POOL)


def test_every_finding_is_named_at_once() -> None:
    with pytest.raises(InputError) as caught:
        schema.check(
            schema.element("resource", "aws_vpc"),
            "v",
            {"cidr": "10.0.0.0/16", "enable_dns_support": "yes"},
        )
    assert "cidr" in str(caught.value) and "enable_dns_support" in str(caught.value)


def test_unknown_type_names_the_nearest_and_the_script() -> None:
    with pytest.raises(InputError, match="did you mean aws_eks_cluster") as caught:
        schema.element("resource", "aws_eks_clustr")
    assert "vendor-schemas" in str(caught.value.hint)


def test_reference_to_an_attribute_that_does_not_exist(stack: Any) -> None:
    resource = builder.resource(stack, "aws_vpc", "v", cidr_block="10.0.0.0/16")
    assert resource["id"] == "${aws_vpc.v.id}"
    with pytest.raises(InputError, match="did you mean arn"):
        resource["arm"]


def test_expressions_pass_for_every_scalar(stack: Any) -> None:
    builder.resource(
        stack, "aws_vpc", "v", cidr_block="10.0.0.0/16", enable_dns_support="${var.dns}"
    )


def test_every_resource_of_every_stack_fits_its_schema(
    synthesised: dict[str, Any], rich: dict[str, Any]
) -> None:
    checked = 0
    for document in [*synthesised.values(), *rich.values()]:
        for kind, key in (("resource", "resource"), ("data", "data")):
            for type_, elements in document.get(key, {}).items():
                for name, args in elements.items():
                    if type_ == "terraform_remote_state":
                        continue
                    items = {k: v for k, v in args.items() if k not in ("depends_on", "lifecycle")}
                    schema.check(schema.element(kind, type_), name, items)
                    checked += 1
    assert checked > 150, "a check that saw nothing proves nothing"


@pytest.mark.parametrize("provider", schema.PROVIDERS)
def test_every_schema_records_where_it_comes_from(provider: str) -> None:
    origin = schema.document(provider)["origin"]
    assert {"package", "version", "provider", "provider_version", "licence"} == set(origin)
    assert origin["licence"] == "MPL-2.0"
    from stacks.versions import table

    assert table().provider(provider) == origin["provider_version"], (
        "the pinned provider is the one the schema describes"
    )
