"""Measurements of older operations are deleted, and a history is carried elsewhere."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from fake_api import FakeApi
from session import MemorySession

from mpctl.app.operate import prune, rollback, rollout
from mpctl.app.operate.transfer import export, read_export, restore, write_export
from mpctl.app.requests import MeasurementRequest, RollbackRequest, RolloutRequest, SpeculationRequest
from mpctl.errors import Conflict, InputError, Tampered
from mpctl.platform.kubernetes.store import KubernetesStore
from mpctl.platform.local.store import LocalStore
from mpctl.rollout.ledger import Entry
from mpctl.rollout.operation import operations
from mpctl.rollout.retention import prunable

ASKED = RolloutRequest(SpeculationRequest("ngram"), MeasurementRequest(requests=5, rounds=6, calibrate=False))


def cycles(count):
    session = MemorySession()
    for _ in range(count):
        rollout.run(session, ASKED)
        session = session.again()
        rollback.run(session, RollbackRequest())
        session = session.again()
    return session


@pytest.fixture(scope="module")
def after_three():
    return cycles(3)


def in_cluster(session, api):
    """The session's history in a cluster."""
    store = KubernetesStore(api, "chat", "svc", "ann@here")
    for revision in session.store.revisions():
        store.add_revision(revision)
    for entry in session.store.entries():
        store.append(entry)
    for name in {name for name, _ in session.memory.disk.records}:
        for record, value in session.store.load_all(name).items():
            store.save(name, record, value)
    return store


def test_the_last_operations_stay_whole_and_every_rollback_stays_possible(after_three):
    session = MemorySession(disk=after_three.memory.disk.copy())
    every = [o.id for o in operations(session.store.entries())]
    assert len(every) == 6
    assert prunable(session.store.entries()) == frozenset()
    gone = prunable(session.store.entries(), 2)
    assert set(every[:4]) <= gone
    assert not gone & set(every[4:])
    measured = len(session.memory.disk.records)
    pruned = prune.run(session, 2)
    assert pruned.objects > 0
    assert len(session.memory.disk.records) == measured - pruned.objects
    last = operations(session.store.entries())[-2]
    assert session.store.load(last.plan.workload, "workload") is not None
    outcome = rollback.run(session.again(), RollbackRequest(to_revision=2))
    assert outcome.exit_code == 0
    assert "every rollback stays possible" in session.console.questions[0]


def test_an_unfinished_operation_is_never_pruned(after_three):
    entries = after_three.store.entries()
    opened = [i for i, e in enumerate(entries) if e.event.value == "opened"][-1]
    gone = prunable(entries[: opened + 2], 0)
    assert entries[opened].operation not in gone


def test_in_a_cluster_records_go_with_their_seals_and_one_object_holds_the_ledger(after_three):
    api = FakeApi()
    store = in_cluster(after_three, api)
    other = KubernetesStore(api, "chat", "other", "ann@here")
    other.save("rollout-1", "block", {"a": 1})
    seals = len(api.named("seal"))
    pruned = store.prune(prunable(store.entries(), 2))
    kept = {item["data"]["operation"] for (kind, n), item in api.objects.items() if n in api.named("record")}
    last = operations(store.entries())[-2]
    assert kept == {last.id, last.plan.workload, "rollout-1", "workload-1"}  # of the other service, of no operation
    assert api.named("ledger") == [f"mpctl-svc.ledger-1-{len(store.entries())}"]
    assert len(api.named("seal")) <= seals
    again = KubernetesStore(api, "chat", "svc", "ann@here")
    assert again.load_all(last.id) == store.load_all(last.id) != {}
    assert again.entries() == after_three.store.entries()
    assert again.revisions() == after_three.store.revisions()
    assert other.load("rollout-1", "block") == {"a": 1}
    assert pruned.remaining == sum("svc" in name for _, name in api.objects)


def test_the_page_says_how_many_objects_rollouts_leave():
    api, counted, disk = FakeApi(), {}, None
    for cycle in (1, 2, 3, 4, 5):
        for use_case, request in ((rollout, ASKED), (rollback, RollbackRequest())):
            session = MemorySession(disk=disk)
            session.store = KubernetesStore(api, "chat", "svc", "ann@here")
            session.memory.context = replace(session.memory.context, store=session.store)
            use_case.run(session, request)
            disk = session.memory.disk
            counted[cycle, use_case] = len(api.named("record")), len(api.of("controllerrevisions"))
    counted["pruned"] = _pruned(session, api)
    page = (Path(__file__).parents[3] / "docs" / "explanation" / "test-cluster.md").read_text()
    rows = {
        "after 1 rollout": counted[1, rollout],
        "after its rollback": counted[1, rollback],
        "after 5 of both": counted[5, rollback],
        "after `mpctl history --prune`": counted["pruned"],
    }
    for when, (config_maps, controller_revisions) in rows.items():
        assert f"| {when} | {config_maps} | {controller_revisions} |" in page
    assert counted[1, rollout][1] <= 6
    assert counted[1, rollback][1] <= 12


def _pruned(session, api):
    prune.run(session, 10)
    return len(api.named("record")), len(api.of("controllerrevisions"))


def test_every_object_has_the_recommended_labels(after_three):
    api = FakeApi()
    in_cluster(after_three, api)
    for item in api.objects.values():
        labels = item["metadata"]["labels"]
        assert labels["app.kubernetes.io/managed-by"] == labels["app.kubernetes.io/part-of"] == "mpctl"
        assert labels["mpctl.dev/service"] == "svc"
        assert "app.kubernetes.io/instance" not in labels  # which selectors of charts and Argo CD go by


def exported(session, path):
    write_export(path, json.dumps(export(session)))
    return read_export(str(path))


@pytest.mark.parametrize("place", ["cluster", "local"])
def test_a_history_is_carried_to_another_place(after_three, tmp_path, place):
    document = exported(after_three, tmp_path / "svc.json")
    session = MemorySession()
    session.store = (
        KubernetesStore(FakeApi(), "chat", "svc", "x") if place == "cluster" else LocalStore(tmp_path / "svc", "x")
    )
    session.store.lease = after_three.store.lease
    restore(session, document, path="svc.json")
    assert session.store.entries() == after_three.store.entries()
    assert session.store.revisions() == after_three.store.revisions()
    assert export(session) == export(after_three)
    restore(session, document, path="svc.json")  # again: nothing to do


def until_full(write, left):
    """``write``, which fails when nothing is left."""

    def limited(*values):
        for value in values:
            if next(left, None) is None:
                raise OSError("disk full")
            write(value)

    return limited


@pytest.mark.parametrize("writes", [1, 3, 7, 12])
def test_an_interrupted_import_is_finished_by_the_same_command(after_three, tmp_path, monkeypatch, writes):
    document = exported(after_three, tmp_path / "svc.json")
    session = MemorySession()
    left = iter(range(writes))
    with monkeypatch.context() as patched:
        for name in ("add_revision", "append"):
            patched.setattr(session.store, name, until_full(getattr(session.store, name), left))
        with pytest.raises(OSError, match="disk full"):
            restore(session, document, path="svc.json")
    restore(session.again(), document, path="svc.json")
    assert export(session.again()) == export(after_three)


def test_a_history_that_is_a_beginning_of_the_files_is_not_extended(after_three):
    session = MemorySession()
    for revision in after_three.store.revisions()[:1]:
        session.store.add_revision(revision)
    for entry in after_three.store.entries()[:3]:
        session.store.append(entry)
    with pytest.raises(Conflict, match="has a history of its own"):
        restore(session, export(after_three), path="svc.json")
    assert session.store.entries() == after_three.store.entries()[:3]


def test_what_was_changed_is_not_imported(after_three, tmp_path):
    path = tmp_path / "svc.json"
    document = export(after_three)
    document["revisions"][0]["text"] += "# evil\n"
    path.write_text(json.dumps(document))
    with pytest.raises(Tampered, match="was changed after it was exported"):
        read_export(str(path))
    with pytest.raises(Tampered, match="does not have the recorded digest"):
        restore(MemorySession(), document, path="svc.json")
    document = export(after_three)
    del document["entries"][3]
    with pytest.raises(Tampered, match="the chain is broken"):
        restore(MemorySession(), document, path="svc.json")
    document = export(after_three)
    del document["revisions"][0]
    with pytest.raises(InputError, match="revision 1 is missing"):
        restore(MemorySession(), document, path="svc.json")


def test_a_service_with_another_history_keeps_it(after_three, tmp_path):
    session = MemorySession()
    (first, *_) = after_three.store.revisions()
    session.store.add_revision(replace(first, text=first.text + "# theirs\n"))
    with pytest.raises(Conflict, match="has a history of its own"):
        restore(session, export(after_three), path="svc.json")


def test_a_file_that_is_no_export_is_named(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("{}")
    with pytest.raises(InputError, match="not a history"):
        read_export(str(path))


def rechained(entries, rename):
    """The entries as somebody else writes them, each with its digest."""
    made, last = [], None
    for entry in entries:
        text = json.dumps({**entry.to_record(), "previous": last.digest if last else "", "digest": ""})
        forged = Entry.from_record(json.loads(rename(text)))
        last = replace(forged, digest=forged._own_digest())
        made.append(last.to_record())
    return made


@pytest.mark.parametrize("evil", ["../../../../evil", "/tmp/evil", "a/b", "..", ".hidden", "a\\b", "a\0b"])
@pytest.mark.parametrize("where", ["operation", "record"])
def test_an_import_writes_no_file_out_of_the_place_of_the_records(after_three, tmp_path, evil, where):
    document = export(after_three)
    operation = document["entries"][0]["operation"]
    if where == "operation":
        document["entries"] = rechained(
            after_three.store.entries(), lambda text: text.replace(json.dumps(operation), json.dumps(evil))
        )
        document["records"][evil] = document["records"].pop(operation)
    else:
        document["records"][operation][evil] = {"a": 1}
    session = MemorySession()
    session.store = LocalStore(tmp_path / "deep" / "er" / "svc", "x")
    with pytest.raises(InputError, match="is not a name"):
        restore(session, document, path="svc.json")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="is not a name"):
        session.store.save(evil, "a", {})


@pytest.mark.parametrize(
    "change",
    [{"records": []}, {"revisions": {}}, {"service": 7}, {"entries": [1]}, {"records": {"a": {"b": 1}}}, {"more": 1}],
)
def test_an_export_of_another_form_is_named(after_three, tmp_path, change):
    document = {**export(after_three), **change}
    body = {key: value for key, value in document.items() if key != "sha256"}
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    write_export(tmp_path / "x.json", json.dumps({**body, "sha256": digest}))
    with pytest.raises(InputError, match="not a history that mpctl exported: "):
        read_export(str(tmp_path / "x.json"))
