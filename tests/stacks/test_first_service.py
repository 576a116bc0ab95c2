"""The InferenceService that the serving layer creates and never changes; tests/cluster applies it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from mpctl.platform.kubernetes.api.objects import owner_of
from tests.stacks.conftest import DATA, ROOT, synthesise
from tests.stacks.test_first_apply import EKS, GKE, golden

DOMAIN = "serving:\n  gateway: {domain: models.inference.test, tls: {issuer: ca}}\n"


def first_services(stacks: dict[str, Any], cluster: str) -> dict[str, Any]:
    """The resources of InferenceServices in a serving stack, by the service's name."""
    manifests = stacks[f"{cluster}-serving"]["resource"]["kubernetes_manifest"].values()
    return {
        resource["manifest"]["metadata"]["name"]: resource
        for resource in manifests
        if resource["manifest"]["kind"] == "InferenceService"
    }


@pytest.mark.parametrize("cluster", [EKS, GKE])
def test_a_second_deploy_changes_no_service(cluster: str, synthesised: dict[str, Any]) -> None:
    resource = first_services(synthesised, cluster)["qwen3-8b"]
    assert resource["lifecycle"] == {"ignore_changes": ["manifest"]}
    assert "spec" in resource["computed_fields"], "else the provider plans it from the manifest"
    claim = "kubernetes_manifest.resourceclaimtemplate_inference_qwen3_8b_gpu"
    assert claim in resource["depends_on"]


def test_mpctl_may_change_what_the_stack_created(synthesised: dict[str, Any]) -> None:
    resource = first_services(synthesised, EKS)["qwen3-8b"]
    fields = {"manager": resource["field_manager"]["name"], "fieldsV1": {"f:spec": {}}}
    assert owner_of({"metadata": {"managedFields": [fields]}}) is None
    terraform = {"manager": "Terraform", "fieldsV1": {"f:spec": {}}}
    assert owner_of({"metadata": {"managedFields": [terraform]}}) is not None


def test_every_way_of_staging_stands_in_the_stack(
    synthesised: dict[str, Any], rich: dict[str, Any]
) -> None:
    uris = {
        name: [entry["uri"] for entry in resource["manifest"]["spec"]["predictor"]["storageUris"]]
        for stacks in (rich, synthesised)
        for name, resource in first_services(stacks, EKS).items()
    }
    assert uris == {
        "qwen3-8b": ["hf://Qwen/Qwen3-8B"],
        "qwen3-8b-oci": [
            "oci+native://registry.example.com/qwen3-8b:1",
            "oci+native://registry.example.com/qwen3-8b-eagle3:1",
        ],
        "qwen3-8b-buckets": [
            "gs://example-weights/qwen3-8b",
            "s3://example-drafts/eagle3/qwen3-8b",
        ],
    }
    (staged,) = first_services(rich, GKE)["qwen3-8b"]["manifest"]["spec"]["predictor"][
        "storageUris"
    ]
    assert staged == {"uri": "pvc://models", "mountPath": "/mnt/models"}


def test_a_service_that_exists_is_not_created(tmp_path: Path) -> None:
    stacks = synthesise(golden(tmp_path, ("    gpus: 1\n", "    gpus: 1\n    create: false\n")))
    assert first_services(stacks, EKS) == {}
    assert (
        "horizontalpodautoscaler_inference_qwen3_8b_queue_wait"
        in (stacks[f"{EKS}-serving"]["resource"]["kubernetes_manifest"])
    )


def test_the_last_outputs_are_the_next_command_and_the_url(
    synthesised: dict[str, Any], tmp_path: Path
) -> None:
    output = synthesised[f"{EKS}-serving"]["output"]
    assert output["url"]["value"] == {
        "qwen3-8b": "http://qwen3-8b-predictor.inference.svc.cluster.local/v1"
    }
    connect, _, rollout = output["next_step"]["value"].partition(" && ")
    assert connect.startswith("mpctl connect eks/us-west-2/eks-l4-single-golden > ")
    assert rollout.endswith("mpctl rollout qwen3-8b -n inference --spec ngram")
    public = synthesise(golden(tmp_path, ("serving:\n", DOMAIN)))
    assert public[f"{EKS}-serving"]["output"]["url"]["value"] == {
        "qwen3-8b": "https://qwen3-8b-inference.models.inference.test/v1"
    }


def test_printed_services_have_no_anchors() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "stacks.render", "services"],
        cwd=ROOT,
        env={**os.environ, "MPCTL_ENV": str(DATA / "rich.yaml")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "&id" not in done.stdout and "*id" not in done.stdout
    assert len(list(yaml.safe_load_all(done.stdout))) == 6
