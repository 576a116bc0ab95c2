"""The first InferenceService of the synthesised serving stack, before the real API server, scheduler and KServe."""

import pytest

from tests.stacks.conftest import DATA, missing, synthesise

from .asking import ask
from .measurement import LOCAL
from .objects import ANY_SPEED

NAME = "qwen3-8b"
KINDS = ("ServiceAccount", "ResourceClaimTemplate", "PodDisruptionBudget", "InferenceService")
QUICK = ("--requests", "4", "--repeats", "8", "--max-tokens", "16", *LOCAL)


@pytest.fixture(scope="module")
def serving():
    """The manifests of the EKS serving stack, as Terraform applies them."""
    if reason := missing():
        pytest.skip(reason)
    stacks = synthesise(
        {"MPCTL_ENV": str(DATA / "golden.yaml"), "MPCTL_FLEET": "manifests/fleet/eks-l4.yaml"}
    )
    return list(stacks["eks-l4-single-serving"]["resource"]["kubernetes_manifest"].values())


def test_the_first_service_answers_and_a_rollout_may_change_it(
    serving, cluster, namespace, mpctl, tmp_path
):
    cluster.pods.rule(lambda pod: {"script": {"token_s": 0.02}})
    for resource in serving:
        document, manager = resource["manifest"], resource.get("field_manager", {})
        if document["kind"] in KINDS:
            placed = {"metadata": {**document["metadata"], "namespace": namespace.name}}
            namespace.client.apply({**document, **placed}, manager=manager.get("name", "Terraform"))
    service = namespace.ready(NAME)
    assert [entry["uri"] for entry in service["spec"]["predictor"]["storageUris"]] == [
        "hf://Qwen/Qwen3-8B"
    ]
    (pod,) = namespace.pods(NAME)
    address = cluster.pods.named(namespace.name, pod["metadata"]["name"]).real_address
    assert ask(f"http://{address}:8080", model=NAME) == "one two three"

    policy = tmp_path / "policy.yaml"
    policy.write_text(ANY_SPEED)
    mpctl("rollout", NAME, "--spec", "ngram", "--policy", str(policy), *QUICK)
    (argv,) = namespace.argv(NAME)
    assert any(word.startswith("--speculative-config") for word in argv)
