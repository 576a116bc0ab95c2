"""Ledger, revisions, records and lease of a local service."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from mpctl.errors import Conflict, MpctlError
from mpctl.methods import Spec
from mpctl.platform.file_store import FileStore
from mpctl.rollout.ledger import Entry, Event
from mpctl.rollout.revision import Revision

AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def store(tmp_path):
    return FileStore(tmp_path / "ns" / "svc", "ann@here")


def entry(last=None, step="start"):
    return Entry.after(
        last,
        at=AT,
        operation="rollout-1",
        event=Event.BEGUN,
        who="ann@here",
        step=step,
        data={"é": 1},
    )


def revision(number, text="text\r\n"):
    return Revision(number, text, "2026-01-01", "ann@here", "as found", Spec("none"), "rollout-1")


def test_nothing_is_there_at_first(store, tmp_path):
    assert store.entries() == ()
    assert store.revisions() == ()
    assert store.load("rollout-1", "block") is None
    assert store.holder() is None


def test_entries_are_kept_in_order(store, tmp_path):
    actual_entry = entry()
    two = entry(actual_entry, "ready")
    store.append(actual_entry)
    store.append(two)
    assert store.entries() == (actual_entry, two)
    assert FileStore(tmp_path / "ns" / "svc", "bob@there").entries() == (actual_entry, two)


def test_a_torn_tail_is_not_read_and_cut_off_by_the_next_entry(store, tmp_path):
    """Wherever the writing stopped: the last line is gone as if it had never begun."""
    ledger = tmp_path / "ns" / "svc" / "ledger.jsonl"
    actual_entry = entry()
    two = entry(actual_entry, "ready")
    line = two.to_line().encode() + b"\n"
    for number in range(0, len(line), 7):
        ledger.unlink(missing_ok=True)
        store.append(actual_entry)
        with ledger.open("ab") as file:
            file.write(line[:number])
        assert store.entries() == (actual_entry,)
        store.append(two)
        assert store.entries() == (actual_entry, two)
        assert ledger.read_bytes().count(b"\n") == 2
    assert line[:number] in ledger.with_suffix(".torn").read_bytes()


def test_a_long_last_entry_is_found(store):
    actual_entry = Entry.after(
        None, at=AT, operation="o", event=Event.DONE, who="ann", step="s", data={"x": "y" * 300_000}
    )
    store.append(actual_entry)
    two = entry(actual_entry)
    store.append(two)
    assert store.entries() == (actual_entry, two)


def test_an_entry_that_does_not_follow_the_last_one_is_not_written(store):
    actual_entry = entry()
    store.append(actual_entry)
    with pytest.raises(Conflict, match=r"ledger\.jsonl was written meanwhile"):
        store.append(entry())
    assert store.entries() == (actual_entry,)


def test_a_ledger_that_was_overwritten_is_no_torn_line(store, tmp_path):
    store.append(entry())
    (tmp_path / "ns" / "svc" / "ledger.jsonl").write_bytes(b"\xff\xfe{[[")
    with pytest.raises(MpctlError, match=r"ledger\.jsonl:1: not a ledger entry"):
        store.entries()


def test_a_ledger_that_is_torn_in_its_first_line(store, tmp_path):
    ledger = tmp_path / "ns" / "svc" / "ledger.jsonl"
    ledger.parent.mkdir(parents=True)
    ledger.write_bytes(b'{"seq": 1')
    assert store.entries() == ()
    store.append(entry())
    assert store.entries() == (entry(),)


def test_an_edited_ledger_names_its_file_and_line(store, tmp_path):
    store.append(entry())
    ledger = tmp_path / "ns" / "svc" / "ledger.jsonl"
    ledger.write_text(ledger.read_text().replace("start", "other"))
    with pytest.raises(MpctlError, match=rf"^tampering: {ledger}:1: the chain is broken"):
        store.entries()


def test_revisions_are_kept_and_never_overwritten(store, tmp_path):
    for number in range(1, 12):
        store.add_revision(revision(number, f"text {number}\r\n"))
    assert [r.number for r in store.revisions()] == list(range(1, 12))
    with pytest.raises(Conflict, match="revision 3 is already recorded in"):
        store.add_revision(revision(3, "other"))
    assert store.revisions()[2] == revision(3, "text 3\r\n")


@pytest.mark.parametrize(
    "damage", [lambda text: text.replace("text", "test"), lambda text: "{}", lambda text: "null"]
)
def test_a_damaged_revision_is_found(store, tmp_path, damage):
    store.add_revision(revision(1))
    path = tmp_path / "ns" / "svc" / "revisions" / "0001.json"
    path.write_text(damage(path.read_text()))
    with pytest.raises(MpctlError, match=r"is damaged|does not have the recorded digest") as caught:
        store.revisions()
    assert str(path) in caught.value.message


def test_records_are_replaced_whole(store, tmp_path):
    store.save("rollout-1", "block", {"a": 1})
    store.save("rollout-1", "block", {"b": [2]})
    store.save("rollout-2", "block", {"c": 3})
    assert store.load("rollout-1", "block") == {"b": [2]}
    assert store.load("rollout-2", "block") == {"c": 3}
    path = tmp_path / "ns" / "svc" / "operations" / "rollout-1" / "block.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("[]")
    with pytest.raises(MpctlError, match=rf"^{path} is damaged: it is not an object"):
        store.load("rollout-1", "block")


def test_a_ledger_that_is_no_text_is_damaged(store, tmp_path):
    store.append(entry())
    ledger = tmp_path / "ns" / "svc" / "ledger.jsonl"
    ledger.write_bytes(b"\xff" + ledger.read_bytes())
    with pytest.raises(MpctlError, match=rf"^{ledger}:1: not a ledger entry"):
        store.entries()


# The lease

HOLD = """
import sys
from pathlib import Path
from mpctl.platform.file_store import FileStore
with FileStore(Path(sys.argv[1]), "bob@there").lease("rollout"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_another_process_that_holds_the_service_is_named_and_its_death_frees_it(store, tmp_path):
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "ns" / "svc")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with other:
        try:
            assert other.stdout.readline() == "held\n"
            with (
                pytest.raises(
                    Conflict,
                    match=r"^service ns/svc is held by bob@there \(pid \d+, rollout, since 20",
                ) as c,
                store.lease("rollback"),
            ):
                raise AssertionError("two hold it")
            assert f"pid {other.pid}" in c.value.message
            assert f"pid {other.pid}" in store.holder()
        finally:
            other.kill()
    # Its note still lies there; its lock went with it.
    assert (tmp_path / "ns" / "svc" / "lease.json").exists()
    assert store.holder() is None
    with store.lease("rollback"):
        assert "ann@here" in store.holder()
        assert f"pid {os.getpid()}, rollback" in store.holder()


def test_the_lease_ends_with_its_block_however_that_ends(store, tmp_path):
    with pytest.raises(RuntimeError), store.lease("rollout"):
        with pytest.raises(Conflict, match="ann@here"), store.lease("rollout"):
            pass
        raise RuntimeError
    assert store.holder() is None
    assert not (tmp_path / "ns" / "svc" / "lease.json").exists()


def test_a_holder_that_has_not_signed_yet_is_another_mpctl(store, tmp_path):
    with store.lease("rollout"):
        for content in ("{", "[]"):
            (tmp_path / "ns" / "svc" / "lease.json").write_text(content)
            assert store.holder() == "another mpctl"


def test_a_sealed_value_is_read_by_its_user_alone_and_ends_with_the_history(store, tmp_path):
    assert store.unseal() is None
    assert store.seal({"messages": ["a"]}) and store.seal({"messages": ["b"]})
    assert store.unseal() == {"messages": ["b"]}
    (path,) = tmp_path.rglob("sealed.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    store.purge()
    assert store.unseal() is None
