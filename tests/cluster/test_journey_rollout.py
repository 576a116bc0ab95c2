"""Rollout and exact rollback of a running InferenceService, with the real KServe."""

import json

import pytest

from mpctl.platform.kubernetes.service.manifest_text import text_of

from .measurement import LOCAL
from .objects import ANY_SPEED, CONTAINERS, MODEL

NGRAM = "--speculative-config"
QUICK = ("--requests", "4", "--repeats", "8", "--max-tokens", "16")
STEADY = {"token_s": 0.05}  # long enough that a busy machine's own delays do not decide


def live(namespace):
    return text_of(namespace.client.get("isvc", "demo"))


@pytest.mark.parametrize(
    ("manifest", "load"),
    [
        pytest.param(CONTAINERS, "job", id="containers", marks=pytest.mark.journey),
        # test_staged_rollout.py rolls this kind out every day.
        pytest.param(MODEL, "local", id="model and runtime", marks=pytest.mark.nightly),
    ],
)
def test_rollout_promotes_and_rollback_restores_the_service_exactly(
    cluster, namespace, mpctl, manifest, load, tmp_path
):
    cluster.pods.rule(lambda pod: {"script": STEADY})
    policy = tmp_path / "policy.yaml"
    policy.write_text(ANY_SPEED)
    namespace.deploy(manifest)
    before = live(namespace)
    where = LOCAL if load == "local" else ()
    done = mpctl("rollout", "--spec", "ngram", *where, "--policy", str(policy), *QUICK)
    assert "promoted: service" in done.stderr
    assert "another start, is slower" not in done.stderr
    assert "another start, is " in done.stderr
    assert namespace.jobs_made() == (load == "job")
    (argv,) = namespace.argv()
    assert any(word.startswith(NGRAM) for word in argv)
    assert namespace.client.find("isvc", "demo-candidate") is None
    (status,) = mpctl.json("status")["items"]
    assert status["status"]["state"] == "Ready"
    assert status["status"]["speculation"].startswith("ngram")
    again = mpctl("rollout", "--spec", "ngram", *QUICK)
    assert "already runs" in again.stderr
    calls = len(cluster.proxy.calls)
    mpctl("rollback")
    writes = [
        c.verb for c in cluster.proxy.calls[calls:] if c.write and c.resource == "inferenceservices"
    ]
    assert manifest is MODEL or writes == [
        "update"
    ]  # KServe's runtime needs a strategy set and taken back
    assert live(namespace) == before
    (argv,) = namespace.argv()
    assert not any(word.startswith(NGRAM) for word in argv)
    endings = [op["ending"] for op in mpctl.json("history")["operations"]]
    assert endings == ["promoted", "rolled back"]
    assert mpctl("history", "--revision", "1", "-o", "yaml").stdout == before


@pytest.mark.nightly  # the journey above compares the second start, tests/unit/gate judges slower ones
def test_a_promotion_whose_second_start_is_slower_stands_and_is_named(
    cluster, namespace, mpctl, tmp_path
):
    def of_start(pod):
        measured = "candidate" in pod["metadata"]["name"]
        return {"script": STEADY if measured else STEADY | {"slow": 1.6}}

    cluster.pods.rule(of_start)
    policy = tmp_path / "policy.yaml"
    policy.write_text(ANY_SPEED)
    namespace.deploy(CONTAINERS)
    done = mpctl("rollout", "--spec", "ngram", "--policy", str(policy), *QUICK)
    assert "promoted: service" in done.stderr
    assert "another start, is slower than the candidate that was measured" in done.stderr
    assert "mpctl restart demo" in done.stdout


def test_a_rejected_candidate_leaves_the_service_unchanged(cluster, namespace, mpctl):
    cluster.pods.rule(lambda pod: {"script": STEADY | {"slow": 4}})
    namespace.deploy(CONTAINERS)
    before, pods = live(namespace), [p["metadata"]["uid"] for p in namespace.pods()]

    done = mpctl("rollout", "--spec", "ngram", *QUICK, "--max-tokens", "8", code=5)
    assert "gate rejected the candidate" in done.stderr
    assert live(namespace) == before
    assert [p["metadata"]["uid"] for p in namespace.pods()] == pods
    assert namespace.client.find("isvc", "demo-candidate") is None
    assert (
        json.loads(mpctl("status", "-o", "json").stdout)["items"][0]["status"]["operation"] is None
    )
