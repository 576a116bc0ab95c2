"""Rollout and exact rollback of a plain Deployment behind a Service, without KServe."""

import pytest

from mpctl.platform.kubernetes.service.manifest_text import text_of

from .fenced import unlocked
from .measurement import LOCAL, REPEATED
from .objects import ANY_SPEED, CLAIM
from .test_trouble_measuring import LONG, until

SERVICE = """\
apiVersion: v1
kind: Service
metadata: {name: qwen}
spec:
  selector: {app: qwen}
  ports: [{port: 80, targetPort: 8000}]
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: qwen
  labels: {team: chat}
spec:
  replicas: 1
  selector: {matchLabels: {app: qwen}}
  template:
    metadata: {labels: {app: qwen, component: engine}}
    spec:
      resourceClaims: [{name: gpu, resourceClaimTemplateName: one-l4}]
      containers:
      - name: engine
        image: vllm/vllm-openai:v0.32.0
        command: [sh, -c]
        args:
        - exec vllm serve org/target --served-model-name qwen --port 8000 --max-model-len 2048
        ports: [{containerPort: 8000}]
        readinessProbe: {httpGet: {path: /health, port: 8000}}
        resources:
          requests: {cpu: "1", memory: 2Gi}
          claims: [{name: gpu, request: gpu}]
"""
QUICK = ("--requests", "4", "--repeats", "8", "--max-tokens", "16", *LOCAL)


def test_a_plain_deployment_is_rolled_out_and_rolled_back_exactly(
    cluster, namespace, mpctl, tmp_path
):
    cluster.pods.rule(lambda pod: {"script": {"token_s": 0.02}})
    policy = tmp_path / "policy.yaml"
    policy.write_text(ANY_SPEED)
    client = namespace.client
    for text in (CLAIM, SERVICE, DEPLOYMENT):
        client.apply(text)
    client.wait("the engine is ready", lambda: namespace.settled("qwen"))
    before = text_of(client.get("deployments", "qwen"))

    (status,) = mpctl.json("status")["items"]
    assert (status["metadata"]["name"], status["status"]["state"]) == ("qwen", "Ready")
    assert unlocked(namespace, mpctl, "deployments", "qwen") == []
    done = mpctl("rollout", "qwen", "--spec", "ngram", "--policy", str(policy), *QUICK)
    assert "promoted: service" in done.stderr
    changed = client.get("deployments", "qwen")
    (script,) = changed["spec"]["template"]["spec"]["containers"][0]["args"]
    assert script.startswith(
        "exec vllm serve org/target --served-model-name qwen --port 8000 --max-model-len 2048"
    )
    assert "--speculative-config" in script
    assert client.find("deployments", "qwen-candidate") is None

    client.patch(
        "deployments", "qwen", {"spec": {"replicas": 2}}
    )  # who scales it is no part of a rollback
    client.wait("two engines are ready", lambda: namespace.settled("qwen"))
    mpctl("rollback", "qwen", "--accept-downtime")  # both nodes are taken: an old pod stops first
    restored = client.get("deployments", "qwen")
    assert text_of(restored) == before
    assert restored["spec"]["replicas"] == 2
    assert [op["ending"] for op in mpctl.json("history", "qwen")["operations"]] == [
        "promoted",
        "rolled back",
    ]


@pytest.mark.nightly
def test_labels_that_others_set_in_the_middle_end_no_measurement_and_stay(
    cluster, namespace, mpctl, tmp_path
):
    cluster.pods.rule(lambda pod: {"script": {"token_s": 0.02}})
    (tmp_path / "policy.yaml").write_text(ANY_SPEED)
    client = namespace.client
    for text in (CLAIM, SERVICE, DEPLOYMENT):
        client.apply(text)
    client.wait("the engine is ready", lambda: namespace.settled("qwen"))
    before = client.get("deployments", "qwen")["spec"]["template"]

    options = ("--policy", str(tmp_path / "policy.yaml"), *REPEATED, *LONG)
    under_way = mpctl.start("rollout", "qwen", "--spec", "ngram", *options)
    try:
        until(under_way, "round 2 of")
        namespace.kubectl("label", "deployment", "qwen", "owner=alice")
        namespace.kubectl("label", "deployment", "qwen", "--overwrite", "team=search")
        _, written = under_way.communicate(timeout=240)
    finally:
        under_way.kill()
    assert (under_way.returncode, "promoted: service" in written) == (0, True), written
    promoted = client.get("deployments", "qwen")
    assert promoted["metadata"]["labels"] == {"team": "search", "owner": "alice"}
    assert "--speculative-config" in str(promoted["spec"])
    assert "ngram" in mpctl("status").stdout

    mpctl("rollback", "qwen", "--accept-downtime")
    restored = client.get("deployments", "qwen")
    assert restored["spec"]["template"] == before
    assert restored["metadata"]["labels"] == {"team": "search", "owner": "alice"}
