from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpctl.errors import InputError
from stacks.services.autoscaling import (
    FLOOR_MS,
    REACTION_S,
    queue_wait_target,
    reachable_objective_s,
)


def peak_ms(target_ms: float, cold_s: float, growth: float) -> float:
    """The wait when the ordered replica is ready, by the model and not by the formula under test."""
    per_second = growth / 60
    ordered = math.sqrt(2 * target_ms / 1000 / per_second)
    return 1000 * per_second * (ordered + cold_s) ** 2 / 2


def test_the_manifests_numbers() -> None:
    answer = queue_wait_target(slo_ms=8000, start_s=150, growth_per_minute=0.01)
    assert answer.holds
    assert answer.target_ms == 1400
    assert answer.debt_ms == pytest.approx(2700)


@given(
    slo=st.floats(500, 60_000),
    start=st.floats(0, 600),
    growth=st.floats(0.0005, 0.2),
)
def test_ordering_at_the_target_keeps_the_objective(
    slo: float, start: float, growth: float
) -> None:
    answer = queue_wait_target(slo_ms=slo, start_s=start, growth_per_minute=growth)
    peak = peak_ms(answer.target_ms, start + REACTION_S, growth)
    if answer.holds:
        assert peak <= slo * 1.0001
        assert answer.target_ms <= slo - answer.debt_ms + 0.001
    else:
        assert peak_ms(FLOOR_MS, start + REACTION_S, growth) > slo * 0.9999


@given(start=st.floats(0, 500), longer=st.floats(0, 300))
def test_a_longer_cold_start_never_raises_the_target(start: float, longer: float) -> None:
    soon = queue_wait_target(slo_ms=8000, start_s=start)
    late = queue_wait_target(slo_ms=8000, start_s=start + longer)
    assert late.target_ms <= soon.target_ms


def test_a_debt_beyond_the_objective_says_what_would_help() -> None:
    answer = queue_wait_target(slo_ms=8000, start_s=600)
    assert not answer.holds
    assert answer.target_ms == FLOOR_MS
    assert "start in under 225 s or keep spare replicas" in answer.reason
    assert queue_wait_target(slo_ms=8000, start_s=225).holds
    assert not queue_wait_target(slo_ms=8000, start_s=226).holds


@given(start=st.floats(0, 3600))
def test_an_objective_that_nobody_chose_is_kept_by_the_usual_target(start: float) -> None:
    objective_s = reachable_objective_s(start)
    answer = queue_wait_target(slo_ms=1000 * objective_s, start_s=start)
    assert answer.holds and answer.target_ms >= 1400
    assert objective_s == 8 if start <= 150 else objective_s >= 8


def test_when_even_an_instant_start_is_too_late() -> None:
    answer = queue_wait_target(slo_ms=300, start_s=0, growth_per_minute=1.0)
    assert answer.reason.endswith(": keep spare replicas")


@pytest.mark.parametrize("field", ["slo_ms", "start_s", "growth_per_minute"])
@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_numbers_that_are_none(field: str, value: float) -> None:
    with pytest.raises(InputError, match=field):
        queue_wait_target(**{"slo_ms": 8000, "start_s": 150, field: value})  # type: ignore[arg-type]
