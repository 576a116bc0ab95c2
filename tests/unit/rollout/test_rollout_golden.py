"""Ledgers, revisions and stored measurements in the form that services already have: read, and written alike.

A later version may add fields with a default; another change needs a reader of both. The files stay as they are.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import get_type_hints

import pytest
from rolling import ROUTE, SCALING, RollingWorld
from test_rollout_restart import FRESH_TEXT, SOUND
from test_rollout_traffic import wanted
from test_rollout_users import LOAD, SCALED
from world import (
    BASELINE_TEXT,
    BROKEN,
    CANDIDATE_TEXT,
    FASTER,
    NGRAM,
    NONE,
    SLOWER,
    MemoryWorld,
    plan,
)

from mpctl.errors import MpctlError
from mpctl.experiment.block import Block
from mpctl.experiment.run import Calibration
from mpctl.experiment.users import Placement, UserLoad
from mpctl.experiment.workload import Workload
from mpctl.gate.policy import _GONE, Policy
from mpctl.records import encode
from mpctl.rollout import measurement_records, runner
from mpctl.rollout.ledger import FORMAT, Entry, Event, read_ledger
from mpctl.rollout.operation import last_change, operations, unfinished_operation
from mpctl.rollout.plan import BakePlan, Kind, Plan, RollbackPlan, Strategy, TrafficPlan, UsersPlan
from mpctl.rollout.revision import Manifest, Revision
from mpctl.rollout.sequences import sequence
from mpctl.watch.reference import Reference

GOLDEN = Path(__file__).parent / "golden"
FIGURES = re.compile(r", [\d.]+% CI .*")  # and the reasons after the first
LATER_STEPS = {"confirm": "unpin"}
GONE_RULES = {"TPOT p99", "TTFT p99", "E2E p99", "coverage", "throughput", "samples"}
GONE_RULES |= {"arms", "open loop", "repeats", "tokens", "caches"}  # reasons of "comparable"
# Of rules and cells, of which cells also lack "repeats", and of windows.
GONE_FIELDS = {"needed", "needed_s", "ttft_buckets", "tpot_buckets"}


@pytest.fixture(autouse=True)
def coins_of_the_files(monkeypatch):
    """Which arm goes first is no part of a form: here the tosses are those with which the files were written."""

    def order(arms, cells, repeat, *, seed):
        tosses = {
            cell: hashlib.sha256(f"{seed}\n{cell.key}\n{repeat}".encode()).digest()[0] % 2
            for cell in cells
        }
        return tuple(
            (cell, arm) for cell in cells for arm in (arms[::-1] if tosses[cell] else arms)
        )

    monkeypatch.setattr(measurement_records, "round_order", order)


def carried_out(memory, *plans):
    for planned in plans:
        runner.run(memory.context, runner.open_plan(memory.context, planned))
    return memory


def back(memory):
    """The same service after a rollback by hand."""
    decided = memory.decide_back().plan
    return carried_out(memory, decided)


def blocked_and_abandoned():
    memory = MemoryWorld(BROKEN)
    runner.open_plan(memory.context, plan(Strategy.IN_PLACE))
    runner.abandon(memory.context, why="abandoned by somebody")
    return memory


def in_turns():
    planned = wanted(traffic_steps=(), placement=Placement.TURNS, users=LOAD, scaling=SCALING)
    return carried_out(RollingWorld(FASTER), planned)


def on_users(placement):
    planned = wanted(placement=placement, policy=SCALED, users=LOAD, traffic_steps=(), route=ROUTE)
    return carried_out(RollingWorld(FASTER), planned)


RESTART = {"kind": Kind.RESTART, "goal": FRESH_TEXT, "spec": NONE, "workload": "", "why": "restart"}
JOURNEYS = {
    "promoted-side-by-side": lambda: carried_out(MemoryWorld(FASTER), plan(Strategy.SIDE_BY_SIDE)),
    "promoted-in-place": lambda: carried_out(MemoryWorld(FASTER), plan(Strategy.IN_PLACE)),
    "rejected": lambda: carried_out(MemoryWorld(SLOWER), plan(Strategy.SIDE_BY_SIDE)),
    "failed": lambda: carried_out(MemoryWorld(BROKEN), plan(Strategy.SIDE_BY_SIDE)),
    "rolled-back": lambda: back(carried_out(MemoryWorld(FASTER), plan(Strategy.SIDE_BY_SIDE))),
    "abandoned": blocked_and_abandoned,
    "restarted": lambda: carried_out(MemoryWorld(SOUND), plan(Strategy.SIDE_BY_SIDE, **RESTART)),
    "traffic-baked-retained": lambda: carried_out(
        RollingWorld(FASTER), wanted(keep_baseline=True, bake_s=30.0, mirror_percent=100)
    ),
    "in-turns": in_turns,
    "mirrored": lambda: on_users(Placement.MIRROR),
    "split": lambda: on_users(Placement.SPLIT),
}
FULL = Plan(
    kind=Kind.ROLLBACK,
    strategy=Strategy.IN_PLACE,
    baseline=Manifest.of(BASELINE_TEXT, 3),
    goal=Manifest.of(CANDIDATE_TEXT, 4),
    spec=NGRAM,
    baseline_spec=NONE,
    policy=Policy(max_failed_excess=0.25),
    workload="workload-1",
    ready_timeout_s=30.0,
    keep_baseline=True,
    why="every field",
    draft="a/head",
    target_model="a/target",
    downtime=True,
    scaling=SCALING,
    overwrites=True,
    load="job",
    route=ROUTE,
    users=UsersPlan(Placement.SPLIT, UserLoad(20.0, 1, seen=True, window_s=10.0, answer_s=2.5), 25),
    traffic=TrafficPlan((1, 50), 60.0, 100),
    bake=BakePlan(60.0, restarts_baseline=True),
    rollback=RollbackPlan("rollout-1", True, True, 2, ("spec.x",)),
    deletes_retained_baseline=True,
    by="watch",
    prediction={"low": 0.9},
)
RECORDS = {"workload": Workload, "block": Block, "reference": Reference}


def result_type(step):
    """The type that a step's function returns."""
    return get_type_hints(step.func if isinstance(step, partial) else step)["return"]


def stored(memory):
    """A service's state as it is stored: its ledger, its revisions and one record of each form. The load client's
    times are kept for people: no version reads them."""
    forms = {
        name.partition("-")[0]: [operation, name, r]
        for (operation, name), r in memory.disk.records.items()
    }
    for form in ("bench", "sent"):  # the latter is of a later version
        forms.pop(form, None)
    ledger = [json.loads(entry.to_line()) for entry in memory.disk.ledger]
    return (
        ledger,
        [revision.to_record() for revision in memory.disk.revisions],
        [forms[form] for form in sorted(forms)],
    )


def parts(name):
    """Lines of the ledger, of the revisions and of the records in a file."""
    text = (GOLDEN / f"{name}.txt").read_text()
    ledger, _, others = text.removeprefix("ledger\n").partition("revisions\n")
    revisions, _, records = others.partition("records\n")
    read = [line for line in records.splitlines() if not json.loads(line)[1].startswith("bench-")]
    return ledger.splitlines(), revisions.splitlines(), read


def without_later_fields(value, old):
    """What an older version writes of ``value``: a later one adds fields, and changes none."""
    if isinstance(value, dict) and isinstance(old, dict):
        return {name: without_later_fields(value[name], old[name]) for name in old if name in value}
    if isinstance(value, list) and isinstance(old, list) and len(value) == len(old):
        return [without_later_fields(one, other) for one, other in zip(value, old, strict=True)]
    return value


def without_chain(entry):
    return {name: value for name, value in entry.items() if name not in ("digest", "previous")}


def without_figures(value):
    """A record without gone fields and the gate's limits and figures, which its statistics change; of rules their
    outcomes stay."""
    if isinstance(value, list):
        return [without_figures(item) for item in value]
    if not isinstance(value, dict):
        return FIGURES.sub("", value) if isinstance(value, str) else value
    left_out = {"policy"} | Calibration.GONE | GONE_FIELDS
    if "rules" in value:
        left_out |= {"repeats"}
    fields = {name: without_figures(item) for name, item in value.items() if name not in left_out}
    if "rules" in value:
        fields["rules"] = {
            rule["rule"]: rule["outcome"]
            for rule in value["rules"]
            if rule["rule"] not in GONE_RULES
        }
    return fields


def without_gone_parts(value):
    """A result or a record as it is written now, without the gone fields in it."""
    if isinstance(value, list):
        return [without_gone_parts(item) for item in value]
    if not isinstance(value, dict):
        return value
    gone = GONE_FIELDS | ({"repeats"} if "rules" in value else set())
    return {name: without_gone_parts(item) for name, item in value.items() if name not in gone}


def without_gone_fields(kind, record):
    """A record as it is written now: fields of earlier versions are read and not kept."""
    return {name: value for name, value in record.items() if name not in getattr(kind, "GONE", ())}


def without_gone_limits(plan):
    """A plan as it is written now: limits of rules that are gone are read and not kept."""
    gone = {name for name in plan["policy"] if "p99" in name or name in _GONE}
    limits = {name: limit for name, limit in plan["policy"].items() if name not in gone}
    return {**plan, "policy": limits}


def without_later_steps(ledger):
    """The entries that an older version writes of these; by the name of a step that it lacks, the step after it."""
    entries = [entry for entry in ledger if entry["step"] not in LATER_STEPS]
    return [
        {**entry, "seq": number, "then": LATER_STEPS.get(entry["then"], entry["then"])}
        for number, entry in enumerate(entries, start=1)
    ]


@pytest.mark.parametrize("journey", JOURNEYS)
def test_an_operation_leaves_what_it_always_left(journey):
    now = stored(JOURNEYS[journey]())
    golden = tuple([json.loads(line) for line in lines] for lines in parts(journey))
    now, golden = (
        without_figures([list(map(without_chain, ledger)), *others])
        for ledger, *others in (now, golden)
    )
    now[0] = without_later_steps(now[0])
    assert without_later_fields(now, golden) == golden


@pytest.mark.parametrize("journey", JOURNEYS)
def test_what_services_have_is_read_and_written_as_it_is(journey):
    ledger, revisions, records = parts(journey)
    entries = read_ledger("".join(f"{line}\n" for line in ledger), where=journey)
    assert [entry.to_line() for entry in entries] == ledger
    for operation in operations(entries):
        (opened,) = [
            e for e in entries if e.operation == operation.id and e.event.value == "opened"
        ]
        written = without_gone_limits(opened.data["plan"])
        assert without_later_fields(operation.plan.to_record(), written) == written
        steps = {
            step.name: step.act
            for replaces_pods in (False, True)
            for step in sequence(operation.plan, replaces_pods=replaces_pods)
        }
        for name, result in operation.done.items():
            read = operation.result(name, result_type(steps[name]))
            written = without_gone_parts(result)
            assert without_later_fields(encode(read), written) == written
    for line in revisions:
        assert (
            json.dumps(Revision.from_record(json.loads(line)).to_record(), sort_keys=True) == line
        )
    for _, name, record in map(json.loads, records):
        kind = RECORDS.get(name.partition("-")[0])
        if kind is not None:
            current = without_gone_parts(without_gone_fields(kind, record))
            assert without_later_fields(kind.from_record(record).to_record(), current) == current


def test_every_field_of_a_plan_keeps_its_name_and_form():
    golden = json.loads((GOLDEN / "plan.json").read_text())
    current = without_gone_limits(golden)
    assert without_later_fields(FULL.to_record(), current) == current
    assert Plan.from_record(golden).read(revisions()) == FULL
    assert replace(FULL, users=UsersPlan()).digest() != FULL.digest()


def revisions():
    pairs = ((3, BASELINE_TEXT), (4, CANDIDATE_TEXT))
    return [Revision(number, text, "", "", "", None, "") for number, text in pairs]


@pytest.mark.parametrize("number", [2, 3])
def test_a_ledger_of_an_earlier_version_is_refused_with_what_to_do(number):
    ledger, _, _ = parts("promoted-side-by-side")
    earlier = ledger[0].replace(f'"format": {FORMAT}', f'"format": {number}')
    with pytest.raises(
        MpctlError, match=rf"^ledger:1: .*format {number} of an earlier mpctl: finish or roll back"
    ):
        read_ledger(earlier + "\n", where="ledger")


def test_a_training_of_an_earlier_version_is_read_and_stands_in_no_ones_way():
    """Heads were trained by operations of the ledger, which changed nothing that serves."""
    ledger, _, _ = parts("promoted-side-by-side")
    entries = list(read_ledger("".join(f"{line}\n" for line in ledger), where="ledger"))
    before = last_change(entries)
    at = datetime.fromisoformat(entries[-1].at)
    trained = {**FULL.to_record(), "kind": "refresh", "cause": "refresh-1"}
    for number, ending in ((1, "offered"), (2, None)):
        events = [(Event.OPENED, {"plan": trained})]
        events += [(Event.CLOSED, {"ending": ending})] if ending else []
        for event, data in events:
            name = f"refresh-{number}"
            entries.append(
                Entry.after(
                    entries[-1], at=at, operation=name, event=event, step="", who="w", data=data
                )
            )
    assert [op.id for op in operations(entries)][-2:] == ["refresh-1", "refresh-2"]
    assert last_change(entries) == before
    assert unfinished_operation(entries) is None
