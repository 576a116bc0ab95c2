from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.simulation.hpa import raw_replicas
from tests.simulation.queueing import (
    AUTOSCALERS,
    FEWEST,
    RIVALS,
    WORKLOADS,
    Autoscaler,
    Pod,
    Run,
    Scenario,
    queue_wait_ms,
)

CPU, WAITING, QUEUE, SHIPPED = AUTOSCALERS
CHAT = Scenario(WORKLOADS[0], length_s=2700, step_at_s=600, step_for_s=1500)


def test_the_same_seed_gives_the_same_run() -> None:
    assert Run(CHAT, QUEUE, 7).result() == Run(CHAT, QUEUE, 7).result()
    assert Run(CHAT, QUEUE, 7).result() != Run(CHAT, QUEUE, 8).result()


def test_without_scaling_an_overloaded_service_is_late_and_never_has_enough() -> None:
    result = Run(CHAT, Autoscaler("none", lambda _: 0.0, 1.0), 1).result()
    assert result.enough_s is None
    assert result.over_slo > 0.4
    assert result.gpu_hours == pytest.approx(2 * CHAT.length_s / 3600)


def test_cpu_does_not_see_the_queue() -> None:
    result = Run(CHAT, CPU, 1).result()
    assert result.ordered_s is None


def test_a_queue_signal_scales_within_two_cold_starts() -> None:
    for autoscaler in (WAITING, QUEUE):
        result = Run(CHAT, autoscaler, 1).result()
        assert result.enough_s is not None
        assert result.enough_s < 2 * CHAT.start_s
        assert result.over_slo < 0.3


def test_without_a_step_nothing_is_ordered() -> None:
    result = Run(replace(CHAT, factor=1.0), QUEUE, 1).result()
    assert result.over_slo < 0.01


@pytest.mark.parametrize("share", [1.7, 2.6])
def test_under_constant_load_the_shipped_autoscaler_gives_no_pod_up(share: float) -> None:
    """Six hours of the noisiest load: 40-second requests, whose queues come by chance."""
    pods = math.ceil(share) + 1
    scenario = Scenario(
        WORKLOADS[1], pods, share / pods, 1.0, length_s=8 * 3600, settle_s=2 * 3600, minimum=1
    )
    alone, shipped = (Run(scenario, autoscaler, 1).result() for autoscaler in (QUEUE, SHIPPED))
    assert alone.scale_downs > 20 and alone.over_slo > 0.02
    assert shipped.scale_downs == 0
    assert shipped.over_slo < 0.01
    assert shipped.mean_pods < 1.05 * alone.mean_pods


def test_a_step_is_answered_no_later_than_by_queue_wait_alone() -> None:
    alone, shipped = (
        Run(Scenario(WORKLOADS[1]), autoscaler, 1).result() for autoscaler in (QUEUE, SHIPPED)
    )
    assert shipped.ordered_s is not None and alone.ordered_s is not None
    assert shipped.ordered_s <= alone.ordered_s
    assert shipped.over_slo <= alone.over_slo


def test_between_bursts_default_windows_give_up_what_the_next_one_needs() -> None:
    scenario = Scenario(
        WORKLOADS[1], length_s=3 * 3600, minimum=1, settle_s=3600, burst_s=(120, 900)
    )
    theirs, plain, shipped = (
        Run(scenario, autoscaler, 1).result() for autoscaler in (*RIVALS, SHIPPED)
    )
    assert theirs.over_slo > 0.1 and theirs.scale_downs > 10
    assert plain.over_slo < 0.05 and shipped.over_slo < 0.05
    assert plain.mean_pods < shipped.mean_pods


def test_the_targets_for_fewest_pods_answer_a_step_as_soon_with_fewer_pods() -> None:
    shipped, cheap = (Run(CHAT, autoscaler, 1).result() for autoscaler in (SHIPPED, FEWEST))
    assert cheap.ordered_s is not None and shipped.ordered_s is not None
    assert cheap.ordered_s <= shipped.ordered_s
    assert cheap.gpu_hours < shipped.gpu_hours
    assert cheap.over_slo < shipped.over_slo + 0.01


def test_what_holds_pods_orders_none() -> None:
    """Pods are full of running requests, nobody waits, and only the hold is asked."""
    pods = [Pod(0, 0, 4), Pod(0, 0, 4)]
    for pod in pods:
        pod.scrapes.extend((float(t), 0, 5, 0.0, 5, 4) for t in range(0, 70, 10))
    ((values, target),) = replace(SHIPPED, busy=None).others(pods)
    assert raw_replicas(values, target) == 2
    ((full, most),) = replace(SHIPPED, hold=None).others(pods)
    assert raw_replicas(full, most) == 3


def test_the_metric_is_the_larger_half_and_zero_when_idle() -> None:
    pod = Pod(0, 0, 4)
    pod.scrapes.extend((float(t), 0, 5, 2.5, 5, 0) for t in range(0, 70, 10))
    assert queue_wait_ms(pod) == 0
    pod.scrapes[-1] = (60.0, 0, 15, 22.5, 15, 4)
    assert queue_wait_ms(pod) == pytest.approx(2000)
    for back in range(1, 7):
        at, _, *rest = pod.scrapes[-back]
        pod.scrapes[-back] = (at, 6, *rest)  # type: ignore[assignment]
    assert queue_wait_ms(pod) == pytest.approx(1000 * 6 / (10 / 60))
