from __future__ import annotations

import pytest

from tests.simulation.hpa import Behavior, History, Limits, Policy, desired_replicas, raw_replicas

PLAIN = Behavior(0, (Policy(15, percent=100), Policy(15, pods=4)), 300, (Policy(15, percent=100),))


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([1000, 1000], 2),
        ([1090, 1090], 2),  # inside the tolerance
        ([1500, 1500], 3),
        ([3000, 0], 3),
        ([0, 0], 0),
        ([4000, None], 4),  # the missing pod counts as 0: 4000 / 2 = 2000, twice the target
        (
            [1500, None],
            2,
        ),  # counted as 0 the ratio falls below 1: no change, never the other direction
        ([500, None], 2),  # counted as the target: 750 on the mean of two, ceil(1.5)
        ([None, None], 2),
    ],
)
def test_the_ratio_and_the_missing(values: list[float | None], wanted: int) -> None:
    assert raw_replicas(values, 1000) == wanted


def run(loads: list[tuple[float, float]], limits: Limits, replicas: int) -> list[int]:
    """The replicas after each (time, value that every pod shows)."""
    history, out = History(), []
    for now, value in loads:
        replicas, history = desired_replicas(now, [value] * replicas, limits, history)
        out.append(replicas)
    return out


def test_scaling_up_waits_for_nothing_and_orders_a_double_or_four_pods_a_minute() -> None:
    limits = Limits(1000, 1, 16)
    loads = [
        (0.0, 0.0),
        (15.0, 9000.0),
        (30.0, 9000.0),
        (45.0, 9000.0),
        (60.0, 9000.0),
        (240.0, 9000.0),
    ]
    assert run(loads, limits, 2) == [2, 6, 6, 6, 6, 12]


def test_the_default_windows_take_every_gpu_at_once() -> None:
    assert run([(0.0, 9000.0), (15.0, 9000.0)], Limits(1000, 1, 16, PLAIN), 2) == [6, 12]


def test_scaling_down_waits_for_the_window_and_goes_one_by_one() -> None:
    limits = Limits(1000, 1, 16)
    loads = [(float(t), 1000.0 if t == 0 else 0.0) for t in range(0, 1800, 15)]
    course = run(loads, limits, 4)
    steps = [(loads[i][0], n) for i, n in enumerate(course) if i and n != course[i - 1]]
    assert steps == [(900.0, 3), (1200.0, 2), (1500.0, 1)]


def test_limits_hold() -> None:
    assert run([(0.0, 99_000.0)], Limits(1000, 1, 3, PLAIN), 2) == [3]
    assert run([(0.0, 0.0), (400.0, 0.0)], Limits(1000, 2, 3, PLAIN), 3)[-1] == 2
