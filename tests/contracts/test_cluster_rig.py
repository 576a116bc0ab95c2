"""The test cluster itself: behaviour that tests of mpctl rely on."""

import asyncio
import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.cluster.asking import ask
from tests.cluster.conftest import ROOT
from tests.cluster.objects import BUSY, CLAIM, CONTAINERS, MODEL, hpa, is_true
from tests.cluster.rig.api import ApiError
from tests.cluster.rig.behave import Unit
from tests.cluster.rig.nodes import L4

# In a process of its own: Python's client leaves its sockets to the garbage collector.
FORWARD = """\
import sys
from kubernetes import client, config
from kubernetes.stream import portforward

config.load_kube_config(sys.argv[1])
get = client.CoreV1Api().connect_get_namespaced_pod_portforward
socket = portforward(get, sys.argv[3], sys.argv[2], ports="8080").socket(8080)
socket.setblocking(True)
socket.sendall(b"GET /version HTTP/1.1\\r\\nHost: pod\\r\\nConnection: close\\r\\n\\r\\n")
while part := socket.recv(65536):
    sys.stdout.buffer.write(part)
"""

LOOK = """\
import os, urllib.request
print(urllib.request.urlopen(os.environ["URL"] + "/v1/models").read().decode())
print(open("/data/note").read())
"""


def test_an_inference_service_becomes_a_process_that_answers(cluster, namespace):
    namespace.deploy(MODEL)
    (argv,) = namespace.argv()
    assert "--served-model-name=demo" in argv
    (pod,) = namespace.pods()
    address = cluster.pods.named(namespace.name, pod["metadata"]["name"]).real_address
    assert ask(f"http://{address}:8080") == "one two three"


def test_a_pod_starts_restarts_and_ends_as_in_kubernetes(cluster, namespace):
    cluster.pods.rule(lambda pod: {"crash": 7})
    namespace.client.apply(CLAIM)
    namespace.client.apply(CONTAINERS)

    def crashed():
        for pod in namespace.pods():
            for status in pod.get("status", {}).get("containerStatuses", ()):
                if status["restartCount"] >= 2 and status["lastState"].get("terminated"):
                    return status
        return None

    status = namespace.client.wait("two restarts", crashed)
    assert status["lastState"]["terminated"]["exitCode"] == 7
    events = [e["reason"] for e in namespace.client.list("events")]
    assert "BackOff" in events
    assert "FailedToUpdateEndpointSlices" not in events


def test_a_deletion_is_not_lost_at_the_moment_a_container_ends():
    async def deleted() -> bool:
        async def ends():
            await over.wait()
            return 3

        over = asyncio.Event()
        unit = Unit("engine", {}, exited=asyncio.create_task(ends()))
        task = asyncio.create_task(forever(unit))
        await asyncio.sleep(0.05)
        over.set()
        while not unit.exited.done():
            await asyncio.sleep(0)
        task.cancel()
        return task in (await asyncio.wait({task}, timeout=10))[0]

    async def forever(unit):
        while True:
            await unit.pause(5)
            await asyncio.sleep(0.01)

    assert asyncio.run(deleted())


def test_the_second_pod_of_a_one_gpu_node_cannot_be_allocated(cluster, namespace):
    taken = []
    for number in range(len(cluster.nodes.numbers) + 1):
        namespace.client.apply(CLAIM)
        namespace.client.apply(BUSY.replace("@NAME@", f"pod-{number}"))
        taken.append(f"pod-{number}")

    def refused():
        pods = namespace.client.list("pods")
        actual_pods = [
            c
            for p in pods
            for c in p["status"].get("conditions", ())
            if c["type"] == "PodScheduled"
        ]
        return (
            [c["message"] for c in actual_pods if c["status"] == "False"]
            if len(actual_pods) == len(taken)
            else None
        )

    (message,) = namespace.client.wait("all but one are scheduled", refused)
    assert "cannot allocate all claims" in message
    first = next(p for p in namespace.client.list("pods") if p["spec"].get("nodeName"))
    namespace.client.delete("pods", first["metadata"]["name"])
    namespace.client.wait(
        "the last pod gets the freed GPU",
        lambda: len([p for p in namespace.client.list("pods") if p["spec"].get("nodeName")]) == 2,
    )


def test_the_autoscaler_follows_queue_wait(cluster, namespace):
    namespace.deploy(MODEL)
    namespace.client.apply(hpa())
    cluster.metrics.set("queue_wait_ms", 500)
    namespace.client.wait(
        "two replicas",
        lambda: namespace.client.get("deployments", "demo-predictor")["spec"]["replicas"] == 2,
    )
    cluster.metrics.set("queue_wait_ms", 10)
    namespace.client.wait(
        "one replica",
        lambda: namespace.client.get("deployments", "demo-predictor")["spec"]["replicas"] == 1,
    )


def test_logs_come_from_the_pods_process(cluster, namespace):
    namespace.deploy(CONTAINERS)
    (pod,) = namespace.pods()
    text = namespace.kubectl("logs", pod["metadata"]["name"])
    assert "scripted engine" in text and "--max-model-len=2048" in text


def test_ports_are_forwarded_over_websockets(cluster, namespace, tmp_path):
    namespace.deploy(CONTAINERS)
    (pod,) = namespace.pods()
    path = cluster.proxy.kubeconfig(cluster.admin, tmp_path / "kubeconfig")
    for kubeconfig in (cluster.kubeconfig, path):
        program = [
            sys.executable,
            "-c",
            FORWARD,
            kubeconfig,
            namespace.name,
            pod["metadata"]["name"],
        ]
        assert (
            b'"version"'
            in subprocess.run(program, check=True, capture_output=True, timeout=60).stdout
        )


def test_routes_share_requests_by_weight(cluster, namespace):
    namespace.deploy(MODEL)
    namespace.client.apply(MODEL.replace("name: demo", "name: other"))
    namespace.ready("other")
    route = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": "shared"},
        "spec": {
            "parentRefs": [{"name": "kserve-ingress-gateway", "namespace": "kserve"}],
            "hostnames": ["shared.example.com"],
            "rules": [
                {
                    "backendRefs": [
                        {"name": "demo-predictor", "port": 80, "weight": 95},
                        {"name": "other-predictor", "port": 80, "weight": 5},
                    ]
                }
            ],
        },
    }
    namespace.client.apply(route)
    accepted = lambda: namespace.client.get("httproutes", "shared").get("status", {}).get("parents")  # noqa: E731
    namespace.client.wait("the route is accepted", accepted)
    for _ in range(100):
        assert ask(cluster.gateway.url, "hello", Host="shared.example.com") == "hello"
    assert cluster.gateway.routed[namespace.name, "other-predictor"] == 5
    assert cluster.gateway.routed[namespace.name, "demo-predictor"] == 95


def test_a_jobs_pod_reaches_a_service_by_name_and_its_output_is_its_log(cluster, namespace):
    namespace.deploy(MODEL)
    namespace.client.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "note"},
            "data": {"note": "from a ConfigMap"},
        }
    )
    namespace.client.apply(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "bench"},
            "spec": {
                "backoffLimit": 0,
                "template": {
                    "spec": {
                        "restartPolicy": "Never",
                        "volumes": [{"name": "data", "configMap": {"name": "note"}}],
                        "containers": [
                            {
                                "name": "bench",
                                "image": "vllm/vllm-openai:v0.32.0",
                                "command": ["python3", "-c", LOOK],
                                "env": [
                                    {
                                        "name": "URL",
                                        "value": f"http://demo-predictor.{namespace.name}.svc.cluster.local",
                                    }
                                ],
                                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                            }
                        ],
                    }
                },
            },
        }
    )
    namespace.client.wait(
        "the job is done", lambda: is_true(namespace.client.get("jobs", "bench"), "Complete")
    )
    text = namespace.kubectl("logs", "job/bench")
    assert '"demo"' in text and "from a ConfigMap" in text


def test_the_proxy_injects_faults_and_remembers_requests(cluster, namespace, tmp_path):
    user = cluster.user("operator")
    path = cluster.proxy.kubeconfig(user, tmp_path / "kubeconfig", namespace=namespace.name)
    create = ("create", "configmap", "one", "--from-literal=a=b")
    assert "forbidden" in cluster.kubectl(*create, kubeconfig=path, code=1).lower()
    namespace.client.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "maps"},
            "rules": [
                {
                    "apiGroups": [""],
                    "resources": ["configmaps"],
                    "verbs": ["create", "get", "list", "watch"],
                }
            ],
        }
    )
    namespace.client.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "maps"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "maps"},
            "subjects": [
                {"kind": "User", "name": "operator", "apiGroup": "rbac.authorization.k8s.io"}
            ],
        }
    )
    cluster.proxy.clear()
    fault = cluster.proxy.add(409, verb="create", resource="configmaps")
    assert "Conflict" in cluster.kubectl(*create, kubeconfig=path, code=1)
    assert fault.fired == 1
    lost = cluster.proxy.add("timeout", verb="create", resource="configmaps")
    cluster.kubectl(*create, kubeconfig=path, code=1)
    assert lost.fired == 1
    assert namespace.client.get("configmaps", "one")["data"] == {"a": "b"}  # done, and nobody told
    assert ("create", "", "configmaps") in cluster.proxy.rules()
    assert {c.user for c in cluster.proxy.calls} == {"operator"}


@pytest.mark.timeout(600)
def test_two_clusters_at_once_and_a_killed_owner_leaves_nothing():
    code = (
        "import sys,time\nfrom tests.cluster.rig.cluster import Cluster, Settings\n"
        "c = Cluster(Settings(kserve=False)).__enter__()\n"
        "print(c.folder, *(p.pid for p in c.processes.started.values()), flush=True)\ntime.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as owner:
        folder, *pids = owner.stdout.readline().split()
        assert len(pids) == 4 and Path(folder).is_dir()
        owner.send_signal(signal.SIGKILL)
    end = time.monotonic() + 60
    while time.monotonic() < end and (
        Path(folder).exists() or any(Path(f"/proc/{p}").exists() for p in pids)
    ):
        time.sleep(0.1)
    assert not Path(folder).exists()
    assert not [p for p in pids if Path(f"/proc/{p}").exists()]


def test_a_webhook_refuses_what_kserve_refuses(namespace):
    with pytest.raises(ApiError, match="is not a supported autoscaler class type"):
        namespace.client.apply(MODEL.replace("autoscalerClass: external", "autoscalerClass: bogus"))


def test_a_watch_is_dropped_and_a_lease_is_stolen(cluster, namespace, tmp_path):
    path = cluster.proxy.kubeconfig(
        cluster.admin, tmp_path / "kubeconfig", namespace=namespace.name
    )
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "mine"}}
    namespace.client.apply(lease | {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 30}})

    async def steal(call):
        stolen = lease | {"spec": {"holderIdentity": "somebody else"}}
        await cluster.api.apply(stolen, call.namespace, manager="thief")

    cluster.proxy.add(steal, verb="get", resource="leases", name="mine")
    assert "somebody else" in cluster.kubectl("get", "lease", "mine", "-o", "yaml", kubeconfig=path)
    fault = cluster.proxy.add("drop", verb="watch", resource="configmaps", after=1)
    done = cluster.kubectl(
        "get", "configmaps", "--watch-only", "--request-timeout=60s", kubeconfig=path, code=None
    )
    assert fault.fired == 1, done


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_refusal_looks_like_the_api_servers(cluster, namespace, status):
    cluster.proxy.add(status, verb="list", resource="pods", retry_after_s=7)
    context = cluster.client_context(cluster.admin)
    url = f"{cluster.proxy.url}/api/v1/namespaces/{namespace.name}/pods"
    handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.build_opener(*handlers).open(url, timeout=30)
    with refused.value as answer:
        assert answer.code == status
        assert json.load(answer)["kind"] == "Status"
        assert answer.headers["Retry-After"] == (None if status == 500 else "7")


def test_a_service_account_is_itself_through_the_proxy(cluster, namespace, tmp_path):
    namespace.client.wait(
        "the account", lambda: namespace.client.find("serviceaccounts", "default")
    )
    path = cluster.service_account_kubeconfig(namespace.name, "default", tmp_path / "kubeconfig")
    output = cluster.kubectl("auth", "whoami", f"--server={cluster.proxy.url}", kubeconfig=path)
    assert f"system:serviceaccount:{namespace.name}:default" in output


def test_a_pod_with_a_missing_secret_waits_until_it_is_there(cluster, namespace):
    text = CONTAINERS.replace(
        "        readinessProbe:",
        "        env: [{name: KEY, valueFrom: {secretKeyRef: {name: key, key: key}}}]\n        readinessProbe:",
    )
    namespace.client.apply(CLAIM)
    namespace.client.apply(text)

    def waiting():
        states = [
            s["state"]
            for p in namespace.pods()
            for s in p.get("status", {}).get("containerStatuses", ())
        ]
        return [
            s["waiting"]["message"]
            for s in states
            if s.get("waiting", {}).get("reason") == "CreateContainerConfigError"
        ]

    assert namespace.client.wait("the kubelet says so", waiting) == ['secret "key" not found']
    namespace.client.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "key"},
            "stringData": {"key": "x"},
        }
    )
    namespace.ready()


def test_the_scheduler_does_not_use_lost_or_failed_gpus(cluster, namespace):
    name = cluster.add_node(L4.with_gpus(2))
    try:
        slices = cluster.client.get("resourceslices", f"{name}-gpu.nvidia.com")["spec"]
        assert [d["name"] for d in slices["devices"]] == ["gpu-0", "gpu-1"]
        cluster.set_gpus(name, 0)
        changed = cluster.client.get("resourceslices", f"{name}-gpu.nvidia.com")["spec"]
        assert not changed.get("devices") and changed["pool"]["generation"] == 2
    finally:
        cluster.remove_node(name)
    assert cluster.client.find("nodes", name) is None
