"""The roles that ``mpctl rbac`` prints, on the real authoriser: enough for every journey, and no more.

``test_every_command_works_with_the_operator_role_alone`` compares the requests of whole
journeys with the table both ways.
"""

import signal

import pytest

from mpctl.platform.kubernetes.access.calls import TABLE

from .listed import KNOWN
from .objects import ANY_SPEED, MODEL, hpa, taken_route
from .rig.api import ApiError
from .roles import Granted
from .unmeasured import Unmeasured

# Limits that any candidate keeps: what is looked at here is which calls are made.
QUICK = ("--requests", "4", "--repeats", "4", "--max-tokens", "16", "-y")
SHARED = ("--traffic-steps", "10", "--step-duration", "1s")
# Calls that only a damaged run makes, or one that mirrors requests: no other command misses them.
RECOVERY = {
    ("get", "gateway.networking.k8s.io", "gateways"): "read for --mirror alone",
    ("get", "gateway.networking.k8s.io", "gatewayclasses"): "read for --mirror alone",
    ("get", "", "namespaces"): "the cluster of a signed operation: without a key nothing is signed",
    (
        "get",
        "apps",
        "controllerrevisions",
    ): "a revision whose create was answered with AlreadyExists is compared",
}
SCALED_OBJECT = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: demo-keda}
spec:
  scaleTargetRef: {name: demo-predictor}
  minReplicaCount: 1
  maxReplicaCount: 3
  triggers: [{type: cpu, metricType: Utilization, metadata: {value: "80"}}]
"""
# KEDA's definition with an open schema: the object is read, pinned and restored; no operator acts on it.
KEDA = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "scaledobjects.keda.sh"},
    "spec": {
        "group": "keda.sh",
        "scope": "Namespaced",
        "names": {"kind": "ScaledObject", "plural": "scaledobjects", "singular": "scaledobject"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


@pytest.fixture(scope="module")
def keda(cluster):
    cluster.client.apply(KEDA)

    def served():
        try:
            return cluster.client.request("GET", "/apis/keda.sh/v1alpha1/scaledobjects")
        except ApiError:
            return None

    cluster.client.wait("ScaledObjects are served", served)
    yield
    cluster.client.delete("crd", "scaledobjects.keda.sh")
    cluster.client.wait("they no longer are", lambda: served() is None)


@pytest.fixture
def operator(cluster, namespace):
    granted = Granted(cluster, namespace.name)
    granted.apply()
    yield granted
    granted.remove()


def crash(pod):
    """The candidate's engine ends right after its start."""
    candidate = (
        pod["metadata"]["labels"].get("serving.kserve.io/inferenceservice") == "demo-candidate"
    )
    return {"crash": 1} if candidate else None


def slow(pod):
    """Not ready for longer than mpctl's slowest poll: a pod that is ready at the first look is never watched."""
    return {"ready_s": 6.0}


def refused(cluster):
    return [
        f"{c.verb} {c.resource}/{c.subresource} {c.path}"
        for c in cluster.proxy.calls
        if c.status == 403
    ]


def every_other_command(mine):
    """What follows an interruption: unlock, resume, rollback, abandon; the candidate's engine still crashes."""
    run = Unmeasured(mine)
    begun = ("rollout", "--spec", "ngram")
    run(*begun, kill_after=4, code=-signal.SIGKILL)
    run("unlock", "-y")
    run("resume", code=7)
    run(*begun, kill_after=4, code=-signal.SIGKILL)
    run("rollback", "-y")
    run(*begun, kill_after=4, code=-signal.SIGKILL)
    run("abandon", "-y")


def test_every_command_works_with_the_operator_role_alone(
    cluster, keda, namespace, mpctl, operator, tmp_path
):

    namespace.deploy(MODEL)
    namespace.client.apply(hpa())
    namespace.client.apply(SCALED_OBJECT)
    taken_route(namespace.client)
    cluster.metrics.set("queue_wait_ms", 100)
    mine = mpctl.as_user(operator.user)
    policy = tmp_path / "policy.yaml"
    policy.write_text(ANY_SPEED)
    cluster.proxy.clear()
    diagnosis = mine.json("doctor", code=9)  # two autoscalers on one Deployment: it says so
    assert {i["id"] for i in diagnosis["items"] if i["severity"] == "fail"} == {"autoscaler-twice"}
    mine("preflight", "--spec", "ngram")
    mine("render", "--spec", "ngram")
    mine("diff", "--spec", "ngram", code=1)
    ready_at_once = cluster.pods.rule(slow)
    mine("rollout", "--spec", "ngram", "--policy", str(policy), *SHARED, *QUICK)
    ready_at_once()
    mine("status")
    mine("history")
    mine("diff", code=1)
    mine("rollback", "-y")

    cluster.pods.rule(crash)
    failed = mine("rollout", "--spec", "ngram", *QUICK, code=None)
    assert failed.returncode not in (0, 4), failed.stderr
    every_other_command(mine)
    assert refused(cluster) == []
    rules = cluster.proxy.rules()
    assert rules <= KNOWN, sorted(rules - KNOWN)
    # Not seen as requests of their own: an apply that creates needs create, too, and so does a port-forward.
    rules |= {("create", "", "configmaps"), ("create", "", "pods/portforward")}
    needed = {row.key for row in TABLE} - set(RECOVERY)
    assert needed <= rules, sorted(needed - rules)
