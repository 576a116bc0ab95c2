"""The watch as its Deployment runs it: two processes with the same arguments, of which one leads and is killed."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from mpctl.app.environment_requests import WatchInstallRequest
from mpctl.app.watch.install import objects

from .conftest import ROOT
from .measurement import LOCAL
from .objects import ANY_SPEED, CONTAINERS

WAIT_S = 90.0
# The command line with a Lease that ends after 6 s in the place of 30; everything else is the product.
BRISK = """
import sys
from mpctl.platform.kubernetes import lease
lease.DURATION_S = 6
lease.Lease.__init__.__kwdefaults__["heartbeat_s"] = 1.0
from mpctl.cli.main import run
sys.exit(run(sys.argv[1:]))
"""
USER = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "watcher"}]


class Replica:
    """A pod of the Deployment, as a process with the entry point that the container has."""

    def __init__(self, mpctl, directory, name, namespace, *more, program=("-m", "mpctl.cli.main")):
        self.log, self.namespace = directory / f"{name}.log", namespace
        words = [
            "watch",
            "run",
            "--platform",
            "kubernetes",
            "-n",
            namespace,
            "--interval",
            "1s",
            "--lease",
            namespace,
        ]
        words += ["--listen", "127.0.0.1:0", "-o", "json", *more]
        environment = mpctl.environment | {
            "KUBECONFIG": str(mpctl.kubeconfig),
            "PYTHONPATH": str(ROOT),
        }
        with self.log.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, *program, *words],
                cwd=directory,
                env=environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )

    def says(self, text):
        deadline = time.monotonic() + WAIT_S
        while text not in self.log.read_text():
            assert time.monotonic() < deadline, f"no {text!r} in: {self.log.read_text()}"
            assert self.process.poll() is None or text in self.log.read_text(), self.log.read_text()
            time.sleep(0.2)

    def end(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        return self.process.wait(timeout=60)


def test_a_leader_is_killed_and_the_other_watch_leads(namespace, mpctl, tmp_path):
    namespace.deploy(CONTAINERS)
    replicas = []
    try:
        replicas.append(Replica(mpctl, tmp_path, "first", namespace.name))
        replicas[0].says("this watch leads")
        replicas.append(Replica(mpctl, tmp_path, "second", namespace.name))
        replicas[1].says("another watch leads")
        replicas[0].end(signal.SIGKILL)
        replicas[1].says("this watch leads")
        assert replicas[1].end() == 0
    finally:
        for replica in replicas:
            replica.end(signal.SIGKILL)
    done = mpctl("watch", "demo", "--once", "--interval", "1s", "-o", "json")
    (item,) = json.loads(done.stdout)["items"]
    assert item["signal"] in ("Idle", "Healthy")
    assert item["figures"] is None or item["figures"]["tokensPerStep"] is not None


def flagger(replica):
    """The status that Flagger's webhook gets from a replica."""
    address = re.search(r"127\.0\.0\.1:\d+", replica.log.read_text())[0]
    body = json.dumps({"name": "demo", "namespace": replica.namespace, "metadata": {}}).encode()
    try:
        with urllib.request.urlopen(f"http://{address}/v1/flagger", body, timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_an_edit_that_removes_the_setting_is_refused_to_flagger_by_the_leader_and_by_the_waiting_watch(
    cluster, namespace, mpctl, tmp_path
):
    cluster.pods.rule(lambda pod: {"script": {"token_s": 0.02}})
    policy = tmp_path / "policy.yaml"
    policy.write_text(ANY_SPEED)
    namespace.deploy(CONTAINERS)
    few = (*LOCAL, "--requests", "4", "--repeats", "8", "--max-tokens", "16")
    mpctl("rollout", "--spec", "ngram", "--policy", str(policy), *few)
    replicas = [Replica(mpctl, tmp_path, name, namespace.name) for name in ("first", "second")]
    try:
        for replica in replicas:
            replica.says("watch leads")
        wait = namespace.client.wait
        wait(
            "both confirm the promotion",
            lambda: [flagger(r) for r in replicas] == [200, 200],
            timeout_s=WAIT_S,
        )
        containers = namespace.client.get("isvc", "demo")["spec"]["predictor"]["containers"]
        for container in containers:
            container["args"] = [word for word in container["args"] if "speculative" not in word]
        namespace.client.patch("isvc", "demo", {"spec": {"predictor": {"containers": containers}}})
        wait("both refuse", lambda: [flagger(r) for r in replicas] == [403, 403], timeout_s=60.0)
    finally:
        for replica in replicas:
            replica.end(signal.SIGKILL)


@pytest.fixture
def installed(cluster, namespace):
    """The definition, and a user with what `watch install` grants its service account, besides the Lease."""
    documents = objects(WatchInstallRequest(namespace.name, "mpctl:1"), "")
    user = cluster.user("watcher")
    wanted = [
        d for d in documents if d["kind"] in ("CustomResourceDefinition", "Role", "ClusterRole")
    ]
    wanted += [
        d | {"subjects": USER}
        for d in documents
        if d["kind"] in ("RoleBinding", "ClusterRoleBinding")
    ]
    # KServe's namespace is the doctor's business.
    wanted = [d for d in wanted if d["metadata"].get("namespace") in (None, namespace.name)]
    cluster.kubectl(
        "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": wanted})
    )
    cluster.kubectl(
        "wait", "--for=condition=Established", "crd/speculationstatuses.mpctl.dev", "--timeout=60s"
    )
    yield user
    cluster.kubectl("delete", "crd", "speculationstatuses.mpctl.dev")


def test_kubectl_waits_for_what_the_watch_publishes_with_the_rights_of_its_installation(
    namespace, mpctl, installed
):
    namespace.deploy(CONTAINERS)
    watcher = mpctl.as_user(installed)
    done = watcher("watch", "demo", "--once", "--interval", "1s", "--publish", "-o", "json")
    assert "not written" not in done.stderr
    name = "speculationstatus/demo"
    namespace.kubectl("wait", "--for=condition=Ready", name, "--timeout=10s")
    namespace.kubectl("wait", "--for=condition=Stalled=False", name, "--timeout=10s")
    status_object = json.loads(namespace.kubectl("get", name, "-o", "json"))
    assert status_object["status"]["observedGeneration"] == status_object["metadata"]["generation"]
    assert status_object["status"]["signal"] in ("Idle", "Healthy")


def test_a_leader_that_is_stopped_in_a_round_writes_nothing_after_another_leads(
    cluster, namespace, mpctl, installed, tmp_path
):
    namespace.deploy(CONTAINERS)
    names, replicas, stopped = ("first", "second"), [], []
    users = [mpctl.as_user(cluster.user(name, groups=["system:masters"])) for name in names]

    async def stop(call):
        replicas[0].process.send_signal(signal.SIGSTOP)
        stopped.append(call)

    # It has decided what to publish, and continues with the status when it is continued.
    cluster.proxy.add(stop, verb="patch", resource="speculationstatuses", user="first", late=True)
    try:
        for name, user in zip(names, users, strict=True):
            replica = Replica(
                user, tmp_path, name, namespace.name, "--publish", program=("-c", BRISK)
            )
            replicas.append(replica)
            if name == "first":
                cluster.client.wait("it is stopped", lambda: stopped)
        replicas[1].says("this watch leads")
        namespace.kubectl(
            "wait", "--for=condition=Ready", "speculationstatus/demo", "--timeout=30s"
        )
        began = len(cluster.proxy.calls)
        replicas[0].process.send_signal(signal.SIGCONT)
        assert replicas[0].process.wait(timeout=60) == 3, replicas[0].log.read_text()
        replicas[0].says("is not locked by this command any more: it was taken by")
    finally:
        for replica in replicas:
            replica.end(signal.SIGKILL)
    written = [call for call in cluster.proxy.calls[began:] if call.user == "first" and call.write]
    assert {(call.resource, call.status) for call in written} <= {("leases", 409)}
