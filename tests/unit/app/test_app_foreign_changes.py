"""After another writer's change a rollback ends with speculation off or says that it did not: never 0 with it on."""

from __future__ import annotations

import contextlib
import json

import pytest
from session import MANIFEST, MemorySession
from world import Crash, Engine

from mpctl.app.operate import rollback, rollout
from mpctl.app.requests import (
    MeasurementRequest,
    RollbackRequest,
    RolloutRequest,
    SpeculationRequest,
)
from mpctl.errors import Conflict, MpctlError
from mpctl.manifest import load_one
from mpctl.rollout.operation import Ending
from mpctl.rollout.ports import Arm, Phase

ASKED = RolloutRequest(SpeculationRequest("ngram"), MeasurementRequest(requests=5, rounds=6))
ENGINE = "spec.predictor.containers[kserve-container]"
CHANGES = {
    "label": (
        "{name: svc, namespace: chat}",
        "{name: svc, namespace: chat, labels: {team: ml}}",
        "metadata.labels",
    ),
    "annotation": (
        "namespace: chat}",
        "namespace: chat, annotations: {a: b}}",
        "metadata.annotations",
    ),
    "argument": (
        "--max-model-len=8192",
        "--max-model-len=4096",
        "spec.predictor.containers[kserve-container].args --max-model-len",
    ),
    "replicas": (
        "  predictor:\n",
        "  predictor:\n    minReplicas: 3\n",
        "spec.predictor.minReplicas",
    ),
    "image": ("vllm-openai:v0.32.0", "vllm-openai:v0.32.1", f"{ENGINE}.image"),
}
each_change = pytest.mark.parametrize("change", CHANGES)


def promoted():
    session = MemorySession()
    assert rollout.run(session, ASKED).operation.ending is Ending.PROMOTED
    return session.again()


def written(session, text):
    """Another writer replaced the manifest, and its engine is ready."""
    disk = session.memory.disk
    disk.text, disk.routed = text, Arm(text).id
    disk.engines = {disk.routed: Engine(text, Phase.READY)}
    return session


def changed(session, change):
    old, new, _ = CHANGES[change]
    assert old in session.memory.disk.text
    return written(session, session.memory.disk.text.replace(old, new, 1))


def speculates(session):
    return load_one(session.memory.disk.text, None).speculation() is not None


def merged(change):
    """The baseline with another writer's change."""
    old, new, _ = CHANGES[change]
    return MANIFEST.replace(old, new, 1)


@each_change
def test_a_rollback_keeps_a_foreign_change_and_names_it(change):
    session = changed(promoted(), change)
    outcome = rollback.run(session, RollbackRequest())
    assert (outcome.exit_code, outcome.restored.spec.is_none, outcome.restored.revision) == (
        0,
        True,
        1,
    )
    assert session.memory.disk.text == merged(change)
    assert [CHANGES[change][2]] == list(outcome.restored.preserved)
    assert f"kept as others changed it: {CHANGES[change][2]}" in session.console.questions[0]
    assert "was rolled back" in rollback.run(session.again(), RollbackRequest()).note


@each_change
@pytest.mark.parametrize("where", ["before start", "after promote"])
@pytest.mark.parametrize("rolled_back_by", ["itself", "hand"])
def test_a_foreign_change_in_the_middle_of_a_rollout_stays(change, where, rolled_back_by):
    """The rollout dies there, or goes on and ends by its own rollback or promoted; either way the change stays."""
    session, old = MemorySession(), CHANGES[change][0]

    def interfere(boundary):
        disk = session.memory.disk
        if boundary != where or CHANGES[change][1] in disk.text or old not in disk.text:
            return
        changed(session, change)
        if rolled_back_by == "hand":
            raise Crash(boundary)

    session.memory.watch = interfere
    with contextlib.suppress(Crash, MpctlError):
        rollout.run(session, ASKED)
    session.memory.watch = lambda boundary: None
    session = session.again()
    if rolled_back_by == "hand":
        assert rollback.run(session, RollbackRequest()).exit_code == 0
    elif speculates(session):
        assert rollback.run(session.again(), RollbackRequest()).exit_code == 0
    assert session.memory.disk.text == merged(change)
    assert None not in session.memory.endings()
    assert set(session.memory.disk.engines) == {session.memory.disk.routed}
    for revision in session.store.revisions():  # `history` names the spec of the stored manifest
        told = revision.spec is None or revision.spec.is_none
        assert told == (load_one(revision.text, None).speculation() is None), revision


@each_change
@pytest.mark.parametrize(
    "where", ["before start", "before promote", "after promote", "before stop_all_except"]
)
def test_a_foreign_change_in_the_middle_of_a_rollback_stays(change, where):
    session = promoted()

    def interfere(boundary):
        if boundary == where and CHANGES[change][1] not in session.memory.disk.text:
            changed(session, change)

    session.memory.watch = interfere
    outcome = rollback.run(session, RollbackRequest())
    assert (outcome.exit_code, outcome.restored.spec.is_none) == (0, True)
    assert session.memory.disk.text == merged(change)
    assert None not in session.memory.endings()


@each_change
def test_an_exact_rollback_restores_every_byte_and_keeps_the_change_as_a_revision(change):
    session = changed(promoted(), change)
    foreign = session.memory.disk.text
    outcome = rollback.run(session, RollbackRequest(exact=True))
    assert (outcome.exit_code, outcome.restored.spec.is_none, outcome.restored.preserved) == (
        0,
        True,
        (),
    )
    assert session.memory.disk.text == MANIFEST
    assert foreign in [r.text for r in session.store.revisions()]
    again = rollback.run(session.again(), RollbackRequest())
    assert "was rolled back" in again.note


@each_change
def test_a_named_revision_is_restored_without_what_others_changed(change):
    session = promoted()
    rollback.run(session, RollbackRequest())
    session = changed(session.again(), change)
    note = rollback.run(session, RollbackRequest(to_revision=1)).note
    assert f"already is revision 1; kept as others changed it: {CHANGES[change][2]}" in note
    assert rollback.run(session.again(), RollbackRequest(to_revision=1, exact=True)).exit_code == 0
    assert session.memory.disk.text == MANIFEST


@each_change
def test_after_a_rollback_a_foreign_change_is_no_reason_for_another(change):
    session = promoted()
    rollback.run(session, RollbackRequest())
    session = changed(session.again(), change)
    text = session.memory.disk.text
    assert rollback.run(session, RollbackRequest()).operation is None
    assert (session.memory.disk.text, speculates(session)) == (text, False)


OTHER = {"method": "ngram", "num_speculative_tokens": 7}


@pytest.mark.parametrize("change", [None, "label"])
def test_speculation_that_another_writer_set_is_a_conflict_of_that_field_alone(change):
    session = promoted()
    text = load_one(session.memory.disk.text, None).with_speculation(OTHER).to_yaml()
    session = written(session, text if change is None else text.replace(*CHANGES[change][:2]))
    text = session.memory.disk.text
    with pytest.raises(Conflict) as caught:
        rollback.run(session, RollbackRequest())
    first, _, was, now = caught.value.message.split("\n")[0], *caught.value.message.split("\n")[2:]
    assert first.endswith(
        "to be restored: spec.predictor.containers[kserve-container].args --speculative-config"
    )
    assert (
        was.startswith("- --speculative-config")
        and now == f"+ --speculative-config={json.dumps(OTHER)}"
    )
    assert "mpctl rollback svc --exact" in caught.value.hint
    assert (session.memory.disk.text, caught.value.exit_code) == (text, 3)
    assert rollback.run(session.again(), RollbackRequest(exact=True)).exit_code == 0
    assert session.memory.disk.text == MANIFEST


def test_the_setting_changed_in_the_middle_of_a_rollback_stops_it():
    session = promoted()
    other = load_one(session.memory.disk.text, None).with_speculation(OTHER).to_yaml()

    def interfere(boundary):
        if boundary == "before promote":
            written(session, other)

    session.memory.watch = interfere
    with pytest.raises(Conflict):
        rollback.run(session, RollbackRequest())
    session.memory.watch = lambda boundary: None
    with pytest.raises(Conflict, match="another writer changed what is to be restored"):
        rollback.run(session.again(), RollbackRequest())
    assert session.memory.disk.text == other
    assert rollback.run(session.again(), RollbackRequest(exact=True)).exit_code == 0
    assert session.memory.disk.text == MANIFEST


@pytest.mark.parametrize("where", ["before start", "before promote", "after promote"])
@pytest.mark.parametrize("stopped", [False, True])
def test_the_setting_changed_in_the_middle_of_a_rollout_is_not_overwritten(where, stopped):
    """Neither by the rollout nor by a rollback of it; ``--exact`` restores every byte."""
    session = MemorySession()

    def interfere(boundary):
        disk = session.memory.disk
        if boundary == where and '"num_speculative_tokens": 7' not in disk.text:
            written(session, load_one(disk.text, None).with_speculation(OTHER).to_yaml())
            if stopped:
                raise Crash(boundary)

    session.memory.watch = interfere
    with contextlib.suppress(Crash, MpctlError):
        rollout.run(session, ASKED)
    session.memory.watch = lambda boundary: None
    other = session.memory.disk.text
    assert load_one(other, None).speculation() == OTHER
    with pytest.raises(Conflict) as caught:
        rollback.run(session.again(), RollbackRequest())
    assert "--exact" in (caught.value.hint or "")
    assert session.memory.disk.text == other
    assert rollback.run(session.again(), RollbackRequest(exact=True)).exit_code == 0
    assert session.memory.disk.text == MANIFEST
    assert other in [revision.text for revision in session.store.revisions()]


def test_speculation_that_comes_back_after_a_rollback_is_rolled_back_again():
    session = promoted()
    text = session.memory.disk.text
    rollback.run(session, RollbackRequest())
    session = written(session.again(), text)
    assert rollback.run(session, RollbackRequest()).exit_code == 0
    assert session.memory.disk.text == MANIFEST


def test_a_manifest_without_speculation_whose_engine_still_speculates_is_no_success():
    session = promoted()
    candidate = session.memory.disk.text
    disk = written(session, MANIFEST).memory.disk
    disk.engines = {disk.routed: Engine(candidate, Phase.READY)}
    with pytest.raises(Conflict, match="has the manifest of revision 1, but its engine runs ngram"):
        rollback.run(session, RollbackRequest())


def test_a_manifest_without_speculation_and_without_an_engine_is_no_success():
    session = written(promoted(), MANIFEST)
    session.memory.disk.engines = {}
    with pytest.raises(MpctlError, match="no engine is ready to confirm it"):
        rollback.run(session, RollbackRequest())


@pytest.mark.parametrize("what", ["text", "engine", "gone"])
def test_what_changes_while_a_rollback_ends_is_read_before_it_reports(what):
    """Another writer is faster than the result line."""
    session = promoted()
    candidate, disk = session.memory.disk.text, session.memory.disk

    def interfere(where):
        if where == "after append" and disk.ledger[-1].event.value == "closed":
            if what == "text":
                written(session, candidate)
            elif what == "engine":
                disk.engines = {disk.routed: Engine(candidate, Phase.READY)}
            else:
                disk.engines = {}

    session.memory.watch = interfere
    with pytest.raises(MpctlError) as caught:
        rollback.run(session, RollbackRequest())
    assert caught.value.message.startswith("rollback-2 restored revision 1, but ")
    assert caught.value.exit_code != 0
