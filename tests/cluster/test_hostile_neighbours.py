"""A namespace in which another user has Kubernetes' default role ``edit``: nothing that they may create or change stops
a command, deletes a history or is obeyed, and what looks like mpctl's own is named. One rollout serves all tests."""

import json
import secrets

import pytest

from mpctl.platform.kubernetes.service.manifest_text import text_of

from .conftest import make_mpctl
from .fixtures import Namespace
from .objects import ANY_SPEED, CONTAINERS

QUICK = ("--requests", "4", "--repeats", "4", "--max-tokens", "16")
HISTORY = "mpctl.dev/service=demo"


@pytest.fixture(scope="module")
def promoted(cluster, tmp_path_factory):
    """A service after a rollout, the command line, and the service as it was before."""
    name = f"t-{secrets.token_hex(3)}"
    cluster.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    namespace, folder = Namespace(cluster, name), tmp_path_factory.mktemp("neighbours")
    mpctl = make_mpctl(cluster, name, folder)
    policy = folder / "policy.yaml"
    policy.write_text(ANY_SPEED)
    namespace.deploy(CONTAINERS)
    before = text_of(namespace.client.get("isvc", "demo"))
    mpctl("rollout", "--spec", "ngram", "--policy", str(policy), *QUICK)
    yield namespace, mpctl, before
    namespace.delete()


@pytest.fixture(scope="module")
def eddie(cluster, promoted):
    """A user with the role ``edit`` in the namespace, and nothing else."""
    namespace, _, _ = promoted
    group = "rbac.authorization.k8s.io"
    namespace.client.apply(
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "eddie", "namespace": namespace.name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "eddie"}],
        }
    )
    client = cluster.client_for(cluster.user("eddie"), namespace.name)
    yield client
    client.close()


def stateful_set(name, labels, selector=None):
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": 0,
            "revisionHistoryLimit": 0,
            "serviceName": name,
            "selector": selector or {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "none"}]},
            },
        },
    }


def create(namespace, eddie, body):
    """Create a StatefulSet as eddie and wait until its controller has synchronized it."""
    eddie.apply(body)
    name = body["metadata"]["name"]

    def synced():
        status = namespace.client.get("statefulset", name).get("status", {})
        return status.get("observedGeneration") == 1 and status.get("updateRevision")

    namespace.client.wait(f"StatefulSet {name} is synchronized", synced)


def history(namespace, own=True):
    """Names of the history's ControllerRevisions."""
    items = namespace.client.list("controllerrevisions", labels=HISTORY)
    return {
        item["metadata"]["name"]
        for item in items
        if item["metadata"]["name"].startswith("mpctl-") is own
    }


def controllers(namespace):
    items = namespace.client.list("controllerrevisions", labels=HISTORY)
    return {
        owner["kind"]
        for item in items
        for owner in item["metadata"].get("ownerReferences", [{"kind": "none"}])
    }


@pytest.mark.parametrize("part", ["ledger", "revision"])
def test_a_statefulset_whose_template_has_mpctls_labels_stops_no_command_and_is_named(
    promoted, eddie, part
):
    (namespace, mpctl, _), name = promoted, "db"
    body = stateful_set(name, {"mpctl.dev/service": "demo", "mpctl.dev/part": part})
    create(namespace, eddie, body)
    try:
        status = mpctl("status", "demo")
        shown = f"{status.stdout}{status.stderr}"
        assert f"of StatefulSet {name} has mpctl's labels and is none of its own" in " ".join(
            shown.split()
        )
        assert "rollout-1" in mpctl("history", "demo").stdout
        mpctl("rollback", "--dry-run=server")
        unlocked = mpctl("unlock", "demo", "--force").stderr
        assert "is not locked" in unlocked
        assert "empty" not in unlocked
        if part == "ledger":
            assert "ledger-look-alike" in mpctl("doctor", "-o", "json", code=None).stdout
    finally:
        eddie.delete("statefulset", name)
        namespace.client.wait(
            "its revisions are gone", lambda: controllers(namespace) == {"Ledger"}
        )


def test_no_statefulset_adopts_or_deletes_a_history_also_one_that_was_restored(
    cluster, promoted, eddie
):
    namespace, mpctl, _ = promoted
    before = history(namespace)
    assert len(before) >= 4
    stdout = mpctl("history", "demo", "-o", "json").stdout
    for number, restored in enumerate((False, True)):
        if restored:  # as `kubectl get -o json | kubectl create -f -` does, in Go's order of keys
            listing = namespace.kubectl("get", "controllerrevisions", "-l", HISTORY, "-o", "json")
            namespace.kubectl("delete", "controllerrevisions", "-l", HISTORY)
            items = json.loads(listing)["items"]
            for item in items:
                for field in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
                    item["metadata"].pop(field, None)
            body = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, sort_keys=True)
            namespace.kubectl("create", "-f", "-", stdin=body)
        # what matches all of them by a label, and what matches whatever has no certain label
        labels = {"app.kubernetes.io/managed-by": "mpctl", "app.kubernetes.io/instance": "demo"}
        create(
            namespace,
            eddie,
            stateful_set(f"greedy-{number}", {"app.kubernetes.io/managed-by": "mpctl"}),
        )
        for label in labels:
            anything = {"matchExpressions": [{"key": f"{label}-not", "operator": "DoesNotExist"}]}
            create(
                namespace, eddie, stateful_set(f"any-{number}-{len(label)}", {"a": "b"}, anything)
            )
        sentinel(namespace)
        assert history(namespace) == before
        assert controllers(namespace) == {"Ledger"}
        assert mpctl("history", "demo", "-o", "json").stdout == stdout
    for item in namespace.client.list("statefulsets"):
        eddie.delete("statefulset", item["metadata"]["name"])


def sentinel(namespace):
    """Wait until the garbage collector has looked at what was created before."""
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "gone",
        "uid": "00000000-0000-0000-0000-000000000000",
    }
    name = f"orphan-{secrets.token_hex(3)}"
    metadata = {"name": name, "ownerReferences": [owner]}
    namespace.client.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    namespace.client.wait(
        "the orphan is collected", lambda: namespace.client.find("configmap", name) is None
    )


def test_an_editor_can_write_no_ledger_and_no_owner(promoted, eddie):
    from .rig.api import ApiError

    namespace, _, _ = promoted
    name = sorted(history(namespace))[0]
    for method, body in (("DELETE", None), ("PATCH", {"metadata": {"ownerReferences": []}})):
        path = f"/apis/apps/v1/namespaces/{namespace.name}/controllerrevisions/{name}"
        with pytest.raises(ApiError) as refused:
            eddie.request(method, path, body)
        assert refused.value.status == 403


WRITES = {
    "transitions": {"spec": {"leaseTransitions": 2**31 - 1}},
    "duration": {"spec": {"leaseDurationSeconds": 2**31 - 1}},
    "times": {
        "spec": {
            "renewTime": "9999-12-31T23:59:59.999999Z",
            "acquireTime": "0001-01-01T00:00:00.000000Z",
        }
    },
    "holder": {"spec": {"holderIdentity": "eve", "renewTime": "2099-01-01T00:00:00.000000Z"}},
    "annotations": {
        "metadata": {
            "annotations": {
                "mpctl.dev/process": "0 0 0",
                "mpctl.dev/purpose": "\u001b[2J",
                "mpctl.dev/newest-entry": "x" * 200_000,
            }
        }
    },
    "labels": {
        "metadata": {"labels": {"mpctl.dev/service": "other", "app.kubernetes.io/managed-by": "me"}}
    },
    "finalizers": {"metadata": {"finalizers": ["example.com/never"]}},
    "owner": {
        "metadata": {
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "1"}
            ]
        }
    },
}


@pytest.mark.parametrize("what", WRITES)
def test_no_field_of_the_lease_stops_a_command(promoted, eddie, what):
    namespace, mpctl, _ = promoted
    eddie.patch("lease", "mpctl-demo", WRITES[what])
    try:
        mpctl("prune", "demo")  # takes the lock
        assert not namespace.client.get("lease", "mpctl-demo")["spec"].get("holderIdentity")
    finally:
        if what == "finalizers":
            eddie.patch("lease", "mpctl-demo", {"metadata": {"finalizers": None}})


def test_the_rollback_is_exact_after_all_that(promoted):
    namespace, mpctl, before = promoted
    mpctl("rollback", "--yes")
    assert text_of(namespace.client.get("isvc", "demo")) == before
