"""The real CLI and the real Terraform: a twin of the app made of `terraform_data`, deployed, deployed
again, destroyed.

The twin goes through the same core, builder, backends and settings as the app; it needs no provider and no
network. The CLI is npm's `cdktf-cli`; `scripts/setup-stacks` installs it into .tools/. Node and Terraform
must be on the path.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stacks.conftest import ROOT

LIMIT = 180


def cli() -> str:
    """The path of the CLI: the environment's word, the project's tools, the path."""
    local = ROOT / ".tools" / "node_modules" / ".bin" / "cdktf"
    value = os.environ.get("CDKTF_CLI") or (str(local) if local.exists() else shutil.which("cdktf"))
    if not value:
        pytest.skip(
            "the cdktf CLI is missing: scripts/setup-stacks (npm install --prefix .tools cdktf-cli@0.21.0)"
        )
    return value


def terraform() -> str:
    if found := shutil.which("terraform"):
        return found
    pytest.skip("terraform is not on the path: no package registry carries it, install it by hand")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of its own that runs the twin."""
    cli()
    terraform()
    folder = tmp_path_factory.mktemp("twin")
    settings = {
        "language": "python",
        "app": f"{sys.executable} -m tests.stacks.twin",
        "sendCrashReports": "false",
        "terraformProviders": [],
    }
    (folder / "cdktf.json").write_text(json.dumps(settings), "utf-8")
    return folder


def run(project: Path, *arguments: str) -> str:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TERRAFORM_BINARY_NAME": terraform(),
        "TWIN_STATE": str(project / "state"),
        "CHECKPOINT_DISABLE": "1",
        "CI": "true",
        "FORCE_COLOR": "0",
    }
    command = [cli(), *arguments]
    done = subprocess.run(
        command,
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, f"{' '.join(arguments)}:\n{output[-4000:]}"
    return output


@pytest.mark.timeout(600)
def test_deploy_output_deploy_again_destroy(project: Path) -> None:
    assert "twin-cluster" in run(project, "list") and "twin-serving" in run(project, "list")
    assert "1 to add" in run(project, "diff", "twin-cluster", "--skip-provider-lock")
    first = run(
        project,
        "deploy",
        "--auto-approve",
        "--skip-provider-lock",
        "*",
        "--outputs-file",
        "outputs.json",
    )
    assert "Apply complete" in first
    outputs = json.loads((project / "outputs.json").read_text("utf-8"))
    assert outputs["twin-cluster"]["cluster_name"] == "twin"
    assert outputs["twin-serving"]["seen"] == "twin", "the name went through the cluster's state"
    again = run(project, "deploy", "--auto-approve", "--skip-provider-lock", "*")
    assert "No changes" in again and "Apply complete" not in again.replace(
        "Apply complete! Resources: 0 added, 0 changed, 0 destroyed.", ""
    )
    assert "twin" in run(project, "output", "twin-cluster", "--skip-synth")
    gone = run(project, "destroy", "--auto-approve", "*")
    assert "Destroy complete" in gone
    states = [json.loads(path.read_text("utf-8")) for path in (project / "state").glob("*.tfstate")]
    assert len(states) == 2 and all(not state["resources"] for state in states)


@pytest.mark.timeout(300)
def test_synth_of_the_real_app_through_the_cli(tmp_path: Path) -> None:
    """`cdktf synth` in the checkout, with the file a user has."""
    environment = {
        **os.environ,
        "MPCTL_GCP_PROJECT": "example-project",
        "MPCTL_PUBLIC_CIDRS": "198.18.5.0/24",
        "MPCTL_LAYERS": "all",
        "CHECKPOINT_DISABLE": "1",
        "CI": "true",
    }
    # cdktf.json says python3; the tests' interpreter must be the one it finds.
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    command = [cli(), "synth", "--output", str(tmp_path / "out")]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if "left standard support" in done.stderr + done.stdout:
        pytest.skip(
            "the example's Kubernetes minor has left standard support since: move the default in stacks/versions.yaml"
        )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert len(list((tmp_path / "out" / "stacks").glob("*/cdk.tf.json"))) == 6


@pytest.mark.timeout(300)
def test_deploy_says_which_stack_to_name(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "MPCTL_GCP_PROJECT": "example-project",
        "MPCTL_PUBLIC_CIDRS": "198.18.5.0/24",
        "CHECKPOINT_DISABLE": "1",
        "CI": "true",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        [cli(), "deploy", "--auto-approve", "--output", str(tmp_path / "out")],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode != 0 and "Found more than one stack" in done.stdout + done.stderr
    commands = [line.strip() for line in done.stdout.splitlines() if "  cdktf deploy " in line]
    assert commands == [
        "cdktf deploy eks-l4-single-dev-us-west-2-cluster",
        "cdktf deploy gke-l4-single-dev-example-project-us-central1-cluster",
    ]
    assert "MPCTL_CLUSTER=gke-l4-single" in done.stdout


def test_the_layers_are_applied_in_order_without_the_cli(tmp_path: Path) -> None:
    """`scripts/deploy` with a recorder in Terraform's place; test_drift.py applies the same way by the real one."""
    log, recorder = tmp_path / "log", tmp_path / "terraform"
    recorder.write_text(f'#!/bin/sh\necho "$(basename "${{1#-chdir=}}") $2 $3" >> {log}\n', "utf-8")
    recorder.chmod(0o755)
    environment = {
        **os.environ,
        "TERRAFORM_BINARY_NAME": str(recorder),
        "MPCTL_FLEET": "manifests/fleet/eks-l4.yaml",
        "MPCTL_PUBLIC_CIDRS": "198.18.5.7/32",
    }
    command = [ROOT / "scripts" / "deploy", "--no-check", "-auto-approve"]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    layers = ("cluster", "platform", "serving")
    expected = [
        f"eks-l4-single-dev-us-west-2-{layer} {call}"
        for layer in layers
        for call in ("init -input=false", "apply -auto-approve")
    ]
    assert log.read_text("utf-8").splitlines() == expected
