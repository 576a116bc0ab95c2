"""The watch over services in memory: reports, fallbacks, re-arming, the brake, and death at every recorded step."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import replace

import pytest
from session import MANIFEST, MemorySession
from watched import ACTS, ASKED, BAD, GOOD, Service, disk_after_promotion, promoted, rounds, watch
from world import Crash

from mpctl.app.environment_requests import WatchRequest
from mpctl.app.operate import rollback, rollout
from mpctl.app.requests import RollbackRequest
from mpctl.app.watch import exposition, loop
from mpctl.app.watch.act import re_arm_request
from mpctl.app.watch.ledger_facts import acknowledge, read_facts
from mpctl.app.watch.sources import Readers
from mpctl.app.watch.watcher import Watcher
from mpctl.errors import InputError, MpctlError, Refused
from mpctl.estimate import ModelFacts
from mpctl.rollout.operation import Ending
from mpctl.rollout.plan import Kind
from mpctl.watch.assessment import Assessment, Signal
from mpctl.watch.decision import CHANGES, Rung, WatchAct
from mpctl.watch.reference import Reference
from mpctl.watch.watch_policy import WatchPolicy


def reasons(events):
    return [e.reason for e in events]


def test_a_sound_service_is_watched_in_silence():
    session = promoted()
    watcher, events = watch(session)
    rounds(watcher, 10)
    (watched,) = watcher.watched.values()
    assert (watched.assessment.signal, watched.assessment.pays) == (Signal.HEALTHY, True)
    assert watched.facts.reference.operation == "rollout-1"
    assert events == []
    record = exposition.record(watched)
    conditions = {c["type"]: c["status"] for c in record["conditions"]}
    assert conditions == {
        "Ready": "True",
        "Reconciling": "False",
        "Stalled": "False",
        "AnswersRight": "True",
        "CacheKept": "Unknown",
    }
    assert record["reference"] == "rollout-1"
    text = exposition.metrics(watcher)
    assert 'mpctl_watch_pays{namespace="chat",inference_service="svc"} 1' in text
    assert 'signal="Healthy"' in text
    assert exposition.table_rows([watched])[1][2] == "Healthy"
    assert exposition.health(watcher, 1.0)[0] == 200
    assert exposition.health(watcher, 1000.0)[0] == 503


def test_a_speculation_that_is_known_to_fail_on_the_running_release_is_named_until_it_no_longer_is():
    session = promoted()
    session.model_facts = lambda _name: ModelFacts(recurrent="gdn")
    session.engine_version = lambda _service: "vllm/vllm-openai:v0.28.0"
    watcher, events = watch(session, policy=replace(ACTS, sentinel_s=0.0))
    rounds(watcher, 5)
    (event,) = events
    assert (event.reason, event.finding, event.command) == (
        "KnownBad",
        True,
        "mpctl rollback svc -n chat",
    )
    assert "known-bad-kb01" in event.text
    assert "vllm/vllm-openai" not in event.text
    assert "known-bad-kb05" in exposition.record(*watcher.watched.values())["knownBad"]
    session.engine_version = lambda _service: "vllm/vllm-openai:v0.32.0"
    rounds(watcher, 20)
    assert [(e.reason, e.finding) for e in events] == [("KnownBad", True), ("KnownBad", False)]


def test_without_a_policy_a_finding_is_only_reported():
    session = promoted()
    watcher, events = watch(session, policy=WatchPolicy())
    rounds(watcher, 3)
    session.engine.share = BAD
    before = len(session.memory.disk.ledger)
    rounds(watcher, 5)
    (event,) = events
    assert (event.reason, event.finding, event.reference) == ("NoDrafts", True, "rollout-1")
    assert event.command == "mpctl status svc -n chat"
    assert "no draft in" in event.line
    assert len(session.memory.disk.ledger) == before


def test_a_fallback_is_a_recorded_operation_with_its_cause_and_its_way_back():
    session = promoted()
    watcher, events = watch(session)
    rounds(watcher, 3)
    session.engine.share, session.engine.speculates = BAD, True
    rounds(watcher, 1)
    assert session.memory.disk.text == MANIFEST
    assert reasons(events) == ["NoDrafts", "FellBack"]
    assert events[1].revert == "mpctl rollback svc --to-revision 2 -n chat"
    assert events[1].reference == "rollout-1"
    last = session.memory.operations()[-1]
    assert (last.plan.kind, last.plan.by, last.ending) == (
        Kind.ROLLBACK,
        "watch",
        Ending.ROLLED_BACK,
    )
    assert last.detail.startswith("watch: NoDrafts: no draft in")
    session.engine.speculates = False
    rounds(watcher, 3)
    (watched,) = watcher.watched.values()
    assert watched.facts.replaced_spec.method == "ngram"
    assert [(e.kind, e.reason, e.finding) for e in events[2:]] == [("signal", "FellBack", True)]
    assert events[2].command == "mpctl watch acknowledge svc -n chat"


def fell_back():
    """A service that fell back from ngram to none, its watch and the events."""
    session = promoted()
    watcher, events = watch(session)
    rounds(watcher, 3)
    session.engine.share = BAD
    rounds(watcher, 1)
    session.engine.share, session.engine.speculates = GOOD, False
    rounds(watcher, 4)
    return session, watcher, events


def test_after_a_fallback_the_signal_says_so_until_somebody_acknowledges_it():
    session, watcher, events = fell_back()
    (watched,) = watcher.watched.values()
    assert watched.assessment.signal is Signal.FELL_BACK
    text = watched.assessment.text
    assert re.match(
        r"fell back from ngram .* to none at 20\S+ \(rollback-2\): NoDrafts: no draft in", text
    )
    assert text.endswith("'mpctl rollout svc --spec ngram -n chat' measures it again")
    conditions = {c["type"]: c for c in exposition.record(watched)["conditions"]}
    assert (conditions["Ready"]["status"], conditions["Stalled"]["status"]) == ("False", "True")
    assert conditions["Ready"]["message"] == text
    assert 'signal="FellBack"' in exposition.metrics(watcher)
    rounds(watcher, 20)
    assert watched.assessment.signal is Signal.FELL_BACK
    before = len(session.memory.disk.ledger)
    assert "acknowledged that it fell back" in acknowledge(session)
    assert len(session.memory.disk.ledger) == before
    rounds(watcher, 20)
    assert watched.assessment.signal is Signal.HEALTHY
    assert "acknowledged by" in watched.assessment.text
    assert exposition.record(watched)["conditions"][0]["message"] == watched.assessment.text
    assert (events[-1].reason, events[-1].finding) == ("Healthy", False)
    assert "before" in acknowledge(session)


def test_another_change_of_the_spec_ends_the_signal_of_a_fallback():
    session, watcher, _ = fell_back()
    rollback.run(session, RollbackRequest(to_revision=2))
    session.engine.speculates = True
    rounds(watcher, 20)
    (watched,) = watcher.watched.values()
    assert watched.assessment.signal is Signal.HEALTHY
    with pytest.raises(InputError, match="no fallback of the watch is in effect"):
        acknowledge(session)


def test_what_cannot_be_read_is_more_urgent_than_a_fallback():
    session, watcher, _ = fell_back()
    session.engine.why = "connection refused"
    rounds(watcher, 3)
    (watched,) = watcher.watched.values()
    assert watched.assessment.signal is Signal.BLIND


def test_the_command_of_the_event_reverts_the_fallback():
    session = promoted()
    promoted_text = session.memory.disk.text
    watcher, events = watch(session)
    rounds(watcher, 2)
    session.engine.share = BAD
    rounds(watcher, 1)
    number = int(events[-1].revert.split()[-3])
    rollback.run(session, RollbackRequest(to_revision=number))
    assert session.memory.disk.text == promoted_text


def test_the_better_spec_is_tried_again_behind_the_gate_after_the_cool_down():
    session = promoted()
    watcher, events = watch(
        session, policy=WatchPolicy(fall_back=True, confirm_s=0.0, cool_down_s=600.0, re_arm=True)
    )
    rounds(watcher, 2)
    session.engine.share = BAD
    rounds(watcher, 1)
    session.engine.share, session.engine.speculates = GOOD, False
    rounds(watcher, 20)
    assert reasons(events)[-1] == "FellBack"
    session.engine.speculates = True
    rounds(watcher, 30)
    assert "ReArmed" in reasons(events)
    last = session.memory.operations()[-1]
    assert (last.plan.kind, last.plan.by, last.ending) == (Kind.ROLLOUT, "watch", Ending.PROMOTED)
    assert '"ngram"' in session.memory.disk.text
    first = session.memory.operations()[0].plan
    assert (last.plan.workload, last.plan.policy) == (
        first.workload,
        first.policy,
    )  # measured and judged as before
    session.engine.share = BAD
    rounds(watcher, 2)
    assert (
        watcher.watched["chat", "svc"].decision.act is WatchAct.HOLD
    )  # the cool-down, so that it does not swing


@pytest.mark.parametrize("why", ["connection refused", "vllm:generation_tokens_total is nan"])
def test_missing_data_is_reported_when_it_lasts_and_never_acted_on(why):
    session = promoted()
    watcher, events = watch(session)
    rounds(watcher, 3)
    session.engine.why = why
    rounds(watcher, 7)
    assert events == []
    rounds(watcher, 7)
    (event,) = events
    assert (event.reason, event.finding) == ("Blind", False)
    assert why in event.text
    assert session.memory.operations()[-1].plan.kind is Kind.ROLLOUT
    session.engine.why = ""
    rounds(watcher, 2)
    assert reasons(events) == ["Blind", "Healthy"]


def test_an_engine_that_lost_its_setting_is_named():
    session = promoted()
    watcher, events = watch(session)
    rounds(watcher, 2)
    session.engine.speculates = False
    rounds(watcher, 2)
    assert reasons(events) == ["NotSpeculating"]
    assert events[0].command == "mpctl diff svc -n chat"


def test_the_watch_leaves_a_service_alone_while_somebody_works_on_it(monkeypatch):
    session = promoted()
    watcher, events = watch(session)
    rounds(watcher, 2)
    monkeypatch.setattr(Service, "holder", lambda self: "ada@host")
    session.engine.share = BAD
    rounds(watcher, 3)
    assert watcher.watched["chat", "svc"].decision.reason == "held by ada@host"
    assert reasons(events) == ["NoDrafts", "Held"]


def test_the_brake_stops_a_fault_of_all_references():
    sessions = [promoted(name=f"svc-{number}") for number in range(20)]
    watcher, events = watch(*sessions)
    rounds(watcher, 3)
    for session in sessions:
        session.engine.share = BAD
    rounds(watcher, 8)
    fallen = [s for s in sessions if s.memory.disk.text == MANIFEST]
    assert len(fallen) == 2
    assert reasons(events).count("BrakeHolds") == 18
    assert all(e.finding for e in events if e.reason == "BrakeHolds")


def test_a_failed_fallback_is_reported_with_what_to_run(monkeypatch):
    session = promoted()
    watcher, events = watch(session)
    rounds(watcher, 2)

    def refuse(*_, **__):
        raise MpctlError("the API server answered 500", hint="run mpctl resume svc")

    monkeypatch.setattr(rollback, "run", refuse)
    session.engine.share = BAD
    rounds(watcher, 1)
    assert reasons(events) == ["NoDrafts", "FellBackFailed"]
    assert events[-1].command == "run mpctl resume svc"
    rounds(watcher, 3)
    decision = watcher.watched["chat", "svc"].decision
    assert (decision.act, decision.reason.partition(" in ")[0]) == (
        WatchAct.HOLD,
        "fall back failed, and is tried again",
    )
    rounds(watcher, 2)
    assert reasons(events).count("FellBackFailed") == 2
    rounds(watcher, 6)
    assert reasons(events).count("FellBackFailed") == 2  # the pause has doubled


def test_a_ledger_that_cannot_be_read_stops_every_action(monkeypatch):
    session = promoted()
    watcher, _ = watch(session)
    rounds(watcher, 2)

    def tampered():
        raise MpctlError("tampering: entry 3")

    monkeypatch.setattr(session.store, "entries", tampered)
    session.engine.share = BAD
    rounds(watcher, 8)
    assert watcher.watched["chat", "svc"].decision.act is not WatchAct.FALL_BACK
    assert '"ngram"' in session.memory.disk.text


def fall_back(session):
    """Watch a service whose drafts are gone until it has fallen back; the watch starts anew, as a new leader's does."""
    watcher, events = watch(session)
    session.engine.share = GOOD
    rounds(watcher, 2)
    if session.memory.disk.text == MANIFEST and session.memory.unfinished() is None:
        return events
    session.engine.share = BAD
    rounds(watcher, 4)
    return events


def boundaries_of_a_fallback():
    session = promoted()
    before = len(session.memory.trail)
    fall_back(session)
    return len(session.memory.trail) - before


@pytest.mark.parametrize("place", range(1, boundaries_of_a_fallback() + 1))
def test_killed_anywhere_in_a_fallback_the_next_leader_ends_it(place):
    session = promoted()
    session.memory.die_at(len(session.memory.trail) + place)
    with pytest.raises(Crash):
        fall_back(session)
    heir = session.later()
    fall_back(heir)
    assert heir.memory.disk.text == MANIFEST
    assert heir.memory.unfinished() is None
    mine = [op for op in heir.memory.operations() if op.plan.by == "watch"]
    assert [op.ending for op in mine] == [Ending.ROLLED_BACK]
    assert len(read_facts(heir, ACTS).fallbacks) == 1
    heir.memory.check_ledger()


def test_after_a_reverted_fallback_the_watch_can_fall_back_again():
    session = promoted()
    fall_back(session)
    rollback.run(session, RollbackRequest(to_revision=2))
    facts = read_facts(session, ACTS)
    assert facts.speculates
    assert [rung.revision for rung in facts.rungs] == [1]


def test_a_fault_of_our_own_is_reported_and_not_repeated_at_once(monkeypatch):
    session = promoted()
    watcher, events = watch(session)
    rounds(watcher, 2)

    def fault(*_, **__):
        raise KeyError("nobody foresaw this")

    monkeypatch.setattr(rollback, "run", fault)
    session.engine.share = BAD
    rounds(watcher, 4)
    assert reasons(events).count("ActionFailed") == 1
    failed = next(e for e in events if e.reason == "ActionFailed")
    assert "KeyError: 'nobody foresaw this'" in failed.text
    assert failed.command == "mpctl history svc -n chat"
    assert watcher.watched["chat", "svc"].decision.act is WatchAct.HOLD


def test_setting_the_clock_of_the_machine_does_not_move_the_clock_of_the_watch(monkeypatch):
    watcher = Watcher(ACTS, list, lambda s: s, lambda _: None)
    before = watcher._now()
    monkeypatch.setattr(time, "time", lambda: 4e9)
    assert watcher._now() - before < 60.0
    watcher.close()


class Slow(Service):
    """A service whose engine gives its answers when the test lets it, the first apart from the others."""

    def __init__(self, **more):
        super().__init__(**more)
        self.first, self.answers, self.asked = threading.Event(), threading.Event(), 0

    def counters(self):
        self.asked += 1
        assert (self.first if self.asked == 1 else self.answers).wait(60.0)
        return super().counters()


def rounds_until_healthy(watcher, name):
    """Rounds until what was late has arrived; its thread needs a moment after its answer."""
    for _ in range(500):
        rounds(watcher)
        if watcher.watched["chat", name].assessment.signal is Signal.HEALTHY:
            return
        time.sleep(0.01)
    pytest.fail(f"{name}: {watcher.watched['chat', name].assessment.text}")


def slow_service(name):
    session = Slow(name=name, disk=disk_after_promotion().copy())
    session.memory.context.clock.sleep(3600.0)
    return session


def test_an_engine_that_does_not_answer_delays_the_judgement_of_no_other_service():
    slow, session = slow_service("slow"), promoted()
    watcher, events = watch(
        session, slow, policy=replace(ACTS, fleet_share=1.0), readers=Readers(1.0)
    )
    rounds(watcher, 3)
    assert watcher.watched["chat", "svc"].assessment.signal is Signal.HEALTHY
    late = watcher.watched["chat", "slow"].assessment
    assert (late.signal, late.text) == (Signal.BLIND, "slow: its counters were not read within 1 s")
    assert slow.asked == 1, "an engine that has not answered is not asked again"
    session.engine.share = BAD
    rounds(watcher, 3)
    assert "FellBack" in reasons(events)
    slow.first.set()
    slow.answers.set()
    rounds_until_healthy(watcher, "slow")
    watcher.close()


def test_more_slow_engines_than_readers_delay_the_others_until_they_have_answered_once():
    slow, session = [slow_service(f"slow-{number:02}") for number in range(20)], promoted()
    watcher, _ = watch(*slow, session, readers=Readers(0.5))
    rounds(watcher, 1)
    for service in slow:
        service.first.set()
    rounds(watcher, 4)
    assert watcher.watched["chat", "svc"].assessment.signal is Signal.HEALTHY
    for service in slow:
        service.answers.set()
    watcher.close()


def test_a_ledger_that_is_not_read_in_time_delays_the_judgement_of_no_other_service(monkeypatch):
    slow, session = promoted(name="slow"), promoted()
    answers, entries = threading.Event(), slow.store.entries
    monkeypatch.setattr(slow.store, "entries", lambda: answers.wait(60.0) and entries())
    watcher, _ = watch(session, slow, readers=Readers(1.0))
    rounds(watcher, 3)
    assert watcher.watched["chat", "svc"].assessment.signal is Signal.HEALTHY
    assert watcher.watched["chat", "slow"].facts.busy == "the ledger was not read within 1 s"
    answers.set()
    rounds_until_healthy(watcher, "slow")
    watcher.close()


def test_a_round_waits_for_no_read_of_an_earlier_round():
    release, fast, slow = threading.Event(), promoted(), promoted(name="slow")
    readers = Readers(0.1)

    def work(session):
        return session.name if session is fast or release.wait(20.0) else "late"

    assert readers.read("counters", work, [slow]) == {}
    readers.deadline_s = 3600.0
    assert readers.read("counters", work, [slow, fast]) == {("chat", "svc"): "svc"}
    release.set()
    readers.close()


def test_a_ledger_that_is_not_read_again_in_time_holds_every_action(monkeypatch):
    """The last look at the ledger before an action has the deadline of every other read."""
    session, answers = promoted(), threading.Event()
    entries = session.store.entries
    watcher, events = watch(session, readers=Readers(1.0))
    rounds(watcher, 3)
    monkeypatch.setattr(watcher, "_is_due", lambda watched: False)
    monkeypatch.setattr(session.store, "entries", lambda: answers.wait(60.0) and entries())
    session.engine.share = BAD
    rounds(watcher, 2)
    (watched,) = watcher.watched.values()
    assert (watched.decision.act, watched.facts.busy) == (
        WatchAct.HOLD,
        "the ledger was not read within 1 s",
    )
    assert "FellBack" not in reasons(events)
    answers.set()
    watcher.close()


def test_a_service_that_is_not_listed_for_a_moment_keeps_its_pause_after_a_failed_action(
    monkeypatch,
):
    session, listed = promoted(), []
    watcher, _ = watch(session)
    watcher._services = lambda: listed
    listed.append(session)
    rounds(watcher, 2)
    monkeypatch.setattr(rollback, "run", failing)
    session.engine.share = BAD
    rounds(watcher, 2)
    pause = watcher.watched["chat", "svc"].retry_at
    assert pause > 0.0
    listed.clear()
    session.memory.context.clock.sleep(60.0)
    rounds(watcher, 1)
    assert not watcher.watched
    listed.append(session)
    session.memory.context.clock.sleep(60.0)
    rounds(watcher, 1)
    assert watcher.watched["chat", "svc"].retry_at == pause


def failing(*_, **__):
    raise MpctlError("out of order")


def test_a_reference_that_cannot_be_used_is_reported_with_its_reason(monkeypatch):
    session = promoted()

    def damaged(_):
        raise ValueError("bands: missing")

    monkeypatch.setattr(Reference, "from_record", damaged)
    watcher, _ = watch(session)
    rounds(watcher, 3)
    (watched,) = watcher.watched.values()
    assert watched.assessment.signal is Signal.NO_REFERENCE
    assert "bands: missing" in watched.assessment.text


def test_the_watchs_own_page_has_nothing_that_an_engine_said_and_a_few_lines_per_service():
    sessions = [promoted(name=f"svc-{number}") for number in range(20)]
    watcher, _ = watch(*sessions, policy=WatchPolicy())
    rounds(watcher, 1)
    sessions[0].engine.why = "<script>" * 10**5
    rounds(watcher, 2)
    page = exposition.metrics(watcher)
    assert "script" not in page
    assert len(page.splitlines()) <= 30 + 10 * len(sessions)


@pytest.fixture
def loads_weights(monkeypatch):
    """The method of the reference loads weights: a lookup's acceptance may well be zero."""
    read = Reference.from_record
    monkeypatch.setattr(
        Reference, "from_record", lambda record: replace(read(record), lookup=False)
    )


@pytest.mark.usefixtures("loads_weights")
def test_an_engine_whose_acceptance_fell_to_zero_is_restarted_and_keeps_its_spec():
    session = promoted()
    promoted_text = session.memory.disk.text
    watcher, events = watch(session)
    rounds(watcher, 2)
    session.engine.accepts = 0.0
    rounds(watcher, 1)
    assert reasons(events) == ["StepToZero", "Restarted"]
    assert events[0].command == "mpctl restart svc -n chat"
    last = session.memory.operations()[-1]
    assert (last.plan.kind, last.plan.by, last.ending) == (Kind.RESTART, "watch", Ending.RESTARTED)
    assert last.detail.startswith("watch: StepToZero: first-position acceptance")
    assert session.memory.disk.text.startswith(promoted_text)
    assert session.store.revisions()[-1].why == "restarted by restart-2"
    session.engine.accepts = 1.0  # as the fault ends with the process
    rounds(watcher, 20)
    (watched,) = watcher.watched.values()
    assert (watched.assessment.signal, watched.facts.reference.operation) == (
        Signal.HEALTHY,
        "rollout-1",
    )
    assert reasons(events)[2:] == ["Healthy"]  # ends the finding for its receivers
    rollback.run(session, RollbackRequest())
    assert session.memory.disk.text == MANIFEST


@pytest.mark.usefixtures("loads_weights")
def test_where_a_restart_does_not_help_the_next_rung_is_taken_without_the_cool_down():
    session = promoted()
    watcher, events = watch(session)
    rounds(watcher, 2)
    session.engine.accepts = 0.0
    rounds(watcher, 4)
    assert reasons(events) == ["StepToZero", "Restarted", "StepToZero", "FellBack"]
    assert session.memory.disk.text == MANIFEST


def refusing_fresh_engines(act):
    def refuse(arm, **more):
        if (
            "# restarted" in getattr(arm, "arm", arm).manifest
        ):  # a check has a demand, which names its arm
            raise Refused("no capacity for one more engine")
        return act(arm, **more)

    return refuse


@pytest.mark.usefixtures("loads_weights")
def test_where_a_restart_fails_or_is_refused_the_service_stays_as_it_was_and_falls_back(
    monkeypatch,
):
    for fault in ("start", "check"):
        session = promoted()
        before = session.memory.disk.text
        watcher, events = watch(session)
        rounds(watcher, 2)
        session.engine.accepts = 0.0

        monkeypatch.setattr(
            session.platform, fault, refusing_fresh_engines(getattr(session.platform, fault))
        )
        rounds(watcher, 1)
        assert reasons(events)[:2] == ["StepToZero", "RestartedFailed"]
        assert "no capacity for one more engine" in events[1].text
        assert session.memory.disk.text == before
        assert session.memory.unfinished() is None
        rounds(watcher, 6)
        assert reasons(events)[-1] == "FellBack"


@pytest.mark.usefixtures("loads_weights")
def test_a_restart_of_the_watch_that_died_anywhere_is_continued():
    boundary = 0
    while True:
        boundary += 1
        session = promoted()
        watcher, _ = watch(session)
        rounds(watcher, 2)
        session.engine.accepts = 0.0
        session.memory.die_at(len(session.memory.trail) + boundary)
        try:
            rounds(watcher, 1)
        except Crash:
            pass
        else:
            break
        later = session.later()
        later.engine.accepts = 1.0 if later.memory.unfinished() is not None else 0.0
        watcher, _ = watch(later)
        rounds(watcher, 4)
        endings = [op.ending for op in later.memory.operations() if op.plan.kind is Kind.RESTART]
        assert endings == [Ending.RESTARTED], f"boundary {boundary}"
    assert boundary > 10


def test_a_ledger_that_is_read_late_ends_no_finding_and_forgets_nothing(monkeypatch):
    session = promoted()
    watcher, events = watch(session, policy=replace(ACTS, fall_back=False))
    session.engine.share = BAD
    rounds(watcher, 6)
    (watched,) = watcher.watched.values()
    before, finding = watched.facts, watched.assessment.signal
    assert watched.assessment.finding
    count = len(events)
    with monkeypatch.context() as patch:
        patch.setattr(watcher, "_facts_of", lambda _: "the ledger was not read within 5 s")
        watched.read_at = None
        rounds(watcher, 2)
    assert watched.assessment.signal is finding
    assert watched.facts == replace(before, busy="the ledger was not read within 5 s")
    rounds(watcher, 2)
    assert reasons(events)[count:] == []


def test_a_service_whose_ledger_was_never_read_is_not_healthy(monkeypatch):
    session = promoted()
    watcher, events = watch(session)
    monkeypatch.setattr(watcher, "_facts_of", lambda _: "the ledger was not read within 5 s")
    rounds(watcher, 2)
    (watched,) = watcher.watched.values()
    assert (watched.assessment.signal, watched.assessment.text) == (
        Signal.BLIND,
        "the ledger was not read within 5 s",
    )
    assert reasons(events) == []


def test_a_fault_of_our_own_in_the_ledger_of_one_service_ends_no_watch(monkeypatch):
    session = promoted()
    watcher, _ = watch(session)

    def fault(*_):
        raise KeyError("metadata")

    monkeypatch.setattr("mpctl.app.watch.watcher.read_facts", fault)
    rounds(watcher, 2)
    (watched,) = watcher.watched.values()
    assert "KeyError: 'metadata'" in watched.assessment.text


def test_an_action_that_fails_keeps_what_was_learned(monkeypatch):
    def refuse(*_):
        raise MpctlError("expired token")

    monkeypatch.setattr("mpctl.app.watch.watcher.carry_out_decision", refuse)
    session = promoted()
    watcher, events = watch(session)
    session.engine.share = BAD
    rounds(watcher, 6)
    (watched,) = watcher.watched.values()
    assert "FellBackFailed" in reasons(events)
    assert watched.assessment.finding
    assert "Healthy" not in reasons(events)


def test_a_window_that_is_judged_once_changes_nothing():
    session = promoted()
    watcher, events = watch(session)
    session.engine.share = BAD
    for _ in range(6):
        session.memory.context.clock.sleep(15.0)
        watcher.round(acts=False)
    (watched,) = watcher.watched.values()
    assert watched.decision.act is WatchAct.FALL_BACK
    assert "FellBack" not in reasons(events)


@pytest.mark.parametrize("failing", [0, 1])
def test_one_judgement_repeats_a_reading_that_failed(monkeypatch, failing):
    """An engine that is busy right after its promotion misses a reading; one of two left nothing to judge by."""
    session = promoted()
    watcher, _ = watch(session)
    clock, answers = session.memory.context.clock, session.counters
    calls = []

    def counters():
        calls.append(clock.sleep(1.0))
        if len(calls) == failing:
            raise MpctlError("the engine did not answer in time")
        return answers()

    monkeypatch.setattr(session, "counters", counters)
    monkeypatch.setattr(loop, "Watcher", lambda *_, **__: watcher)
    monkeypatch.setattr(loop.time, "sleep", clock.sleep)
    (watched,) = loop.Watch(None, session.console, WatchRequest()).once()
    assert watched.assessment.signal is Signal.HEALTHY
    assert len(calls) == 2 + failing


def test_a_finding_of_one_revision_is_not_acted_on_once_another_one_serves(monkeypatch):
    """Somebody restored another revision between two readings of the ledger."""
    session = promoted()
    watcher, _ = watch(session, policy=replace(ACTS, confirm_s=0.0))
    rounds(watcher, 3)
    (watched,) = watcher.watched.values()
    watched.assessment = Assessment(Signal.WORSE_DRAFT, "few drafts are accepted", pays=False)
    watched.start_confirmation(0.0)
    other = replace(
        watched.facts, live=Rung(7, "suffix", "suffix"), rungs=(Rung(1, "none", "none"),)
    )
    monkeypatch.setattr(watcher.readers, "read_anew", lambda *_: other)
    assert watcher._decide_on_current_ledger(watched).act not in CHANGES
    assert watched.finding is None


def test_a_spec_that_the_gate_refuses_again_is_not_reported_as_re_armed():
    session = promoted(seconds=0.3)
    policy = WatchPolicy(fall_back=True, confirm_s=0.0, cool_down_s=600.0, re_arm=True)
    watcher, events = watch(session, policy=policy)
    rounds(watcher, 2)
    session.engine.share = BAD
    rounds(watcher, 1)
    session.engine.share, session.engine.speculates = GOOD, False
    rounds(watcher, 50)
    assert session.memory.operations()[-1].ending is not Ending.PROMOTED
    assert "ReArmed" not in reasons(events)
    (event,) = [event for event in events if event.reason == "NotReArmed"]
    assert event.revert == ""


def test_a_spec_is_tried_again_with_what_its_promotion_accepted():
    accepting = replace(
        ASKED, speculation=replace(ASKED.speculation, accepted=("users-load",)), fidelity="quick"
    )
    session = MemorySession()
    assert rollout.run(session, accepting).operation.ending is Ending.PROMOTED
    why = RollbackRequest(why="watch: WorseDraft: few drafts", by="watch")
    rollback.run(session, why)
    facts = read_facts(session, ACTS)
    request = re_arm_request(session, ACTS, facts)
    assert (request.speculation.accepted, request.fidelity) == (("users-load",), "quick")


def test_a_restored_revision_is_compared_with_its_last_measurement():
    session = MemorySession()
    rollout.run(session, ASKED)
    for _ in range(2):
        rollback.run(session, RollbackRequest())
        last = rollout.run(session, ASKED).operation
    assert last.ending is Ending.PROMOTED
    number = last.plan.goal.number
    rollback.run(session, RollbackRequest())
    rollback.run(session, RollbackRequest(to_revision=number))
    assert read_facts(session, ACTS).reference.operation == last.id
