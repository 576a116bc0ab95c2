"""Both arms measured on users' requests: as copies, or as a share that grows to that of a baseline pod. Users leave a
candidate that slows them before anything else, and the route is restored wherever the command dies."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise

import pytest
from rolling import ROUTE, RollingWorld, crashes, guard
from test_rollout_traffic import check, rollback, wanted
from world import BASELINE_TEXT, CANDIDATE_TEXT, FASTER, FEW, SLOWER

from mpctl.errors import MpctlError
from mpctl.experiment.answer_sets import QUICK
from mpctl.experiment.run import Run
from mpctl.experiment.users import Placement, UserLoad
from mpctl.gate.analysis import Analysis
from mpctl.gate.assess import judge_run
from mpctl.gate.rule import Outcome
from mpctl.gate.users_traffic import equal_share, next_share, ramp
from mpctl.report import result_in_words
from mpctl.report.build import build_report
from mpctl.report.markdown import markdown_report
from mpctl.rollout import runner
from mpctl.rollout.decide import Act, decide_rollout
from mpctl.rollout.steps import users
from mpctl.rollout.steps.measure import records_of, verdict_of
from mpctl.rollout.steps.users import LOOKS

SCALED = replace(FEW, traffic_window_s=1.0, traffic_window_requests=2)
LOAD = UserLoad(20.0, 1, seen=True, window_s=10.0)
BOTH = pytest.mark.parametrize("placement", [Placement.MIRROR, Placement.SPLIT])


def measured(memory, placement, **changes):
    changes = {"policy": SCALED, "users": LOAD, "traffic_steps": (), "route": ROUTE} | changes
    decision = decide_rollout(
        wanted(placement=placement, **changes), memory.live(), memory.unfinished()
    )
    if decision.act is not Act.ALREADY:
        runner.run(
            memory.context, decision.operation or runner.open_plan(memory.context, decision.plan)
        )


def checked(memory, *texts):
    check(memory, *texts)
    assert memory.disk.copied == 0


def rules(memory):
    verdict = verdict_of(memory.operations()[0])
    return {rule.rule: rule for rule in verdict.rules}


@BOTH
def test_a_candidate_that_is_faster_on_users_requests_is_promoted(placement):
    memory = guard(RollingWorld(FASTER))
    measured(memory, placement)
    checked(memory, CANDIDATE_TEXT)
    steps = list(memory.operations()[0].done)
    assert steps[steps.index("judge") + 1 : steps.index("promote")] == ["unshift"]


@pytest.mark.parametrize(
    ("placement", "copy_ms", "words"),
    [
        (Placement.MIRROR, 6, "1.7x faster per token of users' requests. Promoted."),
        (Placement.SPLIT, 6, "1.7x faster per token of users' requests. Promoted."),
        (
            Placement.MIRROR,
            20,
            "0.50x as fast per token of users' requests. Rejected: the service is unchanged.",
        ),
        (
            Placement.SPLIT,
            20,
            "No speed measured for one user at a time, but harm failed. Rejected: the service is unchanged.",
        ),
    ],
)
def test_the_result_in_words_is_that_of_users_requests(placement, copy_ms, words):
    memory = guard(RollingWorld(FASTER if copy_ms < 10 else SLOWER, copy_ms=copy_ms))
    measured(memory, placement)
    operation = memory.operations()[0]
    cells = Analysis.of(records_of(memory.context, operation).judged(), SCALED).cells
    assert result_in_words(verdict_of(operation), cells, operation.ending, {}) == words


@BOTH
def test_the_progress_names_the_users_requests_that_were_lost_but_no_lost_copy(placement):
    memory = guard(RollingWorld(FASTER))
    measured(memory, placement)
    text = r"(\d+) requests lost \(aborted or failed\); (\d+) requests answered by the candidate, (\d+) by the baseline"
    lost, candidate, baseline = map(
        int, re.fullmatch(text, memory.progress.rounds[-1].users).groups()
    )
    assert candidate == baseline > 0
    arms = 1 if placement is Placement.MIRROR else 2
    polls = (
        lost / arms
    )  # each loses one request and answers ten on either arm; the first are not in a window
    assert polls >= baseline / 10
    assert polls < baseline / 10 * 2
    actual_rules = rules(memory)
    assert (
        "0.60x (96.6% CI 0.55x to 0.66x) of the baseline's"
        in actual_rules["time per token"].message
    )
    assert actual_rules["saturation"].message.startswith(
        "throughput is not identified, because users set the load"
    )
    assert "saturation is unknown" in actual_rules["saturation"].message
    assert "TPOT" not in actual_rules


@BOTH
def test_a_candidate_as_fast_as_the_baseline_is_undecided_and_the_service_restored(placement):
    memory = guard(RollingWorld(FASTER, copy_ms=9.8))
    measured(memory, placement)
    checked(memory, BASELINE_TEXT)
    assert memory.endings() == ["undecided", "rolled back"]
    assert "for what two equal pods may differ" in memory.operations()[0].detail


def test_a_candidate_that_is_slower_on_copies_is_rejected():
    memory = guard(RollingWorld(FASTER, copy_ms=20))
    measured(memory, Placement.MIRROR)
    checked(memory, BASELINE_TEXT)
    assert memory.endings() == ["rejected", "rolled back"]
    assert memory.disk.sent == []


def test_a_candidate_at_half_the_speed_is_stopped_at_a_small_share_of_a_split():
    memory = guard(RollingWorld(FASTER, copy_ms=20))
    measured(memory, Placement.SPLIT)
    checked(memory, BASELINE_TEXT)
    assert memory.endings() == ["rejected", "rolled back"]
    assert memory.disk.sent == [1, 5]
    detail = memory.operations()[0].detail
    (requests,) = re.findall(r"token is 2\.00x the baseline's over (\d+) requests", detail)
    assert int(requests) <= 30
    assert any(
        line.startswith("users are spared the candidate: its time")
        for line in memory.progress.lines
    )


def test_a_split_grows_to_the_share_of_a_baseline_pod_and_at_most_doubles():
    memory = guard(RollingWorld(FASTER))
    measured(memory, Placement.SPLIT)
    assert memory.disk.sent == [1, 5, 10, 20, 40, 50]
    for pods in (1, 2, 3, 9, 40):
        steps = ramp(pods, 5.0, equal_share(pods))
        assert steps[-1] == equal_share(pods)
        assert all(after <= next_share(before, pods) for before, after in pairwise(steps))
    assert (
        ramp(1, 0.1, 50)[0] == 34
    )  # one request in ten seconds: less would bring no 20 in ten minutes


def test_a_candidate_whose_requests_wait_leaves_the_users_at_once(monkeypatch):
    memory = guard(RollingWorld(FASTER))
    inner = memory.context.meter.counters
    waits = {"http://beside": 3.0}
    monkeypatch.setattr(
        memory.context.meter,
        "counters",
        lambda endpoint: replace(inner(endpoint), waiting=waits.get(endpoint.base_url, 0.0)),
    )
    measured(memory, Placement.SPLIT)
    checked(memory, BASELINE_TEXT)
    assert memory.endings() == ["rejected", "rolled back"]
    assert (
        "3 requests wait on the candidate and none on the baseline" in memory.operations()[0].detail
    )
    assert memory.disk.sent == [1]


def test_what_stopped_a_candidate_is_kept_where_its_last_answers_are_not_waited_for(monkeypatch):
    """Else the command that goes on would send users to the candidate again."""
    memory = guard(RollingWorld(FASTER, copy_ms=20))
    inner, tries = memory.context.platform.unshift, []

    def unshift(route):
        restored = inner(route)
        tries.append(route)
        if len(tries) == 1:
            raise MpctlError("the candidate still answers")
        return restored

    monkeypatch.setattr(memory.context.platform, "unshift", unshift)
    measured(memory, Placement.SPLIT)
    checked(memory, BASELINE_TEXT)
    assert "2.00x" in records_of(memory.context, memory.operations()[0]).traffic().stopped


def test_a_pod_that_cannot_be_read_just_now_makes_no_share_larger(monkeypatch):
    memory = guard(RollingWorld(FASTER))
    inner, shares = memory.context.platform.mirror, []
    monkeypatch.setattr(
        memory.context.platform,
        "mirror",
        lambda route, percent: (shares.append(percent), inner(route, percent)),
    )
    measured(memory, Placement.MIRROR, users=replace(LOAD, pods=3))
    assert shares == [33]


def test_a_share_of_the_requests_gets_the_time_in_which_it_fills_its_windows(monkeypatch):
    memory = guard(RollingWorld(FASTER))
    inner, ends = users.watch_arm, []

    def watch_arm(context, operation, start, until, **how):
        ends.append(until.most_s)
        return inner(context, operation, start, until, **how)

    monkeypatch.setattr(users, "watch_arm", watch_arm)
    measured(memory, Placement.SPLIT, users=replace(LOAD, requests_per_s=0.05))
    fills_s = SCALED.traffic_window_requests / (0.05 * equal_share(1) / 100)
    assert ends[-1] >= 2 * LOOKS * fills_s


def test_a_split_below_the_share_of_a_pod_promotes_nothing():
    memory = guard(RollingWorld(FASTER))
    measured(memory, Placement.SPLIT, users_share_percent=10)
    checked(memory, BASELINE_TEXT)
    assert memory.endings() == ["undecided", "rolled back"]
    assert "smaller share than a baseline pod" in memory.operations()[0].detail
    assert memory.disk.sent == [1, 5, 10]


@BOTH
def test_answers_that_differ_reject_before_a_user_is_involved(placement):
    memory = guard(
        RollingWorld({**FASTER, CANDIDATE_TEXT: replace(FASTER[CANDIDATE_TEXT], answer="another")})
    )
    measured(memory, placement, fidelity=QUICK)
    checked(memory, BASELINE_TEXT)
    assert memory.endings() == ["rejected", "rolled back"]
    assert memory.disk.sent == []


@BOTH
def test_killed_anywhere_and_run_again_it_ends_the_same(placement):
    shortened = {
        "policy": replace(SCALED, traffic_window_s=0.5),
        "users": replace(LOAD, requests_per_s=0.05),
    }
    count = 0
    for boundary, left in crashes(FASTER, lambda memory: measured(memory, placement, **shortened)):
        again = guard(left.again())
        measured(again, placement, **shortened)
        checked(again, CANDIDATE_TEXT)
        assert set(again.endings()) == {"promoted"}, f"boundary {boundary}"
        count += 1
    assert count > 60


@BOTH
def test_killed_anywhere_a_rollback_restores_route_and_service(placement):
    shortened = {
        "policy": replace(SCALED, traffic_window_s=0.5),
        "users": replace(LOAD, requests_per_s=0.05),
    }
    for _, left in crashes(SLOWER, lambda memory: measured(memory, placement, **shortened)):
        if left.unfinished() is not None:
            back = guard(left.again())
            rollback(back)
            checked(back, BASELINE_TEXT)


@pytest.mark.parametrize(("placement", "share"), [(Placement.MIRROR, 33), (Placement.SPLIT, 25)])
def test_all_pods_of_the_baseline_are_read_and_set_the_share(placement, share, monkeypatch):
    memory = guard(RollingWorld(FASTER))
    inner = memory.context.platform.counters

    def three(arm):
        (engine,) = inner(arm).values()
        return {f"pod-{i}": engine for i in range(3)}

    shares = []
    route = (
        memory.context.platform.mirror
        if placement is Placement.MIRROR
        else memory.context.platform.shift
    )
    monkeypatch.setattr(memory.context.platform, "counters", three)
    monkeypatch.setattr(
        memory.context.platform,
        "mirror" if placement is Placement.MIRROR else "shift",
        lambda found, percent: (shares.append(percent), route(found, percent)),
    )
    measured(memory, placement)
    checked(memory, CANDIDATE_TEXT)
    assert shares[-1] == share
    assert memory.progress.rounds[-1].number == 5
    assert records_of(memory.context, memory.operations()[0]).traffic().windows[0].pods == 3


@BOTH
def test_the_record_of_a_measurement_keeps_users_requests_and_is_judged_again_alike(placement):
    memory = guard(RollingWorld(FASTER))
    measured(memory, placement)
    run = records_of(memory.context, memory.operations()[0]).judged()
    again = Run.from_record(json.loads(json.dumps(run.to_record())))
    assert again == run
    analysis, verdict = judge_run(again)
    assert verdict.outcome is Outcome.PROMOTE
    (cell,) = analysis.cells
    assert cell.throughput_ratio is None
    assert cell.time_per_token_ratio.value == pytest.approx(0.6)
    report = markdown_report(build_report(run, analysis, verdict))
    assert "throughput is not identified" in report
    assert "96.6% CI 0.55x to 0.66x" in report
