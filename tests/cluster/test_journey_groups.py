"""Services whose engine is a group of pods, with the real controllers: changed in place and rolled back exactly."""

import pytest

from mpctl.platform.kubernetes.service.manifest_text import text_of

from .fenced import unlocked
from .measurement import LOCAL
from .objects import ANY_SPEED
from .rig.api import ApiError

GROUPS = """\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata:
  name: large
  labels: {team: chat}
spec:
  replicas: 1
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      metadata: {labels: {role: leader}}
      spec:
        containers:
        - name: engine
          image: vllm/vllm-openai:v0.32.0
          command: [sh, -c]
          args:
          - exec vllm serve org/target --served-model-name large --port 8000 --max-model-len 2048
          ports: [{containerPort: 8000}]
          readinessProbe: {httpGet: {path: /health, port: 8000}}
          resources: {requests: {cpu: 100m, memory: 1Gi}}
    workerTemplate:
      spec:
        containers:
        - name: worker
          image: vllm/vllm-openai:v0.32.0
          command: [sh, -c, "ray start --address=$(LWS_LEADER_ADDRESS):6379 --block"]
          resources: {requests: {cpu: 100m, memory: 1Gi}}
"""
QUICK = (
    "--requests",
    "4",
    "--repeats",
    "8",
    "--max-tokens",
    "16",
    *LOCAL,
    "--fidelity",
    "quick",
)


@pytest.fixture
def large(groups_cluster, namespace):
    leader, worker = {"script": {"token_s": 0.02}}, {"engine": "none"}
    groups_cluster.pods.rule(lambda pod: leader if "role" in pod["metadata"]["labels"] else worker)

    def applied():
        try:
            return namespace.client.apply(GROUPS)
        except ApiError as error:
            assert error.status == 500, (
                error
            )  # the webhook's port is open a moment after the controller is ready
            return None

    namespace.client.wait("the set is accepted", applied)
    namespace.client.wait("the group serves", lambda: serves(namespace))
    return namespace


def serves(namespace):
    return (
        namespace.client.get("leaderworkersets", "large").get("status", {}).get("readyReplicas")
        == 1
    )


def script(namespace):
    spec = namespace.client.get("leaderworkersets", "large")["spec"]["leaderWorkerTemplate"]
    (text,) = spec["leaderTemplate"]["spec"]["containers"][0]["args"]
    return text


@pytest.mark.nightly
def test_whoever_takes_its_lease_replaces_no_pod(large, mpctl):
    assert unlocked(large, mpctl, "leaderworkersets", "large") == []


def test_a_leader_worker_set_is_rolled_out_in_place_and_rolled_back_exactly(large, mpctl, tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text(ANY_SPEED)
    before = text_of(large.client.get("leaderworkersets", "large"))

    (status,) = mpctl.json("status")["items"]
    assert (status["metadata"]["name"], status["status"]["state"]) == ("large", "Ready")
    beside = mpctl("rollout", "large", "--spec", "ngram", code=9)
    assert "a candidate would need a second group of nodes" in beside.stderr
    standing = mpctl("rollout", "large", "--spec", "ngram", "--strategy", "in-place", code=9)
    assert (
        "has one group of pods, which its controller stops before it starts it anew"
        in standing.stderr
    )
    assert text_of(large.client.get("leaderworkersets", "large")) == before

    workers = {pod["metadata"]["uid"] for pod in large.client.list("pods")}
    mpctl(
        "rollout", "large", "--spec", "ngram", "--accept-downtime", "--policy", str(policy), *QUICK
    )
    assert "--speculative-config" in script(large)
    assert large.client.find("leaderworkersets", "large-candidate") is None
    assert serves(large)
    assert not workers & {
        pod["metadata"]["uid"] for pod in large.client.list("pods")
    }  # the whole group is new

    mpctl("rollback", "large", "--accept-downtime")
    assert text_of(large.client.get("leaderworkersets", "large")) == before
    assert serves(large)
    assert [op["ending"] for op in mpctl.json("history", "large")["operations"]] == [
        "promoted",
        "rolled back",
    ]


SEVERAL_NODES = """\
apiVersion: serving.kserve.io/v1alpha2
kind: LLMInferenceService
metadata: {name: wide}
spec:
  model: {uri: "hf://Qwen/Qwen3-8B", name: qwen}
  replicas: 1
  parallelism: {data: 2, dataLocal: 1}
  template: &engine
    containers:
    - name: main
      image: vllm/vllm-openai:v0.32.0
      command: [vllm, serve, org/target]
      args: [--served-model-name=qwen, --port=8000]
      readinessProbe: {httpGet: {path: /health, port: 8000, scheme: HTTP}}
      livenessProbe: {httpGet: {path: /health, port: 8000, scheme: HTTP}}
      resources: {requests: {cpu: 100m, memory: 1Gi}}
  worker: *engine
"""


def leads(namespace):
    """Whether the one group of the service, which KServe named, is complete."""
    status = (namespace.client.find("leaderworkersets", "wide-kserve-mn") or {}).get("status", {})
    return status.get("readyReplicas") == status.get("updatedReplicas") == 1


@pytest.mark.nightly  # it takes the way of the LeaderWorkerSet above
def test_an_llm_inference_service_on_several_nodes_is_changed_in_place_too(
    groups_cluster, llm_cluster, namespace, mpctl, tmp_path
):
    policy = tmp_path / "policy.yaml"
    policy.write_text(ANY_SPEED)
    leader, worker = {"script": {"token_s": 0.02}}, {"engine": "none"}
    component = "app.kubernetes.io/component"
    llm_cluster.pods.rule(
        lambda pod: leader if pod["metadata"]["labels"][component].endswith("-leader") else worker
    )
    namespace.client.apply(SEVERAL_NODES)
    namespace.client.wait("the group serves", lambda: leads(namespace))
    before = text_of(namespace.client.get("llmisvc", "wide"))

    beside = mpctl("rollout", "wide", "--spec", "ngram", code=9)
    assert "a candidate would need a second group of nodes" in beside.stderr
    mpctl(
        "rollout", "wide", "--spec", "ngram", "--accept-downtime", "--policy", str(policy), *QUICK
    )
    spec = namespace.client.get("llmisvc", "wide")["spec"]
    for part in ("template", "worker"):
        assert any("speculative" in word for word in spec[part]["containers"][0]["args"])
    assert leads(namespace)
    mpctl("rollback", "wide", "--accept-downtime")
    assert text_of(namespace.client.get("llmisvc", "wide")) == before
    namespace.client.delete("llmisvc", "wide")
    namespace.client.wait("the service is gone", lambda: not namespace.client.list("llmisvc"))
