"""From a running InferenceService to speculation and exactly back, with the real KServe."""

import json

import pytest

from mpctl.platform.kubernetes.text import text_of

from .objects import CONTAINERS, MODEL

NGRAM = "--speculative-config"
QUICK = ("--requests", "4", "--repeats", "4", "--max-tokens", "16")


def live(namespace):
    return text_of(namespace.client.get("isvc", "demo"))


@pytest.mark.parametrize("manifest", [CONTAINERS, MODEL], ids=["containers", "model and runtime"])
def test_there_and_exactly_back(cluster, namespace, mpctl, manifest):
    namespace.deploy(manifest)
    before = live(namespace)
    done = mpctl("rollout", "--spec", "ngram", *QUICK)
    assert "promoted: service" in done.stderr
    (argv,) = namespace.argv()
    assert any(word.startswith(NGRAM) for word in argv)
    assert namespace.client.find("isvc", "demo-candidate") is None
    (status,) = mpctl.json("status")["items"]
    assert status["status"]["state"] == "Ready"
    assert status["status"]["speculation"].startswith("ngram")
    again = mpctl("rollout", "--spec", "ngram", *QUICK)
    assert "already runs" in again.stderr
    mpctl("rollback")
    assert live(namespace) == before
    (argv,) = namespace.argv()
    assert not any(word.startswith(NGRAM) for word in argv)
    endings = [op["ending"] for op in mpctl.json("history")["operations"]]
    assert endings == ["promoted", "rolled back"]
    assert mpctl("history", "--revision", "1", "-o", "yaml").stdout == before


def test_a_gate_that_says_no_leaves_the_service_as_it_was(cluster, namespace, mpctl):
    namespace.deploy(CONTAINERS)
    before, pods = live(namespace), [p["metadata"]["uid"] for p in namespace.pods()]

    def slow(pod):
        candidate = pod["metadata"]["labels"].get("serving.kserve.io/inferenceservice") == "demo-candidate"
        return {"script": {"seconds": 0.05}} if candidate else None

    cluster.pods.rule(slow)
    done = mpctl("rollout", "--spec", "ngram", *QUICK, code=None)
    assert done.returncode in (5, 6), done.stderr
    assert live(namespace) == before
    assert [p["metadata"]["uid"] for p in namespace.pods()] == pods
    assert namespace.client.find("isvc", "demo-candidate") is None
    assert json.loads(mpctl("status", "-o", "json").stdout)["items"][0]["status"]["operation"] is None
