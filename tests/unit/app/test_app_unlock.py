"""A lock is released whatever else is wrong with the history."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from console import RecordingConsole
from fake_api import FakeApi

from mpctl.app.operate import maintain
from mpctl.errors import Cancelled, Tampered
from mpctl.platform.kubernetes.api.kinds import CONTROLLER_REVISION
from mpctl.platform.kubernetes.object_store import KubernetesStore
from mpctl.rollout.ledger import Entry, Event

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def session(api, **answers):
    store = KubernetesStore(api, "chat", "demo", "ann@here")
    return SimpleNamespace(
        store=store, console=RecordingConsole(**answers), title="service chat/demo", name="demo"
    )


@pytest.fixture
def cut():
    """A ledger of three entries whose newest one was deleted."""
    api = FakeApi()
    store = session(api).store
    with store.lease("rollout"):
        last = None
        store.entries()
        for _ in range(3):
            last = Entry.after(
                last, at=NOW, operation="rollout-1", event=Event.BEGUN, who="ann@here", step="s"
            )
            store.append(last)
    api.delete(CONTROLLER_REVISION, "mpctl-demo.ledger-3")
    return api


def test_entries_that_are_missing_are_accepted_by_force_alone(cut):
    plain = session(cut)
    assert maintain.unlock(plain) is None
    assert plain.console.lines[-1] == "service chat/demo is not locked"
    with pytest.raises(Tampered):
        plain.store.entries()
    forced = session(cut)
    maintain.unlock(forced, force=True)
    assert (
        "the ledger ends with entry 2, entry 3 is named by Lease chat/mpctl-demo"
        in forced.console.lines[-2]
    )
    assert forced.console.questions == [
        "Continue service chat/demo with the 2 entries that are left?"
    ]
    again = session(cut)
    with again.store.lease("rollback"):
        assert len(again.store.entries()) == 2


def test_a_loss_that_is_not_accepted_stays_named(cut):
    with pytest.raises(Cancelled):
        maintain.unlock(session(cut, declines=True), force=True)
    with pytest.raises(Tampered):
        session(cut).store.entries()


def test_a_ledger_that_cannot_be_read_keeps_no_lock(cut):
    cut.delete(CONTROLLER_REVISION, "mpctl-demo.ledger-1")
    other = session(cut)
    with other.store.lease("rollout"):
        mine = session(cut)
        maintain.unlock(mine, force=True)
    assert any(
        "tampering: ControllerRevision chat/mpctl-demo.ledger-2 does not follow" in n
        for n in mine.console.lines
    )
    assert mine.store.holder() is None


def test_force_says_that_a_ledger_stays_unreadable_and_forgets_nothing(cut):
    cut.delete(CONTROLLER_REVISION, "mpctl-demo.ledger-1")
    newest = cut.objects["leases", "mpctl-demo"]["metadata"]["annotations"][
        "mpctl.dev/newest-entry"
    ]
    mine = session(cut)
    with pytest.raises(Tampered, match=r"mpctl-demo\.ledger-2 does not follow"):
        maintain.unlock(mine, force=True)
    assert not any("empty" in line or "is free" in line for line in mine.console.lines)
    assert (
        cut.objects["leases", "mpctl-demo"]["metadata"]["annotations"]["mpctl.dev/newest-entry"]
        == newest
    )


def test_an_object_that_only_looks_like_an_entry_is_named(cut):
    owner = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": "db",
        "uid": "1",
        "controller": True,
    }
    labels = {"mpctl.dev/service": "demo", "mpctl.dev/part": "ledger"}
    metadata = {
        "name": "db-576b",
        "namespace": "chat",
        "labels": labels,
        "ownerReferences": [owner],
    }
    cut.create(CONTROLLER_REVISION, {"metadata": metadata, "revision": 1, "data": {"spec": {}}})
    mine = session(cut)
    maintain.unlock(mine, force=True)
    assert any("chat/db-576b of StatefulSet db" in line for line in mine.console.lines)
    assert mine.console.lines[-1] == "service chat/demo is free"
