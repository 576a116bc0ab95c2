"""The history of a service in the cluster: what is written comes back, and what another writer wrote does not."""

from __future__ import annotations

import os
from contextlib import nullcontext
from datetime import UTC, datetime

import pytest
from fake_api import FakeApi, Immutable

from mpctl.errors import Conflict, NotPermitted, Tampered
from mpctl.methods import Spec
from mpctl.platform.kubernetes.api.kinds import CONFIG_MAP, CONTROLLER_REVISION, LEASE
from mpctl.platform.kubernetes.store import KubernetesStore
from mpctl.rollout.ledger import Entry, Event
from mpctl.rollout.revision import Revision

NOW = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture
def api():
    return FakeApi()


def store(api, service="demo"):
    return KubernetesStore(api, "chat", service, "a@b")


def entry(last, **data):
    return Entry.after(last, at=NOW, operation="rollout-1", event=Event.BEGUN, who="a@b", step="s", data=data)


def revision(number, text="x\n"):
    return Revision(number, text, NOW.isoformat(), "a@b", "why", Spec("none"), "rollout-1")


def three(api):
    first = entry(None)
    second = entry(first, n=1)
    found = (first, second, entry(second, n=2))
    for one in found:
        store(api).append(one)
    return found


def test_entries_come_back_in_order_beyond_ten(api):
    last = None
    for number in range(12):
        last = entry(last, n=number)
        store(api).append(last)
    assert [e.data["n"] for e in store(api).entries()] == list(range(12))


def test_entries_that_are_appended_together_are_one_object_and_come_back_each(api):
    first, *others = found = three(FakeApi())
    store(api).append(first)
    store(api).append(*others)
    assert api.named("ledger") == ["mpctl-demo.ledger-1", "mpctl-demo.ledger-2"]
    assert store(api).entries() == found
    assert store(api).recorded().entries == 3
    with pytest.raises(Conflict, match="was written by a@b meanwhile"):
        store(api).append(entry(first, n=9), entry(entry(first, n=9)))


def test_an_entry_changed_among_several_is_named(api):
    first, second, third = three(FakeApi())
    store(api).append(first, second, third)
    item = api.objects["controllerrevisions", "mpctl-demo.ledger-1"]
    item["data"] = {"entries": [first.to_record(), {**second.to_record(), "who": "x"}, third.to_record()]}
    with pytest.raises(Tampered, match="ledger-1 does not follow: entry 2 of the ledger of demo is missing or forged"):
        store(api).entries()


def test_an_append_reads_nothing(api):
    found = three(api)
    before = api.reads
    store(api).append(entry(found[-1]))
    assert api.reads == before


def test_two_writers_cannot_both_append(api):
    found = three(api)
    store(api).append(entry(found[-1], n=3))
    with pytest.raises(Conflict, match="the ledger of demo was written by a@b meanwhile"):
        store(api).append(entry(found[-1], n=4))


def test_an_append_that_was_not_answered_is_there_once(api):
    found = three(api)
    api.unanswered = 1
    store(api).append(entry(found[-1], n=3))
    assert [e.seq for e in store(api).entries()] == [1, 2, 3, 4]


@pytest.mark.parametrize("number", [1, 2])
def test_a_removed_entry_is_named(api, number):
    three(api)
    api.delete(CONTROLLER_REVISION, f"mpctl-demo.ledger-{number}")
    with pytest.raises(
        Tampered, match=rf"ledger-{number + 1} does not follow: entry {number} of the ledger of demo is"
    ):
        store(api).entries()


def test_an_entry_that_does_not_follow_is_named_with_its_writer(api):
    three(api)
    forged = Entry.after(None, at=NOW, operation="rollback-2", event=Event.OPENED, who="a@b", data={"plan": {}})
    body = {**api.objects["controllerrevisions", "mpctl-demo.ledger-3"], "data": {**forged.to_record(), "seq": 4}}
    body = {**body, "revision": 4, "metadata": {**body["metadata"], "name": "mpctl-demo.ledger-4"}}
    api.create(CONTROLLER_REVISION, body, as_="kubectl-create")
    with pytest.raises(Tampered, match="entry 4 of the ledger of demo is missing or forged, last written by kubectl"):
        store(api).entries()


def test_the_data_of_an_entry_cannot_be_changed(api):
    three(api)
    item = api.objects["controllerrevisions", "mpctl-demo.ledger-2"]
    with pytest.raises(Immutable):
        api.apply(CONTROLLER_REVISION, {**item, "data": {}})


def test_services_whose_names_end_alike_do_not_meet(api):
    three(api)
    other = store(api, "demo-ledger")
    other.add_revision(revision(1))
    assert other.revisions() == (revision(1),)
    assert (other.entries(), store(api).revisions()) == ((), ())
    assert len(store(api).entries()) == 3


def test_a_revision_is_kept_for_good(api):
    mine = store(api)
    mine.add_revision(revision(1))
    mine.add_revision(revision(1))
    with pytest.raises(Conflict, match="added by another writer"):
        mine.add_revision(revision(1, "y\n"))
    assert mine.revisions() == (revision(1),)


def test_a_revision_under_another_name_is_named(api):
    mine = store(api)
    mine.add_revision(revision(1))
    item = api.objects["controllerrevisions", "mpctl-demo-1"]
    body = {**item, "metadata": {**item["metadata"], "name": "mpctl-demo-2"}}
    api.create(CONTROLLER_REVISION, body, as_="kubectl-create")
    with pytest.raises(Tampered, match="mpctl-demo-2 claims to be revision 1 of demo, last written by kubectl-create"):
        mine.revisions()


def newest_removed(api, count):
    """A ledger of five entries that lost its newest ones after the command that wrote them."""
    mine = store(api)
    with mine.lease("rollout"):
        last = None
        mine.entries()
        for number in range(5):
            last = entry(last, n=number)
            mine.append(last)
    for number in range(5, 5 - count, -1):
        api.delete(CONTROLLER_REVISION, f"mpctl-demo.ledger-{number}")


@pytest.mark.parametrize("count", [1, 2, 5])
def test_entries_removed_from_the_end_of_the_ledger_are_missed(api, count):
    newest_removed(api, count)
    mine = store(api)
    with mine.lease("rollback"), pytest.raises(Tampered, match=r"entry 5 is named by Lease chat/mpctl-demo") as caught:
        mine.entries()
    assert "mpctl unlock demo --force" in caught.value.hint
    for reader in (mine, store(api)):
        with pytest.raises(Tampered, match="the ledger is empty" if count == 5 else f"ends with entry {5 - count}"):
            reader.entries()
    assert len(mine.surviving_entries()) == 5 - count
    mine.held.forget_entries()
    with mine.lease("rollback"):
        assert len(mine.entries()) == 5 - count


def test_a_ledger_that_nobody_cut_is_read_and_its_lease_names_the_newest_entry(api):
    newest_removed(api, 0)
    mine = store(api)
    with mine.lease("rollback"):
        last = mine.entries()[-1]
        mine.append(entry(last))
    assert api.objects["leases", "mpctl-demo"]["metadata"]["annotations"]["mpctl.dev/newest-entry"].startswith("6 ")
    assert len(mine.entries()) == 6


def test_another_end_of_the_ledger_is_missed_too(api):
    newest_removed(api, 1)
    store(api).append(entry(store(api).surviving_entries()[-1], n="another"))
    mine = store(api)
    with mine.lease("rollback"), pytest.raises(Tampered, match="entry 5 of the ledger is not the one named by Lease"):
        mine.entries()


@pytest.mark.parametrize("claim", ["", "x", "-1 a", "9999999999999999999 a", "²", "5", "\x1b[2J", "0 a"])
def test_garbage_for_the_newest_entry_stops_nothing(api, claim):
    newest_removed(api, 0)
    notes = {"annotations": {"mpctl.dev/newest-entry": claim}}
    api.merge(LEASE, "mpctl-demo", "chat", {"metadata": notes}, as_="mallory")
    mine = store(api)
    with mine.lease("rollback"):
        if claim == "5":  # an entry that is there, with another digest
            with pytest.raises(Tampered, match="last written by"):
                mine.entries()
        else:
            assert len(mine.entries()) == 5


def filled(api):
    """Three entries, a revision, and two records, the second in pieces; those of another service are beside them."""
    three(api)
    for service in ("demo", "other"):
        store(api, service).add_revision(revision(1))
        store(api, service).save("rollout-1", "workload", {"a": 1})
    store(api).save("rollout-1", "block", {"noise": os.urandom(900_000).hex()})
    api.apply(LEASE, {"metadata": {"name": "mpctl-demo", "labels": {}}})


def of_demo(api):
    return [name for _, name in api.objects if "demo" in name]


def test_a_purge_deletes_every_object_of_the_service_and_of_no_other(api):
    filled(api)
    found = store(api).recorded()
    assert (found.revisions, found.entries, found.others) == (1, 3, 1)
    assert found.total == len(of_demo(api)) > 8
    kept = {name for _, name in api.objects} - set(of_demo(api))
    store(api).purge()
    assert {name for _, name in api.objects} == kept
    assert store(api).recorded().total == 0
    assert store(api).entries() == ()


@pytest.mark.parametrize("kind", [CONFIG_MAP, CONTROLLER_REVISION, LEASE])
def test_a_purge_that_is_not_permitted_deletes_nothing(api, kind):
    filled(api)
    before = of_demo(api)
    api.forbids = kind.plural
    with pytest.raises(NotPermitted):
        store(api).purge()
    assert of_demo(api) == before


def test_an_interrupted_purge_is_continued(api, monkeypatch):
    """Without its ledger a service has no unfinished operation, so the second purge is not refused."""
    filled(api)
    left = iter(range(4))

    def delete(kind, name, namespace=None, *, dry_run=False):
        if dry_run or next(left, None) is not None:
            return FakeApi.delete(api, kind, name, namespace, dry_run=dry_run)
        raise Conflict("no connection")

    monkeypatch.setattr(api, "delete", delete)
    with pytest.raises(Conflict):
        store(api).purge()
    assert store(api).entries() == ()
    monkeypatch.undo()
    store(api).purge()
    assert of_demo(api) == []


def test_within_the_lease_ledger_and_revisions_are_read_once(api, monkeypatch):
    three(api)
    listed = []
    mine, ask = store(api), api.list
    monkeypatch.setattr(api, "list", lambda *given, **more: listed.append(given) or ask(*given, **more))
    monkeypatch.setattr(mine.held, "hold", lambda purpose: nullcontext())
    with mine.lease("rollout"):
        before = mine.entries()
        mine.append(entry(before[-1]))
        mine.add_revision(revision(1))
        assert [len(mine.entries()), len(mine.revisions()), len(mine.entries())] == [4, 1, 4]
        assert len(listed) == 2
        with pytest.raises(Conflict):
            mine.append(entry(before[-1], n=9))  # one is there under this number
    assert mine.entries() == store(api).entries()
    assert len(listed) == 4
