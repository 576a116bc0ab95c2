"""The EKS cluster stack against the real AWS provider: `terraform validate`. test_day_two_apply.py applies it.

Runs where a provider mirror with AWS provider 5.100.0 lies on the machine (MPCTL_TF_PLUGINS, default
/opt/tf-plugins). The stack is written for provider 6; what 5.100.0 does not know is taken out and listed
here.
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
# New in provider 6, so no real provider ever saw them; docs/explanation/stacks.md lists them.
UNKNOWN_TO_5 = (
    ("aws_eks_cluster", "deletion_protection"),
    ("aws_eks_node_group", "node_repair_config"),
    ("aws_eks_node_group", "update_config.update_strategy"),
)
# Settings that the golden environment leaves alone.
ACCOUNT = "arn:aws:iam::210987654321"
KEY = "arn:aws:kms:us-west-2:210987654321:key/0a1b"
OTHERS = f"""
providers: {{aws: 5.100.0}}
access: {{private_cidrs: [10.8.0.0/16], admins: ["{ACCOUNT}:role/admin"], viewers: ["{ACCOUNT}:role/reader"]}}
budget: {{monthly: 4000, emails: [team@inference.test]}}
encryption: {{eks_disk_key: {KEY}, eks_model_keys: [{KEY}]}}
gpu: {{surge: false, reservations: {{gpu-l4: cr-0a1b2c3d4e5f}}, eks_image: 1.36.2-20261023}}
"""


@pytest.fixture(scope="module")
def terraform() -> str:
    if not (MIRROR / "registry.terraform.io/hashicorp/aws/5.100.0").is_dir():
        pytest.skip(
            f"no AWS provider 5.100.0 in {MIRROR}: `terraform providers mirror` makes such a folder, "
            "MPCTL_TF_PLUGINS names it"
        )
    found = shutil.which("terraform")
    if not found:
        pytest.skip(
            "terraform is not on the path: no package registry carries it, install it by hand"
        )
    return found


def document(folder: Path, *changes: tuple[str, str]) -> dict[str, Any]:
    """The EKS cluster stack of the golden environment with some texts replaced, for provider 5.100.0."""
    text = (ROOT / "tests/stacks/data/golden.yaml").read_text("utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    environment = folder / "aws5.yaml"
    environment.write_text(text, "utf-8")
    found = synthesise(
        {"MPCTL_ENV": str(environment), "MPCTL_FLEET": "manifests/fleet/eks-l4.yaml"}
    )["eks-l4-single-cluster"]
    return for_provider_5(found)


def for_provider_5(stack: dict[str, Any]) -> dict[str, Any]:
    """A stack without what provider 5.100.0 does not know."""
    for type_, path in UNKNOWN_TO_5:
        *blocks, argument = path.split(".")
        for element in stack["resource"][type_].values():
            for block in blocks:
                element = element[block]  # noqa: PLW2901  one block further in
            element.pop(argument, None)
    return dict(stack)


class Terraform:
    """Terraform in a folder with one stack, taking providers from the mirror only; *own*: with its own backend."""

    def __init__(
        self, binary: str, folder: Path, document: dict[str, Any], *, own: bool = False
    ) -> None:
        self.binary = binary
        self.folder = folder
        config = folder / "terraform.rc"
        config.write_text(
            f'provider_installation {{\n  filesystem_mirror {{ path = "{MIRROR}" }}\n}}\n', "utf-8"
        )
        local = {"local": {"path": str(folder / "terraform.tfstate")}}
        backend = document["terraform"]["backend"] if own else local
        body = {**document, "terraform": {**document["terraform"], "backend": backend}}
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


PINNED = ("\nname: golden", "\nname: golden\nproviders: {aws: 5.100.0}")
EVERYTHING = (
    ("access:\n  public_cidrs: [198.18.5.0/24]  # RFC 2544: for tests, routed nowhere\n", OTHERS),
    ("egress: nat", "egress: endpoints"),
    ("hf://Qwen", "s3://models/Qwen"),
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "changes", [pytest.param((PINNED,), id="golden"), pytest.param(EVERYTHING, id="all settings")]
)
def test_terraform_validate(
    terraform: str, changes: tuple[tuple[str, str], ...], tmp_path: Path
) -> None:
    actual_terraform = Terraform(terraform, tmp_path, document(tmp_path, *changes))
    initialised = actual_terraform.run("init")
    assert initialised.returncode == 0, initialised.stderr
    verdict = actual_terraform.run("validate")
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr


def test_the_page_lists_what_no_real_provider_validated() -> None:
    page = (ROOT / "docs" / "explanation" / "stacks.md").read_text("utf-8")
    assert [path for _, path in UNKNOWN_TO_5 if f"`{path}`" not in page] == []
