"""rollout, rollback, resume, abandon and retire as use cases: a request in, an outcome out, no terminal, no cluster."""

from dataclasses import replace

import pytest
from session import MANIFEST, MemorySession
from world import Crash

from mpctl.app.inspect import history
from mpctl.app.inspect_requests import DiffRequest
from mpctl.app.operate import maintain, resume, rollback, rollout
from mpctl.app.requests import (
    DryRun,
    MeasurementRequest,
    RollbackRequest,
    RolloutRequest,
    SpeculationRequest,
    TrafficRequest,
)
from mpctl.app.session import base
from mpctl.errors import Cancelled, Conflict, InputError
from mpctl.methods import Spec
from mpctl.rollout import runner
from mpctl.rollout.operation import Ending, unfinished_operation

QUICK = MeasurementRequest(requests=5, rounds=6)
ASKED = RolloutRequest(SpeculationRequest("ngram"), QUICK)


def rolled_out(**changes):
    session = MemorySession(**changes)
    return session, rollout.run(session, ASKED)


def crashed_at(where, request=ASKED):
    """A session whose rollout died when it came to ``where``."""
    session = MemorySession()

    def die(found):
        if found == where:
            raise Crash(found)

    session.memory.watch = die
    with pytest.raises(Crash):
        rollout.run(session, request)
    return session.again()


def test_a_faster_candidate_is_promoted_and_the_user_was_asked_once():
    session, outcome = rolled_out()
    assert (outcome.exit_code, outcome.operation.ending) == (0, Ending.PROMOTED)
    assert outcome.verdict.outcome.value == "promote"
    assert [c.cell.traffic for c in outcome.cells] == ["edits"]
    assert '"ngram"' in session.memory.disk.text
    (question,) = session.console.questions
    assert question.startswith("service chat/svc: none -> ngram")
    assert question.endswith("Continue (this machine)?")


def test_a_slower_candidate_is_rejected_and_the_service_is_restored():
    session, outcome = rolled_out(seconds=0.3)
    assert outcome.exit_code == 5
    assert outcome.error.message.startswith("gate rejected the candidate: ")
    assert session.memory.disk.text == MANIFEST


def test_the_same_request_again_has_nothing_to_do():
    session, _ = rolled_out()
    again = rollout.run(session.again(), ASKED)
    assert (again.exit_code, again.operation) == (0, None)
    assert again.note.startswith("service chat/svc already runs ngram")


def test_a_dry_run_changes_nothing_and_asks_nobody():
    session = MemorySession()
    outcome = rollout.run(
        session, RolloutRequest(SpeculationRequest("ngram"), QUICK, dry_run=DryRun.CLIENT)
    )
    assert (
        "+      - --speculative-config=" in outcome.preview.diff
        or "speculative" in outcome.preview.diff
    )
    assert session.memory.disk.text == MANIFEST
    assert (session.console.questions, session.memory.disk.ledger) == ([], [])


def test_a_route_that_nothing_uses_is_an_error_before_anything_happens():
    session = MemorySession()
    request = RolloutRequest(SpeculationRequest("ngram"), QUICK, TrafficRequest(route="users"))
    with pytest.raises(InputError, match="only used by --mirror, --traffic-steps"):
        rollout.run(session, request)
    assert session.memory.disk.ledger == []


@pytest.mark.parametrize(
    "where", ["before start", "after start", "before promote", "after promote"]
)
def test_a_killed_rollout_is_resumed_by_the_same_request_or_by_resume(where):
    assert rollout.run(crashed_at(where), ASKED).operation.ending is Ending.PROMOTED
    assert resume.run(crashed_at(where)).operation.ending is Ending.PROMOTED


@pytest.fixture
def traffic(tmp_path, monkeypatch):
    """A file of prompts of the user's own, by a relative path, and a rollout on it that dies before it measures."""
    monkeypatch.setenv("MPCTL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "traffic.jsonl"
    file.write_text(
        "".join(f'{{"prompt": "question {number}"}}\n' for number in range(40)), encoding="utf-8"
    )
    request = replace(ASKED, measurement=replace(QUICK, prompts=("mine=traffic.jsonl",)))
    session = crashed_at("before start", request)
    monkeypatch.chdir("/")  # the next command is called from somewhere else
    return session, file


def test_resume_reads_the_prompts_of_a_file_again_and_says_so(traffic):
    session, file = traffic
    assert resume.run(session).operation.ending is Ending.PROMOTED
    assert f"the prompts of mine are read again from {file}" in "\n".join(session.console.lines)


@pytest.mark.parametrize("change", ["another text", None])
def test_resume_asks_for_prompts_whose_file_is_no_longer_the_same(traffic, change):
    session, file = traffic
    if change is None:
        file.unlink()
    else:
        file.write_text(file.read_text() + f'{{"prompt": "{change}"}}\n')
    with pytest.raises(InputError, match="its prompts of mine are stored as digests only"):
        resume.run(session)
    changed = f"{file} no longer holds the prompts of mine that rollout-1 measures with"
    assert session.console.warnings == ([changed] if change else [])


def test_an_operation_of_another_user_is_shown_and_asked_about_before_it_is_resumed(monkeypatch):
    session = crashed_at("before promote")
    opened_by = session.store.entries()[0].who
    assert opened_by != base.who()
    before = session.memory.disk.text

    def decline(question):
        assert question.startswith(f"{opened_by} opened rollout-1 (ngram")
        raise Cancelled("cancelled")

    session.console.confirm = decline
    with pytest.raises(Cancelled):
        resume.run(session)
    assert "--speculative-config={" in "\n".join(session.console.lines)
    assert session.memory.disk.text == before
    monkeypatch.setattr("mpctl.app.operate.outcome.who", lambda: opened_by)
    assert (
        resume.run(session.again()).operation.ending is Ending.PROMOTED
    )  # its opener is not asked


def test_a_plan_that_would_write_more_than_engine_arguments_is_refused_and_names_the_fields():
    session = crashed_at("before promote")
    operation = unfinished_operation(session.store.entries()).read(session.store.revisions())
    evil = operation.plan.goal.text.replace(
        "image:", "securityContext: {privileged: true}\n      image:"
    )
    plan = replace(operation.plan, goal=replace(operation.plan.goal, text=evil))
    with pytest.raises(Conflict, match=r"would also write .*securityContext"):
        runner.require_own_change(session.memory.context, plan)


def test_another_change_waits_for_what_is_unfinished():
    other = RolloutRequest(
        SpeculationRequest("ngram", settings=("num_speculative_tokens=2",)), QUICK
    )
    with pytest.raises(Conflict, match="rollout-1 of svc is unfinished"):
        rollout.run(crashed_at("before promote"), other)


def test_an_unfinished_rollout_can_be_rolled_back_or_abandoned():
    session = crashed_at("after start")
    outcome = rollback.run(session, RollbackRequest())
    assert (outcome.exit_code, session.memory.disk.text) == (0, MANIFEST)
    session = crashed_at("after start")
    (ended,) = maintain.abandon(session)
    assert (ended.ending, session.memory.disk.text) == (Ending.ABANDONED, MANIFEST)
    assert maintain.abandon(session.again()) == ()


def test_a_rollback_restores_the_bytes_and_is_done_only_once():
    session, _ = rolled_out()
    back = session.again()
    outcome = rollback.run(back, RollbackRequest())
    assert (outcome.operation.ending, back.memory.disk.text) == (Ending.ROLLED_BACK, MANIFEST)
    again = rollback.run(back.again(), RollbackRequest())
    assert "was rolled back" in again.note


def test_a_retained_baseline_is_retired():
    session = MemorySession()
    rollout.run(
        session,
        RolloutRequest(SpeculationRequest("ngram"), QUICK, TrafficRequest(keep_baseline=True)),
    )
    assert len(session.memory.disk.engines) == 2
    outcome = maintain.retire(session.again())
    assert outcome.operation.ending is Ending.RETIRED
    assert len(session.memory.disk.engines) == 1
    assert maintain.retire(session.again()).note == "service chat/svc has no retained baseline"


def test_nothing_is_resumed_where_nothing_is_unfinished():
    assert resume.run(MemorySession()).note == "service chat/svc has no unfinished operation"


def test_history_and_diff_read_what_was_recorded():
    session, _ = rolled_out()
    actual_history = history.read_history(session)
    assert (actual_history.revisions[0].number, actual_history.revisions[0].spec) == (
        1,
        Spec("none"),
    )
    assert (actual_history.live, [op.id for op in actual_history.operations]) == (2, ["rollout-1"])
    assert history.read_revision(session, 1).text == MANIFEST
    with pytest.raises(InputError, match="has no revision 9; known: 1, 2"):
        history.read_revision(session, 9)
    text = history.diff(session, DiffRequest(revision=1))
    assert text.startswith("--- svc (revision 1)\n+++ svc (live)\n")
    assert history.diff(session, DiffRequest()) == text
    assert history.diff(session, DiffRequest(speculation=SpeculationRequest("ngram"))) == ""


def test_a_rollback_beside_a_rollout_that_has_recorded_nothing_yet_names_the_holder():
    session, _ = rolled_out()
    rollback.run(session.again(), RollbackRequest())
    other = session.again()
    assert "already was rolled back" in rollback.run(other, RollbackRequest()).note
    other.holder = lambda: "bob, mpctl rollout"

    def lease(purpose):
        raise Conflict("service chat/svc is held by bob, mpctl rollout")

    other.store.lease = lease
    with pytest.raises(Conflict, match="held by bob"):
        rollback.run(other, RollbackRequest())


def test_a_rollout_that_ended_while_it_was_to_be_continued_is_not_opened_anew_without_a_question():
    session = crashed_at("before promote")
    take = session.store.lease

    def lease(verb):
        if unfinished_operation(session.store.entries()) is not None:
            session.store.lease = take
            maintain.abandon(session)  # by another command, which had the lease until now
            session.console.questions.clear()
            session.memory.disk.text = MANIFEST
        return take(verb)

    session.store.lease = lease
    before = len(session.memory.operations())
    with pytest.raises(Conflict, match="has ended meanwhile"):
        rollout.run(session, ASKED)
    assert len(session.memory.operations()) == before
    assert session.console.questions == []


@pytest.mark.parametrize("strategy", ["side-by-side", "in-place", "auto"])
def test_the_same_command_continues_whatever_it_says_of_downtime(strategy):
    request = replace(ASKED, strategy=strategy, accept_downtime=True)
    session = crashed_at("before promote", request)
    assert rollout.run(session, request).operation.ending is Ending.PROMOTED


def test_a_dry_run_of_an_unfinished_rollout_shows_what_it_would_continue():
    bakes = replace(ASKED, traffic=TrafficRequest(bake_s=90.0))
    session = crashed_at("before promote", bakes)
    shown = rollout.run(session, replace(bakes, dry_run=DryRun.CLIENT)).preview
    assert "watched for 90 s" in shown.explanation
    assert '"ngram"' in shown.diff


def test_a_rollback_to_another_revision_over_an_unfinished_one_is_a_conflict_with_exact_too():
    session = crashed_at("before promote")
    session.memory.disk.text = MANIFEST.replace("8192", "4096")  # another writer's
    with pytest.raises(Conflict, match="starts from another revision than 9"):
        rollback.run(session, RollbackRequest(to_revision=9, exact=True))
