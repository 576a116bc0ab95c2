"""Measurements of older operations are deleted; revisions and the ledger stay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fake_api import FakeApi
from session import MemorySession

from mpctl.app.operate import maintain, rollback, rollout
from mpctl.app.requests import (
    MeasurementRequest,
    RollbackRequest,
    RolloutRequest,
    SpeculationRequest,
)
from mpctl.platform.kubernetes.object_store import KubernetesStore
from mpctl.rollout.operation import operations, prunable

ASKED = RolloutRequest(SpeculationRequest("ngram"), MeasurementRequest(requests=5, rounds=6))


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
    for (name, record), value in session.memory.disk.records.items():
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
    pruned = maintain.prune(session, 2)
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
    kept = {
        item["data"]["operation"]
        for (kind, n), item in api.objects.items()
        if n in api.named("record")
    }
    last = operations(store.entries())[-2]
    assert kept == {
        last.id,
        last.plan.workload,
        "rollout-1",
        "workload-1",
    }  # of the other service, of no operation
    assert api.named("ledger") == [f"mpctl-svc.ledger-1-{len(store.entries())}"]
    assert len(api.named("seal")) <= seals
    again = KubernetesStore(api, "chat", "svc", "ann@here")
    assert again._records.load_all(last.id) == store._records.load_all(last.id) != {}
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
    page = (Path(__file__).parents[3] / "docs" / "reference" / "objects.md").read_text()
    rows = {
        "after 1 rollout": counted[1, rollout],
        "after its rollback": counted[1, rollback],
        "after 5 of both": counted[5, rollback],
        "after `mpctl prune`": counted["pruned"],
    }
    for when, (config_maps, controller_revisions) in rows.items():
        assert f"| {when} | {config_maps} | {controller_revisions} |" in page
    assert counted[1, rollout][1] <= 6
    assert counted[1, rollback][1] <= 12


def _pruned(session, api):
    maintain.prune(session, 10)
    return len(api.named("record")), len(api.of("controllerrevisions"))


def test_every_object_has_the_recommended_labels(after_three):
    api = FakeApi()
    in_cluster(after_three, api)
    for item in api.objects.values():
        labels = item["metadata"]["labels"]
        assert (
            labels["app.kubernetes.io/managed-by"] == labels["app.kubernetes.io/part-of"] == "mpctl"
        )
        assert labels["mpctl.dev/service"] == "svc"
        assert (
            "app.kubernetes.io/instance" not in labels
        )  # which selectors of charts and Argo CD go by
