"""A service whose engine answers over HTTPS alone is measured, rolled out and rolled back over the port-forward."""

import base64

from mpctl.platform.kubernetes.service.manifest_text import text_of

from .measurement import LOCAL
from .objects import ANY_SPEED

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: qwen}
spec:
  replicas: 1
  selector: {matchLabels: {app: qwen}}
  template:
    metadata: {labels: {app: qwen}}
    spec:
      volumes: [{name: tls, secret: {secretName: serving}}]
      containers:
      - name: engine
        image: vllm/vllm-openai:v0.32.0
        args: [org/target, --port=8443, --ssl-certfile=/tls/tls.crt, --ssl-keyfile=/tls/tls.key]
        ports: [{containerPort: 8443}]
        volumeMounts: [{name: tls, mountPath: /tls}]
        readinessProbe: {httpGet: {path: /health, port: 8443, scheme: HTTPS}}
        resources: {requests: {cpu: 100m, memory: 1Gi}}
"""
QUICK = ("--requests", "4", "--repeats", "8", "--max-tokens", "16")


def test_an_engine_behind_https_is_rolled_out_and_rolled_back(cluster, namespace, mpctl, tmp_path):
    cluster.pods.rule(lambda pod: {"script": {"token_s": 0.02}})
    policy = tmp_path / "policy.yaml"
    policy.write_text(ANY_SPEED)
    pair = cluster.authority.sign("engine", "engine", addresses=["127.0.0.1"])
    files = {"tls.crt": pair.certificate, "tls.key": pair.key}
    content = {name: base64.b64encode(path.read_bytes()).decode() for name, path in files.items()}
    namespace.client.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "serving"}, "data": content}
    )
    namespace.client.apply(DEPLOYMENT)
    namespace.client.wait("the engine serves", lambda: namespace.settled("qwen"))
    before = text_of(namespace.client.get("deployments", "qwen"))

    by_job = mpctl("rollout", "qwen", "--spec", "ngram", *QUICK, code=9)
    assert "answers over HTTPS, which the load client of a Job does not trust" in by_job.stderr
    assert "MPCTL_LOAD=local" in by_job.stderr
    mpctl("rollout", "qwen", "--spec", "ngram", *LOCAL, "--policy", str(policy), *QUICK)
    (container,) = namespace.client.get("deployments", "qwen")["spec"]["template"]["spec"][
        "containers"
    ]
    assert any("--speculative-config" in word for word in container["args"])
    (watched,) = mpctl.json("status")["items"]
    assert watched["status"]["state"] == "Ready"
    mpctl("rollback", "qwen")
    assert text_of(namespace.client.get("deployments", "qwen")) == before
