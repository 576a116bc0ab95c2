from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.queueing import AUTOSCALERS, STEADY, WORKLOADS, Autoscaler, Pod, Run, Scenario, queue_wait_ms

CPU, WAITING, QUEUE, HELD = AUTOSCALERS
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


def test_a_constant_load_is_given_no_pod_up_while_pods_are_busy() -> None:
    constant = Scenario(
        WORKLOADS[0], pods=3, utilisation=1.7 / 3, factor=1.0, minimum=1, length_s=4 * 3600, settle_s=2 * 3600
    )
    alone, held = (Run(constant, autoscaler, 1).result() for autoscaler in (QUEUE, HELD))
    assert alone.scale_downs > 2
    assert held.scale_downs == 0
    assert held.over_slo < 0.01 < 1.05 * alone.mean_pods / held.mean_pods


def test_the_metric_is_the_larger_half_and_zero_when_idle() -> None:
    pod = Pod(0, 0, 4)
    pod.scrapes.extend((float(t), 0, 5, 2.5, 5, 0) for t in range(0, 70, 10))
    assert queue_wait_ms(pod) == 0
    pod.scrapes[-1] = (60.0, 0, 15, 22.5, 15, 4)
    assert queue_wait_ms(pod) == pytest.approx(2000)
    for back in (1, 2, 3):
        at, _, *rest = pod.scrapes[-back]
        pod.scrapes[-back] = (at, 6, *rest)  # type: ignore[assignment]
    assert queue_wait_ms(pod) == pytest.approx(1000 * 6 / (10 / 60))


def test_the_settings_for_long_requests_settle_under_constant_load():
    """Six hours of 40-second requests: no scale-down, and no more pods than they need."""
    scenario = Scenario(WORKLOADS[1], 3, 1.7 / 3, 1.0, length_s=8 * 3600, settle_s=2 * 3600, minimum=1)
    steady, held = Run(scenario, STEADY, 1).result(), Run(scenario, HELD, 1).result()
    assert steady.scale_downs == 0 < held.scale_downs
    assert steady.over_slo < 0.01 and steady.mean_pods < held.mean_pods
