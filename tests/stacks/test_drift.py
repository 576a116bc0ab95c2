"""Drift by the real Terraform: a twin of `terraform_data`, deployed, then changed in the code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.stacks.conftest import ROOT


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of its own that runs the twin."""
    if not shutil.which("terraform"):
        pytest.skip(
            "terraform is not on the path: no package registry carries it, install it by hand"
        )
    app = f"{sys.executable} -m tests.stacks.twin"
    (tmp_path / "cdktf.json").write_text(json.dumps({"language": "python", "app": app}), "utf-8")
    return tmp_path


def drift(project: Path, *arguments: str, **variables: str) -> tuple[int, str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TWIN_STATE": str(project / "state"),
        **variables,
    }
    command = [sys.executable, "-m", "stacks.drift", *arguments]
    done = subprocess.run(
        command,
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def deploy(project: Path) -> None:
    """The first stack as `cdktf deploy` leaves it."""
    out = project / "out"
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TWIN_STATE": str(project / "state"),
        "CDKTF_OUTDIR": str(out),
    }
    subprocess.run(
        [sys.executable, "-m", "tests.stacks.twin"], cwd=project, env=environment, check=True
    )
    terraform = str(shutil.which("terraform"))
    for arguments in (("init",), ("apply", "-auto-approve")):
        command = [terraform, *arguments, "-input=false"]
        subprocess.run(
            command,
            cwd=out / "stacks" / "twin-cluster",
            env=environment,
            check=True,
            capture_output=True,
        )


def test_drift_is_told_by_exit_code_and_names_the_resource(project: Path) -> None:
    deploy(project)
    assert drift(project, "twin-cluster") == (0, "twin-cluster: no drift\n")
    code, text = drift(project, "twin-cluster", TWIN_NAME="other")
    assert (
        code == 1
        and "twin-cluster: drift\n  terraform_data.main will be updated in-place\n" in text
    )


def test_a_stack_that_cannot_be_compared_is_no_drift(project: Path) -> None:
    """The second stack reads a state that nobody has written."""
    code, text = drift(project, "twin-serving")
    assert code == 2 and "twin-serving: could not be compared" in text
    code, text = drift(project, "twin-platform")
    assert code == 2 and "the stacks are twin-cluster, twin-serving" in text


def test_an_app_that_fails_is_no_drift(project: Path) -> None:
    (project / "cdktf.json").write_text('{"app": "python3 -m tests.stacks.nothing"}', "utf-8")
    assert drift(project)[0] == 2


def test_the_workflow_runs_scripts_that_exist_and_knows_the_exit_codes() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/drift.yaml").read_text("utf-8"))
    steps = workflow["jobs"]["compare"]["steps"]
    (compared,) = (step["run"] for step in steps if step.get("id") == "drift")
    assert "./scripts/drift" in compared and '[ "$code" -lt 2 ]' in compared
    assert os.access(ROOT / "scripts" / "drift", os.X_OK)
    assert workflow["jobs"]["compare"]["outputs"] == {"code": "${{ steps.drift.outputs.code }}"}
    report = workflow["jobs"]["report"]
    assert report["needs"] == "compare" and report["if"] == "needs.compare.outputs.code == '1'"
