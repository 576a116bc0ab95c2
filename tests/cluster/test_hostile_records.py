"""A namespace in which another user may write ConfigMaps: what mpctl records there holds nothing private, and nothing
that this user changes is obeyed. One rollout serves all tests of this file."""

import base64
import copy
import gzip
import hashlib
import json
import secrets

import pytest
import yaml

from mpctl.cli.main import run
from mpctl.platform.kubernetes.access.rbac import roles, subject_of
from mpctl.platform.kubernetes.api import names
from mpctl.platform.kubernetes.ledger_objects import ledger_of, seals_of
from mpctl.platform.kubernetes.sealed_records import newest_seals, number_of
from mpctl.platform.kubernetes.service.manifest_text import text_of
from tests.local.planted import DATABASE, MARKED, PROMPT, TOKEN, CommandLines, finds, write_prompts

from .conftest import make_mpctl
from .fixtures import Namespace
from .objects import ANY_SPEED, CONTAINERS, ledger_entries
from .rig.api import ApiError

QUICK = ("--requests", "4", "--repeats", "4", "--max-tokens", "16")
RECORDS = "mpctl.dev/service=demo"
# What the user wrote: the service, and what KServe and Kubernetes make of it.
OF_THE_SERVICE = ("isvc", "deployments", "replicasets", "pods")
OF_MPCTL = ("configmaps", "secrets", "leases", "jobs", "events", "controllerrevisions")


def planted_service():
    service = yaml.safe_load(CONTAINERS)
    (container,) = service["spec"]["predictor"]["containers"]
    values = {"HF_TOKEN": TOKEN, "DATABASE": f"postgresql://user:{DATABASE}@db/x"}
    container["env"] = [{"name": name, "value": value} for name, value in values.items()]
    return service


@pytest.fixture(scope="module")
def promoted(cluster, tmp_path_factory):
    """A service with planted secrets after a rollout that measured planted prompts."""
    name = f"t-{secrets.token_hex(3)}"
    cluster.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    namespace, folder = Namespace(cluster, name), tmp_path_factory.mktemp("hostile")
    mpctl = make_mpctl(cluster, name, folder)
    policy = folder / "policy.yaml"
    policy.write_text(ANY_SPEED)
    prompts = f"users={write_prompts(folder / 'prompts.jsonl')}"
    namespace.deploy(planted_service())
    before = text_of(namespace.client.get("isvc", "demo"))
    with CommandLines() as lines:
        done = mpctl(
            "rollout",
            "--spec",
            "ngram",
            "--prompts",
            prompts,
            "--policy",
            str(policy),
            *QUICK,
            "-v",
        )
    assert lines.found == set()
    assert not finds(f"{done.stdout}{done.stderr}".encode())
    yield namespace, mpctl, before
    namespace.delete()


def marked_objects(namespace, kind):
    """(name, marks) of the objects of a kind that hold one."""
    marked = {}
    for item in namespace.client.list(kind):
        marks = finds(json.dumps(item).encode())
        if marks:
            marked[item["metadata"]["name"]] = marks
    return marked


def test_no_prompt_and_no_secret_is_in_an_object_of_mpctl(promoted):
    namespace, mpctl, _ = promoted
    assert {
        kind: marks for kind in OF_MPCTL[:-1] if (marks := marked_objects(namespace, kind))
    } == {}
    # A revision is the manifest, which holds what its author wrote into it, and no prompt.
    ledger = ledger_of(
        namespace.client.list("controllerrevisions", labels=f"{RECORDS},mpctl.dev/part=ledger")
    )
    revisions = {each.item["metadata"]["name"] for each in ledger if each.appended.revisions}
    marked = marked_objects(namespace, "controllerrevisions")
    assert marked.keys() <= revisions
    assert not any(
        PROMPT in marks
        for kind in OF_THE_SERVICE
        for marks in marked_objects(namespace, kind).values()
    )
    assert not any(PROMPT in marks for marks in marked.values())
    for command in (
        ("history",),
        ("history", "--revision", "1", "-o", "yaml"),
        ("report", "rollout-1", "-o", "html"),
    ):
        done = mpctl(*command, code=None)
        assert not finds(f"{done.stdout}{done.stderr}".encode()), command


# Tampering


@pytest.fixture(scope="module")
def mallory(cluster, promoted):
    """A user who may do with ConfigMaps whatever they want, and nothing else."""
    namespace, _, _ = promoted
    metadata = {"name": "mallory", "namespace": namespace.name}
    group = "rbac.authorization.k8s.io"
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}
    role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]}
    binding = {
        **role,
        "kind": "RoleBinding",
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "mallory"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "mallory"}],
    }
    del binding["rules"]
    for document in (role, binding):
        namespace.client.apply(document)
    client = cluster.client_for(cluster.user("mallory"), namespace.name)
    yield client
    client.close()


@pytest.fixture
def report(promoted, monkeypatch, capsys):
    """``mpctl report`` of the rollout in this process: exit code and output."""
    _, mpctl, _ = promoted
    for key in [
        k
        for k in mpctl.environment
        if k.startswith(("MPCTL_", "XDG_")) or k in ("HOME", "NO_COLOR")
    ]:
        monkeypatch.setenv(key, mpctl.environment[key])
    monkeypatch.setenv("KUBECONFIG", str(mpctl.kubeconfig))

    def command():
        capsys.readouterr()
        code = run(["report", "rollout-1", "-o", "json"])
        captured = capsys.readouterr()
        return code, f"{captured.out}\n{captured.err}"

    return command


def records(namespace):
    """The ConfigMaps that hold records of the rollout: those of the newest seals, and those of the states before."""
    config_maps = namespace.client.list("configmaps", labels=f"{RECORDS},mpctl.dev/part=record")
    seals = namespace.client.list("controllerrevisions", labels=f"{RECORDS},mpctl.dev/part=seal")
    seals += seals_of(
        ledger_of(
            namespace.client.list("controllerrevisions", labels=f"{RECORDS},mpctl.dev/part=ledger")
        )
    )
    newest = {
        names.record_name("demo", *key, number_of(seal))
        for key, seal in newest_seals(seals).items()
    }
    mine = [item for item in config_maps if item["data"]["operation"] == "rollout-1"]
    return (
        [item for item in mine if item["metadata"]["name"] in newest],
        [item for item in mine if item["metadata"]["name"] not in newest],
    )


def packed(content):
    return base64.b64encode(gzip.compress(content)).decode()


FORGED = packed(json.dumps({"workload": {"forged": True}, "forged": True}).encode())
HOSTILE = {
    "another record": FORGED,
    "nothing": "",
    "no archive": base64.b64encode(b"plain").decode(),
    "half an archive": FORGED[: len(FORGED) // 2 // 4 * 4],
    "an archive that unpacks to 300 MB": packed(bytes(300_000_000)),
    "no JSON": packed(b"{"),
    "deep JSON": packed(b"[" * 100_000),
    "a list": packed(b"[]"),
}
# Fields that are not read: the same report is made.
UNREAD = ("data.operation", "data.name", "data.sha256", "data.more", "data.pieces", "annotations")


def changed(item):
    """(what, the object as mallory writes it) of every field of a record's ConfigMap."""
    digest = hashlib.sha256(base64.b64decode(FORGED)).hexdigest()
    for name, value in (
        ("operation", "rollout-9"),
        ("name", "other"),
        ("sha256", digest),
        ("more", "x"),
    ):
        yield f"data.{name}", {**item, "data": {**item["data"], name: value}}
    yield (
        "annotations",
        {**item, "metadata": {**item["metadata"], "annotations": {"mpctl.dev/trust": "me"}}},
    )
    yield "data.pieces", {**item, "data": {**item["data"], "pieces": "0" * 64}}
    for what, content in HOSTILE.items():
        yield f"binaryData: {what}", {**item, "binaryData": {"record": content}}
    forged = {"operation": "rollout-1", "name": item["data"]["name"], "sha256": digest}
    yield "everything, with its digest", {**item, "data": forged, "binaryData": {"record": FORGED}}


def path_of(namespace, item):
    return f"/api/v1/namespaces/{namespace.name}/configmaps/{item['metadata']['name']}"


def write(client, namespace, item):
    body = copy.deepcopy(item)
    for field in ("managedFields", "resourceVersion", "uid", "creationTimestamp"):
        body["metadata"].pop(field, None)
    client.request("PUT", path_of(namespace, item), body, fieldManager="mallory")


def test_no_change_of_a_record_is_obeyed_and_each_is_named(promoted, mallory, report):
    namespace, _, _ = promoted
    code, honest = report()
    assert code == 0, honest
    attempts = 0
    newest, before = records(namespace)
    assert len(newest) == len(before) >= 1
    for item in newest:
        name = item["metadata"]["name"]
        for what, forged in changed(item):
            write(mallory, namespace, forged)
            code, output = report()
            attempts += 1
            if what in UNREAD:
                assert (code, output) == (0, honest), what
            else:
                assert (code, f"tampering: ConfigMap {namespace.name}/{name}" in output) == (
                    3,
                    True,
                ), (what, output)
                assert "last written by mallory" in output, (what, output)
        for old in before:  # sealed too, when it was the newest
            write(mallory, namespace, {**old, "metadata": item["metadata"]})
            code, output = report()
            attempts += 1
            assert (code, f"tampering: ConfigMap {namespace.name}/{name}" in output) == (3, True), (
                output
            )
            assert "last written by mallory" in output, output
        mallory.delete("configmaps", name)
        code, output = report()
        assert (code, f"tampering: ConfigMap {namespace.name}/{name} is missing" in output) == (
            3,
            True,
        ), output
        attempts += 1
        mallory.request(
            "POST", path_of(namespace, item).rpartition("/")[0], _new(item), fieldManager="mpctl"
        )
        assert report() == (0, honest), name
    for item in before:
        write(mallory, namespace, {**item, "binaryData": {"record": FORGED}})
        attempts += 1
        assert report() == (0, honest)
    for part in (
        "ledger",
        "revision",
        "seal",
        "blob",
        "record",
    ):  # objects that only look like mpctl's own
        labels = {"mpctl.dev/service": "demo", "mpctl.dev/part": part}
        for name in (f"mpctl-demo-{part}-0", f"mpctl-demo.{part}-1"):
            body = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": name, "labels": labels},
            }
            mallory.apply(
                {**body, "data": {"operation": "rollout-1", "text": "hostPath: /"}},
                manager="mallory",
            )
            attempts += 1
        assert report() == (0, honest), part
    assert attempts >= 25


def _new(item):
    metadata = {key: item["metadata"][key] for key in ("name", "labels")}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": item["data"],
        "binaryData": item["binaryData"],
    }


def test_who_writes_configmaps_writes_no_ledger_revision_seal_or_lock(promoted, mallory):
    namespace, _, _ = promoted
    items = namespace.client.list("controllerrevisions", labels=RECORDS)
    assert 4 <= len(items) <= 6  # after one rollout
    for item in items:
        path = f"/apis/apps/v1/namespaces/{namespace.name}/controllerrevisions"
        for method, where in (
            ("POST", path),
            ("PUT", f"{path}/{item['metadata']['name']}"),
            ("DELETE", f"{path}/{item['metadata']['name']}"),
        ):
            with pytest.raises(ApiError) as refused:
                mallory.request(method, where, item)
            assert refused.value.status == 403
    # Not even an administrator changes one: the API server keeps their data as it was created.
    with pytest.raises(ApiError) as refused:
        namespace.client.patch(
            "controllerrevisions", items[0]["metadata"]["name"], {"data": {"text": "hostPath: /"}}
        )
    assert refused.value.status == 422


def test_a_rollback_restores_the_service_whatever_the_configmaps_say(promoted, mallory):
    namespace, mpctl, before = promoted
    config_maps, _ = records(namespace)
    for item in config_maps:
        write(mallory, namespace, {**item, "binaryData": {"record": ""}})
    ledger = {"text": "hostPath: /", "lines": json.dumps({"plan": {"text": "hostPath: /"}})}
    for name in ("mpctl-demo-ledger-0", "mpctl-demo-1", "mpctl-demo.ledger-99"):
        labels = {**config_maps[0]["metadata"]["labels"], "mpctl.dev/part": "ledger"}
        forged = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "labels": labels},
            "data": ledger,
        }
        mallory.apply(forged, manager="mallory")
    done = mpctl("rollback", "--yes")
    assert "restored" in done.stderr
    assert text_of(namespace.client.get("isvc", "demo")) == before
    (argv,) = namespace.argv()
    assert not any(word.startswith("--speculative-config") for word in argv)


# Deletion


def test_entries_that_somebody_removes_from_the_end_of_the_ledger_are_missed(cluster, promoted):
    namespace, mpctl, _ = promoted
    ledger = namespace.client.list("controllerrevisions", labels=f"{RECORDS},mpctl.dev/part=ledger")
    *_, last = sorted(ledger, key=lambda item: item["revision"])
    *_, newest = ledger_entries([last])
    namespace.client.delete("controllerrevisions", last["metadata"]["name"])
    for command in (("rollback", "--yes"), ("rollout", "--spec", "ngram", "--yes")):
        done = mpctl(*command, code=3)
        assert (
            f"entry {newest['seq']} is named by Lease {namespace.name}/mpctl-demo" in done.stderr
        ), done.stderr
    mpctl("unlock", "demo", "--force", "--yes")
    mpctl("rollback", "--yes")


def test_a_purge_needs_its_own_right_and_leaves_nothing(cluster, promoted):
    namespace, mpctl, before = promoted
    made = []
    for name, allow in (("oscar", []), ("petra", ["purge"])):
        documents = roles("operator", namespace.name, to=[subject_of(f"user:{name}")], allow=allow)
        for document in documents:
            cluster.kubectl("apply", "-f", "-", stdin=json.dumps(document))
            made.append(document)

    def objects():
        return {
            (k, i["metadata"]["name"])
            for k in ("controllerrevisions", "configmaps")
            for i in namespace.client.list(k, labels=RECORDS)
        }

    recorded = objects()
    assert len(recorded) > 10
    done = mpctl("prune", "demo", "--all", "--yes", "--as", "oscar", code=4)
    assert "mpctl rbac --allow purge" in done.stderr
    assert objects() == recorded
    done = mpctl("prune", "demo", "--all", "--yes", "--as", "petra")
    assert "deleted" in done.stderr
    assert objects() == set()
    assert namespace.client.find("lease", "mpctl-demo") is None
    assert text_of(namespace.client.get("isvc", "demo")) == before
    assert not any(marked_objects(namespace, kind) for kind in OF_MPCTL), MARKED
    for document in made:
        where = document["metadata"].get("namespace")
        cluster.kubectl(
            *(["-n", where] if where else []),
            "delete",
            document["kind"],
            document["metadata"]["name"],
        )
