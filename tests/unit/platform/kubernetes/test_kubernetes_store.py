"""The history of a service in the cluster: what is written comes back, and what another writer wrote does not."""

from __future__ import annotations

import os
from contextlib import nullcontext
from datetime import UTC, datetime

import pytest
from fake_api import FakeApi, Immutable

from mpctl.errors import Conflict, NotPermitted, Tampered
from mpctl.methods import Spec
from mpctl.platform.kubernetes.api import kinds
from mpctl.platform.kubernetes.api.kinds import CONFIG_MAP, CONTROLLER_REVISION, LEASE
from mpctl.platform.kubernetes.api.replies import Stale
from mpctl.platform.kubernetes.object_store import KubernetesStore
from mpctl.rollout.ledger import Entry, Event
from mpctl.rollout.revision import Revision

NOW = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture
def api():
    return FakeApi()


def store(api, service="demo"):
    return KubernetesStore(api, "chat", service, "a@b")


def entry(last, **data):
    return Entry.after(
        last, at=NOW, operation="rollout-1", event=Event.BEGUN, who="a@b", step="s", data=data
    )


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
    item["data"] = {
        "entries": [first.to_record(), {**second.to_record(), "who": "x"}, third.to_record()]
    }
    with pytest.raises(
        Tampered,
        match="ledger-1 does not follow: entry 2 of the ledger of demo is missing or forged",
    ):
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
        Tampered,
        match=rf"ledger-{number + 1} does not follow: entry {number} of the ledger of demo is",
    ):
        store(api).entries()


def test_an_entry_that_does_not_follow_is_named_with_its_writer(api):
    three(api)
    forged = Entry.after(
        None, at=NOW, operation="rollback-2", event=Event.OPENED, who="a@b", data={"plan": {}}
    )
    body = {
        **api.objects["controllerrevisions", "mpctl-demo.ledger-3"],
        "data": {**forged.to_record(), "seq": 4},
    }
    body = {**body, "revision": 4, "metadata": {**body["metadata"], "name": "mpctl-demo.ledger-4"}}
    api.create(CONTROLLER_REVISION, body, as_="kubectl-create")
    with pytest.raises(
        Tampered,
        match="entry 4 of the ledger of demo is missing or forged, last written by kubectl",
    ):
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
    item = api.objects["controllerrevisions", "mpctl-demo.revision-1"]
    body = {**item, "metadata": {**item["metadata"], "name": "mpctl-demo-2"}}
    api.create(CONTROLLER_REVISION, body, as_="kubectl-create")
    with pytest.raises(
        Tampered,
        match="mpctl-demo-2 claims to be revision 1 of demo, last written by kubectl-create",
    ):
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
    with (
        mine.lease("rollback"),
        pytest.raises(Tampered, match=r"entry 5 is named by Lease chat/mpctl-demo") as caught,
    ):
        mine.entries()
    assert "mpctl unlock demo --force" in caught.value.hint
    for reader in (mine, store(api)):
        with pytest.raises(
            Tampered, match="the ledger is empty" if count == 5 else f"ends with entry {5 - count}"
        ):
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
    assert api.objects["leases", "mpctl-demo"]["metadata"]["annotations"][
        "mpctl.dev/newest-entry"
    ].startswith("6 ")
    assert len(mine.entries()) == 6


def test_another_end_of_the_ledger_is_missed_too(api):
    newest_removed(api, 1)
    store(api).append(entry(store(api).surviving_entries()[-1], n="another"))
    mine = store(api)
    with (
        mine.lease("rollback"),
        pytest.raises(Tampered, match="entry 5 of the ledger is not the one named by Lease"),
    ):
        mine.entries()


@pytest.mark.parametrize(
    "claim", ["", "x", "-1 a", "9999999999999999999 a", "²", "5", "\x1b[2J", "0 a"]
)
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
    names = {name for _, name in api.objects} - set(of_demo(api))
    store(api).purge()
    assert {name for _, name in api.objects} == names
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
    monkeypatch.setattr(
        api, "list", lambda *given, **more: listed.append(given) or ask(*given, **more)
    )
    monkeypatch.setattr(mine.held, "hold", lambda purpose: nullcontext())
    with pytest.raises(Conflict), mine.lease("rollout"):
        before = mine.entries()
        mine.append(entry(before[-1]))
        mine.add_revision(revision(1))
        assert [len(mine.entries()), len(mine.revisions()), len(mine.entries())] == [4, 1, 4]
        assert len(listed) == 2
        mine.append(entry(before[-1], n=9))  # one is there under this number
    assert mine.entries() == store(api).entries()
    assert len(listed) == 4


# What is the history's own


STATEFUL_SET = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "name": "db",
    "uid": "1",
    "controller": True,
}
TEMPLATE = {"spec": {"template": {"$patch": "replace"}}}


def foreign(api, name, part, *, owners=(STATEFUL_SET,), data=None):
    """A ControllerRevision as a StatefulSet makes it whose template has mpctl's labels."""
    labels = {"mpctl.dev/service": "demo", "mpctl.dev/part": part}
    metadata = {
        "name": name,
        "namespace": "chat",
        "labels": labels,
        "ownerReferences": list(owners),
    }
    api.create(
        CONTROLLER_REVISION,
        {"metadata": metadata, "revision": 1, "data": data or TEMPLATE},
        as_="kube",
    )


@pytest.mark.parametrize(
    "name", ["db-576b5cb5bc", "mpctl-demo.ledger-4", "mpctl-demo-4", "mpctl-demo.ledger-04"]
)
@pytest.mark.parametrize("part", ["ledger", "revision", "seal"])
def test_a_controllers_object_with_the_labels_of_the_history_is_ignored_and_named(api, name, part):
    mine = store(api)
    mine.add_revision(revision(1))
    mine.save("rollout-1", "block", {"a": 1})
    entries = three(api)
    foreign(api, name, part)
    other = store(api)
    assert (other.entries(), other.revisions(), other.load("rollout-1", "block")) == (
        entries,
        (revision(1),),
        {"a": 1},
    )
    if part != "seal":  # a seal is read with its operation's alone
        (described,) = other.look_alikes()
        assert described.startswith(
            f"ControllerRevision chat/{name} of StatefulSet db has mpctl's labels"
        )
    other.purge()
    assert [name for _, name in api.objects] == [name]


def test_what_a_deleted_statefulset_left_behind_is_no_entry(api):
    entries = three(api)
    foreign(api, "mpctl-demo.ledger-4", "ledger", owners=())
    assert store(api).entries() == entries
    with pytest.raises(
        Conflict, match=r"entry 4 .*ControllerRevision chat/mpctl-demo.ledger-4 .*none of its own"
    ):
        store(api).append(entry(entries[-1]))


def test_every_object_has_a_controller_so_that_nobody_adopts_it(api):
    mine = store(api)
    mine.add_revision(revision(1))
    mine.save("rollout-1", "block", {"a": 1})
    three(api)
    items = [
        item for (plural, _), item in api.objects.items() if plural == CONTROLLER_REVISION.plural
    ]
    assert len(items) == 5
    for item in items:
        (owner,) = item["metadata"]["ownerReferences"]
        assert (owner["controller"], owner["kind"], owner["name"]) == (True, "Ledger", "demo")
        assert "blockOwnerDeletion" not in owner  # which needs a right on the owner's finalizers


def before_owners(api):
    """Take away what older versions did not write."""
    for (plural, name), item in list(api.objects.items()):
        if plural == CONTROLLER_REVISION.plural:
            del item["metadata"]["ownerReferences"]
            renamed = name.replace(".revision-", "-")
            item["metadata"]["name"] = renamed
            api.objects[plural, renamed] = api.objects.pop((plural, name))


def test_a_history_of_an_older_version_is_read_and_pruning_gives_it_owners(api):
    mine = store(api)
    mine.add_revision(revision(1))
    mine.save("rollout-1", "block", {"a": 1})
    entries = three(api)
    before_owners(api)
    assert "mpctl-demo-1" in api.named("revision")
    old = store(api)
    with old.lease("prune"):
        assert (old.entries(), old.revisions()) == (entries, (revision(1),))
        old.prune(frozenset())
    assert api.named("ledger") == ["mpctl-demo.ledger-1-3"]
    assert api.named("revision") == api.named("seal") == []
    again = store(api)
    assert (again.entries(), again.revisions(), again.load("rollout-1", "block")) == (
        entries,
        (revision(1),),
        {"a": 1},
    )
    assert api.objects["controllerrevisions", "mpctl-demo.ledger-1-3"]["metadata"][
        "ownerReferences"
    ]


# Few objects


def operations(count, first=1, last=None):
    """Entries of operations, four each."""
    for number in range(first, first + count):
        for step in ("a", "b", "c", "d"):
            last = Entry.after(
                last,
                at=NOW,
                operation=f"rollout-{number}",
                event=Event.DONE,
                who="a@b",
                step=step,
                data={"n": number},
            )
            yield last


def grown(mine, count, first=1):
    """Run operations as a command does: a revision, records and an entry for each."""
    with mine.lease("rollout"):
        entries = mine.entries()
        last = entries[-1] if entries else None
        for operation in operations(count, first, last):
            if operation.step == "a":
                number = len(mine.revisions()) + 1
                text = f"text of {number}\n"
                mine.add_revision(
                    Revision(number, text, NOW.isoformat(), "a@b", "why", None, operation.operation)
                )
            mine.save_all(operation.operation, {operation.step: {"n": operation.data["n"]}})
            mine.append(operation)


def test_revisions_and_seals_are_in_the_object_of_the_entry_that_follows(api):
    grown(store(api), 1)
    assert (len(api.named("ledger")), api.named("revision"), api.named("seal")) == (4, [], [])
    again = store(api)
    assert [r.number for r in again.revisions()] == [1]
    assert again._records.load_all("rollout-1") == {step: {"n": 1} for step in "abcd"}


def test_what_waits_for_an_entry_is_written_when_the_command_ends_without_one(api):
    mine = store(api)
    with pytest.raises(KeyboardInterrupt), mine.lease("rollout"):
        mine.entries()
        mine.add_revision(revision(1))
        mine.save_all("rollout-1", {"block": {"a": 1}})
        mine.append(entry(None), with_next=True)
        assert api.named("ledger") == []
        raise KeyboardInterrupt
    again = store(api)
    assert (again.entries(), again.revisions()) == ((entry(None),), (revision(1),))
    assert again.load("rollout-1", "block") == {"a": 1}


def test_an_entry_whose_write_failed_is_written_with_the_next_one(api, monkeypatch):
    first = entry(None)
    second = entry(first, n=1)
    third = entry(second, n=2)

    def refuse(*_, **__):
        raise Stale("the object has been modified")

    mine = store(api)
    with mine.lease("rollout"):
        mine.entries()
        mine.append(first, with_next=True)
        mine.save_all("rollout-1", {"block": {"a": 1}})
        with monkeypatch.context() as patch, pytest.raises(Stale):
            patch.setattr(api, "apply", refuse)
            mine.append(second)
        mine.append(third)
    assert store(api).entries() == (first, second, third)
    assert store(api).load("rollout-1", "block") == {"a": 1}


def test_a_command_that_dies_before_the_entry_leaves_the_sealed_state(api, monkeypatch):
    grown(store(api), 1)
    dying = store(api)
    monkeypatch.setattr(dying, "_flush", lambda: None)
    with dying.lease("rollout"):
        dying.entries()
        dying.save_all("rollout-1", {"block": {"a": 1}})
        dying._records.write()  # beside the sealed state, whose ConfigMap stays
    assert store(api)._records.load_all("rollout-1") == {step: {"n": 1} for step in "abcd"}


def test_two_hundred_operations_are_one_object_after_pruning_and_lose_nothing(api):
    grown(store(api), 200)
    before = store(api)
    entries, revisions = before.entries(), before.revisions()
    assert (len(entries), len(revisions), len(api.named("ledger"))) == (800, 200, 800)
    pruning = store(api)
    with pruning.lease("prune"):
        pruning.entries()
        pruned = pruning.prune(frozenset(f"rollout-{n}" for n in range(1, 191)))
    assert api.named("ledger") == ["mpctl-demo.ledger-1-800"]
    assert len(api.named("record")) == 10
    assert pruned.remaining == len(api.objects) == 12  # with the lease
    assert len(str(api.objects["controllerrevisions", "mpctl-demo.ledger-1-800"])) < 200_000
    grown(store(api), 100, first=201)
    again = store(api)
    assert again.entries()[:800] == entries
    assert again.revisions()[:200] == revisions
    assert (len(again.entries()), len(again.revisions())) == (1200, 300)
    assert again._records.load_all("rollout-1") == {}
    assert again._records.load_all("rollout-200") == {step: {"n": 200} for step in "abcd"}
    with again.lease("prune"):
        again.entries()
        again.prune(frozenset())
    assert api.named("ledger") == ["mpctl-demo.ledger-1-1000", "mpctl-demo.ledger-1001-1200"]
    assert (store(api).entries(), store(api).revisions()) == (again.entries(), again.revisions())


@pytest.mark.parametrize("survivors", [2, 3, 5, 7])
def test_a_pruning_that_was_interrupted_leaves_a_history_that_is_whole(api, monkeypatch, survivors):
    grown(store(api), 3)
    before = store(api)
    entries, revisions = before.entries(), before.revisions()
    delete, calls = api.delete, []

    def interrupted(kind, name, namespace=None, *, dry_run=False):
        if not dry_run and len(calls) == survivors:
            raise KeyboardInterrupt
        calls.append(dry_run or name)
        delete(kind, name, namespace, dry_run=dry_run)

    pruning = store(api)
    monkeypatch.setattr(api, "delete", interrupted)
    with pytest.raises(KeyboardInterrupt), pruning.lease("prune"):
        pruning.entries()
        pruning.prune(frozenset({"rollout-1"}))
    monkeypatch.setattr(api, "delete", delete)
    again = store(api)
    assert (again.entries(), again.revisions(), again._records.load_all("rollout-1")) == (
        entries,
        revisions,
        {},
    )
    with again.lease("prune"):
        again.entries()
        again.prune(frozenset({"rollout-1"}))
    assert api.named("ledger") == ["mpctl-demo.ledger-1-12"]
    assert {
        item["data"]["operation"]
        for (_, n), item in api.objects.items()
        if n in api.named("record")
    } == {
        "rollout-2",
        "rollout-3",
    }


def test_names_of_one_service_are_never_those_of_another(api):
    first, second = store(api, "x"), store(api, "x.ledger")
    for each in (first, second):
        each.add_revision(revision(1))
        each.append(entry(None))
    assert first.entries() == second.entries() == (entry(None),)
    assert first.revisions() == second.revisions() == (revision(1),)


SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "mpctl-sentinels", "namespace": "chat"},
}


def test_a_value_is_sealed_only_in_the_secret_that_an_administrator_made(api):
    assert not store(api).seal({"messages": ["a"]})
    assert store(api).unseal() is None
    api.create(kinds.SECRET, SECRET)
    assert store(api).seal({"messages": ["a"]}) and store(api, "other").seal({"messages": ["b"]})
    assert store(api).unseal() == {"messages": ["a"]}
    assert store(api, "other").unseal() == {"messages": ["b"]}


@pytest.mark.parametrize("call", ["get", "merge"])
def test_without_the_right_to_the_secret_nothing_is_sealed(api, monkeypatch, call):
    api.create(kinds.SECRET, SECRET)

    def refuse(*_, **__):
        raise NotPermitted("secrets is forbidden")

    monkeypatch.setattr(api, call, refuse)
    assert not store(api).seal({"messages": ["a"]})
    assert store(api).unseal() is None
