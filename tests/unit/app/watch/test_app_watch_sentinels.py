"""Sentinels beside a watched service in memory: what is sent, found and done, and what is recorded of it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from session import MANIFEST
from watched import ACTS, Engine, promoted, rounds, watch

from mpctl.app.watch import exposition
from mpctl.app.watch.ledger_facts import read_facts
from mpctl.errors import MpctlError, NotPermitted
from mpctl.rollout.plan import Kind
from mpctl.watch.assessment import Signal
from mpctl.watch.decision import WatchAct
from mpctl.watch.sentinel import RECORD, Check
from mpctl.watch.watch_policy import WatchPolicy

REPORTS = WatchPolicy()


def reasons(events):
    return [e.reason for e in events]


def state_of(watcher):
    (watched,) = watcher.watched.values()
    condition = {c["type"]: c for c in exposition.conditions(watched)}["AnswersRight"]
    return watched, condition


def test_a_promotion_records_sentinels_and_the_watch_asks_them_in_silence():
    session = promoted()
    recorded = session.store.load("rollout-1", RECORD)
    assert recorded["baseline"] and len(recorded["settled"]) == 3
    watcher, events = watch(session)
    rounds(watcher, 45)
    watched, condition = state_of(watcher)
    assert (watched.guard.last, condition["status"], events) == (Check.RIGHT, "True", [])
    assert (
        session.engine.asked == [(False, 0)] * 3
    )  # one every five minutes, without a salt and log probabilities
    assert "mpctl_watch_answers_right{" in exposition.metrics(watcher)
    assert exposition.record(watched)["sentinelRequests"] == 3


def test_wrong_answers_fall_back_at_once_within_the_brake():
    session = promoted()
    watcher, events = watch(session, policy=replace(ACTS, confirm_s=3600.0))
    rounds(watcher, 1)
    session.engine.wrong = True
    rounds(watcher, 22)
    assert reasons(events)[:2] == ["WrongAnswers", "FellBack"]
    assert events[0].finding and events[0].command == "mpctl rollback svc -n chat"
    assert "wrong answers: 3 of 3, and 2 of 2 with a cache salt" in events[0].text
    assert session.memory.disk.text == MANIFEST
    last = session.memory.operations()[-1]
    assert (last.plan.kind, last.plan.by) == (Kind.ROLLBACK, "watch")
    assert last.detail.startswith("watch: WrongAnswers: ")
    assert read_facts(session, ACTS).replaced_spec is None  # only a person tries it again


def test_the_brake_of_the_fleet_holds_wrong_answers_too():
    engine = Engine()
    sessions = [promoted(engine=engine), promoted(name="other", engine=engine)]
    for session in sessions:
        session.memory.context.clock._now = sessions[0].memory.context.clock.now()
    watcher, events = watch(*sessions, policy=replace(ACTS, fleet_share=0.5))
    engine.wrong = True
    rounds(watcher, 22)
    assert reasons(events).count("FellBack") == 1
    assert "BrakeHolds" in reasons(events)


@pytest.mark.parametrize(
    "policy", [REPORTS, replace(ACTS, wrong_answers="notify")], ids=["reports", "notify"]
)
def test_without_leave_to_act_wrong_answers_are_reported(policy):
    session = promoted()
    watcher, events = watch(session, policy=policy)
    session.engine.wrong = True
    rounds(watcher, 22)
    watched, condition = state_of(watcher)
    assert reasons(events) == ["WrongAnswers"]
    assert watched.decision.act is WatchAct.REPORT
    assert (condition["status"], condition["reason"]) == ("False", "WrongAnswers")
    assert (
        'mpctl_watch_answers_right{namespace="chat",inference_service="svc"} 0'
        in exposition.metrics(watcher)
    )
    session.engine.wrong = False
    rounds(watcher, 300)
    watched, condition = state_of(watcher)
    assert (watched.assessment.signal, condition["status"]) == (Signal.HEALTHY, "True")


def test_a_poisoned_cache_is_ended_by_a_restart_and_falls_back_when_it_returns():
    session = promoted()
    watcher, events = watch(session)
    session.engine.poisoned = True
    rounds(watcher, 3)
    assert reasons(events)[:2] == ["PoisonedCache", "Restarted"]
    assert "wrong answers: 3 of 3, and 0 of 2 with a cache salt" in events[0].text
    rounds(watcher, 3)  # fresh engines are asked soon
    assert "FellBack" in reasons(events)
    assert session.memory.disk.text == MANIFEST


def test_an_answer_that_is_right_when_it_is_asked_again_is_noted_and_asked_sooner():
    session = promoted()
    watcher, events = watch(session)
    session.engine.odd = 1
    rounds(watcher, 3)
    assert reasons(events) == ["AnswerDiffered"]
    assert not events[0].finding
    session.engine.odd = 1
    rounds(watcher, 4)
    assert reasons(events)[:3] == ["AnswerDiffered", "WrongAnswers", "FellBack"]


def test_another_image_is_unverified_and_no_alarm_until_an_engine_without_speculation_answered():
    session = promoted()
    watcher, events = watch(session, policy=REPORTS)
    session.engine_version = lambda service: "vllm/vllm-openai:v0.33.0"
    session.engine.wrong = True
    rounds(watcher, 24)
    watched, condition = state_of(watcher)
    assert (watched.guard.last, condition["status"], condition["reason"]) == (
        Check.UNVERIFIED,
        "Unknown",
        "Unverified",
    )
    assert condition["message"].startswith("image changed since the sentinels were recorded")
    assert reasons(events) == ["AnswersUnverified"]
    assert not session.engine.asked
    from mpctl.app.operate import rollback
    from mpctl.app.requests import RollbackRequest

    rollback.run(session, RollbackRequest())
    session.engine.speculates = False
    rounds(watcher, 30)
    assert state_of(watcher)[1]["status"] == "True"
    assert read_facts(session, REPORTS).sentinels[0].engine["image"] == "vllm/vllm-openai:v0.33.0"


def without_record(session):
    del session.memory.disk.records["rollout-1", RECORD]
    return session


def test_where_a_promotion_left_none_the_watch_records_what_the_service_answers_far_from_every_tie():
    session = without_record(promoted())
    watcher, events = watch(session, policy=REPORTS)
    rounds(watcher, 3)
    assert session.engine.asked == [(True, 3)] * 6 + [(False, 0)] * 6
    recorded = session.store.load("rollout-1", RECORD)
    assert not recorded["baseline"] and len(recorded["settled"]) == 6
    session.engine.wrong = True
    rounds(watcher, 130)
    assert reasons(events) == ["WrongAnswers"]


def test_an_mtp_engine_is_not_recorded_by_the_watch():
    session = without_record(promoted())
    watcher, _ = watch(session, policy=REPORTS)
    rounds(watcher, 1)
    (watched,) = watcher.watched.values()
    watched.facts = replace(watched.facts, live=replace(watched.facts.live, method="mtp"))
    rounds(watcher, 2)
    assert state_of(watcher)[1]["reason"] == "Unverified"
    assert "MTP" in state_of(watcher)[1]["message"]
    assert not session.engine.asked


def test_a_watch_that_may_not_write_keeps_its_sentinels_in_memory():
    session = without_record(promoted())

    def refuse(*_, **__):
        raise NotPermitted("save is not permitted")

    session.store.save = refuse
    watcher, events = watch(session, policy=REPORTS)
    rounds(watcher, 200)
    watched, condition = state_of(watcher)
    assert (condition["status"], events) == ("True", [])
    assert len(watched.sentinels.settled) == 6
    assert session.engine.asked.count((True, 3)) == 6


def test_a_service_that_does_not_answer_is_no_alarm():
    session = promoted()

    def fail(*_, **__):
        raise MpctlError("no engine serves")

    session.ask = fail
    watcher, events = watch(session)
    rounds(watcher, 30)
    assert state_of(watcher)[1]["message"] == "no engine serves"
    assert events == []


def test_a_system_prompt_is_sealed_and_nowhere_else():
    session = promoted()
    record = session.memory.disk.records["rollout-1", RECORD]
    session.memory.disk.records["rollout-1", RECORD] = {**record, "prefix": "of a lost Secret"}
    watcher, events = watch(session)
    rounds(watcher, 5)
    assert (
        state_of(watcher)[1]["message"]
        == "the system prompt that the sentinels begin with is not at hand"
    )
    assert json.dumps(record).count("Rename") == 0
    assert reasons(events) == ["AnswersUnverified"]
