"""After another writer's change a rollback ends with speculation off or says that it did not: never 0 with it on."""

from __future__ import annotations

import pytest
from session import MANIFEST, MemorySession
from world import Engine

from mpctl.app.operate import rollback, rollout
from mpctl.app.requests import MeasurementRequest, RollbackRequest, RolloutRequest, SpeculationRequest
from mpctl.errors import Conflict, MpctlError
from mpctl.manifest import load_one
from mpctl.rollout.operation import Ending
from mpctl.rollout.ports import Arm, Phase

ASKED = RolloutRequest(SpeculationRequest("ngram"), MeasurementRequest(requests=4, rounds=6, calibrate=False))
CHANGES = {
    "label": ("{name: svc, namespace: chat}", "{name: svc, namespace: chat, labels: {team: ml}}", "metadata.labels"),
    "annotation": ("namespace: chat}", "namespace: chat, annotations: {a: b}}", "metadata.annotations"),
    "argument": ("--max-model-len=8192", "--max-model-len=4096", "spec.predictor.containers[0].args[0]"),
    "replicas": ("  predictor:\n", "  predictor:\n    minReplicas: 3\n", "spec.predictor.minReplicas"),
    "image": ("vllm-openai:v0.32.0", "vllm-openai:v0.32.1", "spec.predictor.containers[0].image"),
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


@each_change
def test_a_rollback_over_a_foreign_change_is_refused_and_the_field_is_named(change):
    session = changed(promoted(), change)
    text = session.memory.disk.text
    with pytest.raises(Conflict) as caught:
        rollback.run(session, RollbackRequest())
    assert CHANGES[change][2] in caught.value.message
    assert "--force" in caught.value.hint
    assert caught.value.exit_code == 3
    assert (session.memory.disk.text, speculates(session)) == (text, True)


@each_change
def test_a_forced_rollback_restores_the_baseline_and_keeps_the_change_as_a_revision(change):
    session = changed(promoted(), change)
    foreign = session.memory.disk.text
    outcome = rollback.run(session, RollbackRequest(force=True))
    assert (outcome.exit_code, outcome.restored.spec.is_none) == (0, True)
    assert session.memory.disk.text == MANIFEST
    assert foreign in [r.text for r in session.store.revisions()]
    again = rollback.run(session.again(), RollbackRequest())
    assert "was rolled back" in again.note


@each_change
def test_after_a_rollback_a_foreign_change_is_no_reason_for_another(change):
    session = promoted()
    rollback.run(session, RollbackRequest())
    session = changed(session.again(), change)
    text = session.memory.disk.text
    assert rollback.run(session, RollbackRequest()).operation is None
    assert (session.memory.disk.text, speculates(session)) == (text, False)


def test_speculation_that_another_writer_set_is_rolled_back():
    session = promoted()
    config = {"method": "ngram", "num_speculative_tokens": 7}
    session = written(session, load_one(session.memory.disk.text, None).with_speculation(config).to_yaml())
    assert rollback.run(session, RollbackRequest()).exit_code == 0
    assert session.memory.disk.text == MANIFEST


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
