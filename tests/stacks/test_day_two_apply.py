"""A cluster's life on an emulated AWS, by the real Terraform and the real provider: create, upgrade a minor version
while a pool is replaced, destroy. Nothing that costs money may remain.

About a minute and a half on two idle cores. Needs what test_apply.py needs. Not emulated: nodes, the upgrade itself,
volumes of pods, load balancers (the order in docs/how-to/stacks.md removes those).
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from infra.aws import policies
from tests.stacks.conftest import ROOT, synthesise
from tests.stacks.test_apply import Terraform, for_provider_5, terraform  # noqa: F401
from tests.stacks.test_day_two import SECOND_POOL

ENDPOINTS = ("autoscaling", "ec2", "efs", "eks", "iam", "kms", "logs", "ssm", "sts")
GROUP = "clusters/eks-l4-single-golden/node-groups"


@pytest.fixture
def aws(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The emulator's address and the log of what was changed."""
    pytest.importorskip("moto", reason="moto is missing: pip install 'moto[server]'")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path / "changes.log"
    environment = {**os.environ, "MOTO_IAM_LOAD_MANAGED_POLICIES": "true"}
    command = [sys.executable, "-m", "tests.stacks.emulator", str(port), str(log)]
    server = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(120):
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.25)
        yield f"http://127.0.0.1:{port}", log
    finally:
        server.terminate()
        server.wait(timeout=30)


def emulated(provider_5: dict[str, Any], url: str) -> dict[str, Any]:
    """The same stack for the emulator."""
    provider_5["provider"]["aws"][0].update(
        access_key="testing",
        secret_key="testing",
        skip_credentials_validation=True,
        skip_metadata_api_check="true",
        endpoints=[dict.fromkeys(ENDPOINTS, url)],
    )
    return provider_5


def stack(folder: Path, url: str, minor: str, machine: str, *zones: str) -> dict[str, Any]:
    """The EKS cluster stack for provider 5.100.0 and the emulator, with a further pool in each of *zones*."""
    text = (ROOT / "tests/stacks/data/golden.yaml").read_text("utf-8")
    environment = folder / f"{minor}.yaml"
    environment.write_text(
        f'{text}\nproviders: {{aws: 5.100.0}}\nkubernetes: {{versions: {{EKS: "{minor}"}}}}\n',
        "utf-8",
    )
    fleet = folder / f"{minor}-fleet.yaml"
    manifest = (ROOT / "manifests/fleet/eks-l4.yaml").read_text("utf-8")
    assert "g6.2xlarge" in manifest
    pools = "".join(SECOND_POOL.format(letter=zone) for zone in zones)
    fleet.write_text(f"{manifest.replace('g6.2xlarge', machine).rstrip()}\n{pools}", "utf-8")
    provider_5 = for_provider_5(
        synthesise({"MPCTL_ENV": str(environment), "MPCTL_FLEET": str(fleet)})[
            "eks-l4-single-cluster"
        ]
    )
    return emulated(provider_5, url)


def apply(
    binary: str, folder: Path, document: dict[str, Any], *arguments: str, own: bool = False
) -> str:
    actual_terraform = Terraform(binary, folder, document, own=own)
    assert actual_terraform.run("init").returncode == 0
    done = actual_terraform.run(*arguments, "-auto-approve", "-parallelism=30", limit=900)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.timeout(900)
def test_create_upgrade_replace_destroy(
    terraform: str,  # noqa: F811
    aws: tuple[str, Path],
    tmp_path: Path,
) -> None:
    url, log = aws
    place = tmp_path / "stack"
    place.mkdir()
    apply(terraform, place, stack(tmp_path, url, "1.35", "g6.2xlarge"), "apply")
    created = log.read_text("utf-8").splitlines()
    (old,) = (line.split("/")[-1] for line in created if line.startswith(f"create {GROUP}/gpu-l4-"))
    group = client(url, "eks").describe_nodegroup(
        clusterName="eks-l4-single-golden", nodegroupName=old
    )["nodegroup"]
    assert group["amiType"] == "AL2023_x86_64_NVIDIA" and group["scalingConfig"]["minSize"] == 1
    assert group["labels"]["nvidia.com/gpu.present"] == "true"
    assert group["taints"] == [
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}
    ]

    wanted = planned(terraform, place, stack(tmp_path, url, "1.35", "g6.2xlarge", "c", "d"))
    assert {address for address, actions in wanted.items() if "delete" in actions} == set()
    new_ones = {address for address, actions in wanted.items() if actions == ["create"]}
    assert {
        "aws_eks_node_group.gpu_l4_c",
        "aws_eks_node_group.gpu_l4_d",
        "aws_subnet.private_d",
    } <= new_ones

    lines = {line for line in log.read_text("utf-8").splitlines() if line.startswith("call ")}
    log.write_text("", "utf-8")
    after = stack(tmp_path, url, "1.36", "g6.4xlarge")
    apply(terraform, place, after, "apply")
    changes = [line for line in log.read_text("utf-8").splitlines() if not line.startswith("call ")]
    assert changes[0] == "upgrade clusters/eks-l4-single-golden 1.36", (
        "the control plane comes first"
    )
    new = next(
        index for index, line in enumerate(changes) if line.startswith(f"create {GROUP}/gpu-l4-")
    )
    gone = changes.index(f"delete {GROUP}/{old}")
    assert new < gone, "no GPU between the two pools"
    (system,) = (line for line in changes if line.startswith(f"upgrade {GROUP}/system-"))
    assert system.endswith(" 1.36")
    addons = {
        line.split()[2]
        for line in changes
        if line.startswith("update addon") and line.endswith("v1.36.0")
    }
    assert addons == {
        element["addon_name"] for element in after["resource"]["aws_eks_addon"].values()
    }
    assert not any(
        line.startswith(
            ("create clusters/eks-l4-single-golden ", "delete clusters/eks-l4-single-golden ")
        )
        for line in changes
    )

    apply(terraform, place, after, "destroy", "-refresh=false")
    lines |= {line for line in log.read_text("utf-8").splitlines() if line.startswith("call ")}
    assert remains(url) == {}
    (statement,) = json.loads(policies.written("deployer"))["Statement"]
    calls = {line.removeprefix("call ") for line in lines}
    refused = {
        call
        for call in calls
        if not any(fnmatchcase(call, action) for action in statement["Action"])
    }
    assert len(calls) > 40 and refused == set(), (
        "the published policy allows what a deploy and a destroy call"
    )


def environment(folder: Path, name: str) -> dict[str, str]:
    """An environment whose states are in *folder*."""
    text = (ROOT / "tests/stacks/data/golden.yaml").read_text("utf-8")
    for old, new in (
        ("name: golden\n", f"name: {name}\n"),
        ("path: /state", f"path: {folder}/states"),
    ):
        assert old in text
        text = text.replace(old, new)
    path = folder / f"{name}.yaml"
    path.write_text(f"{text}\nproviders: {{aws: 5.100.0}}\n", "utf-8")
    return {"MPCTL_ENV": str(path), "MPCTL_FLEET": "manifests/fleet/eks-l4.yaml"}


@pytest.mark.nightly  # test_create_upgrade_replace_destroy applies one environment every day
@pytest.mark.timeout(900)
def test_a_copied_environment_touches_nothing_of_the_first(
    terraform: str,  # noqa: F811
    aws: tuple[str, Path],
    tmp_path: Path,
) -> None:
    """The first one is deployed under the key of earlier versions, and its state moved."""
    url, _ = aws
    of = {name: environment(tmp_path, name) for name in ("first", "second")}
    first, second = (
        emulated(for_provider_5(synthesise(environ)["eks-l4-single-cluster"]), url)
        for environ in of.values()
    )
    place = tmp_path / "stack"
    place.mkdir()
    former = {"local": {"path": f"{tmp_path}/states/eks-l4-single-cluster.tfstate"}}
    at_former = {**first, "terraform": {**first["terraform"], "backend": former}}
    apply(terraform, place, at_former, "apply", own=True)
    # The emulator forgets some tags of launch templates, which every plan then sets again.
    before = planned(terraform, place, at_former, own=True)
    assert {*map(tuple, before.values())} <= {("update",)}
    assert {address.split(".")[0] for address in before} <= {
        "aws_launch_template",
        "aws_eks_node_group",
    }

    copied = {**second, "terraform": at_former["terraform"]}
    refused = Terraform(terraform, place, copied, own=True).run("plan", "-parallelism=30")
    assert refused.returncode == 1
    said = " ".join(refused.stderr.replace("│", " ").split())
    assert (
        "belongs to the cluster eks-l4-single-first, and this stack is of eks-l4-single-second"
        in said
    )

    moved = subprocess.run(
        [ROOT / "scripts/deploy", "--move-state", "-auto-approve"],
        env={**os.environ, **of["first"], "MPCTL_LAYERS": "cluster"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert moved.returncode == 0 and "1 moved" in moved.stdout, moved.stdout + moved.stderr
    assert planned(terraform, place, first, own=True) == before

    wanted = [
        actions
        for address, actions in planned(terraform, place, second, own=True).items()
        if not address.startswith("data.")
    ]
    assert len(wanted) > 60 and {*map(tuple, wanted)} == {("create",)}


def planned(
    binary: str, folder: Path, document: dict[str, Any], *, own: bool = False
) -> dict[str, list[str]]:
    """Actions that a plan wants, by the address of each resource that changes."""
    actual_terraform = Terraform(binary, folder, document, own=own)
    if own:
        assert actual_terraform.run("init", "-reconfigure").returncode == 0
    done = actual_terraform.run("plan", "-out=wanted", "-parallelism=30")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    changes = json.loads(actual_terraform.run("show", "-json", "wanted").stdout)["resource_changes"]
    return {
        one["address"]: one["change"]["actions"]
        for one in changes
        if one["change"]["actions"] != ["no-op"]
    }


def client(url: str, name: str) -> Any:
    boto3 = pytest.importorskip("boto3", reason="boto3 is missing: pip install boto3")
    keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
    return boto3.client(name, endpoint_url=url, region_name="us-west-2", **keys)


def remains(url: str) -> dict[str, Any]:
    """What costs money and still exists."""
    ec2, kms, alive = client(url, "ec2"), client(url, "kms"), ("pending", "available")
    keys = [kms.describe_key(KeyId=key["KeyId"])["KeyMetadata"] for key in kms.list_keys()["Keys"]]
    fields = {
        "clusters": client(url, "eks").list_clusters()["clusters"],
        "NAT gateways": [
            gate for gate in ec2.describe_nat_gateways()["NatGateways"] if gate["State"] in alive
        ],
        "addresses": ec2.describe_addresses()["Addresses"],
        "volumes": ec2.describe_volumes()["Volumes"],
        "instances": ec2.describe_instances()["Reservations"],
        "endpoints": [
            one for one in ec2.describe_vpc_endpoints()["VpcEndpoints"] if one["State"] in alive
        ],
        "file systems": client(url, "efs").describe_file_systems()["FileSystems"],
        "logs": client(url, "logs").describe_log_groups()["logGroups"],
        "keys": [
            key
            for key in keys
            if key["KeyManager"] == "CUSTOMER" and key["KeyState"] != "PendingDeletion"
        ],
    }
    return {name: things for name, things in fields.items() if things}
