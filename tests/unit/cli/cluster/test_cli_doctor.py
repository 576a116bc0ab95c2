"""``mpctl doctor`` from the command line, on a cluster in memory."""

import json

import pytest
import yaml

from mpctl import commands
from mpctl.errors import NotPermitted
from mpctl.platform.kubernetes.access.calls import RULES_REVIEW

BUILT_IN = (
    "resource.k8s.io",
    "admissionregistration.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
)
CHAT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat, namespace: team}
spec:
  replicas: 1
  selector: {matchLabels: {app: chat}}
  template:
    metadata: {labels: {app: chat}}
    spec:
      terminationGracePeriodSeconds: 1830
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.32.0
          args: [--model=Qwen/Qwen3-8B, --shutdown-timeout=1800]
          resources: {limits: {nvidia.com/gpu: "1"}}
          lifecycle: {preStop: {sleep: {seconds: 15}}}
          readinessProbe: {httpGet: {path: /health, port: 8000}}
status:
  conditions: [{type: Available, status: "True"}]
"""
NODE = """\
apiVersion: v1
kind: Node
metadata: {name: NAME, labels: {nvidia.com/gpu.present: "true"}}
spec: {taints: [{key: nvidia.com/gpu, effect: NoSchedule}]}
status: {allocatable: {cpu: "16", nvidia.com/gpu: "1"}, conditions: [{type: Ready, status: "True"}]}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: WHERE, labels: {app: APP}}
spec:
  nodeName: HOST
  containers: [{name: vllm, resources: {limits: {nvidia.com/gpu: "1"}}}]
status: {phase: Running}
"""


def built(text, **words):
    for word, value in words.items():
        text = text.replace(word, value)
    return yaml.safe_load(text)


class Server:
    """An API server in memory: objects by plural; ``groups``: the API groups that it serves."""

    context, namespace = "prod", "team"

    def __init__(self, groups=("apps",), **objects):
        self.groups, self.objects = groups, objects

    def version(self):
        return {"gitVersion": "v1.36.2"}

    def list(self, kind, namespace=None, *, labels="", fields=""):
        if "." in kind.group and kind.group not in (*self.groups, *BUILT_IN):
            raise NotPermitted(
                f"not allowed to list {kind.resource}"
            )  # as RBAC answers for kinds that are unknown
        items = [] if labels else self.objects.get(kind.plural, [])
        return [item for item in items if namespace in (None, item["metadata"].get("namespace"))]

    def get(self, kind, name, namespace=None):
        return None

    def raw(self, path):
        groups = [
            {"name": name, "versions": [{"version": "v1"}]} for name in (*self.groups, *BUILT_IN)
        ]
        return json.dumps({"groups": groups}) if path == "/apis" else None

    def create(self, kind, body, **_more):
        everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        return {
            "status": {"resourceRules": [everything]} if kind is RULES_REVIEW else {"allowed": True}
        }


@pytest.fixture
def doctor(cli, monkeypatch):
    """The findings and the exit code of ``mpctl doctor`` on a server."""

    def ask(server):
        monkeypatch.setattr("mpctl.app.cluster.doctor.open_client", lambda place: server)
        done = cli("doctor", "-o", "json")
        return [
            item for item in json.loads(done.out)["items"] if item["severity"] != "ok"
        ], done.code

    return ask


def nodes(number):
    return [built(NODE, NAME=f"gpu-{letter}") for letter in "abc"[:number]]


def test_a_deployment_on_a_cluster_without_kserve_gets_one_note_and_exit_code_0(doctor):
    pods = [built(POD, NAME="chat-1", WHERE="team", APP="chat", HOST="gpu-a")]
    found, code = doctor(Server(deployments=[built(CHAT)], nodes=nodes(2), pods=pods))
    assert code == 0 and [(f["id"], f["severity"]) for f in found] == [("kserve-missing", "note")]
    assert "1 Deployment" in found[0]["cause"]


def test_every_gpu_in_use_by_another_namespace_too_is_an_update_that_cannot_start(doctor):
    mine = built(POD, NAME="chat-1", WHERE="team", APP="chat", HOST="gpu-a")
    other = built(POD, NAME="train-1", WHERE="lab", APP="train", HOST="gpu-b")
    found, code = doctor(Server(deployments=[built(CHAT)], nodes=nodes(2), pods=[mine, other]))
    assert code == 0 and {f["id"] for f in found} == {"kserve-missing", "surge-deadlock"}


def test_a_deployment_whose_pod_no_node_takes_is_a_failure_with_its_reason(doctor):
    reason = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    scheduled = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": reason,
    }
    waiting = built(POD, NAME="chat-1", WHERE="team", APP="chat", HOST="gpu-a")
    waiting["spec"].pop("nodeName")
    waiting["status"] = {"phase": "Pending", "conditions": [scheduled]}
    deployment = built(CHAT)
    late = {
        "type": "Progressing",
        "status": "False",
        "reason": "ProgressDeadlineExceeded",
        "message": "timed out",
    }
    deployment["status"] = {"conditions": [late]}
    (engine,) = deployment["spec"]["template"]["spec"]["containers"]
    engine["readinessProbe"] = {"tcpSocket": {"port": 8000}}
    found, code = doctor(Server(deployments=[deployment], nodes=[], pods=[waiting]))
    by_id = {f["id"]: f for f in found}
    assert code == 9 and {"not-ready", "probe-tcp"} <= by_id.keys()
    assert (
        reason in by_id["not-ready"]["cause"]
        and by_id["not-ready"]["subject"] == "Deployment team/chat"
    )


def test_printed_kubectl_commands_name_the_cluster_of_the_call(doctor, monkeypatch):
    chosen = (("--context", "prod"), ("--kubeconfig", "/home/ann/prod.yaml"))
    monkeypatch.setattr("mpctl.commands.set_reader", lambda _reader: None)
    monkeypatch.setattr(commands, "_reader", commands.Reader(find_options=lambda: chosen))
    deployment = built(CHAT)
    deployment["spec"]["replicas"] = 4
    found, _ = doctor(Server(deployments=[deployment], nodes=nodes(3)))
    fix = next(f["fix"] for f in found if f["id"] == "no-disruption-budget")
    assert fix.endswith("-n team --context prod --kubeconfig /home/ann/prod.yaml")
