"""The test cluster and a namespace on it, for tests/cluster and tests/contracts, and Helm: one for the whole session.

tests/cluster/conftest.py says how to use them.
"""

from __future__ import annotations

import os
import secrets
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # loaded with every test run: what is heavy is imported by the fixtures
    from .rig.api import Client
    from .rig.cluster import Cluster

WAIT_S = 180.0


@pytest.fixture(scope="session")
def cluster():
    from .rig.binaries import Missing
    from .rig.cluster import Cluster

    try:
        opened = Cluster()
    except Missing as missing:
        pytest.exit(f"tests/cluster: {missing}", returncode=2)
    with opened:
        yield opened


@pytest.fixture(scope="session")
def helm() -> str:
    """Helm: MPCTL_HELM, the PATH, or built once from its module."""
    from .rig import binaries

    value = os.environ.get("MPCTL_HELM") or shutil.which("helm")
    if value:
        return value
    try:
        return binaries.find(binaries.HELM)["helm"]
    except binaries.Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def llm_cluster(cluster):
    """The same cluster, with KServe's manager of LLMInferenceServices."""
    cluster.add("llm")
    return cluster


@pytest.fixture(scope="session")
def groups_cluster(cluster):
    """The same cluster, with the controller of LeaderWorkerSets."""
    cluster.add("lws")
    return cluster


@dataclass
class Namespace:
    """A namespace of the cluster."""

    cluster: Cluster
    name: str
    client: Client = field(init=False)

    def __post_init__(self):
        self.client = self.cluster.client.within(self.name)

    def kubectl(self, *arguments, **options):
        return self.cluster.kubectl("-n", self.name, *arguments, **options)

    def deploy(self, text, *, name="demo", timeout_s=WAIT_S):
        """Apply an InferenceService (with the claim template it may name) and wait until it is Ready; the object."""
        from .objects import CLAIM

        self.client.apply(CLAIM)
        self.client.apply(text)
        return self.ready(name, timeout_s=timeout_s)

    def ready(self, name="demo", *, timeout_s=WAIT_S):
        """Wait until KServe and the Deployment agree that everything of the service's newest form serves."""

        from .objects import is_true

        def look():
            isvc = self.client.get("isvc", name)
            return isvc if is_true(isvc, "Ready") and self.settled(f"{name}-predictor") else None

        return self.client.wait(f"{name} is ready", look, timeout_s)

    def settled(self, deployment):
        """Whether a Deployment has exactly its new pods, all of them available."""
        record = self.client.find("deployments", deployment)
        if record is None:
            return False
        status, wanted = record.get("status", {}), record["spec"]["replicas"]
        return (
            status.get("observedGeneration") == record["metadata"]["generation"]
            and status.get("updatedReplicas", 0)
            == status.get("availableReplicas", 0)
            == status.get("replicas", 0)
            == wanted
            and status.get("terminatingReplicas", 0) == 0
        )

    def pods(self, service="demo"):
        """The pods of a service without those being deleted."""
        pods = self.client.list("pods", labels=f"serving.kserve.io/inferenceservice={service}")
        return [p for p in pods if "deletionTimestamp" not in p["metadata"]]

    def argv(self, service="demo"):
        """The engines' own command lines."""
        running = (
            self.cluster.pods.named(self.name, p["metadata"]["name"]) for p in self.pods(service)
        )
        return [pod.units[0].argv for pod in running if pod]

    def jobs_made(self):
        """Number of Jobs created through the proxy, without dry runs."""
        calls = [c for c in self.cluster.proxy.calls if c.namespace == self.name]
        return sum(
            (c.verb, c.resource) == ("create", "jobs") and "dryRun" not in c.path for c in calls
        )

    def delete(self):
        """Delete what tests create, so that pods end at once, then the namespace; return when all pods are gone."""
        for kind in ("isvc", "jobs", "deployments"):
            for record in self.client.list(kind):
                self.client.delete(kind, record["metadata"]["name"])
        self.client.request(
            "DELETE",
            f"/api/v1/namespaces/{self.name}/pods",
            {"kind": "DeleteOptions", "gracePeriodSeconds": 0},
        )
        self.cluster.client.delete("namespaces", self.name)
        self.client.wait("pods are gone", lambda: not self.client.list("pods"), WAIT_S)
        self.client.wait("claims are gone", lambda: not self.client.list("resourceclaims"), WAIT_S)


@pytest.fixture
def namespace(cluster):
    from .listed import unlisted_calls

    name = f"t-{secrets.token_hex(3)}"
    cluster.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    actual_namespace = Namespace(cluster, name)
    yield actual_namespace
    unlisted = unlisted_calls(cluster.proxy)
    cluster.proxy.clear()
    cluster.pods.clear()
    cluster.metrics.clear()
    actual_namespace.delete()
    assert not unlisted, (
        f"requests that mpctl/platform/kubernetes/access/calls.py does not list: {sorted(unlisted)}"
    )
