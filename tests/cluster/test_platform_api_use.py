"""The rate of mpctl's requests to an API server, and what a preflight reads of the nodes."""

from mpctl.platform.kubernetes.service.reader import BURST, READS_PER_S

from .objects import CONTAINERS
from .unmeasured import Unmeasured

WATCHED = ("inferenceservices", "deployments", "pods", "events")
WAIT_S = 12


def is_candidate(pod):
    return pod["metadata"]["labels"].get("serving.kserve.io/inferenceservice") == "demo-candidate"


def test_a_waiting_command_reads_at_most_twice_a_second_after_a_burst(cluster, namespace, mpctl):
    namespace.deploy(CONTAINERS)
    cluster.pods.rule(lambda pod: {"ready_s": WAIT_S} if is_candidate(pod) else {})
    Unmeasured(mpctl)("rollout", "--spec", "ngram")
    calls = [
        c
        for c in cluster.proxy.calls
        if c.agent.startswith("mpctl") and c.namespace == namespace.name
    ]
    created = next(c.at for c in calls if c.verb == "create" and c.resource == "inferenceservices")
    until = created + WAIT_S - 2  # the candidate cannot be ready before
    reads = [c for c in calls if not c.write and c.resource in WATCHED and created < c.at < until]
    assert len(reads) >= 5  # it does look
    assert len(reads) <= READS_PER_S * (until - created) + BURST + 4, [
        (c.verb, c.resource) for c in reads
    ]


def test_a_preflight_judges_adaptive_verification_by_the_gpu_of_the_nodes(
    cluster, namespace, mpctl
):
    namespace.deploy(CONTAINERS.replace("v0.32.0", "v0.33.0"))
    asked = (
        "preflight",
        "--spec",
        "eagle3",
        "--draft",
        "org/head",
        "--set",
        "enable_adaptive_verification=true",
    )
    findings = mpctl.json(*asked, code=None)["findings"]
    (finding,) = [finding for finding in findings if finding["id"] == "adaptive-verification"]
    assert (finding["severity"], finding["reason"].partition(" the ")[0]) == ("refuse", "on L4")
    assert nodes_read(cluster) == ["list"]


def test_a_preflight_reads_the_nodes_once_for_a_draft_and_not_without(cluster, namespace, mpctl):
    """The memory that a draft needs is compared with the GPU's."""
    namespace.deploy(CONTAINERS)
    mpctl("preflight", "--spec", "ngram", code=None)
    assert nodes_read(cluster) == []
    mpctl("preflight", "--spec", "eagle3", "--draft", "org/head", code=None)
    assert nodes_read(cluster) == ["list"]


def nodes_read(cluster):
    """Verbs of mpctl's requests for nodes so far."""
    return [
        c.verb for c in cluster.proxy.calls if c.agent.startswith("mpctl") and c.resource == "nodes"
    ]
