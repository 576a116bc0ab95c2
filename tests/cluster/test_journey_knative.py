"""A service in Knative mode: Knative's own controller makes the revisions (``rig.knative`` says what stands in)."""

import pytest
import yaml

from mpctl.platform.kubernetes.service.manifest_text import text_of

from .meanwhile import Meanwhile
from .objects import CONTAINERS, is_true
from .rig.cluster import Cluster, Settings
from .rig.nodes import CPU
from .unmeasured import Unmeasured

ROLLOUT = ("rollout", "--spec", "ngram")
NGRAM = "--speculative-config"
# Knative takes no resource claims: a GPU is asked for as the device plugin counts it.
SERVICE = yaml.safe_load(CONTAINERS)
SERVICE["metadata"]["annotations"] = {"serving.kserve.io/deploymentMode": "Serverless"}
del SERVICE["spec"]["predictor"]["resourceClaims"]
RESOURCES = SERVICE["spec"]["predictor"]["containers"][0]["resources"]
del RESOURCES["claims"]
for bounds in RESOURCES.values():
    bounds["nvidia.com/gpu"] = "1"
REVISION = "serving.knative.dev/revision"


@pytest.fixture(scope="module")
def cluster():
    """A cluster of its own: KServe looks for Knative only when it starts. Its GPUs are counted by a device plugin."""
    with Cluster(Settings(nodes=(CPU,), extras=frozenset({"knative"}))) as opened:
        (node,) = opened.nodes.numbers
        gpus = {
            "nvidia.com/gpu": "3"
        }  # one for a revision that failed, whose pods Knative keeps for 600 s
        opened.client.patch(
            "nodes", node, {"status": {"capacity": gpus, "allocatable": gpus}}, subresource="status"
        )
        yield opened


@pytest.fixture
def service(namespace):
    namespace.client.apply(SERVICE)
    namespace.client.wait(
        "demo is ready", lambda: is_true(namespace.client.get("isvc", "demo"), "Ready")
    )
    return namespace


@pytest.fixture
def run(mpctl):
    return Unmeasured(mpctl)


class Served(Meanwhile):
    """Looks all the time at the ready pods of the revision that the route leads to."""

    def __init__(self, namespace):
        super().__init__()
        self.namespace, self.least, self.revisions = namespace, 10, []

    def look(self):
        route = self.namespace.client.get("routes", "demo-predictor")
        (target,) = route["status"]["traffic"]
        deployment = self.namespace.client.get(
            "deployments", f"{target['revisionName']}-deployment"
        )
        again = self.namespace.client.get("routes", "demo-predictor")
        if route["status"]["traffic"] != again["status"]["traffic"]:
            return  # the old revision's pods may go meanwhile
        self.least = min(self.least, deployment["status"].get("readyReplicas", 0))
        if self.revisions[-1:] != [target["revisionName"]]:
            self.revisions.append(target["revisionName"])


def live(namespace):
    return text_of(namespace.client.get("isvc", "demo"))


def pods(namespace):
    return {p["metadata"]["labels"][REVISION]: p["metadata"]["uid"] for p in namespace.pods()}


def test_rollout_and_rollback_each_make_a_knative_revision(cluster, service, run):
    before = live(service)
    assert list(pods(service)) == ["demo-predictor-00001"]
    (status,) = run.json("status")["items"]
    assert status["status"]["state"] == "Ready"
    run("preflight", "--spec", "ngram")
    with Served(service) as served:
        done = run(*ROLLOUT)
        assert "promoted: service" in done.stderr
        assert list(pods(service)) == ["demo-predictor-00002"]
        (argv,) = service.argv()
        assert any(word.startswith(NGRAM) for word in argv)
        assert service.client.find("isvc", "demo-candidate") is None
        run("rollback")
    assert live(service) == before
    assert list(pods(service)) == ["demo-predictor-00003"]
    (argv,) = service.argv()
    assert not any(word.startswith(NGRAM) for word in argv)
    assert [op["ending"] for op in run.json("history")["operations"]] == ["promoted", "rolled back"]
    assert (served.least, served.revisions) == (1, [f"demo-predictor-0000{n}" for n in (1, 2, 3)])


def fails(name):
    """Engines of one InferenceService that speculate end right after their start."""

    def rule(pod):
        mine = pod["metadata"]["labels"].get("serving.kserve.io/inferenceservice") == name
        return {"script": {"exit": 3, "only_speculating": True}} if mine else None

    return rule


def test_a_crashing_engine_leaves_the_knative_service_unchanged(cluster, service, run):
    before, pods_before = live(service), pods(service)
    take_back = cluster.pods.rule(fails("demo-candidate"))
    with Served(service) as served:
        done = run(*ROLLOUT, code=7)
        assert "exit code 3" in done.stderr
        assert (live(service), pods(service)) == (before, pods_before)
        assert service.client.find("isvc", "demo-candidate") is None

        take_back()
        cluster.pods.rule(
            fails("demo")
        )  # the candidate is fine, the revision of the promoted service is not
        run(*ROLLOUT, code=7)
        assert live(service) == before
        assert sorted(pods(service)) == ["demo-predictor-00002", "demo-predictor-00003"]
        (state,) = run.json("status")["items"]
        assert state["status"]["state"] == "Ready"
    assert (served.least, served.revisions) == (1, ["demo-predictor-00001", "demo-predictor-00003"])


def test_an_option_that_knative_lacks_is_refused_before_anything_changes(cluster, service, run):
    before = live(service)
    cluster.proxy.clear()
    for words, reason in (
        (("--strategy", "in-place", "--accept-downtime"), "no pod can stop first"),
        (("--traffic-steps", "10"), "Knative splits the traffic"),
    ):
        done = run(*ROLLOUT, *words, code=9)
        assert reason in done.stderr
    assert live(service) == before
    assert {(c.verb, c.resource) for c in cluster.proxy.calls if c.write} == {
        ("update", "inferenceservices")
    }  # dry
    service.client.patch("isvc", "demo", {"spec": {"predictor": {"minReplicas": 0}}})
    done = run(*ROLLOUT, code=9)
    assert "minReplicas 0" in done.stderr
    assert "set minReplicas to 1" in done.stderr
