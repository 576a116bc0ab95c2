"""Objects that tests deploy, and those that mpctl wrote."""

from mpctl.platform.kubernetes.ledger_objects import Appended

CLAIM = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata:
  name: one-l4
spec:
  spec:
    devices:
      requests:
        - name: gpu
          exactly: {deviceClassName: gpu.nvidia.com, allocationMode: ExactCount, count: 1}
"""

# A model and KServe's own vLLM runtime; runtimeVersion, because a claim alone makes KServe take the CPU image.
# A gate's policy with which how busy the machine is decides nothing.
ANY_SPEED = """\
max_time_per_token_ratio: 1000
max_tpot_ratio: 1000
max_e2e_ratio: 1000
max_ttft_ratio: 1000
ttft_slack_ms: 100000
queue_wait_slack_ms: 100000
max_failed_excess: 1
"""

MODEL = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: demo
  annotations:
    serving.kserve.io/autoscalerClass: external
spec:
  predictor:
    minReplicas: 1
    resourceClaims:
      - {name: gpu, resourceClaimTemplateName: one-l4}
    model:
      modelFormat: {name: vLLM}
      runtime: kserve-vllmserver
      runtimeVersion: v0.11.0
      storageUri: hf://org/target
      resources:
        requests: {cpu: "1", memory: 2Gi}
        limits: {cpu: "2", memory: 4Gi}
        claims: [{name: gpu, request: gpu}]
"""

# Containers of the user's own, with the engine's whole command line.
CONTAINERS = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: demo
  annotations:
    serving.kserve.io/autoscalerClass: external
spec:
  predictor:
    minReplicas: 1
    resourceClaims:
      - {name: gpu, resourceClaimTemplateName: one-l4}
    containers:
      - name: kserve-container
        image: vllm/vllm-openai:v0.32.0
        args:
          - --model=org/target
          - --served-model-name=demo
          - --port=8080
          - --max-model-len=2048
        ports:
          - {containerPort: 8080, protocol: TCP}
        readinessProbe:
          httpGet: {path: /health, port: 8080}
        resources:
          requests: {cpu: "1", memory: 2Gi}
          limits: {cpu: "2", memory: 4Gi}
          claims: [{name: gpu, request: gpu}]
"""

# A route of the users' own to the service, behind the cluster's gateway.
ROUTE = {
    "apiVersion": "gateway.networking.k8s.io/v1",
    "kind": "HTTPRoute",
    "metadata": {"name": "users", "labels": {"team": "chat"}},
    "spec": {
        "parentRefs": [{"name": "kserve-ingress-gateway", "namespace": "kserve"}],
        "hostnames": ["demo.example.com"],
        "rules": [{"backendRefs": [{"name": "demo-predictor", "port": 80}]}],
    },
}


def taken_route(client, host="demo.example.com") -> dict:
    """Apply the route and wait until the gateway has taken it; the object."""
    client.apply({**ROUTE, "spec": {**ROUTE["spec"], "hostnames": [host]}})

    def look():
        route = client.get("httproutes", "users")
        return route if route.get("status", {}).get("parents") else None

    return client.wait("the route is taken", look)


# A pod that takes a GPU and does nothing.
BUSY = """\
apiVersion: v1
kind: Pod
metadata:
  name: @NAME@
spec:
  restartPolicy: Never
  containers:
    - name: main
      image: vllm/vllm-openai:v0.32.0
      args: [--model=m]
      resources: {claims: [{name: gpu}]}
  resourceClaims: [{name: gpu, resourceClaimTemplateName: one-l4}]
"""

QUEUE_WAIT = {
    "type": "Pods",
    "pods": {
        "metric": {"name": "queue_wait_ms"},
        "target": {"type": "AverageValue", "averageValue": "200"},
    },
}
CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}


def hpa(name: str = "demo-queue", *, most: int = 2, metric: dict = QUEUE_WAIT) -> dict:
    """An autoscaler of the service's predictor, from one pod on."""
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "name": "demo-predictor",
            },
            "minReplicas": 1,
            "maxReplicas": most,
            "metrics": [metric],
        },
    }


def conditions(record: dict) -> dict[str, dict]:
    """An object's conditions by type."""
    return {c["type"]: c for c in record.get("status", {}).get("conditions") or ()}


def is_true(record: dict, kind: str) -> bool:
    """Whether a condition holds."""
    return conditions(record).get(kind, {}).get("status") == "True"


def ledger_entries(appended: list[dict]) -> list[dict]:
    """The entries in a ledger's ControllerRevisions, oldest first: one that is appended to may hold several."""
    entries = (entry for item in appended for entry in Appended.of(item).entries)
    return sorted(entries, key=lambda entry: entry["seq"])
