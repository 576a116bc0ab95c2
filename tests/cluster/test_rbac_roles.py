"""The roles that ``mpctl rbac`` prints, on the real authoriser: a reader reads and changes nothing."""

import json

from .objects import CONTAINERS
from .roles import Granted


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
    done = mpctl("rbac", "--role", "reader", "--cluster-wide", "--to", "user:everywhere", "-o", "json")
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
    done = mpctl("rbac", "-n", namespace.name, "--to", "serviceaccount:ci/bot", "--secret", "engine-key")
    applied = cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin=done.stdout)
    assert applied.count("(server dry run)") == 6
