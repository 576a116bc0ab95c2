"""A rollout on a service with users: told before anything starts, measured beside them, or refused."""

from dataclasses import replace

import pytest
from session import MANIFEST, Behaviours, MemorySession
from world import Behaviour, Crash

from mpctl.app.operate import maintain, rollout, rollout_known
from mpctl.app.requests import (
    DryRun,
    MeasurementRequest,
    RolloutRequest,
    SpeculationRequest,
    TrafficRequest,
)
from mpctl.app.session.base import EngineCounters
from mpctl.errors import InputError, MpctlError, Refused
from mpctl.experiment.users import Placement
from mpctl.experiment.workload import Workload
from mpctl.gate.policy import Policy
from mpctl.rollout.operation import Ending
from mpctl.rollout.ports import Arm

QUICK = MeasurementRequest(requests=5, rounds=6)


class Busy(MemorySession):
    """Users send requests to the serving engine all the time; ``first``: boundary before which they send none,
    ``answer_s``: time of an answer, ``routed``: through a route that mirrors and splits, ``slower``: by how much the
    second of two pods is."""

    def __init__(self, *, room=2, first=0, answer_s=2.0, routed=False, slower=0.0, **given):
        super().__init__(**given)
        self.memory.room = room
        self.first, self.answer_s, self.slower = first, answer_s, slower
        if routed:
            self.memory.context.platform.route = lambda name, steps, *, mirror=0, force=False: {
                "name": "users"
            }
        self.memory.watch = self._request

    def _request(self, where):
        disk = self.memory.disk
        engine = disk.engines.get(disk.routed)
        if engine is None or len(self.memory.trail) < self.first:
            return
        if where != "users" and not disk.ledger:
            return  # no time passes while the request is checked
        old = engine.counters
        grown = replace(
            old,
            generation_tokens=(old.generation_tokens or 0) + 7,
            prompt_tokens=(old.prompt_tokens or 0) + 7,
            latency_count=(old.latency_count or 0) + 1,
            latency_seconds=(old.latency_seconds or 0) + self.answer_s,
        )
        disk.engines[disk.routed] = replace(engine, counters=grown)

    def counters(self):
        self.memory.boundary("users")
        read = super().counters()
        if not self.slower:
            return read
        (pod,) = read.engines.values()
        both = {
            name: replace(pod, tpot_count=4000.0, tpot_seconds=40.0 * factor, started=0.0)
            for name, factor in (("pod-1", 1.0), ("pod-2", 1.0 + self.slower))
        }
        return EngineCounters(both, {}, 2)


class Aged(Busy):
    """A service without users, whose engine runs for 30 hours."""

    def __init__(self, **given):
        super().__init__(first=10**9, **given)

    def counters(self):
        read = super().counters()
        started = self.clock.now().timestamp() - 30 * 3600
        engines = {name: replace(pod, started=started) for name, pod in read.engines.items()}
        return replace(read, engines=engines)


def request(measure_on="auto", policy=None, **traffic):
    measurement = replace(QUICK, limits=policy.to_record() if policy else None)
    return RolloutRequest(
        SpeculationRequest("ngram"),
        measurement,
        traffic=TrafficRequest(measure_on=measure_on, bake_s=0.0, **traffic),
    )


def stored_workload(store, plan):
    return Workload.from_record(store.load(plan.workload, "workload"))


def untouched(session):
    disk = session.memory.disk
    return disk.text == MANIFEST and set(disk.engines) == {Arm(MANIFEST).id} and not disk.ledger


def test_users_stay_on_the_service_while_a_copy_of_the_baseline_is_measured():
    session = Busy()
    outcome = rollout.run(session, request())
    assert outcome.operation.ending is Ending.PROMOTED
    plan = outcome.operation.plan
    assert (plan.users.placement, plan.users.load.seen, plan.users.load.pods) == (
        Placement.PAIR,
        True,
        1,
    )
    assert (outcome.finished.run.placement, outcome.finished.run.users) == (
        Placement.PAIR,
        plan.users.load,
    )
    (question,) = session.console.questions
    assert (
        "Users send 0.1 requests/s to 1 pod. The baseline cannot be measured while they do."
        in question
    )
    assert (
        "A copy of the baseline is measured beside the candidate: 2 more engines, about" in question
    )
    assert [arm for arm in session.memory.disk.engines if arm.endswith("-copy")] == []


@pytest.mark.parametrize(("checked_s", "window_s"), [(7.0, 10.0), (30.0, 30.0)])
def test_the_time_of_the_preflight_counts_as_part_of_the_window(checked_s, window_s, monkeypatch):
    session, prepare, slept = Busy(), rollout_known.prepare, []

    def checked(*arguments):
        session.clock.sleep(checked_s)
        slept.clear()
        return prepare(*arguments)

    monkeypatch.setattr(rollout_known, "prepare", checked)
    sleep = session.clock.sleep
    monkeypatch.setattr(session.clock, "sleep", lambda s: (slept.append(s), sleep(s)))
    preview = rollout.run(session, replace(request(), dry_run=DryRun.CLIENT)).preview
    assert preview.plan.users.load.window_s == window_s
    assert slept == [window_s - checked_s]


def test_on_one_gpu_both_arms_take_turns_and_the_service_keeps_its_users():
    session = Busy(room=1)
    outcome = rollout.run(session, request())
    assert outcome.operation.ending is Ending.PROMOTED
    assert outcome.operation.plan.users.placement is Placement.TURNS
    assert (
        "A quiet pair (--measure-on pair): needs room for 2 engines, 1 is free"
        in session.console.questions[0]
    )
    assert set(session.memory.disk.engines) == {Arm(session.memory.disk.text).id}


@pytest.mark.parametrize(
    ("room", "limit_s", "placement"),
    [(2, 3600.0, Placement.PAIR), (1, 10800.0, Placement.TURNS), (1, 1.0, Placement.SERVICE)],
)
def test_a_service_that_runs_for_long_is_measured_by_a_fresh_copy_or_its_age_is_said(
    room, limit_s, placement
):
    session = Aged(room=room)
    outcome = rollout.run(session, request(measure_limit_s=limit_s))
    assert outcome.operation.plan.users.placement is placement
    assert (
        "The service has been running for 30 h, above max_baseline_age of 6 h"
        in session.console.questions[0]
    )
    assert outcome.finished.run.placement is placement


@pytest.mark.parametrize(
    ("room", "measure_on", "gained"), [(2, "auto", False), (1, "auto", False), (2, "service", True)]
)
def test_age_that_makes_the_serving_engine_slower_is_no_gain_of_the_candidate(
    room, measure_on, gained
):
    """The engine that serves is 1.3 times slower than a fresh one, and the candidate as fast as that."""
    session = Aged(room=room, seconds=0.1)
    meter, old = session.memory.meter, Arm(MANIFEST).id
    fresh = meter.run

    def run(endpoint, *rest):
        result = fresh(endpoint, *rest)
        if endpoint.base_url != f"http://{old}":
            return result
        slower = (replace(r, gaps_s=tuple(1.3 * gap for gap in r.gaps_s)) for r in result.requests)
        return replace(result, duration_s=1.3 * result.duration_s, requests=tuple(slower))

    meter.run = run
    outcome = rollout.run(session, request(measure_on=measure_on))
    assert (outcome.operation.ending is Ending.PROMOTED) == gained


def test_a_policy_says_how_old_a_baseline_may_be():
    session = Aged(room=2)
    policy = replace(Policy(), max_baseline_age=48.0)
    outcome = rollout.run(session, request(policy=policy))
    assert outcome.operation.plan.users.placement is Placement.SERVICE
    assert "max_baseline_age" not in session.console.questions[0]


@pytest.mark.parametrize(("room", "rounds", "requests"), [(2, 6, 12), (1, 5, 14)])
def test_a_copy_is_measured_at_the_users_own_concurrency(room, rounds, requests):
    session = Busy(room=room, answer_s=60.0)  # 0.1 requests/s of 60 s: six at once
    plan = rollout.run(session, request()).operation.plan
    workload = stored_workload(session.store, plan)
    assert workload.concurrency == (6,)
    assert (workload.repeats, workload.requests_of(workload.cells[0])) == (rounds, requests)
    assert (
        f"at most {rounds} rounds of {requests} prompts (edits) at concurrency 6"
        in session.console.questions[0]
    )


@pytest.mark.parametrize(("answer_s", "warned"), [(60.0, False), (1000.0, True)])
def test_the_preflight_judges_the_users_own_concurrency(answer_s, warned):
    session = Busy(
        answer_s=answer_s
    )  # 0.1 requests/s: 6 or 100 at once, and a measurement of 1 at once by request
    rollout.run(session, replace(request(), measurement=replace(QUICK, concurrency=(1,))))
    warnings = [line for line in session.console.warnings if "[high-concurrency]" in line]
    assert [("at concurrency 100 verifies 600 tokens" in line) for line in warnings] == [
        True
    ] * warned


def test_what_the_users_load_speaks_against_is_refused_where_asked_before_anything_starts():
    session = Busy(answer_s=1000.0)
    changed_answer = replace(
        request(), speculation=SpeculationRequest("ngram", refused=("high-concurrency",))
    )
    with pytest.raises(Refused, match="K=5 at concurrency 100"):
        rollout.run(session, changed_answer)
    assert untouched(session)


@pytest.mark.parametrize("load", [{"concurrency": (2,)}, {"requests_per_s": (2.0,)}])
def test_a_concurrency_or_rate_that_the_user_names_is_measured(load):
    session = Busy(answer_s=60.0)
    plan = rollout.run(
        session, replace(request(), measurement=replace(QUICK, **load))
    ).operation.plan
    workload = stored_workload(session.store, plan)
    assert (workload.concurrency, workload.rates) == (
        load.get("concurrency", ()),
        load.get("requests_per_s", ()),
    )


def test_a_candidate_measured_far_below_the_users_load_is_not_promoted_unless_that_is_accepted():
    """Users keep six requests in flight, and one at once is measured by request."""
    one_at_once = replace(request(), measurement=replace(QUICK, concurrency=(1,)))
    session = Busy(answer_s=60.0)
    outcome = rollout.run(session, one_at_once)
    gap = "users keep about 6 requests in flight on each pod, prompts are sent 1 at once"
    (warning,) = (line for line in session.console.warnings if "[users-load]" in line)
    assert gap in warning and "--concurrency 6 with 98 distinct prompts" in warning
    assert (outcome.operation.ending, outcome.exit_code) == (Ending.UNDECIDED, 6)
    assert outcome.verdict.summary.startswith(f"undecided for edits; {gap}")
    session = Busy(answer_s=60.0)
    speculation = SpeculationRequest("ngram", accepted=("users-load",))
    outcome = rollout.run(session, replace(one_at_once, speculation=speculation))
    assert outcome.operation.ending is Ending.PROMOTED
    assert outcome.verdict.summary.startswith(f"promote for edits; {gap}")


@pytest.mark.parametrize("room", [1, 2])
def test_the_same_command_continues_a_measurement_beside_users(room):
    changed_answer = replace(request(), measurement=replace(QUICK, rounds=None))
    session = Busy(room=room, answer_s=60.0)
    die_after(session, 6)
    with pytest.raises(Crash):
        rollout.run(session, changed_answer)
    again = Busy(room=room, answer_s=60.0, disk=session.memory.disk)
    assert rollout.run(again, changed_answer).operation.ending is Ending.PROMOTED
    assert len({entry.operation for entry in again.memory.disk.ledger}) == 1


ROUTED = {"room": 1, "routed": True}
SPOILED = {
    "the service itself": ({}, request("service"), "the baseline cannot be measured while they do"),
    "users in the figures by tokens": (
        {},
        request(policy=Policy(max_token_gap=1.0)),
        "max_token_gap of 1 would let",
    ),
    "users in the figures by the cache": (
        {},
        request(policy=Policy(max_cache_gap=1.0)),
        "max_cache_gap of 1 would let",
    ),
    "nothing is free": (
        {"room": 0},
        request(),
        "nothing runs beside it, either: room for 0 engines",
    ),
    "a pair in room for one": ({"room": 1}, request("pair"), "needs room for 2 engines, 1 is free"),
    "turns take too long": (
        {"room": 1},
        request("turns", measure_limit_s=60.0),
        "above measure_limit of 1 min",
    ),
    "too few turns": (
        {"room": 1},
        replace(request("turns"), measurement=replace(QUICK, rounds=4)),
        "4 pairs of turns decide nothing",
    ),
    "in place": (
        {"room": 1},
        replace(request(), strategy="in-place"),
        "--strategy in-place runs no engine beside",
    ),
    "no route mirrors": ({"room": 1}, request("mirror"), "no route leads to an engine"),
    "no route splits": (
        {"room": 1},
        request("split", users_share_percent=50),
        "no route leads to an engine",
    ),
    "copies take too long": (
        ROUTED,
        request("mirror", measure_limit_s=60.0),
        "at this load, above measure_limit",
    ),
    "too few copies": (ROUTED, request("mirror", mirror_percent=10), "a promotion needs 100 %"),
    "a split without consent": (
        ROUTED,
        request("split"),
        "needs your consent that 50 % of users' requests",
    ),
    "more than a pod's share": (
        ROUTED,
        request("split", users_share_percent=60),
        "60 % load the candidate more",
    ),
    "less than a pod's share": (
        ROUTED,
        request("split", users_share_percent=5),
        "5 % load the candidate less",
    ),
    "rare users": (ROUTED, request("mirror", users_window_s=20.0), "at least 0.1 are needed"),
    "pods that differ": (
        {**ROUTED, "slower": 0.2},
        request("split", users_share_percent=33),
        "differ by 20 %, so no candidate pod can be judged beside them",
    ),
}


@pytest.mark.parametrize(("service", "asked", "message"), SPOILED.values(), ids=SPOILED)
def test_what_users_would_spoil_is_refused_before_anything_starts(service, asked, message):
    session = Busy(**service)
    with pytest.raises(Refused) as caught:
        rollout.run(session, asked)
    assert message in caught.value.message
    assert caught.value.exit_code == 9
    assert caught.value.hint
    assert untouched(session)


def test_a_service_that_nothing_runs_beside_is_refused_with_what_helps_it_and_no_offer_of_a_gpu():
    session = Busy()

    def check(demand):
        raise Refused(
            "svc runs in groups of pods", hint="use --strategy in-place --accept-downtime"
        )

    session.platform.check = check
    with pytest.raises(
        Refused, match="nothing runs beside it, either: svc runs in groups"
    ) as caught:
        rollout.run(session, request())
    assert caught.value.hint == (
        "use --strategy in-place --accept-downtime; take the service out of traffic before a change in place"
    )
    assert untouched(session)


def test_copies_of_users_who_do_not_come_are_refused_before_anything_starts():
    session = MemorySession()
    with pytest.raises(Refused, match="no user was seen, so there is nothing to judge by"):
        session.memory.context.platform.route = lambda *_, **__: {"name": "users"}
        rollout.run(session, request("mirror"))
    assert untouched(session)


def test_consent_to_a_split_contradicts_a_placement_without_one():
    with pytest.raises(
        InputError, match="--users-share: cannot be combined with --measure-on pair"
    ):
        rollout.run(Busy(), request("pair", users_share_percent=50))


def test_counters_that_cannot_be_read_are_refused_unless_a_copy_is_asked_for():
    class Unread(MemorySession):
        def counters(self):
            return EngineCounters({}, {"pod-1": "no answer"}, 1)

    with pytest.raises(Refused, match="the counters of pod-1 cannot be read: no answer"):
        rollout.run(Unread(), request())
    assert rollout.run(Unread(), request("pair")).operation.ending is Ending.PROMOTED


def test_without_users_the_service_is_measured_and_the_question_says_what_may_have_been_missed():
    session = MemorySession()
    outcome = rollout.run(session, request())
    assert outcome.operation.plan.users.placement is Placement.SERVICE
    assert (
        "No user was seen in 10 s: fewer than 0.3 requests/s at 95 %."
        in session.console.questions[0]
    )


def test_users_who_come_in_the_middle_are_named_with_what_to_do():
    session = Busy(first=40)
    outcome = rollout.run(session, request())
    assert outcome.operation.plan.users.placement is Placement.SERVICE
    assert outcome.exit_code == 6
    message = next(r.message for r in outcome.verdict.rules if r.rule == "comparable")
    assert "tokens to the baseline meanwhile" in message
    assert message.startswith("users sent ")
    assert "--measure-on pair" in message


def test_a_dry_run_tells_users_and_the_choice():
    session = Busy()
    outcome = rollout.run(session, replace(request(), dry_run=DryRun.CLIENT))
    assert "Users send 0.1 requests/s to 1 pod." in outcome.preview.explanation
    assert untouched(session)


@pytest.mark.parametrize("room", [1, 2])
def test_abandoned_anywhere_nothing_of_the_measurement_remains(room):
    reference = Busy(room=room)
    rollout.run(reference, request())
    steps = [entry.step for entry in reference.memory.disk.ledger if entry.event.value == "done"]
    assert "stop-copy" in steps
    for number in range(1, len(reference.memory.disk.ledger)):
        session = Busy(room=room)
        die_after(session, number)
        with pytest.raises(Crash):
            rollout.run(session, request())
        again = Busy(room=room, disk=session.memory.disk)
        maintain.abandon(again)
        assert set(again.memory.disk.engines) == {Arm(again.memory.disk.text).id}


def die_after(session, entries):
    """The command dies at the first boundary after so many entries of the ledger."""

    def watch(where):
        session._request(where)
        if len(session.memory.disk.ledger) >= entries:
            raise Crash(where)

    session.memory.watch = watch


class Unused(MemorySession):
    """A service that no one uses; its baseline engine is old, and counts every request that mpctl sends to it."""

    def __init__(self, **given):
        super().__init__(**given)
        self.started = self.clock.now().timestamp() - 600.0
        self.memory.room = 2

    def counters(self):
        meter, text = self.memory.context.meter, self.memory.disk.text
        own = sum(manifest == text for manifest, _ in meter.sent)
        own += sum(
            count for manifest, count, _ in (*meter.asked, *meter.scored) if manifest == text
        )
        read = super().counters()
        engines = {
            name: replace(pod, latency_count=own, started=self.started)
            for name, pod in read.engines.items()
        }
        return EngineCounters(engines, {}, 1)


def test_what_earlier_rollouts_sent_is_not_taken_for_users():
    """The untimed requests before the rounds were taken for users', so a second rollout asked for a third engine."""
    session = Unused(
        seconds=0.5
    )  # slower than the baseline, so that this one gets the requests of all three
    for _ in range(3):
        outcome = rollout.run(session, request())
        assert outcome.operation.ending is Ending.REJECTED
        assert outcome.operation.plan.users.placement is Placement.SERVICE
    assert sum(count for _, count, _ in session.memory.context.meter.asked) > 100


def test_what_a_rollout_without_a_verdict_sent_is_not_taken_for_users():
    """The baseline is asked while the candidate starts, which here always fails."""
    session = Unused()
    session.memory.behaviours = Behaviours(Behaviour(failures=1000))
    for _ in range(3):
        outcome = rollout.run(session, request())
        assert outcome.operation.ending is Ending.FAILED
        assert outcome.operation.plan.users.placement is Placement.SERVICE
    assert sum(count for _, count, _ in session.memory.context.meter.asked) > 100


def test_what_was_sent_before_the_baseline_stopped_answering_is_not_taken_for_users(monkeypatch):
    """The pass of answers breaks off after its requests, while the candidate starts."""
    session = Unused()
    meter = session.memory.context.meter

    def broken(*_asks, **_options):
        raise MpctlError("the engine does not answer")

    monkeypatch.setattr(meter, "score", broken)
    for _ in range(3):
        outcome = rollout.run(session, request())
        assert outcome.operation.ending is Ending.FAILED
        assert outcome.operation.plan.users.placement is Placement.SERVICE
    assert sum(count for _, count, _ in meter.asked) > 100
