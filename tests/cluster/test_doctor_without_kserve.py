"""``mpctl doctor`` on a cluster that has no KServe."""

import pytest

from .fixtures import Namespace
from .objects import CLAIM
from .rig.cluster import Cluster, Settings
from .test_journey_deployment import DEPLOYMENT, SERVICE
from .test_request_path import drained


@pytest.fixture(scope="module")
def cluster():
    """Two nodes of a GPU each, without KServe and its definitions."""
    with Cluster(Settings(kserve=False)) as opened:
        yield opened


@pytest.fixture
def namespace(cluster):
    cluster.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    team = Namespace(cluster, "team")
    yield team
    team.client.delete("deployments", "qwen")
    team.client.wait("its pods are gone", lambda: not team.client.list("pods"))


@pytest.mark.nightly
def test_a_vllm_deployment_gets_one_note_and_exit_code_0(namespace, mpctl):
    record = drained(DEPLOYMENT)
    record["spec"]["replicas"] = 1
    for item in (CLAIM, SERVICE, record):
        namespace.client.apply(item)
    namespace.client.wait("the engine is ready", lambda: namespace.settled("qwen"))
    found = [item for item in mpctl.json("doctor", code=0)["items"] if item["severity"] != "ok"]
    assert [(item["id"], item["severity"]) for item in found] == [("kserve-missing", "note")]
    assert "1 Deployment" in found[0]["cause"]
