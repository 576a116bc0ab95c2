"""checkov on the Terraform JSON and on the Kubernetes documents: no finding without a reviewed reason.

checkov is no dependency of ours: it is 290 MB and pins some sixty packages. It is found as MPCTL_CHECKOV,
on the path, or run by `uvx` in an environment of its own. Framework `terraform_json` on purpose:
`terraform` parses nothing of a cdk.tf.json and passes.
"""

from __future__ import annotations

import fnmatch
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.stacks.conftest import DATA, ROOT, TODAY, production, synthesise
from tests.stacks.test_mirror import SETTING
from tests.stacks.test_production import ARN, CRYPTO_KEY

VERSION = "checkov==3.3.30"
# What a bank adds: own registries and keys, reserved GPUs, and callers behind a certificate and keys.
GUARDED = f"""\
encryption: {{eks_disk_key: "{ARN}", gke_disk_key: {CRYPTO_KEY}}}
gpu: {{reservations: {{gpu-l4: cr-0a1b2c3d4e5f}}}}"""
GATEWAY = "{domain: models.bank.test, tls: {secret: wildcard}, auth: {api_keys: callers}}"
SKIPS = yaml.safe_load((DATA / "checkov-skips.yaml").read_text("utf-8"))


def checkov() -> list[str]:
    if value := os.environ.get("MPCTL_CHECKOV") or shutil.which("checkov"):
        return [value]
    if uvx := shutil.which("uvx"):
        return [uvx, "--python", "3.11", "--from", VERSION, "checkov"]
    pytest.skip(f"neither checkov nor uvx is on the path: uv tool install {VERSION}")


def findings(folder: Path, framework: str) -> tuple[list[tuple[str, str]], int]:
    """What failed as (check, resource), and how many checks passed."""
    command = [
        *checkov(),
        "--framework",
        framework,
        "--skip-download",
        "--compact",
        "-o",
        "json",
        "-d",
        str(folder),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, cwd=folder
    )
    assert done.returncode in (0, 1), done.stderr[-2000:]
    answer = json.loads(done.stdout)
    reports = answer if isinstance(answer, list) else [answer]
    failed = []
    passed = 0
    for report in reports:
        assert not report["summary"]["parsing_errors"]
        passed += report["summary"]["passed"]
        failed += [(f["check_id"], f["resource"]) for f in report["results"]["failed_checks"]]
    return failed, passed


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory, rich: dict[str, Any]) -> Path:
    """Every stack and every document of the production environment, of the one with everything on, and the stacks of
    a bank's."""
    checkov()
    folder = tmp_path_factory.mktemp("scan")
    text = Path(production(folder)["MPCTL_ENV"]).read_text("utf-8")
    guarded = folder / "guarded.yaml"
    guarded.write_text(
        text.replace("serving:\n", f"{SETTING}\n{GUARDED}\nserving:\n  gateway: {GATEWAY}\n"),
        "utf-8",
    )
    for name, stacks in (
        ("production", synthesise(production(folder))),
        ("rich", rich),
        ("guarded", synthesise({"MPCTL_ENV": str(guarded)})),
    ):
        for stack, document in stacks.items():
            place = folder / "terraform" / name / stack
            place.mkdir(parents=True)
            (place / "cdk.tf.json").write_text(json.dumps(document, indent=1), "utf-8")
    documents(folder / "kubernetes")
    return folder


def documents(folder: Path) -> None:
    from stacks.driver_installer import daemonset
    from stacks.main import load_fleet, load_settings, plans
    from stacks.platform import engine_logs, gpu_driver
    from stacks.serving import documents as serving
    from stacks.serving import first_services

    folder.mkdir()
    for name, environ in (
        ("production", production(folder.parent)),
        ("rich", {"MPCTL_ENV": str(DATA / "rich.yaml")}),
    ):
        plan = plans(environ, load_settings(environ, ROOT), load_fleet(environ, ROOT), TODAY)[0]
        installer = daemonset(plan.versions.image("gke-pause"), gpu_driver(plan))
        items = [*serving(plan), *first_services(plan), installer, *engine_logs(plan)]
        (folder / f"{name}.yaml").write_text(yaml.safe_dump_all(items), "utf-8")


def explained(check: str, resource: str) -> bool:
    return any(
        skip["check"] == check and fnmatch.fnmatch(resource, skip["resource"]) for skip in SKIPS
    )


@pytest.fixture(scope="module")
def scanned(inputs: Path) -> dict[str, tuple[list[tuple[str, str]], int]]:
    return {
        "terraform_json": findings(inputs / "terraform", "terraform_json"),
        "kubernetes": findings(inputs / "kubernetes", "kubernetes"),
    }


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("framework", "least"), [("terraform_json", 150), ("kubernetes", 150)])
def test_no_finding_without_a_reason(scanned: dict[str, Any], framework: str, least: int) -> None:
    failed, passed = scanned[framework]
    assert sorted({f for f in failed if not explained(*f)}) == []
    assert passed > least, "a scanner that parsed nothing passes everything"


def test_no_reason_without_a_finding(scanned: dict[str, Any]) -> None:
    every = [finding for failed, _ in scanned.values() for finding in failed]
    stale = [
        s
        for s in SKIPS
        if not any(c == s["check"] and fnmatch.fnmatch(r, s["resource"]) for c, r in every)
    ]
    assert [skip["check"] for skip in stale] == []


def test_every_reason_says_something() -> None:
    assert all(len(skip["reason"]) > 30 for skip in SKIPS)
