"""The roles that ``mpctl rbac`` prints, on the real authoriser: a reader reads and changes nothing."""

import itertools
import json
import secrets

import pytest
import yaml

from mpctl.app.watch.install import name_of
from mpctl.platform.kubernetes.access.calls import denied_calls
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.connection import connect

from .fixtures import Namespace
from .objects import CONTAINERS
from .roles import Granted
from .unmeasured import Unmeasured


def test_a_reader_reads_and_may_not_write(cluster, namespace, mpctl):
    namespace.deploy(CONTAINERS)
    granted = Granted(cluster, namespace.name, "reader", "reader")
    granted.apply()
    try:
        mine = mpctl.as_user(granted.user)
        (status,) = mine.json("status")["items"]
        assert status["status"]["state"] == "Ready"
        mine("history")
        diagnosis = mine.json("doctor")
        assert "unread" not in {item["id"] for item in diagnosis["items"]}
        rights = {item["subject"] for item in diagnosis["items"] if item["id"] == "rights"}
        assert {"mpctl rollout", "mpctl rollback", "mpctl resume"} <= rights
        assert not {"mpctl status", "mpctl history"} & rights
        before = namespace.client.get("isvc", "demo")["metadata"]["resourceVersion"]
        done = mine("rollout", "--spec", "ngram", "-y", code=4)
        assert "mpctl rbac" in done.stderr
        assert namespace.client.get("isvc", "demo")["metadata"]["resourceVersion"] == before
    finally:
        granted.remove()


def test_cluster_wide_roles_hold_in_every_namespace(cluster, namespace, mpctl):
    namespace.deploy(CONTAINERS)
    done = mpctl("rbac", "reader", "-A", "--to", "user:everywhere", "-o", "json")
    cluster.kubectl("apply", "-f", "-", stdin=done.stdout)
    try:
        mine = mpctl.as_user(cluster.user("everywhere"))
        assert "demo" in mine("status", "-A").stdout
        diagnosis = mine.json("doctor", "-A")
        assert "unread" not in {item["id"] for item in diagnosis["items"]}
    finally:
        for document in json.loads(done.stdout)["items"]:
            cluster.kubectl("delete", document["kind"], document["metadata"]["name"])


def test_kubectl_applies_the_printed_roles(cluster, namespace, mpctl):
    done = mpctl(
        "rbac", "-n", namespace.name, "--to", "serviceaccount:ci/bot", "--secret", "engine-key"
    )
    applied = cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin=done.stdout)
    assert applied.count("(server dry run)") == 6


@pytest.fixture
def parties(cluster, namespace, mpctl, tmp_path):
    """Two operators and a watch that falls back: the objects of each, and a kubeconfig as each."""
    home = Namespace(cluster, f"{namespace.name}-watch")
    policy = tmp_path / "watch.yaml"
    policy.write_text("fall_back: true\n")
    install = ("watch", "install", "-n", namespace.name, "--home", home.name, "--image", "mpctl:1")
    names = [f"{name}-{secrets.token_hex(2)}" for name in ("ann", "bob")]
    printed = [mpctl("rbac", "-n", namespace.name, "--to", f"user:{name}") for name in names]
    printed.append(mpctl(*install, "--watch-policy", str(policy)))
    documents = [
        [d for d in yaml.safe_load_all(done.stdout) if d["kind"] != "PodMonitor"]
        for done in printed
    ]
    for document in documents[-1]:
        if document["kind"] == "Deployment":
            document["spec"]["replicas"] = 0
    users = [mpctl.as_user(cluster.user(name)) for name in names]

    def kubeconfigs():
        account = cluster.service_account_kubeconfig(
            home.name, name_of(namespace.name), tmp_path / "watch"
        )
        return [*(user.kubeconfig for user in users), account]

    yield documents, users, kubeconfigs
    cluster.kubectl(
        "delete", "--ignore-not-found", "-f", "-", stdin=listed(itertools.chain(*documents))
    )
    home.client.wait("the watch is gone", lambda: not cluster.client.find("namespaces", home.name))


def listed(documents):
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)})


def denied(kubeconfig, namespace):
    client = Client(connect(str(kubeconfig), None))
    try:
        return denied_calls(client, namespace)
    finally:
        client.close()


def test_two_operators_and_the_watch_keep_their_rights_in_every_order(
    cluster, namespace, mpctl, parties
):
    documents, (ann, bob), kubeconfigs = parties
    namespace.deploy(CONTAINERS)
    bindings = [d for d in itertools.chain(*documents) if d["kind"].endswith("Binding")]
    for order in itertools.permutations(documents):
        cluster.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=listed(bindings))
        for party in order:
            cluster.kubectl("apply", "-f", "-", stdin=listed(party))
        cluster.client.wait(
            "the first has its rights", lambda: not denied(kubeconfigs()[0], namespace.name)
        )
        assert [denied(path, namespace.name) for path in kubeconfigs()] == [(), (), ()]
    Unmeasured(ann)("rollout", "--spec", "ngram", "-y")
    Unmeasured(bob)("rollback", "-y")
