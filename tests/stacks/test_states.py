"""States of two clusters never meet, and states under the key of earlier versions are moved by the real Terraform."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from infra import core
from stacks import backends
from stacks.base import Plan
from stacks.main import build, load_fleet, load_settings, plans
from stacks.preflight.checks import Outcome, assess
from stacks.settings import LAYERS
from stacks.states import read_state
from tests.stacks.conftest import ROOT, TODAY, clean
from tests.stacks.test_preflight import WELL

needs_terraform = pytest.mark.skipif(
    not shutil.which("terraform"),
    reason="terraform is not on the path: no package registry carries it, install it by hand",
)


def environment(folder: Path, name: str = "dev", backend: str = "") -> dict[str, str]:
    """The shipped dev environment under *name*, with its states below *folder*."""
    text = (ROOT / "environments/dev.yaml").read_text("utf-8")
    local = "backend:\n  type: local\n  path: .state\n"
    assert local in text and "name: dev\n" in text
    text = text.replace(local, backend or f"backend: {{type: local, path: {folder}/states}}\n")
    path = folder / f"{name}.yaml"
    path.write_text(text.replace("name: dev\n", f"name: {name}\n"), "utf-8")
    return {
        "MPCTL_ENV": str(path),
        "MPCTL_FLEET": "manifests/fleet/eks-l4.yaml",
        "MPCTL_GCP_PROJECT": "a-project",
        "MPCTL_PUBLIC_CIDRS": "198.18.5.7/32",
    }


def fleet(folder: Path, cloud: str, *changes: tuple[str, str]) -> dict[str, str]:
    text = (ROOT / f"manifests/fleet/{cloud}-l4.yaml").read_text("utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / "fleet.yaml"
    path.write_text(text, "utf-8")
    return {"MPCTL_FLEET": str(path)}


def planned(environ: dict[str, str]) -> Plan:
    (plan,) = plans(environ, load_settings(environ, ROOT), load_fleet(environ, ROOT), TODAY)
    return plan


def documents(environ: dict[str, str]) -> dict[str, Any]:
    """The stacks by their ids."""
    made = build(core.Testing.app(), planned(environ), LAYERS)
    return {stack.node.id: clean(json.loads(core.Testing.synth(stack))) for stack in made}


BACKENDS = {
    "local": "",
    "s3": "backend: {type: s3, bucket: states, region: us-west-2, kms_key: alias/states}\n",
    "gcs": "backend: {type: gcs, bucket: states, kms_key: a-key}\n",
}
EKS_REGION = (("us-west-2", "eu-west-1"),)


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_two_clusters_share_a_state_or_a_stack(backend: str, tmp_path: Path) -> None:
    text = BACKENDS[backend]
    dev, staging = (environment(tmp_path, name, text) for name in ("dev", "staging"))
    renamed = (("name: eks-l4-single", "name: eks-other"),)
    gke = {**dev, "MPCTL_FLEET": "manifests/fleet/gke-l4.yaml"}
    cases = [dev, staging, {**gke}, {**gke, "MPCTL_GCP_PROJECT": "b-project"}]
    found = [documents(case) for case in cases]
    for cloud, *changes in (
        ("eks", *EKS_REGION),
        ("eks", *renamed),
        ("gke", ("us-central1", "us-east4")),
    ):
        found.append(documents({**dev, **fleet(tmp_path, cloud, *changes)}))
    ids = [name for stacks in found for name in stacks]
    states = [
        json.dumps(stack["terraform"]["backend"], sort_keys=True)
        for stacks in found
        for stack in stacks.values()
    ]
    assert len(ids) == 21 == len({*ids}) == len({*states})
    assert "eks-l4-single-dev-us-west-2-cluster" in ids
    assert "gke-l4-single-dev-b-project-us-central1-serving" in ids
    for stacks in found:
        own = next(stack for name, stack in stacks.items() if name.endswith("-cluster"))
        (where,) = own["terraform"]["backend"].values()
        for layer in ("platform", "serving"):
            stack = next(one for name, one in stacks.items() if name.endswith(layer))
            read = stack["data"]["terraform_remote_state"]["cluster"]["config"]
            assert read.items() <= where.items(), "the next layers read the cluster's own state"


def test_the_backends_keep_locks_and_keys(tmp_path: Path) -> None:
    for kind, expected in (
        (
            "s3",
            {
                "bucket": "states",
                "key": "mpctl/dev/us-west-2/eks-l4-single-cluster.tfstate",
                "region": "us-west-2",
                "encrypt": True,
                "kms_key_id": "alias/states",
                "use_lockfile": True,
            },
        ),
        (
            "gcs",
            {
                "bucket": "states",
                "prefix": "mpctl/dev/us-west-2/eks-l4-single-cluster",
                "kms_encryption_key": "a-key",
            },
        ),
    ):
        stacks = documents(environment(tmp_path, backend=BACKENDS[kind]))
        stack = stacks["eks-l4-single-dev-us-west-2-cluster"]
        assert stack["terraform"]["backend"] == {kind: expected}


def deploy_former(plan: Plan, folder: Path, layer: str, name: str, path: str = "") -> None:
    """A state as earlier versions left it, by the real Terraform: only the cluster's layer names its cluster."""
    folder = folder / f"{layer}-{name}{path.replace('/', '-')}"
    folder.mkdir()
    body: dict[str, Any] = {
        "terraform": {
            "backend": {
                "local": backends.document(plan.settings.backend, path or plan.former_key(layer))
            }
        },
        "resource": {"terraform_data": {"thing": {"input": layer}}},
    }
    if layer == "cluster":
        body["output"] = {"cluster_name": {"value": name}}
    (folder / "main.tf.json").write_text(json.dumps(body), "utf-8")
    binary = shutil.which("terraform")
    for call in (("init",), ("apply", "-auto-approve")):
        subprocess.run([str(binary), *call], cwd=folder, check=True, capture_output=True)


def move(environ: dict[str, str], *arguments: str, answer: str = "") -> tuple[int, str]:
    done = subprocess.run(
        [ROOT / "scripts/deploy", "--move-state", *arguments],
        env={**os.environ, **environ},
        input=answer,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@needs_terraform
@pytest.mark.timeout(300)
def test_states_are_moved_once_and_their_copies_stay(tmp_path: Path) -> None:
    environ = environment(tmp_path)
    plan = planned(environ)
    for layer in ("cluster", "platform"):
        deploy_former(plan, tmp_path, layer, plan.name)
    facts = read_state(plan, WELL)
    assert (facts.owner, facts.former_owner) == ("", plan.name)
    findings = assess(plan, facts)
    (state,) = (one for one in findings if one.check == "state")
    assert state.outcome is Outcome.FAIL and "scripts/deploy --move-state" in state.hint

    states = tmp_path / "states"
    code, text = move(environ, answer="no\n")
    assert code == 9 and "nothing was moved" in text
    assert "eks-l4-single-cluster -> dev/us-west-2/eks-l4-single-cluster (1 resources)" in text
    assert not (states / "dev").exists(), "nothing is written before the answer"

    code, text = move(environ, answer="yes\n")
    assert code == 0 and "2 moved" in text, text
    for layer in ("cluster", "platform"):
        old, new = (
            json.loads((states / f"{key}.tfstate").read_text("utf-8"))
            for key in (plan.former_key(layer), plan.key(layer))
        )
        assert old["resources"] == new["resources"] != []
    facts = read_state(plan, WELL)
    assert (facts.owner, facts.former_owner) == (plan.name, "")
    code, text = move(environ)
    assert code == 0 and "moved before" in text and "nothing to move" in text


@needs_terraform
@pytest.mark.timeout(300)
def test_a_state_of_another_cluster_or_one_in_the_way_is_not_moved(tmp_path: Path) -> None:
    environ = environment(tmp_path, "staging")
    plan = planned(environ)
    deploy_former(plan, tmp_path, "cluster", "eks-l4-single-dev")
    deploy_former(plan, tmp_path, "platform", "eks-l4-single-dev")
    code, text = move(environ, "-auto-approve")
    assert code == 9 and "belongs to eks-l4-single-dev, not to eks-l4-single-staging" in text
    # The state of a charts' layer names no cluster; the cluster's says whose it is.
    code, text = move({**environ, "MPCTL_LAYERS": "platform"}, "-auto-approve")
    assert code == 9 and not (tmp_path / "states/staging").exists()

    dev = environment(tmp_path)
    plan = planned(dev)
    deploy_former(plan, tmp_path, "cluster", "eks-l4-single-dev", plan.key("cluster"))
    before = (tmp_path / f"states/{plan.key('cluster')}.tfstate").read_bytes()
    code, text = move(dev, "-auto-approve")
    assert code == 9 and f"the key {plan.key('cluster')} holds a state already" in text
    there = tmp_path / f"states/{plan.key('cluster')}.tfstate"
    assert there.read_bytes() == before
    there.write_text(json.dumps({**json.loads(before), "resources": [], "outputs": {}}), "utf-8")
    assert move(dev, "-auto-approve")[0] == 9, "what was destroyed there was another cluster too"


@needs_terraform
@pytest.mark.timeout(300)
def test_the_preflight_refuses_a_state_of_another_cluster(tmp_path: Path) -> None:
    plan = planned(environment(tmp_path))
    deploy_former(plan, tmp_path, "cluster", "another", plan.key("cluster"))
    (state,) = (one for one in assess(plan, read_state(plan, WELL)) if one.check == "state")
    assert state.outcome is Outcome.FAIL and "belongs to another, not to" in state.message
    (tmp_path / f"states/{plan.key('cluster')}.tfstate").write_text("no state", "utf-8")
    (state,) = (one for one in assess(plan, read_state(plan, WELL)) if one.check == "state")
    assert state.outcome is Outcome.UNKNOWN, "a state that cannot be read is no absent one"


@needs_terraform
@pytest.mark.timeout(300)
def test_a_plan_on_anothers_state_is_refused_by_the_stack_itself(tmp_path: Path) -> None:
    """The part of every stack that keeps and compares its cluster's name, applied and planned by the real Terraform."""
    ours, theirs = (
        next(iter(documents(environment(tmp_path, name)).values())) for name in ("dev", "staging")
    )
    binary = str(shutil.which("terraform"))

    def run(stack: dict[str, Any], *arguments: str) -> tuple[int, str]:
        body = {"resource": {"terraform_data": stack["resource"]["terraform_data"]}}
        (tmp_path / "main.tf.json").write_text(json.dumps(body), "utf-8")
        command = [binary, *arguments, "-no-color"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    assert run(ours, "init")[0] == 0 == run(ours, "apply", "-auto-approve")[0]
    assert run(ours, "plan", "-detailed-exitcode")[0] == 0
    code, text = run(theirs, "plan")
    assert code == 1 and "belongs to the cluster eks-l4-single-dev" in text
    assert run(theirs, "destroy", "-auto-approve")[0] == 0
