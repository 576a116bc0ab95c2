"""The e-processes of ``scripts/gate-table --anytime``."""

from __future__ import annotations

import importlib
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t as student

from tests.simulation.measurements import Truth

COUNT, ROUNDS = 4000, 40
NEVER = 1e300  # evidence that no measurement reaches


@pytest.fixture
def anytime(monkeypatch):
    """The module of the prototype."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "scripts"))
    return importlib.import_module("gate_anytime")


@pytest.fixture
def measured(anytime):
    """Simulated measurements of so many pairs."""
    return importlib.import_module("gate_noise").measured


def evidence_of(rounds, anytime, prior):
    """The evidence after each round from the second on, of many measurements."""
    columns = []
    for count in range(2, rounds.shape[1] + 1):
        part = rounds[:, :count]
        t = part.mean(1) / part.std(1, ddof=1) * math.sqrt(count)
        columns.append(np.exp(anytime.log_evidence(t, count, prior)))
    return np.stack(columns, 1)


@pytest.mark.parametrize("count", [5, 6, 20, 47, 191])
def test_the_evidence_of_a_number_of_rounds_is_one_on_average(count, anytime):
    """The integral over the distribution of t where nothing differs."""
    t = np.sinh(np.linspace(-7, 7, 20_001))
    for prior in anytime.PRIORS.values():
        evidence = np.exp(anytime.log_evidence(t, count, prior))
        assert np.trapezoid(evidence * student.pdf(t, count - 1), t) == pytest.approx(1, abs=0.02)


def test_the_evidence_of_equal_arms_is_at_most_one_on_average_whenever_it_is_stopped(anytime):
    rounds = np.random.default_rng(3).normal(0.0, 0.3, (COUNT, ROUNDS))
    evidence = evidence_of(rounds, anytime, anytime.Anytime().prior)
    each = np.arange(COUNT)

    def first(reached):
        return evidence[each, np.where(reached.any(1), reached.argmax(1), -1)].mean()

    stops = {
        "after eight rounds": evidence[:, 6].mean(),
        "at the end": evidence[:, -1].mean(),
        "once it is 3": first(evidence >= 3),
        "once it is 10": first(evidence >= 10),
        "once it has halved": first(evidence <= 0.5),
    }
    assert max(stops.values()) <= 1.15, stops
    assert (evidence.max(1) >= 20).mean() <= 1 / 20  # Ville


def test_the_evidence_of_a_normal_prior_agrees_with_its_closed_form(anytime):
    """Both halves of the prior together: Rouder and others, Psychonomic Bulletin & Review 16, 2009, for one scale."""
    t, count, scale = np.linspace(-6, 6, 25), 12, 0.8
    both = [
        np.exp(anytime.log_evidence(side * t, count, anytime.half_normal(scale, 400)))
        for side in (1, -1)
    ]
    shrunk = 1 + count * scale**2
    closed = shrunk**-0.5 * ((1 + t**2 / (count - 1)) / (1 + t**2 / (count - 1) / shrunk)) ** (
        count / 2
    )
    assert np.allclose((both[0] + both[1]) / 2, closed, rtol=0.01)


@pytest.fixture
def alone(anytime):
    """Time per token alone, with the same evidence to promote and to reject, and no other end."""
    return anytime.Anytime(gain=20.0, loss=20.0, equal_at=NEVER, least_chance=0.0, judged=("time",))


def test_arms_that_change_places_change_the_side_of_the_evidence(anytime, alone, measured):
    base, cand = measured(Truth(tpot=0.7, prompts=2), 40, 5)
    never = replace(alone, gain=NEVER, loss=NEVER)
    forth, back = (
        anytime.decide(*arms, never, pod_gap=0.0).evidence["time"]
        for arms in ((base, cand), (cand, base))
    )
    assert np.allclose(forth, back[::-1])
    assert (anytime.decide(base, cand, alone, pod_gap=0.0).outcomes == 1).sum() >= 35
    assert (anytime.decide(cand, base, alone, pod_gap=0.0).outcomes == -1).sum() >= 35


def test_the_evidence_of_two_measurements_multiplies(anytime, alone, measured):
    never = replace(alone, gain=NEVER, loss=NEVER)
    parts = [measured(Truth(tpot=0.95, prompts=2), 10, seed) for seed in (5, 6)]
    first, second = (anytime.decide(*part, never, pod_gap=0.0).evidence["time"] for part in parts)
    carried = anytime.decide(*parts[0], never, pod_gap=0.0).evidence
    both = anytime.decide(*parts[1], never, pod_gap=0.0, carried=carried).evidence["time"]
    for side in (0, 1):
        assert np.allclose(both[side], first[side] + second[side])


def test_arms_that_hardly_differ_end_as_equal(anytime, alone, measured):
    design = replace(alone, equal=0.1, equal_at=20.0)
    quiet = Truth(prompts=2, block_sigma=0.01, request_sigma=0.05)
    ends = anytime.decide(*measured(quiet, 40, 5), design, pod_gap=0.0)
    assert ends.equal.mean() >= 0.9
    assert not (ends.equal & (ends.outcomes != 0)).any()
