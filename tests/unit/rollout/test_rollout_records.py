"""Ledger and revisions: what was written is read back, and what was touched since is found."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from world import BASELINE_TEXT, CANDIDATE_TEXT, NGRAM, NONE, plan

from mpctl.errors import MpctlError, Tampered
from mpctl.gate.policy import Policy
from mpctl.rollout.ledger import FORMAT, Entry, Event, read_ledger
from mpctl.rollout.operation import Ending, Operation, operations, unfinished_operation
from mpctl.rollout.plan import Plan, Strategy
from mpctl.rollout.ports import Arm
from mpctl.rollout.revision import Revision, text_digest

few = settings(max_examples=50, deadline=None)
AT = datetime(2026, 1, 1, 12, 30, 15, 999, tzinfo=UTC)

texts = st.text(st.characters(codec="utf-8"), max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
data = st.dictionaries(texts, json_values, max_size=3)


def chain(*steps, data=None):
    entries = []
    for event, step in steps:
        last = entries[-1] if entries else None
        entries.append(
            Entry.after(
                last, at=AT, operation="rollout-1", event=event, who="x", step=step, data=data
            )
        )
    return entries


def lines(entries):
    return [entry.to_line() + "\n" for entry in entries]


OPENED = {"plan": plan(Strategy.SIDE_BY_SIDE).to_record()}
FOUR = [
    *chain((Event.OPENED, ""), data=OPENED),
]
for _event, _step in ((Event.BEGUN, "record"), (Event.DONE, "record"), (Event.BEGUN, "start")):
    FOUR.append(
        Entry.after(FOUR[-1], at=AT, operation="rollout-1", event=_event, who="x", step=_step)
    )


@few
@given(st.lists(data, min_size=1, max_size=4))
def test_entries_round_trip_and_chain(contents):
    entries = []
    for content in contents:
        last = entries[-1] if entries else None
        entries.append(
            Entry.after(
                last, at=AT, operation="o", event=Event.DONE, who="ä", step="s", data=content
            )
        )
    text = "".join(lines(entries))
    assert text.count("\n") == len(entries)
    assert read_ledger(text, where="ledger") == tuple(entries)
    assert [e.seq for e in entries] == list(range(1, len(entries) + 1))


def test_an_empty_ledger_has_no_entries():
    assert read_ledger("", where="ledger") == ()


@few
@given(st.data())
def test_an_edited_entry_is_found(drawn):
    """Any change of any field of any entry, also one that leaves the line valid."""
    written = lines(FOUR)
    index = drawn.draw(st.integers(0, len(written) - 1))
    record = json.loads(written[index])
    field = drawn.draw(st.sampled_from(sorted(record)))
    other = {"seq": 99, "data": {"x": 1}, "event": "failed"}.get(field, f"{record[field]}x")
    written[index] = json.dumps({**record, field: other}, sort_keys=True) + "\n"
    with pytest.raises(
        MpctlError,
        match=rf"^(tampering: )?ledger.jsonl:{index + 1}: (the chain is broken|not a ledger entry)",
    ):
        read_ledger("".join(written), where="ledger.jsonl")


@pytest.mark.parametrize("removed", [0, 1, 2])
def test_a_removed_entry_is_found_at_the_place(removed):
    written = lines(FOUR)
    del written[removed]
    with pytest.raises(
        MpctlError, match=rf"^tampering: ledger.jsonl:{removed + 1}: the chain is broken"
    ) as caught:
        read_ledger("".join(written), where="ledger.jsonl")
    assert "find out who wrote it" in caught.value.hint


def test_an_entry_of_another_format_is_refused():
    record = Entry.after(
        None, at=AT, operation="o", event=Event.BEGUN, who="x", step="s"
    ).to_record()
    with pytest.raises(ValueError, match=f"format {FORMAT + 1} of a newer mpctl"):
        Entry.from_record({**record, "format": FORMAT + 1})
    with pytest.raises(
        ValueError, match=f"format {FORMAT - 1} of an earlier mpctl: finish or roll back"
    ):
        Entry.from_record({**record, "format": FORMAT - 1})


def test_exchanged_entries_are_found():
    written = lines(FOUR)
    written[1], written[2] = written[2], written[1]
    with pytest.raises(MpctlError, match=":2: the chain is broken"):
        read_ledger("".join(written), where="ledger.jsonl")


def test_an_entry_with_a_digest_of_its_own_does_not_fit_the_chain():
    """Somebody who recomputes the digest of an edited entry still breaks the next one."""
    written = lines(FOUR)
    forged = Entry.after(
        FOUR[0], at=AT, operation="rollout-1", event=Event.BEGUN, who="x", step="other"
    )
    written[1] = forged.to_line() + "\n"
    with pytest.raises(MpctlError, match=":3: the chain is broken"):
        read_ledger("".join(written), where="ledger.jsonl")


@pytest.mark.parametrize(
    "line", ["", "{", "null", "[]", "{}", '{"event": "begun"}', '{"event": "exploded"}', "7"]
)
def test_a_line_that_is_no_entry_is_named(line):
    written = lines(FOUR)
    with pytest.raises(MpctlError, match=r"^ledger.jsonl:2: not a ledger entry"):
        read_ledger(written[0] + line + "\n" + "".join(written[1:]), where="ledger.jsonl")


def test_a_torn_last_line_is_left_out_wherever_it_was_torn():
    written = lines(FOUR)
    last = written[-1]
    for number in range(len(last)):
        assert read_ledger("".join(written[:-1]) + last[:number], where="ledger") == tuple(
            FOUR[:-1]
        )
    assert read_ledger("".join(written), where="ledger") == tuple(FOUR)


@few
@given(texts, texts, st.sampled_from([None, NONE, NGRAM]))
def test_a_revision_round_trips(text, why, spec):
    revision = Revision(1, text, "2026-01-01", "x", why, spec, "rollout-1")
    record = json.loads(json.dumps(revision.to_record()))
    assert Revision.from_record(record) == revision
    assert record["digest"] == text_digest(text)


def test_a_revision_whose_text_was_touched_is_refused():
    record = Revision(3, "a\n", "2026-01-01", "x", "as found", NONE, "rollout-1").to_record()
    with pytest.raises(
        Tampered, match="tampering: revision 3: its text does not have the recorded digest"
    ):
        Revision.from_record({**record, "text": "a\r\n"})


@pytest.mark.parametrize("record", [{}, {"digest": "x"}, {"digest": "x", "number": 3, "txet": "a"}])
def test_a_revision_without_its_fields_is_damaged_too(record):
    with pytest.raises(MpctlError, match="is damaged"):
        Revision.from_record(record)


def test_an_arm_is_named_after_the_bytes_of_its_manifest():
    assert Arm("a\n").id == Arm("a\n").id
    assert Arm("a\n").id != Arm("a\r\n").id
    assert Arm("a\n").id == "arm-" + text_digest("a\n")[:10]


@pytest.mark.parametrize("strategy", list(Strategy))
def test_a_plan_round_trips_and_its_digest_sees_every_field(strategy):
    first = plan(
        strategy, policy=Policy(max_time_per_token_ratio=0.8), undoes="rollout-1", automatic=True
    )
    again = Plan.from_record(json.loads(json.dumps(first.to_record())))
    assert again == first
    assert again.digest() == first.digest()
    for name, value in {
        "goal": "x",
        "policy": Policy(),
        "workload": "w",
        "keep_baseline": True,
    }.items():
        assert plan(strategy, **{name: value}).digest() != first.digest()


def test_a_plan_written_before_a_field_was_there_can_be_read():
    record = plan(Strategy.IN_PLACE).to_record()
    del record["overwrites"], record["rollback"]["automatic"]
    assert Plan.from_record(record) == plan(Strategy.IN_PLACE)


def test_an_operation_is_what_its_entries_say():
    assert operations(FOUR) == (
        Operation(
            id="rollout-1",
            plan=plan(Strategy.SIDE_BY_SIDE),
            opened_at="2026-01-01T12:30:15+00:00",
            who="x",
            done={"record": {}},
            begun="start",
            seconds={"": 0.0, "record": 0.0},
            recorded_at="2026-01-01T12:30:15+00:00",
        ),
    )
    assert unfinished_operation(FOUR).id == "rollout-1"
    closed = Entry.after(
        FOUR[-1],
        at=AT,
        operation="rollout-1",
        event=Event.CLOSED,
        who="x",
        data={"ending": "rolled back", "detail": "why"},
    )
    (operation,) = operations([*FOUR, closed])
    assert (operation.ending, operation.detail, operation.begun) == (Ending.ROLLED_BACK, "why", "")
    assert unfinished_operation([*FOUR, closed]) is None
    assert unfinished_operation([]) is None


def test_of_two_unfinished_operations_the_later_one_counts():
    back = plan(Strategy.SIDE_BY_SIDE, undoes="rollout-1").to_record()
    later = Entry.after(
        FOUR[-1], at=AT, operation="rollback-2", event=Event.OPENED, who="x", data={"plan": back}
    )
    assert unfinished_operation([*FOUR, later]).id == "rollback-2"


def test_no_entry_of_the_ledger_contains_a_manifest():
    record = json.dumps(OPENED)
    assert BASELINE_TEXT.strip() not in record
    assert CANDIDATE_TEXT.strip() not in record
    assert text_digest(CANDIDATE_TEXT) in record
