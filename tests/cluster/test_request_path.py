"""Requests of users on their way to an engine: no answer is cut, and none is lost when pods come and go.

Users read streams through the gateway (``rig/gateway.py``) all the time, by the HTTPRoutes that KServe's controller
writes. Pods end as a kubelet ends them: removed from the endpoints and told by their preStop hook at once, SIGTERM
after the hook, SIGKILL at the end of the grace period. The scripted engine aborts its answers on SIGTERM, as vLLM does,
unless ``--shutdown-timeout`` lets it finish them. Proxies of the gateway learn of an endpoint half a second late.
"""

import http.client
import json
import re
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest
import yaml

from .fixtures import Namespace
from .objects import CLAIM, CONTAINERS
from .rig.api import ApiError
from .rig.nodes import L4
from .test_journey_deployment import DEPLOYMENT, SERVICE
from .test_journey_groups import GROUPS
from .test_journey_llm import CONFIG
from .test_journey_llm import SERVICE as LLM
from .unmeasured import Unmeasured

WORDS, TOKEN_S = 60, 0.05  # a stream lasts 3 s
DRAIN = "--shutdown-timeout=1800"
ROLLOUT = ("--spec", "ngram", "--bake", "3s")
GROUP, LEADER = (
    "leaderworkerset.sigs.k8s.io/name=large",
    "leaderworkerset.sigs.k8s.io/worker-index=0",
)
HOOK = {"preStop": {"sleep": {"seconds": 15}}}  # 1.5 s here


@pytest.fixture(scope="module", autouse=True)
def gateway_api(cluster):
    """KServe writes HTTPRoutes, which it reads at its start; two spare nodes, for a pair that users do not reach."""
    cluster.kserve.configure({"ingress": {"enableGatewayApi": True}})
    cluster.kserve.restart()
    spare = [cluster.add_node(L4) for _ in range(2)]
    yield
    for node in spare:
        cluster.remove_node(node)
    cluster.kserve.configure({})
    cluster.kserve.restart()


@pytest.fixture(autouse=True)
def pace(cluster):
    """Restore the gateway's clock."""
    yield
    cluster.gateway.faster, cluster.gateway.lag_s = 1.0, 0.0


class Lost(Exception):
    """A stream that did not come to its end."""


def stream(cluster, host, words=WORDS, url=None):
    """Read one stream to its end. ``url``: of another gateway than the cluster's.

    Raises:
        Lost: it was refused, or broke off.
    """
    gateway = urlsplit(url or cluster.gateway.url)
    connection = http.client.HTTPConnection(gateway.hostname, gateway.port, timeout=120)
    body = {
        "model": "demo",
        "prompt": " ".join(["word"] * words),
        "max_tokens": 10_000,
        "stream": True,
    }
    headers = {"Content-Type": "application/json", "Host": host}
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read().decode()
    except (OSError, http.client.HTTPException) as error:
        raise Lost(f"broken: {error!r}") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise Lost(f"{answer.status} {text[:100]}")
    if text.count("data: {") != words or not text.endswith("data: [DONE]\n\n"):
        raise Lost(f"ended after {text.count('data: {')} of {words} words")


class Users:
    """So many users, each reading one stream of ``words`` after the other."""

    def __init__(self, cluster, host, number=4, words=WORDS):
        self.cluster, self.host, self.words = cluster, host, words
        self.whole, self.lost, self._ending = 0, [], threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(number)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
            time.sleep(
                self.words * TOKEN_S / len(self._threads)
            )  # evenly spread, so that some are always under way
        return self

    def __exit__(self, *_):
        self._ending.set()
        for thread in self._threads:
            thread.join(60)

    def _run(self):
        while not self._ending.is_set():
            try:
                stream(self.cluster, self.host, self.words)
                with self._lock:
                    self.whole += 1
            except Lost as error:
                with self._lock:
                    self.lost.append(str(error))
                time.sleep(0.2)


def drained(text, timeout_s=1800):
    """The manifest of a service that keeps every request."""
    record = yaml.safe_load(text)
    if record["kind"] == "InferenceService":
        pod = record["spec"]["predictor"]
        pod |= {"timeout": timeout_s, "minReplicas": 2, "maxReplicas": 2}
        pod["containers"][0]["args"].append(DRAIN)
    else:
        record["spec"]["replicas"] = 2
        groups = record["spec"].get("leaderWorkerTemplate")
        pod = (groups["leaderTemplate"] if groups else record["spec"]["template"])["spec"]
        pod["containers"][0]["args"][0] += f" {DRAIN}"
    pod["terminationGracePeriodSeconds"] = 15 + 1800 + 15
    pod["containers"][0]["lifecycle"] = HOOK
    return record


def slow(cluster):
    """Engines take their time for a token, so that streams last."""
    cluster.pods.rule(lambda pod: {"script": {"token_s": TOKEN_S, "speculating": {"slow": 2}}})


def kserve_host(namespace):
    """The host name of KServe's own route, once the gateway has it."""

    def look():
        url = (namespace.client.get("isvc", "demo").get("status") or {}).get("url")
        host = urlsplit(url or "").hostname
        return host if host and namespace.cluster.gateway._match(host, "/v1") else None

    return namespace.client.wait("KServe's route", look)


def request_timeout(namespace):
    (route,) = [r for r in namespace.client.list("httproutes") if r["metadata"]["name"] == "demo"]
    return {rule["timeouts"]["request"] for rule in route["spec"]["rules"]}


def test_a_stream_of_65_s_is_cut_by_kserves_own_timeout_and_passes_with_one_of_the_service(
    cluster, namespace, mpctl
):
    cluster.pods.rule(lambda pod: {"script": {"token_s": 0.05}})
    namespace.deploy(CONTAINERS)
    host = kserve_host(namespace)
    assert request_timeout(namespace) == {"60s"}
    cluster.gateway.faster = 10.0
    stream(cluster, host, words=20)  # 1 s is 10 s
    with pytest.raises(Lost, match=r"broken|ended after"):
        stream(cluster, host, words=130)  # 65 s
    (finding,) = [f for f in mpctl.json("doctor", code=None)["items"] if f["id"] == "answers-cut"]
    assert finding["cause"] == "answers are cut after 60 s by HTTPRoute demo, demo-predictor"
    assert "spec.predictor.timeout: 1800" in finding["fix"]

    namespace.client.patch("isvc", "demo", {"spec": {"predictor": {"timeout": 1800}}})
    namespace.client.wait("the route has it", lambda: request_timeout(namespace) == {"1800s"})
    namespace.ready()
    stream(cluster, host, words=130)
    cluster.gateway.faster = 50.0
    stream(cluster, host, words=240)  # 10 minutes and more
    assert not [f for f in mpctl.json("doctor", code=None)["items"] if f["id"] == "answers-cut"]


@dataclass(frozen=True)
class Served:
    """A service of a kind: its ``name``, and the workload that its pods belong to."""

    namespace: Namespace
    kind: str
    name: str
    workload: str

    @property
    def plural(self):
        return "leaderworkersets" if self.kind == "LeaderWorkerSet" else "deployments"

    def engine(self):
        """The engine's container in the template of its pods."""
        return self.namespace.client.get(self.plural, self.workload)["spec"]["template"]["spec"][
            "containers"
        ][0]

    def settled(self):
        """Whether all pods are of its newest form, ready, and no old one is left."""
        if self.plural == "deployments":
            return self.namespace.settled(self.workload)
        record = self.namespace.client.get(self.plural, self.workload)
        status, wanted = record.get("status", {}), record["spec"]["replicas"]
        whole = (
            status.get("readyReplicas")
            == status.get("updatedReplicas")
            == status.get("replicas")
            == wanted
        )
        pods = self.namespace.client.list("pods", labels=GROUP)
        return (
            whole
            and len(pods) == 2 * wanted
            and not any("deletionTimestamp" in p["metadata"] for p in pods)
        )

    def wait(self):
        self.namespace.client.wait(f"{self.name} is settled", self.settled, 120)

    def scale(self, count):
        if self.kind == "LLMInferenceService":
            self.namespace.client.patch("llmisvc", self.name, {"spec": {"replicas": count}})
        else:
            self.namespace.kubectl("scale", f"{self.plural}/{self.workload}", f"--replicas={count}")
        wanted = lambda: (  # noqa: E731
            self.namespace.client.get(self.plural, self.workload)["spec"]["replicas"] == count
        )
        self.namespace.client.wait(f"{count} pods", lambda: wanted() and self.settled(), 120)

    def pod(self):
        """An engine's pod."""
        selector = (
            self.namespace.client.get(self.plural, self.workload)["spec"].get("selector") or {}
        )
        labels = (
            ",".join(f"{k}={v}" for k, v in selector.get("matchLabels", {}).items())
            or f"{GROUP},{LEADER}"
        )
        pods = self.namespace.client.list("pods", labels=labels)
        return next(p for p in pods if "deletionTimestamp" not in p["metadata"])

    def drain_node(self):
        """Evict what runs on one node, as ``kubectl drain`` does."""
        pod = self.pod()
        with cordoned(self.namespace.cluster, pod["spec"]["nodeName"]):
            path = (
                f"/api/v1/namespaces/{self.namespace.name}/pods/{pod['metadata']['name']}/eviction"
            )
            body = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": pod["metadata"]["name"]},
            }
            self.namespace.client.request("POST", path, body)
            self.replaced(pod)

    def kill_pod(self):
        pod = self.pod()
        self.namespace.kubectl(
            "delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force"
        )
        self.replaced(pod)

    def replaced(self, pod):
        uid = pod["metadata"]["uid"]
        gone = lambda: uid not in {p["metadata"]["uid"] for p in self.namespace.client.list("pods")}  # noqa: E731
        self.namespace.client.wait("the pod was replaced", lambda: gone() and self.settled(), 120)

    def events(self, mpctl):
        """What happens to its pods, by name."""
        unmeasured = Unmeasured(mpctl)
        how = ("--strategy", "in-place") if self.kind == "LeaderWorkerSet" else ()
        return {
            "scale-down": lambda: (self.scale(1), self.scale(2)),
            "node drain": self.drain_node,
            "restart": lambda: mpctl("restart", self.name),
            "rollout, bake end": lambda: unmeasured("rollout", self.name, *ROLLOUT, *how),
            "rollback": lambda: mpctl("rollback", self.name),
            "pod kill": self.kill_pod,
        }


@contextmanager
def cordoned(cluster, node):
    cluster.kubectl("cordon", node)
    try:
        yield
    finally:
        cluster.kubectl("uncordon", node)


def deployed(namespace, kind):
    """A service of the kind that serves with two pods and keeps every request, and its host name."""
    slow(namespace.cluster)
    apply = namespace.client.apply
    if kind == "LeaderWorkerSet":
        worker = {"engine": "none"}
        namespace.cluster.pods.rule(
            lambda pod: None if "role" in pod["metadata"]["labels"] else worker
        )
        served = Served(namespace, kind, "large", "large")
        namespace.client.wait("the set is accepted", lambda: accepted(namespace, drained(GROUPS)))
        port, selector = 8000, {"leaderworkerset.sigs.k8s.io/name": "large", "role": "leader"}
    elif kind == "LLMInferenceService":
        served = Served(namespace, kind, "chat", "chat-kserve")
        for text in (
            CLAIM,
            CONFIG,
            {**yaml.safe_load(LLM), "spec": {**yaml.safe_load(LLM)["spec"], "replicas": 2}},
        ):
            apply(text)
        namespace.client.wait(
            "KServe's Deployment", lambda: namespace.client.find("deployments", "chat-kserve")
        )
        port, selector = 8000, {"app.kubernetes.io/name": "chat", "kserve.io/component": "workload"}
    elif kind == "Deployment":
        served, port, selector = Served(namespace, kind, "qwen", "qwen"), 0, {}
        for text in (CLAIM, SERVICE, drained(DEPLOYMENT)):
            apply(text)
    else:
        served, port, selector = Served(namespace, kind, "demo", "demo-predictor"), 0, {}
        for text in (CLAIM, drained(CONTAINERS)):
            apply(text)
    namespace.client.wait("the engines are ready", served.settled, 120)
    if kind == "InferenceService":
        served.scale(2)
        return served, kserve_host(namespace)
    if selector:
        ports = [{"port": 80, "targetPort": port}]
        spec = {"selector": selector, "ports": ports}
        apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "front"}, "spec": spec})
    return served, own_route(namespace, "front" if selector else "qwen")


def accepted(namespace, record):
    try:
        return namespace.client.apply(record)
    except ApiError as error:
        assert error.status == 500, (
            error
        )  # the webhook's port is open a moment after the controller is ready
        return None


BY_NIGHT = [
    pytest.param(kind, marks=pytest.mark.nightly)
    for kind in ("Deployment", "LLMInferenceService", "LeaderWorkerSet")
]


@pytest.mark.parametrize("kind", ["InferenceService", *BY_NIGHT])
def test_no_stream_is_lost_when_pods_come_and_go(cluster, namespace, mpctl, capsys, request, kind):
    if kind in ("LLMInferenceService", "LeaderWorkerSet"):
        request.getfixturevalue(
            "llm_cluster" if kind == "LLMInferenceService" else "groups_cluster"
        )
    served, host = deployed(namespace, kind)
    cluster.gateway.lag_s = 0.5
    table = []
    for event, act in served.events(mpctl).items():
        with Users(cluster, host) as users:
            act()
            served.wait()  # what old pods lose counts for the event
        table.append((event, users.whole, users.lost))
    rows = [f"{event:20} {whole + len(lost):8} {len(lost):5}" for event, whole, lost in table]
    with capsys.disabled():
        sys.stdout.write("\n".join(["", f"{kind:20} {'requests':>8} {'lost':>5}", *rows, ""]))
    assert all(whole for _, whole, _ in table)
    assert {event: lost for event, _, lost in table if lost and event != "pod kill"} == {}
    assert len(table[-1][2]) <= 4, (
        "each of four users was reading at most one stream from the killed pod"
    )


def own_route(namespace, backend):
    """A route of the user to a Service; its host name."""
    host = f"{namespace.name}.example.com"
    namespace.client.apply(
        {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "HTTPRoute",
            "metadata": {"name": "users"},
            "spec": {
                "parentRefs": [{"name": "kserve-ingress-gateway", "namespace": "kserve"}],
                "hostnames": [host],
                "rules": [
                    {
                        "backendRefs": [{"name": backend, "port": 80}],
                        "timeouts": {"request": "1800s"},
                    }
                ],
            },
        }
    )
    gateway = namespace.cluster.gateway
    namespace.client.wait("the route", lambda: gateway._match(host, "/v1"))
    namespace.client.wait("its endpoints", lambda: gateway._endpoint(namespace.name, backend, 80))
    return host


def test_a_service_without_hook_and_drain_loses_streams_and_a_rollout_says_so_before_it_starts(
    cluster, namespace, mpctl
):
    slow(cluster)
    record = drained(CONTAINERS)
    container = record["spec"]["predictor"]["containers"][0]
    del container["lifecycle"]
    container["args"].remove(DRAIN)
    namespace.deploy(record)
    served = Served(namespace, "InferenceService", "demo", "demo-predictor")
    served.scale(2)
    host = kserve_host(namespace)
    with Users(cluster, host) as users:
        served.scale(1)
    assert users.lost
    actual_mpctl = mpctl("rollout", "--spec", "ngram", "--dry-run=client", code=None)
    text = actual_mpctl.stdout + actual_mpctl.stderr
    assert "pods that are replaced may lose users' requests: no preStop hook" in text
    assert "--shutdown-timeout=1800" in text and "no downtime" not in text


LONG = 500  # words of a stream of 25 s: shorter ones end before the hook does
OLD = "vllm/vllm-openai:v0.17.1"  # knows no --shutdown-timeout, so its hook waits for its requests


def with_pasted_lines(record, text):
    """The manifest with the lines that the doctor printed."""
    spec = record["spec"]
    pod = spec["predictor"] if record["kind"] == "InferenceService" else spec["template"]["spec"]
    pod["terminationGracePeriodSeconds"] = int(
        re.search(r"terminationGracePeriodSeconds: (\d+)", text)[1]
    )
    pod["containers"][0]["lifecycle"] = yaml.safe_load(
        re.search(r"lifecycle: (\{.*?\}\}\})", text)[1]
    )
    return record


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("kind", "port"),
    [("Deployment", 8000), ("InferenceService", 8080), ("Deployment", 8080)],
    ids=str,
)
def test_the_pasted_hook_keeps_long_streams_and_one_that_asks_another_port_loses_some(
    cluster, namespace, mpctl, capsys, kind, port
):
    slow(cluster)
    record = yaml.safe_load(
        (DEPLOYMENT if kind == "Deployment" else CONTAINERS).replace("v0.32.0", "v0.17.1")
    )
    plain = kind == "Deployment"
    pod = record["spec"]["template"]["spec"] if plain else record["spec"]["predictor"]
    assert pod["containers"][0]["image"] == OLD
    record["spec"] |= {"replicas": 2} if plain else {}
    pod |= {} if plain else {"timeout": 1800, "minReplicas": 2, "maxReplicas": 2}
    served = Served(namespace, kind, *(("qwen", "qwen") if plain else ("demo", "demo-predictor")))
    for item in (CLAIM, SERVICE, record) if plain else (CLAIM, record):
        namespace.client.apply(item)
    namespace.client.wait("the engines are ready", served.settled, 120)
    host = own_route(namespace, "qwen") if plain else kserve_host(namespace)

    (finding,) = [f for f in mpctl.json("doctor", code=None)["items"] if f["id"] == "requests-lost"]
    text = finding["fix"]
    own = 8000 if plain else 8080
    assert f"http://localhost:{own}/metrics" in text
    namespace.client.apply(
        with_pasted_lines(record, text.replace(f"localhost:{own}", f"localhost:{port}"))
    )
    namespace.client.wait(
        "the hook is there", lambda: "lifecycle" in served.engine() and served.settled(), 120
    )

    cluster.gateway.lag_s = 0.5
    unmeasured, results = Unmeasured(mpctl), []
    with Users(cluster, host, 64, LONG) as users:
        for command in (("rollout", served.name, *ROLLOUT), ("rollback", served.name)):
            unmeasured(*command)
            served.wait()
            results.append((command[0], users.whole, len(users.lost)))
    with capsys.disabled():
        sys.stdout.write(
            f"\n{kind} with a hook on {port}: {users.whole} whole, {len(users.lost)} lost {results}\n"
        )
    assert users.whole + len(users.lost) >= 200
    assert bool(users.lost) is (port != own), users.lost
