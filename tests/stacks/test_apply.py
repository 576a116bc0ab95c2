"""The EKS cluster stack against the real AWS provider: `terraform validate`, and an apply against moto.

Runs where a provider mirror with AWS provider 5.100.0 lies on the machine (MPCTL_TF_PLUGINS, default
/opt/tf-plugins). The stack is written for provider 6; what 5.100.0 does not know is taken out and listed
here. moto has no add-ons, access entries, Pod Identity associations or image releases: test_golden, test_schema and
test_first_apply hold those. A second plan is not empty on moto (it forgets access_config and tags), so nothing is
asserted about one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.stacks.conftest import ROOT, synthesise

MIRROR = Path(os.environ.get("MPCTL_TF_PLUGINS", "/opt/tf-plugins"))
# New in provider 6.
UNKNOWN_TO_5 = (("aws_eks_cluster", "deletion_protection"),)
NOT_IN_MOTO = (
    "aws_eks_addon",
    "aws_eks_pod_identity_association",
    "aws_eks_access_entry",
    "aws_eks_access_policy_association",
)
NO_DATA_IN_MOTO = ("aws_eks_addon_version", "aws_ssm_parameter")
ENDPOINTS = ("eks", "ec2", "iam", "sts", "kms", "logs", "efs", "autoscaling")


@pytest.fixture(scope="module")
def terraform() -> str:
    if not (MIRROR / "registry.terraform.io/hashicorp/aws/5.100.0").is_dir():
        pytest.skip(
            f"no AWS provider 5.100.0 in {MIRROR}: `terraform providers mirror` makes such a folder, "
            "MPCTL_TF_PLUGINS names it"
        )
    found = shutil.which("terraform")
    if not found:
        pytest.skip("terraform is not on the path: no package registry carries it, install it by hand")
    return found


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The EKS cluster stack for provider 5.100.0."""
    environment = tmp_path_factory.mktemp("env") / "aws5.yaml"
    text = (ROOT / "tests/stacks/data/golden.yaml").read_text("utf-8") + "\nproviders: {aws: 5.100.0}\n"
    environment.write_text(text, "utf-8")
    found = synthesise({"MPCTL_ENV": str(environment), "MPCTL_FLEET": "manifests/fleet/eks-l4.yaml"})[
        "eks-l4-single-cluster"
    ]
    for type_, argument in UNKNOWN_TO_5:
        for element in found["resource"][type_].values():
            element.pop(argument)
    return dict(found)


class Terraform:
    """Terraform in a folder with one stack, taking providers from the mirror only."""

    def __init__(self, binary: str, folder: Path, document: dict[str, Any]) -> None:
        self.binary = binary
        self.folder = folder
        config = folder / "terraform.rc"
        config.write_text(f'provider_installation {{\n  filesystem_mirror {{ path = "{MIRROR}" }}\n}}\n', "utf-8")
        local = {"local": {"path": str(folder / "terraform.tfstate")}}
        body = {**document, "terraform": {**document["terraform"], "backend": local}}
        (folder / "cdk.tf.json").write_text(json.dumps(body, indent=1), "utf-8")
        self.environment = {
            **os.environ,
            "TF_CLI_CONFIG_FILE": str(config),
            "CHECKPOINT_DISABLE": "1",
            "TF_IN_AUTOMATION": "1",
        }

    def run(self, *arguments: str, limit: int = 300) -> subprocess.CompletedProcess[str]:
        command = [self.binary, *arguments, "-no-color"]
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )


@pytest.mark.timeout(600)
def test_terraform_validate(terraform: str, document: dict[str, Any], tmp_path: Path) -> None:
    there = Terraform(terraform, tmp_path, document)
    initialised = there.run("init")
    assert initialised.returncode == 0, initialised.stderr
    verdict = there.run("validate")
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr


@pytest.mark.timeout(900)
def test_apply_against_moto(
    terraform: str, document: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every resource that moto knows is created by the real provider, and boto3 sees the GPU pool as it
    was meant.
    """
    boto3 = pytest.importorskip("boto3", reason="boto3 is missing: pip install boto3")
    pytest.importorskip("moto", reason="moto is missing: pip install 'moto[server]'")
    # Read at moto's import: without it AWS-managed policies do not exist there. Its server therefore runs
    # in its own process.
    import socket
    import sys
    import time

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "MOTO_IAM_LOAD_MANAGED_POLICIES": "true"}
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(120):
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.25)
        url = f"http://127.0.0.1:{port}"
        there = Terraform(terraform, tmp_path, for_moto(document, url))
        assert there.run("init").returncode == 0
        applied = there.run("apply", "-auto-approve", limit=600)
        assert applied.returncode == 0, applied.stdout[-2000:] + applied.stderr[-3000:]
        assert "Apply complete! Resources:" in applied.stdout
        added = int(applied.stdout.split("Apply complete! Resources: ")[1].split(" added")[0])
        assert added == sum(len(elements) for elements in for_moto(document, url)["resource"].values()) > 40
        client = boto3.client(
            "eks",
            endpoint_url=url,
            region_name="us-west-2",
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )
        names = client.list_nodegroups(clusterName="eks-l4-single-golden")["nodegroups"]
        (gpu,) = (name for name in names if name.startswith("gpu-l4-"))
        group = client.describe_nodegroup(clusterName="eks-l4-single-golden", nodegroupName=gpu)["nodegroup"]
        assert group["amiType"] == "AL2023_x86_64_NVIDIA" and group["scalingConfig"]["minSize"] == 1
        assert group["labels"]["nvidia.com/gpu.present"] == "true"
        assert group["taints"] == [{"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}]
    finally:
        server.terminate()
        server.wait(timeout=30)


def for_moto(document: dict[str, Any], url: str) -> dict[str, Any]:
    """The stack without what moto has not, its provider pointed at *url*."""
    made: dict[str, Any] = json.loads(json.dumps(document))
    resources = made["resource"]
    gone = {f"{type_}.{name}" for type_ in NOT_IN_MOTO for name in resources.pop(type_, {})}
    for elements in resources.values():
        for element in elements.values():
            element["depends_on"] = [name for name in element.get("depends_on", []) if name not in gone]
    for type_ in NO_DATA_IN_MOTO:
        del made["data"][type_]
    for group in resources["aws_eks_node_group"].values():
        del group["release_version"]
    provider = made["provider"]["aws"][0]
    provider.update(
        access_key="testing",
        secret_key="testing",
        skip_credentials_validation=True,
        skip_metadata_api_check="true",
    )
    provider["endpoints"] = [dict.fromkeys(ENDPOINTS, url)]
    return made
