"""A restart with real controllers: fresh pods of the same spec, of which there are never fewer than before."""

import pytest

from mpctl.platform.kubernetes.service.manifest_text import text_of

from .meanwhile import Meanwhile
from .objects import CLAIM, CONTAINERS
from .test_journey_deployment import DEPLOYMENT, SERVICE


class LeastReady(Meanwhile):
    """The least number of available pods that a Deployment reports meanwhile."""

    def __init__(self, namespace, deployment):
        super().__init__()
        self.namespace, self.deployment, self.counts = namespace, deployment, []

    def look(self):
        record = self.namespace.client.find("deployments", self.deployment)
        self.counts.append((record or {}).get("status", {}).get("availableReplicas", 0))


def uids(namespace, deployment):
    record = namespace.client.get("deployments", deployment)
    labels = ",".join(f"{k}={v}" for k, v in record["spec"]["selector"]["matchLabels"].items())
    pods = namespace.client.list("pods", labels=labels)
    return {p["metadata"]["uid"] for p in pods if "deletionTimestamp" not in p["metadata"]}


@pytest.mark.parametrize(
    ("texts", "kind", "name", "deployment"),
    [
        ((CONTAINERS,), "isvc", "demo", "demo-predictor"),
        ((SERVICE, DEPLOYMENT), "deployments", "qwen", "qwen"),
    ],
    ids=["InferenceService", "Deployment"],
)
def test_every_pod_is_replaced_and_none_is_missed(namespace, mpctl, texts, kind, name, deployment):
    for text in (CLAIM, *texts):
        namespace.client.apply(text)
    namespace.client.wait("the engine is ready", lambda: namespace.settled(deployment), 120)
    before, old = text_of(namespace.client.get(kind, name)), uids(namespace, deployment)
    with LeastReady(namespace, deployment) as least:
        done = mpctl("restart", name)
    assert "restarted: service" in done.stderr
    assert min(least.counts) == len(old)
    namespace.client.wait("the old pod is gone", lambda: not uids(namespace, deployment) & old, 60)
    # The controller counts a pod that terminates for a moment longer than it exists.
    namespace.client.wait("it has settled", lambda: namespace.settled(deployment), 10)
    assert [op["ending"] for op in mpctl.json("history", name)["operations"]] == ["restarted"]
    assert mpctl.json("history", name)["revisions"][-1]["why"] == "restarted by restart-1"
    mpctl("rollback", name, "--to-revision", "1")
    assert text_of(namespace.client.get(kind, name)) == before
