"""The choice of the engines that are measured beside users: the table, and every refusal before anything starts."""

from dataclasses import replace

import pytest

from mpctl.errors import Refused
from mpctl.experiment.users import Placement, UserLoad
from mpctl.experiment.workload import Traffic, Workload
from mpctl.rollout.placement import PlacementWishes, Room, at_users_load, choose_placement, in_turns

BUSY = UserLoad(2.1, 3, seen=True, window_s=10.0, earlier_per_s=2.0)
QUIET = UserLoad(0.0, 3, seen=False, window_s=10.0)
EARLIER = replace(QUIET, earlier_per_s=0.5)
NO_ROUTE = "no HTTPRoute of a user leads to the service"
TWO = Room(2, mirror_fault=NO_ROUTE, split_fault=NO_ROUTE, start_s=60.0, block_s=120.0)
ONE = replace(TWO, engines=1, shortage="2 GPUs are wanted, 1 is free")
NONE = replace(TWO, engines=0, shortage="no GPU is free")
ROUTED = replace(ONE, mirror_fault="", split_fault="")


def chosen(users, room, **asked):
    return choose_placement(users, room, PlacementWishes(**asked)).placement


@pytest.mark.parametrize("room", [NONE, ONE, TWO, ROUTED])
def test_without_users_the_serving_baseline_is_measured(room):
    assert chosen(QUIET, room) is Placement.SERVICE


def test_users_who_came_before_are_reason_enough_for_a_pair_but_for_no_refusal():
    assert chosen(EARLIER, TWO) is Placement.PAIR
    assert chosen(EARLIER, NONE) is Placement.SERVICE
    assert chosen(EARLIER, TWO, placement=Placement.SERVICE) is Placement.SERVICE


HOURS = 3600.0
OLD = replace(QUIET, age_s=30 * HOURS)


@pytest.mark.parametrize(
    ("users", "room", "placement"),
    [
        (OLD, TWO, Placement.PAIR),
        (OLD, ONE, Placement.TURNS),
        (OLD, replace(ONE, start_s=3600.0), Placement.SERVICE),
        (OLD, NONE, Placement.SERVICE),
        (replace(OLD, age_s=6 * HOURS), TWO, Placement.SERVICE),
        (replace(QUIET, age_s=0.0), TWO, Placement.SERVICE),
        (replace(EARLIER, age_s=30 * HOURS), ONE, Placement.TURNS),
        (replace(BUSY, age_s=30 * HOURS), ROUTED, Placement.MIRROR),
    ],
)
def test_an_old_baseline_without_users_is_measured_by_a_fresh_copy_where_one_fits(
    users, room, placement
):
    """An engine that got 1.3x slower with age against a fresh candidate of the same speed looks like a gain."""
    choice = choose_placement(users, room, PlacementWishes(max_age_s=6 * HOURS))
    assert choice.placement is placement
    assert (
        "The service has been running for 30 h, above max_baseline_age of 6 h" in choice.in_words
    ) == (users.age_s > 6 * HOURS)
    restart = "restart the service first, and both arms are as old" in choice.in_words
    assert restart == (placement is Placement.SERVICE and users.age_s > 6 * HOURS)


def test_whoever_asks_for_the_old_service_itself_is_told_its_age():
    wishes = PlacementWishes(Placement.SERVICE, max_age_s=6 * HOURS)
    choice = choose_placement(OLD, TWO, wishes)
    assert choice.placement is Placement.SERVICE
    assert "a fresh candidate may be faster for that alone" in choice.why


@pytest.mark.parametrize(
    ("room", "asked", "placement"),
    [
        (TWO, {}, Placement.PAIR),
        (replace(ROUTED, engines=2), {}, Placement.PAIR),
        (ROUTED, {}, Placement.MIRROR),
        (replace(ROUTED, mirror_fault="GatewayClass lists no mirror"), {}, Placement.TURNS),
        (
            replace(ROUTED, mirror_fault="GatewayClass lists no mirror"),
            {"users_share": 25},
            Placement.SPLIT,
        ),
        (ONE, {}, Placement.TURNS),
    ],
)
def test_the_table_of_placements_beside_users(room, asked, placement):
    assert chosen(BUSY, room, **asked) is placement


def test_the_question_says_load_choice_time_and_what_else_is_possible():
    text = choose_placement(BUSY, ROUTED, PlacementWishes()).in_words
    assert text.startswith(
        "Users send 2.1 requests/s to 3 pods. The baseline cannot be measured while they do. The candidate gets "
        "copies of users' requests, about 13 min, users unaffected. Judged at 0.7 requests/s per pod; saturation is "
        "not judged."
    )
    assert (
        "A quiet pair (--measure-on pair): needs room for 2 engines, 1 is free (2 GPUs are wanted, 1 is free)"
        in text
    )
    assert (
        "Splitting (--measure-on split): needs your consent that 25 % of users' requests meet the candidate: "
        "--users-share 25." in text
    )


def test_a_split_says_how_many_users_a_slow_candidate_harms():
    text = choose_placement(BUSY, ROUTED, PlacementWishes(Placement.SPLIT, users_share=25)).in_words
    assert (
        "25 % of users' requests meet the candidate; if it is half as fast, about 25 are slowed first"
        in text
    )
    assert "Judged at 0.53 requests/s per pod; saturation is not judged." in text


SLOW = replace(ONE, start_s=3600.0)
RARE = replace(BUSY, requests_per_s=0.15)
UNEVEN = replace(BUSY, pod_gap=0.14)


@pytest.mark.parametrize(
    ("users", "room", "asked", "message"),
    [
        (BUSY, NONE, {}, "needs room for 2 engines, none is free"),
        (BUSY, SLOW, {}, "above measure_limit of 180 min"),
        (
            BUSY,
            TWO,
            {"placement": Placement.SERVICE},
            "the baseline cannot be measured while they do",
        ),
        (BUSY, ONE, {"placement": Placement.PAIR}, "needs room for 2 engines, 1 is free"),
        (BUSY, SLOW, {"placement": Placement.TURNS}, "10 engine starts take 3600 s each"),
        (
            BUSY,
            replace(ONE, pairs=4),
            {"placement": Placement.TURNS},
            "4 pairs of turns decide nothing",
        ),
        (BUSY, ONE, {"placement": Placement.MIRROR}, NO_ROUTE),
        (BUSY, ROUTED, {"placement": Placement.MIRROR, "mirror": 10}, "a promotion needs 33 %"),
        (
            BUSY,
            ROUTED,
            {"placement": Placement.MIRROR, "limit_s": 600.0},
            "above measure_limit of 10 min",
        ),
        (RARE, ROUTED, {"placement": Placement.MIRROR}, "at least 0.1 are needed"),
        (QUIET, ROUTED, {"placement": Placement.MIRROR}, "no user was seen"),
        (
            UNEVEN,
            ROUTED,
            {"placement": Placement.MIRROR},
            "differ by 14 %, so no candidate pod can be judged",
        ),
        (
            UNEVEN,
            ROUTED,
            {"placement": Placement.SPLIT, "users_share": 25},
            "max_pod_gap of the policy allows for 10 %",
        ),
        (
            BUSY,
            ROUTED,
            {"placement": Placement.SPLIT},
            "needs your consent that 25 % of users' requests",
        ),
        (
            BUSY,
            ROUTED,
            {"placement": Placement.SPLIT, "users_share": 40},
            "40 % load the candidate more",
        ),
        (
            BUSY,
            ROUTED,
            {"placement": Placement.SPLIT, "users_share": 5},
            "5 % load the candidate less",
        ),
        (BUSY, replace(NONE, fault="groups of pods"), {}, "groups of pods"),
        (
            replace(BUSY, requests_per_s=200.0, pods=101),
            ROUTED,
            {"placement": Placement.MIRROR},
            "101 pods serve, so not even 1 % of the requests loads a candidate pod",
        ),
    ],
)
def test_what_cannot_be_measured_fairly_is_refused_with_what_it_needs(users, room, asked, message):
    with pytest.raises(Refused) as caught:
        choose_placement(users, room, PlacementWishes(**asked))
    assert message in caught.value.message
    assert caught.value.exit_code == 9
    assert "take the service out of traffic" in caught.value.hint


def test_turns_send_the_same_prompts_in_few_blocks():
    workload = Workload((Traffic("edits", tuple(map(str, range(98)))),), repeats=48, requests=2)
    turns = in_turns(workload)
    assert (turns.repeats, turns.requests) == (6, 16)
    assert in_turns(replace(workload, repeats=5)).repeats == 5
    assert in_turns(replace(workload, repeats=3)).repeats == 3


def test_pods_that_differ_more_than_the_gate_allows_leave_turns_on_one_gpu():
    assert chosen(UNEVEN, ROUTED) is Placement.TURNS
    assert chosen(UNEVEN, ROUTED, max_pod_gap=0.15) is Placement.MIRROR
    assert (
        "3 pods, whose times per output token differ by 14 %."
        in choose_placement(UNEVEN, TWO, PlacementWishes()).in_words
    )


@pytest.mark.parametrize(
    ("in_flight", "rounds", "concurrency", "repeats"),
    [
        (0.4, None, 1, 24),
        (3.2, None, 3, 16),
        (6.0, None, 6, 8),
        (40.0, None, 6, 8),
        (40.0, 5, 9, 5),
        (6.0, 8, 6, 8),
    ],
)
def test_a_copy_gets_as_many_requests_at_once_as_a_pod_of_the_users_has(
    in_flight, rounds, concurrency, repeats
):
    workload = Workload(
        (Traffic("edits", tuple(map(str, range(98)))),), repeats=rounds or 24, requests=4
    )
    users = UserLoad(3 * in_flight, 3, seen=True, window_s=10.0, answer_s=1.0)
    loaded = at_users_load(workload, users, rounds=rounds)
    assert (loaded.concurrency, loaded.repeats) == ((concurrency,), repeats)


def test_prompts_that_are_used_again_reach_every_load():
    workload = Workload(
        (Traffic("edits", tuple(map(str, range(98)))),), repeats=24, requests=4, reuse=True
    )
    users = UserLoad(40.0, 1, seen=True, window_s=10.0, answer_s=1.0)
    assert at_users_load(workload, users, rounds=None).concurrency == (40,)
