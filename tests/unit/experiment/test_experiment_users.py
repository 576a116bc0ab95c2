"""Users are told by the counters of the serving engines."""

from dataclasses import replace

import pytest

from mpctl.experiment.counters import Counters
from mpctl.experiment.users import FEW, earlier_rate, pod_gap, unfinished_between, user_load

NOW = 10_000.0


def engine(answered=0.0, tokens=0.0, prompts=0.0, age=1000.0, **more):
    return Counters(
        generation_tokens=tokens,
        prompt_tokens=prompts,
        latency_count=answered,
        latency_seconds=2.0 * answered,
        started=NOW - age,
        **more,
    )


def read(before, after, earlier=0.0):
    return user_load({"pod": before}, {"pod": after}, 10.0, earlier)


def test_requests_answered_between_two_readings_are_of_users():
    load = read(engine(100, 1000), engine(120, 1200))
    assert load.seen
    assert load.requests_per_s == pytest.approx(2.0)
    assert load.answer_s == pytest.approx(2.0)
    assert load.in_words == "users send 2 requests/s to 1 pod"


def test_a_request_that_runs_or_waits_is_seen_before_it_is_answered():
    assert read(engine(), engine(running=1.0)).seen
    assert read(engine(), engine(waiting=1.0)).seen
    assert read(engine(), engine(prompts=500)).seen  # a prompt that is read makes no token yet


def test_health_probes_that_make_no_token_are_no_users():
    assert not read(engine(100, 1000), engine(105, 1000)).seen


def test_no_user_is_said_with_the_rate_that_may_have_been_missed():
    load = read(engine(), engine())
    assert not load.seen
    assert load.in_words == "no user was seen in 10 s: fewer than 0.3 requests/s at 95 %"


def test_all_pods_count_and_a_pod_that_restarted_meanwhile_counts_by_what_runs_on_it():
    before = {"a": engine(10, 100), "b": engine(10, 100), "c": engine(10, 100)}
    after = {"a": engine(20, 200), "b": engine(30, 300), "c": engine(1, 10, age=5.0)}
    load = user_load(before, after, 10.0, 0.0)
    assert (load.pods, load.requests_per_s) == (3, pytest.approx(3.0))


def test_a_long_answer_that_nothing_joined_has_the_rate_since_the_start():
    load = read(engine(tokens=100, running=1.0), engine(tokens=200, running=1.0), earlier=0.25)
    assert load.requests_per_s == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("answered", "own", "rate"),
    [(500, 0.0, 0.5), (500, 250.0, 0.25), (500, 600.0, 0.0), (FEW - 1, 0.0, 0.0)],
    ids=["of users", "half of them mpctl's", "all mpctl's", "somebody tried it out"],
)
def test_requests_since_the_start_are_counted_without_those_of_mpctl(answered, own, rate):
    assert earlier_rate({"pod": engine(answered)}, NOW, own) == pytest.approx(rate)


def test_users_that_came_before_are_reported_though_none_is_seen():
    load = read(engine(), engine(), earlier=0.5)
    assert (load.seen, load.earlier) == (False, True)
    assert "users sent 0.5 requests/s since the engines started" in load.in_words


def timed(ms, count=4000, **more):
    """The counters of a pod that took ``ms`` per output token."""
    return engine(count, 100 * count, tpot_seconds=ms / 1000 * count, tpot_count=count, **more)


@pytest.mark.parametrize(
    ("pods", "gap"),
    [
        ([timed(10), timed(10.8)], 0.08),
        ([timed(10), timed(10.8), timed(10.4)], 0.08),
        ([timed(10, 100), timed(10.8, 100)], 0.0),
        ([timed(10), timed(10.8, 2000)], 0.0),
        ([timed(10), engine(4000)], 0.0),
        ([timed(10)], 0.0),
    ],
    ids=["two", "three", "may be chance", "another load or age", "one tells no time", "one pod"],
)
def test_pods_of_one_service_that_differ_in_speed(pods, gap):
    read = {str(number): pod for number, pod in enumerate(pods)}
    assert pod_gap(read, read) == pytest.approx(gap)


def test_a_pod_that_restarted_between_the_readings_shows_no_difference():
    assert (
        pod_gap({"a": timed(10), "b": timed(12)}, {"a": timed(10), "b": timed(12, age=5.0)}) == 0.0
    )


@pytest.mark.parametrize(("slower", "noted"), [(10.4, False), (10.8, True)])
def test_a_difference_between_pods_above_5_percent_is_said(slower, noted):
    before = {"a": timed(10), "b": timed(slower)}
    after = {
        name: replace(pod, generation_tokens=pod.generation_tokens + 100)
        for name, pod in before.items()
    }
    sentence = user_load(before, after, 10.0, 1.0).in_words
    assert sentence.endswith(", whose times per output token differ by 8 %") is noted


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        ({"a": engine(unfinished=3.0)}, {"a": engine(unfinished=5.0)}, 2.0),
        ({"a": engine(unfinished=3.0)}, {"a": engine(unfinished=1.0, age=5.0)}, 1.0),
        ({"a": engine()}, {"a": engine(unfinished=2.0)}, 2.0),
        ({"a": engine(unfinished=3.0)}, {"b": engine(unfinished=1.0)}, 1.0),
        ({"a": engine(unfinished=3.0)}, {"a": engine(unfinished=3.0), "b": engine()}, 0.0),
        ({"a": engine()}, {"a": engine()}, None),
        ({}, {}, None),
    ],
)
def test_aborted_and_failed_requests_between_two_readings(before, after, lost):
    assert unfinished_between(before, after) == lost
