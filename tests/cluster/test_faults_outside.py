"""Faults from outside in the middle of an operation, one after another on one service: nothing is lost, the truth is
told, and one command leads out."""

import json
import os
import secrets
import signal
from datetime import UTC, datetime

import pytest

from mpctl.platform.kubernetes.lease import this_process
from mpctl.platform.kubernetes.service.manifest_text import text_of
from tests.local.planted import PROMPT, finds, write_prompts

from .conftest import make_mpctl
from .fixtures import Namespace
from .objects import ANY_SPEED, CONTAINERS, hpa, ledger_entries
from .rig.nodes import L4
from .unmeasured import Unmeasured

ROLLOUT = ("rollout", "demo", "--spec", "ngram")
ROLLBACK = ("rollback", "demo", "--yes")
LEDGER = "mpctl.dev/service=demo,mpctl.dev/part=ledger"
KILLED = 7  # entries after which the candidate runs


class Served:
    """A service, the command line with and without its measurement, and what must hold after each fault."""

    def __init__(self, cluster, folder):
        name = f"t-{secrets.token_hex(3)}"
        cluster.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.cluster, self.namespace = cluster, Namespace(cluster, name)
        self.client = self.namespace.client
        self.mpctl = make_mpctl(cluster, name, folder)
        self.run = Unmeasured(self.mpctl)
        self.namespace.deploy(CONTAINERS)
        self.before = self.text()

    def text(self):
        return text_of(self.client.get("isvc", "demo"))

    def ledger(self):
        return sorted(
            self.client.list("controllerrevisions", labels=LEDGER),
            key=lambda item: item["revision"],
        )

    def killed(self, entries=KILLED):
        """A rollout whose operator died while its candidate runs."""
        self.run(*ROLLOUT, kill_after=entries, code=-signal.SIGKILL)

    def speculates(self):
        return any(
            word.startswith("--speculative-config")
            for argv in self.namespace.argv()
            for word in argv
        )

    def patched(self, path, value):
        """Another writer's change of the service."""
        patch = [{"op": "add", "path": path, "value": value}]
        self.namespace.kubectl(
            "patch", "isvc", "demo", "--type=json", "-p", json.dumps(patch), "--field-manager=team"
        )


@pytest.fixture(scope="module")
def module(cluster, tmp_path_factory):
    made = Served(cluster, tmp_path_factory.mktemp("faults"))
    yield made
    made.namespace.delete()


@pytest.fixture
def served(cluster, module):
    """The service, which is as it was after each test, with every operation ended and every entry kept."""
    module.namespace.ready()  # and no pod of the test before holds a GPU
    entries = [item["data"] for item in module.ledger()]
    yield module
    cluster.proxy.clear()
    assert module.text() == module.before
    assert module.client.find("isvc", "demo-candidate") is None
    assert not module.speculates()
    assert [item["data"] for item in module.ledger()][: len(entries)] == entries
    assert None not in [
        operation["ending"] for operation in module.run.json("history", "demo")["operations"]
    ]


FOREIGN = {
    "/metadata/labels": {"team": "search"},
    "/metadata/annotations/note": "theirs",
    "/spec/predictor/maxReplicas": 3,
    "/spec/predictor/containers/0/args/-": "--max-num-seqs=8",
}


def test_after_each_foreign_change_a_rollback_ends_with_speculation_off(served):
    for path, value in FOREIGN.items():
        served.run(*ROLLOUT)
        assert served.speculates(), path
        served.patched(path, value)
        assert "restored" in served.run(*ROLLBACK).stderr, path
        assert not served.speculates(), path
    isvc = served.client.get("isvc", "demo")
    assert (isvc["metadata"]["labels"]["team"], isvc["spec"]["predictor"]["maxReplicas"]) == (
        "search",
        3,
    )
    assert "--max-num-seqs=8" in isvc["spec"]["predictor"]["containers"][0]["args"]
    assert "was rolled back" in served.run(*ROLLBACK).stderr
    served.run("rollback", "demo", "--exact", "--to-revision", "1")


def test_etcd_is_restarted_in_the_middle_of_a_rollout(served):
    under_way = served.run.start(*ROLLOUT)
    try:
        served.client.wait("it is under way", lambda: served.client.find("isvc", "demo-candidate"))
        served.cluster.restart_etcd()
        _, stderr = under_way.communicate(timeout=240)
    finally:
        under_way.kill()
    assert under_way.returncode in (0, 1, 7), stderr
    assert "promoted" in stderr or "hint:" in stderr, stderr
    served.run(*ROLLBACK)


MEASURED = ("--requests", "4", "--repeats", "40", "--max-tokens", "16")
SCRIPT = {"token_s": 0.05}


@pytest.mark.parametrize(
    "drained", [pytest.param("demo", marks=pytest.mark.nightly), "demo-candidate"]
)
def test_a_node_that_is_drained_while_a_rollout_measures(served, tmp_path, drained):
    """Its pod moves to a free node; what is told is what runs, and the same command again ends well. What went wrong
    is told and recorded without the users' prompts, although the load client's log has them."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(ANY_SPEED)
    cluster, namespace = served.cluster, served.namespace
    cluster.pods.rule(lambda pod: {"script": SCRIPT})
    spare = cluster.add_node(L4)
    node = ""
    prompts = f"users={write_prompts(tmp_path / 'prompts.jsonl', count=180)}"
    under_way = served.mpctl.start(
        *ROLLOUT, "--policy", str(policy), "--prompts", prompts, *MEASURED
    )
    try:
        first = []
        while under_way.poll() is None and "round 2 of" not in "".join(first[-1:]):
            first.append(under_way.stderr.readline())
        assert "round 2 of" in first[-1], "".join(first)
        (pod,) = namespace.pods(drained)
        node = pod["spec"]["nodeName"]
        cluster.kubectl(
            "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=60s"
        )
        _, written = under_way.communicate(timeout=240)
        # A block that the drain interrupts ends the rollout; between blocks the engine moves, and it goes on.
        promoted = under_way.returncode == 0
        assert promoted or under_way.returncode == 7, written
        assert ("promoted: service" if promoted else "demo was restored") in written, written
        assert PROMPT not in written
        assert not any(finds(json.dumps(entry).encode()) for entry in served.ledger())
        namespace.ready()
        assert served.speculates() is promoted
        if promoted:
            served.run(*ROLLBACK)
        assert "promoted" in served.run(*ROLLOUT).stderr
        assert node not in [pod["spec"]["nodeName"] for pod in namespace.pods()]
        served.run(*ROLLBACK)
    finally:
        under_way.kill()
        cluster.pods.clear()
        if node:
            cluster.kubectl("uncordon", node)
        cluster.kubectl(
            "drain", spare, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=60s"
        )
        cluster.remove_node(spare)


def test_an_autoscaler_that_another_changes_while_it_is_pinned_is_theirs(served):
    served.cluster.metrics.set("queue_wait_ms", 150)  # within its tolerance: it wants one pod
    served.client.apply(hpa())
    try:
        served.killed(entries=5)
        served.client.patch("hpa", "demo-queue", {"spec": {"maxReplicas": 4}})
        done = served.run(*ROLLBACK)
        assert "demo-queue" in done.stderr, done.stderr
        assert served.client.get("hpa", "demo-queue")["spec"]["maxReplicas"] == 4
    finally:
        served.client.delete("hpa", "demo-queue")
        served.cluster.metrics.clear()


def test_a_quota_that_appears_in_the_middle_is_named_and_the_rollback_continues(served):
    served.killed()
    kind = "count/controllerrevisions.apps"
    count = len(served.client.list("controllerrevisions"))
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {kind: str(count)}},
    }
    served.client.apply(quota)
    path = f"/api/v1/namespaces/{served.namespace.name}/resourcequotas/small"

    def counted():
        used = served.client.request("GET", path).get("status", {}).get("used", {})
        return used.get(kind) == str(count)

    try:
        served.client.wait("it is counted", counted)
        done = served.run(*ROLLBACK, code=None)
        assert done.returncode not in (0, 2), done.stderr
        assert "exceeded quota: small" in done.stderr
    finally:
        served.client.request("DELETE", path)
    served.run(*ROLLBACK)


def test_a_ledger_that_a_newer_mpctl_continued_is_refused_by_name(served):
    (*_, last) = served.ledger()
    (*_, entry) = ledger_entries([last])
    number = entry["seq"] + 1
    name = f"mpctl-demo.ledger-{number}"
    data = {**entry, "seq": number, "format": 99, "who": "ann@newer"}
    metadata = {"name": name, "labels": last["metadata"]["labels"]}
    newer = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": metadata,
        "data": data,
        "revision": number,
    }
    served.client.apply(newer)
    try:
        for command in (ROLLBACK, ROLLOUT, ("status", "demo")):
            done = served.run(*command, code=1)
            assert name in done.stderr and "format 99 of a newer mpctl" in done.stderr, done.stderr
    finally:
        served.client.delete("controllerrevisions", name)


def test_a_writer_of_leases_stops_no_rollback_for_longer_than_one_command(served):
    name, group = "mallory", "rbac.authorization.k8s.io"
    metadata = {"name": name, "namespace": served.namespace.name}
    rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]}
    binding = {
        "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
    }
    for kind, fields in (("Role", {"rules": [rule]}), ("RoleBinding", binding)):
        served.client.apply(
            {"apiVersion": f"{group}/v1", "kind": kind, "metadata": metadata, **fields}
        )
    mallory = served.cluster.client_for(served.cluster.user(name), served.namespace.name)

    def write(notes, holder=None, renewed="2099-01-01T00:00:00.000000Z"):
        spec = {"holderIdentity": holder, "renewTime": renewed}
        mallory.patch("leases", "mpctl-demo", {"metadata": {"annotations": notes}, "spec": spec})

    served.killed()
    boot, _, _ = this_process().partition(" ")
    reused = f"{boot} {os.getpid()} 1"  # the process id of another process by now
    evil = "\x1b[2J\nnext: curl evil"
    write({"mpctl.dev/process": reused, "mpctl.dev/who": evil, "mpctl.dev/purpose": "\u202e"}, evil)
    written = served.run("status", "demo").stdout
    assert "\x1b" not in written and "\nnext: curl" not in written
    served.run("unlock", "demo", "--force", "--yes")
    served.run("resume", "demo")
    write({"mpctl.dev/newest-entry": "9999 0123", "mpctl.dev/process": "garbage"})
    done = served.run(*ROLLBACK, code=3)
    named = f"entry 9999 is named by Lease {served.namespace.name}/mpctl-demo, last written by Python at "
    assert named in " ".join(done.stderr.split()), done.stderr
    assert "mpctl unlock demo --force" in done.stderr
    served.run("unlock", "demo", "--force", "--yes")
    write({}, "mallory", renewed=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
    done = served.run(*ROLLBACK, code=3)
    assert "is held by" in done.stderr and "written by Python at " in done.stderr, done.stderr
    assert "mpctl unlock demo --force" in done.stderr
    served.run("unlock", "demo", "--force", "--yes")
    served.run(*ROLLBACK)
    mallory.delete("leases", "mpctl-demo")
    assert "was rolled back" in served.run(*ROLLBACK).stderr
    mallory.close()
