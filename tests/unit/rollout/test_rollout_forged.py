"""Another writer forges what is recorded: nothing of it reaches the service, and each attempt is named.

Two writers: one with rights on ConfigMaps alone, who meets the store of the cluster; and one who can even append
correct entries to the ledger, whose plans can name no manifest but those that are recorded.
"""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
from fake_api import FakeApi
from world import (
    BASELINE_TEXT,
    CANDIDATE_TEXT,
    FASTER,
    OTHER_TEXT,
    Behaviour,
    Crash,
    MemoryWorld,
    plan,
)

from mpctl.errors import MpctlError, Tampered
from mpctl.platform.kubernetes.api.kinds import CONFIG_MAP
from mpctl.platform.kubernetes.object_store import KubernetesStore
from mpctl.rollout import runner
from mpctl.rollout.ledger import Entry, Event
from mpctl.rollout.operation import Ending, operations
from mpctl.rollout.plan import Strategy
from mpctl.rollout.revision import Manifest, Revision, text_digest

EVIL = "hostPath: /\n"
RECORDED = {BASELINE_TEXT, CANDIDATE_TEXT}


# A writer of ConfigMaps


class Clustered(MemoryWorld):
    """The memory's platform with the cluster's store over an API in memory."""

    def __init__(self, behaviours, disk=None, prompts=None, api=None):
        super().__init__(behaviours, disk, prompts)
        self.api = api or FakeApi()
        self.context = replace(
            self.context, store=KubernetesStore(self.api, "chat", "svc", "somebody@here")
        )
        if api is None:
            self.context.store.save(
                "workload-1", "workload", self.disk.records["workload-1", "workload"]
            )

    def fork(self):
        """A new command on a copy of what is left."""
        return Clustered(self.behaviours, self.disk.copy(), self.prompts, copy.deepcopy(self.api))

    def unfinished(self):
        return next(op for op in operations(self.context.store.entries()) if op.ending is None)


@pytest.fixture(scope="module")
def halfway():
    """A rollout that died in its second round, with every kind of record."""
    memory = Clustered(FASTER)
    runs = []

    def die(where):
        runs.append(where)
        if runs.count("before run") == 6:
            raise Crash(where)

    memory.watch = die
    with pytest.raises(Crash):
        runner.run(memory.context, runner.open_plan(memory.context, plan(Strategy.SIDE_BY_SIDE)))
    memory.watch = lambda where: None
    return memory


def kinds_of_records(memory):
    return {item["data"]["operation"]: item for item in configmaps(memory)}


def configmaps(memory):
    return [item for (kind, _), item in sorted(memory.api.objects.items()) if kind == "configmaps"]


def hostile(item, other):
    """Every field of a record's ConfigMap, changed by hand."""
    for name, value in (
        ("operation", "rollout-9"),
        ("name", "other"),
        ("sha256", "0" * 64),
        ("pieces", "0" * 64),
    ):
        yield f"data.{name}", {**item, "data": {**item["data"], name: value}}
    for name, value in (
        ("another record", other["binaryData"]["record"]),
        ("nothing", ""),
        ("no base64", "%"),
    ):
        yield f"binaryData: {name}", {**item, "binaryData": {"record": value}}
    packed = KubernetesStore(api := FakeApi(), "chat", "svc", "mallory")
    packed.save(item["data"]["operation"], item["data"]["name"], {"forged": True})
    (forged,) = [i for (kind, _), i in api.objects.items() if kind == "configmaps"]
    yield "a forged record with its digest", {**forged, "metadata": dict(item["metadata"])}


def test_nothing_that_a_writer_of_configmaps_changes_is_obeyed(halfway):
    records = kinds_of_records(halfway)
    assert records.keys() == {"workload-1", "rollout-1"}
    attempts, named = 0, 0
    for name, item in records.items():
        for what, forged in hostile(
            item, records["workload-1" if name != "workload-1" else "rollout-1"]
        ):
            memory = halfway.fork()
            forged["metadata"] = {
                k: v for k, v in forged["metadata"].items() if k != "managedFields"
            }
            memory.api.apply(CONFIG_MAP, forged, force=True, as_="mallory")
            try:
                done = runner.run(memory.context, memory.unfinished())
                ending, detail = done.ending, done.detail
            except MpctlError as error:
                ending, detail = None, error.message
            attempts += 1
            assert memory.disk.text in RECORDED, (name, what)
            if ending is Ending.PROMOTED:  # what was changed is not read: the true record decided
                continue
            named += 1
            assert (
                "tampering: ConfigMap chat/" in detail
                or "is missing" in detail
                or "not found" in detail
            ), (
                name,
                what,
                detail,
            )
            assert "mallory" in detail or "pieces" in what, (name, what, detail)
            assert memory.disk.text == BASELINE_TEXT, (name, what)
    assert attempts >= 14
    assert named >= 8


def test_a_removed_record_is_named_or_was_no_newest_state(halfway):
    for name, item in kinds_of_records(halfway).items():
        memory = halfway.fork()
        memory.api.delete(CONFIG_MAP, item["metadata"]["name"])
        try:
            done = runner.run(memory.context, memory.unfinished())
            ending, detail = done.ending, done.detail
        except MpctlError as error:
            ending, detail = None, error.message
        assert (
            ending is Ending.PROMOTED
            or f"ConfigMap chat/{item['metadata']['name']} is missing" in detail
        ), name
        assert memory.disk.text in RECORDED


def test_configmaps_that_look_like_a_ledger_or_revisions_are_not_read(halfway):
    memory = halfway.fork()
    for (kind, name), item in list(memory.api.objects.items()):
        if kind == "controllerrevisions":
            body = {**item, "data": {"text": EVIL, "lines": json.dumps(item["data"])}}
            memory.api.apply(CONFIG_MAP, body, force=True, as_="mallory")
            assert memory.api.objects["controllerrevisions", name]["data"] == item["data"]
    assert runner.run(memory.context, memory.unfinished()).ending is Ending.PROMOTED


# A writer who can append to the ledger


def forged_rollback(memory, **changes):
    """Append a correctly chained OPENED entry of a rollback whose record has these changes."""
    honest = plan(
        Strategy.SIDE_BY_SIDE,
        kind="rollback",
        baseline=Manifest.of(CANDIDATE_TEXT, 2),
        goal=Manifest.of(BASELINE_TEXT, 1),
    ).to_record()
    data = {"plan": {**honest, **changes}}
    last, now = memory.disk.ledger[-1], memory.context.clock.now()
    entry = Entry.after(
        last, at=now, operation="rollback-2", event=Event.OPENED, who="somebody@here", data=data
    )
    memory.disk.ledger.append(entry)


def promoted():
    memory = MemoryWorld({**FASTER, EVIL: Behaviour(), OTHER_TEXT: Behaviour()})
    assert runner.run(
        memory.context, runner.open_plan(memory.context, plan(Strategy.SIDE_BY_SIDE))
    ).ending
    return memory


MANIFESTS = [
    {"revision": 1, "sha256": text_digest(EVIL)},
    {"revision": 2, "sha256": text_digest(EVIL)},
    {"revision": 9, "sha256": text_digest(EVIL)},
    {"revision": 0, "sha256": text_digest(EVIL)},
    {"revision": 1, "sha256": text_digest(EVIL), "text": EVIL},
    {"revision": "1", "sha256": text_digest(BASELINE_TEXT)},
    {"revision": 1, "sha256": 7},
    {"text": EVIL},
    EVIL,
    None,
]
OTHERS = {
    "text": EVIL,
    "arm": EVIL,
    "kind": "anything",
    "strategy": "anything",
    "policy": {"min_tokens_per_step": "x"},
    "traffic": {"steps": "x"},
    "ready_timeout_s": "x",
    "spec": 7,
    "scaling": 7,
    "route": 7,
    "rollback": {"automatic": "yes"},
    "overwrites": "yes",
}
FORGED = [
    *({field: value} for field in ("goal", "baseline") for value in MANIFESTS),
    *({field: value} for field, value in OTHERS.items()),
]


@pytest.mark.parametrize("changes", FORGED, ids=str)
@pytest.mark.parametrize("act", ["resume", "rollback", "exact"])
def test_a_forged_plan_writes_no_manifest_that_is_not_recorded(changes, act):
    memory = promoted()
    forged_rollback(memory, **changes)
    with pytest.raises(MpctlError) as caught:
        if act == "resume":
            runner.run(memory.context, memory.unfinished())
        else:
            decision = memory.decide_back(exact=act == "exact")
            opened = decision.operation or runner.open_plan(memory.context, decision.plan)
            runner.run(memory.context, opened)
    message = caught.value.message
    assert "revision" in message or "entry" in message, message
    assert isinstance(caught.value, Tampered) or "is lost" in message or "is damaged" in message, (
        message
    )
    assert memory.disk.text == CANDIDATE_TEXT


def test_a_revision_added_by_another_writer_is_not_what_the_ledger_names():
    memory = promoted()
    memory.disk.revisions[0] = replace(memory.disk.revisions[0], text=EVIL)
    with pytest.raises(Tampered, match="revision 1 is not the manifest that the ledger names"):
        runner.run(memory.context, runner.open_plan(memory.context, memory.decide_back().plan))
    assert memory.disk.text == CANDIDATE_TEXT


def test_a_newer_revision_changes_no_rollback():
    memory = promoted()
    evil = Revision(3, EVIL, "2026-01-01", "mallory", "as found", None, "rollout-1")
    memory.disk.revisions.append(evil)
    runner.run(memory.context, runner.open_plan(memory.context, memory.decide_back().plan))
    assert memory.disk.text == BASELINE_TEXT
