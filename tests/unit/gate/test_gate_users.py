"""Users' requests judged by windows of time: the load that users set, the harm that stops a candidate, and how often
equal pods are told apart (simulated)."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace

import pytest

from mpctl.experiment.counters import Counters, Window
from mpctl.experiment.users import ArmsReading, TrafficWindow, UsersTraffic, WindowCutter
from mpctl.gate.policy import Policy
from mpctl.gate.rule import Outcome
from mpctl.gate.rules.users import is_decided, judge_traffic
from mpctl.gate.users_traffic import HarmWatch
from tests.simulation.users import CROSSOVER, PLAIN, Case, at_speed, harmed, judged, verdict

pytestmark = pytest.mark.exhaustive

POLICY = Policy()


def window(tpot_ms=10.0, requests=20, tokens=100.0):
    none = dict.fromkeys(
        ("preemptions", "queue_seconds", "queue_count", "drafts", "draft_tokens", "accepted")
    )
    times = {"tpot_seconds": requests * tpot_ms / 1000, "ttft_seconds": requests * 0.05}
    return Window(
        requests * tokens,
        per_position=(),
        tpot_count=requests,
        ttft_count=requests,
        **times,
        **none,
    )


def traffic(ratio, count=10, *, noise=0.02, pods=1, requests=20, length=1.0, **more):
    chance = random.Random(1)
    windows = tuple(
        TrafficWindow(
            60.0,
            pods,
            window(requests=20 * pods),
            window(10 * ratio * math.exp(chance.gauss(0, noise)), requests, 100 * length),
            batch=7,
        )
        for _ in range(count)
    )
    return UsersTraffic(windows, 30, **more)


def outcomes(of):
    return {rule.rule: rule.outcome for rule in judge_traffic(of, POLICY)}


@pytest.mark.parametrize(
    ("ratio", "outcome"),
    [
        (0.6, Outcome.PROMOTE),
        (0.97, Outcome.UNDECIDED),
        (1.0, Outcome.UNDECIDED),
        (1.6, Outcome.REJECT),
    ],
)
def test_only_a_difference_beyond_that_of_two_equal_pods_decides(ratio, outcome):
    assert verdict(traffic(ratio), POLICY) is outcome
    assert (
        verdict(traffic(ratio, noise=0.0), POLICY) is outcome
    )  # no number of windows shows a constant difference


def test_bounds_are_moved_outwards_by_what_pods_may_differ():
    (rule,) = (
        r for r in judge_traffic(traffic(0.8, noise=0.0), POLICY) if r.rule == "time per token"
    )
    assert (rule.interval.low, rule.interval.high) == pytest.approx((0.8 / 1.1, 0.8 * 1.1))


def test_four_windows_decide_nothing():
    assert verdict(traffic(0.3, 4), POLICY) is Outcome.UNDECIDED


def test_all_pods_of_the_baseline_are_compared_together():
    assert outcomes(traffic(0.6, pods=3))["equal load"] is Outcome.PASS
    (rule,) = (r for r in judge_traffic(traffic(0.6, pods=3), POLICY) if r.rule == "time per token")
    assert "200 on the candidate" in rule.message


@pytest.mark.parametrize(("requests", "ratio"), [(10, 0.6), (30, 1.6)])
def test_a_verdict_that_unequal_load_flatters_is_none(requests, ratio):
    unequal = traffic(ratio, 20, requests=requests)
    assert outcomes(unequal)["equal load"] is Outcome.UNDECIDED
    assert verdict(unequal, POLICY) is Outcome.UNDECIDED


def test_a_candidate_that_is_slower_under_less_load_is_rejected():
    assert verdict(traffic(1.6, 20, requests=10), POLICY) is Outcome.REJECT


def test_a_router_that_looks_at_load_is_named():
    (load,) = (
        r for r in judge_traffic(traffic(0.6, 20, requests=28), POLICY) if r.rule == "equal load"
    )
    assert "the router looks at load: judged at equal queue, not at equal load" in load.message
    (load,) = (r for r in judge_traffic(traffic(0.6, 20), POLICY) if r.rule == "equal load")
    assert "router" not in load.message


def test_a_smaller_share_promotes_nothing():
    small = traffic(0.6, 20, equal_share=False)
    assert verdict(small, POLICY) is Outcome.UNDECIDED


def test_throughput_and_saturation_are_not_identified_and_the_highest_batch_is_told():
    (rule,) = (r for r in judge_traffic(traffic(0.6), POLICY) if r.rule == "saturation")
    assert rule.outcome is Outcome.SKIP
    assert "at most 7 requests were on one pod at once, 0.33 requests/s per pod" in rule.message


def test_much_longer_answers_are_rejected():
    assert verdict(traffic(0.6, 20, length=2.0), POLICY) is Outcome.REJECT


def test_a_measurement_that_would_not_decide_ends_at_half():
    assert not is_decided(traffic(0.97, 14), POLICY)
    assert is_decided(traffic(0.97, 15), POLICY)


def counters(requests, seconds=0.0, **more):
    return Counters(
        generation_tokens=100.0 * requests, tpot_count=requests, tpot_seconds=seconds, **more
    )


def reading(at, ours, theirs, **more):
    return ArmsReading(at, {"a": theirs}, {"c": ours}, **more)


def test_a_window_is_as_long_as_its_requests_and_its_seconds_ask():
    cutter = WindowCutter(60.0, 12, begins_at=100.0)
    items = [(0, 0), (100, 4), (150, 14), (160, 15), (170, 16), (230, 40)]
    full = [cutter.add(reading(t, counters(n, n / 10.0), counters(n, n / 10.0))) for t, n in items]
    assert [w and (w.seconds, w.candidate.tpot_count) for w in full] == [
        None,
        None,
        None,
        None,
        (70, 12),
        (60, 24),
    ]


def test_a_pod_of_the_baseline_that_restarts_begins_the_window_again():
    cutter = WindowCutter(60.0, 12)
    assert cutter.add(reading(0, counters(0), counters(9, 1.0, started=1.0))) is None
    assert cutter.add(reading(60, counters(20, 2.0), counters(1, 0.1, started=2.0))) is None
    assert (
        cutter.add(
            reading(120, counters(40, 4.0), counters(21, 2.1, started=2.0))
        ).baseline.tpot_count
        == 20
    )


def test_what_follows_a_change_of_weights_does_not_count():
    engine = counters(
        10, latency_seconds=120.0, latency_count=10.0, latency_buckets=((200.0, 10.0),)
    )
    assert reading(0, engine, counters(1)).settle_s(60.0) == 200.0
    engine = counters(10, latency_seconds=90.0, latency_count=10.0, latency_buckets=((20.0, 10.0),))
    assert reading(0, engine, counters(1)).settle_s(60.0) == 90.0
    assert reading(0, counters(1), counters(1)).settle_s(60.0) == 60.0


def test_waiting_requests_in_two_readings_stop_a_candidate_while_none_waits_on_the_baseline():
    def stopped(theirs):
        harm, why = HarmWatch(POLICY), []
        for number in range(3):
            part = TrafficWindow(5.0, 1, window(), window(requests=0))
            why.append(
                harm.add(
                    part, reading(number, counters(0, waiting=2.0), counters(0, waiting=theirs))
                )
            )
        return why

    assert stopped(1.0) == ["", "", ""]
    harm, part = HarmWatch(POLICY), TrafficWindow(5.0, 1, window(), window(requests=0))
    unread = ArmsReading(0, {}, {"c": counters(0, waiting=2.0)})
    assert [harm.add(part, unread) for _ in range(3)] == ["", "", ""]
    assert stopped(0.0)[1] == "2 requests wait on the candidate and none on the baseline"


@pytest.mark.parametrize(("ratio", "most"), [(2.0, 14), (4.0, 10)])
def test_a_slow_candidate_is_stopped_after_a_few_requests(ratio, most):
    harm = HarmWatch(POLICY, steps=6)
    for count in range(1, 40):
        part = TrafficWindow(5.0, 1, window(requests=10), window(10 * ratio, 1))
        if harm.add(part, reading(count, counters(0), counters(0))):
            break
    assert count <= most


@pytest.mark.parametrize(("ratio", "stopped"), [(1.15, False), (1.4, True)])
def test_a_pod_is_stopped_only_for_more_than_equal_pods_may_differ_by(ratio, stopped):
    """Pods of one manifest with a standard deviation of 3 % each are more than 5 % apart in every eighth pair."""
    part = TrafficWindow(5.0, 1, window(requests=20), window(10.0 * ratio))
    harm, narrow = HarmWatch(POLICY), HarmWatch(replace(POLICY, max_pod_gap=0.0))
    ends = [
        any(watch.add(part, reading(n, counters(0), counters(0))) for n in range(16))
        for watch in (harm, narrow)
    ]
    assert ends == [stopped, True]


def test_a_small_load_that_flattered_a_candidate_does_not_hide_a_larger_one():
    harm = HarmWatch(POLICY, steps=6)
    fast = TrafficWindow(5.0, 1, window(requests=100), window(4.0, 100))
    assert not harm.add(fast, reading(0, counters(0), counters(0)))
    harm.begin_step()
    slow = TrafficWindow(5.0, 1, window(requests=40), window(30.0, 20))
    assert harm.add(slow, reading(1, counters(0), counters(0)))


def test_a_burst_that_slows_a_candidate_late_in_a_step_stops_it():
    harm = HarmWatch(POLICY, steps=6)
    fast = TrafficWindow(5.0, 1, window(), window())
    assert not any(
        harm.add(fast, reading(number, counters(0), counters(0))) for number in range(16)
    )
    assert harm.requests == 320
    slow = TrafficWindow(5.0, 1, window(), window(30.0))
    assert harm.add(slow, reading(16, counters(0), counters(0)))
    assert harm.requests == 340


@pytest.mark.parametrize("copies", [False, True])
def test_equal_pods_that_differ_by_3_percent_are_rarely_told_apart(copies):
    """scripts/users-table has 500 runs of each."""
    counter = Counter(judged(Case(rate=1.0, copies=copies), seed).outcome for seed in range(40))
    assert counter[Outcome.UNDECIDED] >= 38


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize(("speed", "outcome"), [(1.8, Outcome.PROMOTE), (0.5, Outcome.REJECT)])
def test_a_large_difference_is_seen_in_half_an_hour(speed, outcome, copies):
    case = Case(at_speed(speed, 1.0), 1.0, copies=copies)
    assert all(judged(case, seed).outcome is outcome for seed in range(5))


def test_a_split_stops_a_candidate_at_half_the_speed_before_it_slows_many_and_keeps_an_equal_one():
    slowed = sorted(harmed(Case(at_speed(0.5, 1.0), 1.0), seed).slowed for seed in range(10))
    assert slowed[5] <= 25
    assert all(harmed(Case(PLAIN, 1.0), seed).share is None for seed in range(3))
    assert harmed(Case(CROSSOVER, 4.0), 1).share in (20, 40, 50)
