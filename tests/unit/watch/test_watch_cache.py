"""CacheLost: what the prefix cache holds of users' prompts, against what it held before the promotion."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from run_samples import make_run
from test_watch_assess import REFERENCE, engine

from mpctl.errors import InputError
from mpctl.experiment.counters import CacheUse
from mpctl.experiment.users import Placement, TrafficWindow, UsersTraffic
from mpctl.methods import Spec
from mpctl.watch.assessment import Signal, State, assess, remedy_of
from mpctl.watch.cache import COLD_S
from mpctl.watch.reading import Reading
from mpctl.watch.reference import Reference
from mpctl.watch.watch_policy import WatchPolicy

POLICY = WatchPolicy()
BEFORE = CacheUse(1000.0, 2_300_000.0, 2_100_000.0)
KNOWN = replace(REFERENCE, cache=BEFORE)
EAGLE = Spec("eagle3", {"model": "head", "num_speculative_tokens": 3})
WARM = round(COLD_S / 15.0) + 1  # windows until the cache is filled


def with_prompts(counters, requests=15, asked=2300, held=2100):
    """The counters after so many more requests, with mean tokens asked and held."""
    return replace(
        counters,
        ttft_count=(counters.ttft_count or 0) + requests,
        prefix_queries=None if asked is None else (counters.prefix_queries or 0) + requests * asked,
        prefix_hits=None if asked is None else (counters.prefix_hits or 0) + requests * held,
    )


class Service:
    """A service under the watch, one engine, 15 requests in each window of 15 s."""

    def __init__(self, reference=KNOWN, policy=POLICY):
        self.reference, self.policy, self.state, self.at = reference, policy, State(), 0.0
        self.counters = with_prompts(engine(seconds=0.0))

    def runs(self, windows, *, batch=4.0, step_s=0.022, **prompts):
        """The assessments of so many windows of the same traffic."""
        seen = []
        for _ in range(windows):
            reading = Reading(self.at, {"pod": self.counters})
            self.state, assessment = assess(
                self.policy, self.reference, self.state, reading, speculates=True
            )
            seen.append(assessment)
            self.at += 15.0
            before = self.counters
            after = replace(
                engine(before, batch=batch, step_s=step_s), ttft_count=before.ttft_count
            )
            self.counters = with_prompts(after, **prompts)
        return seen

    @property
    def cache(self):
        return self.state.cache


def test_a_loss_is_found_said_in_tokens_and_passes_again():
    service = Service()
    service.runs(WARM + 20)
    assert (service.cache.kept, service.state.cache.loss.alarm) == (True, False)
    seen = service.runs(21, held=452)
    first = next(i for i, a in enumerate(seen) if a.signal is Signal.CACHE_LOST)
    assert first * 15.0 <= 300.0
    lost = seen[-1]
    assert lost.text == "speculation forgets 1,648 of 2,100 cached tokens a request"
    assert (lost.signal, lost.finding, lost.pays) == (Signal.CACHE_LOST, True, None)
    assert service.cache.kept is False
    assert remedy_of(lost.signal, "ml", "qwen").startswith("mpctl rollback")
    assert "forgets 0" not in service.runs(8)[-1].text
    assert service.runs(120)[-1].signal is Signal.HEALTHY
    assert service.cache.kept is True


@pytest.mark.parametrize(
    ("prompts", "kept"),
    [
        pytest.param({"held": 2084}, True, id="a block of 16 tokens"),
        pytest.param({"held": 1990}, True, id="5 points"),
        pytest.param({"held": 2290}, True, id="more than before"),
        pytest.param({"asked": 4500, "held": 2100}, True, id="longer by what is new"),
        pytest.param({"asked": 1200, "held": 1000}, True, id="shorter by what was kept"),
        pytest.param({"asked": 700, "held": 0}, None, id="other prompts"),
        pytest.param({"asked": 5000, "held": 0}, None, id="other, long prompts"),
        pytest.param({"held": 0, "batch": 40.0}, None, id="more load than was measured"),
        pytest.param({"asked": 2000, "held": 0}, False, id="everything"),
    ],
)
def test_only_what_the_prompts_do_not_explain_is_lost(prompts, kept):
    service = Service()
    service.runs(WARM + 20)
    seen = service.runs(60, **prompts)
    assert service.cache.kept is kept, service.cache.text
    assert (seen[-1].signal is Signal.CACHE_LOST) == (kept is False)
    if kept is None:
        assert all(a.signal is not Signal.CACHE_LOST for a in seen)
        assert "traffic" in service.cache.text or "than the gate measured" in service.cache.text


@pytest.mark.parametrize(
    ("reference", "prompts", "why"),
    [
        (REFERENCE, {"held": 0}, "no hits of users' requests were recorded"),
        (KNOWN, {"asked": None}, "prefix caching is off"),
        (KNOWN, {"asked": 0, "held": 0}, "prefix caching is off"),
    ],
)
def test_what_is_unknown_is_said_and_raises_no_alarm(reference, prompts, why):
    service = Service(reference)
    if prompts["asked" if "asked" in prompts else "held"] is None:
        service.counters = replace(service.counters, prefix_queries=None, prefix_hits=None)
    seen = service.runs(WARM + 40, **prompts)
    assert service.cache.kept is None
    assert why in service.cache.text
    assert all(a.signal in (Signal.BLIND, Signal.HEALTHY) for a in seen)


def test_an_engine_that_started_has_an_empty_cache():
    service = Service()
    service.runs(WARM + 20)
    service.counters = with_prompts(replace(engine(seconds=0.0), started=9.0), held=0)
    seen = service.runs(WARM - 2, held=0)
    assert "empty cache" in service.cache.text
    assert all(a.signal in (Signal.BLIND, Signal.HEALTHY) for a in seen)
    assert service.runs(60)[-1].signal is Signal.HEALTHY
    assert service.cache.kept is True


def test_an_engine_that_missed_a_scrape_is_not_cold():
    service = Service()
    service.runs(WARM + 20)
    service.state, _ = assess(
        POLICY, KNOWN, service.state, Reading(service.at, {}, {"pod": "no answer"}), speculates=True
    )
    service.at += 15.0
    assert service.runs(20, held=0)[-1].signal is Signal.CACHE_LOST


def test_what_is_less_urgent_and_what_is_more():
    """A costlier step is what a lost cache may look like; a speculation that does not pay is worse than both."""
    service = Service()
    service.runs(WARM + 20)
    assert service.runs(40, held=0, step_s=0.03)[-1].signal is Signal.CACHE_LOST
    bands = tuple(replace(band, baseline_step_ms=1.0) for band in KNOWN.bands)
    service.reference = replace(KNOWN, bands=bands)
    unpaid = service.runs(60, held=0)[-1]
    assert (unpaid.signal, unpaid.pays) == (Signal.PAST_CROSSOVER, False)
    assert service.cache.kept is False


def test_the_policy_says_what_a_loss_is():
    patient = Service(policy=WatchPolicy.parse("cache_loss: 0.5\n", file="watch.yaml"))
    patient.runs(WARM + 20)
    patient.runs(60, held=1400)
    assert patient.cache.kept is True
    with pytest.raises(InputError, match=r"a number >= 0\.05"):
        WatchPolicy.parse("cache_loss: 0.01\n", file="watch.yaml")


def used(run, requests):
    arms = dict(run.arms)
    use = CacheUse(requests, 2300.0 * requests, 2100.0 * requests)
    arms["baseline"] = replace(arms["baseline"], cache_use=use)
    return replace(run, arms=arms)


def test_a_promotion_records_what_users_had_of_the_baseline():
    reference = Reference.of(used(make_run(), 1000.0), EAGLE)
    assert reference.cache == BEFORE
    assert Reference.from_record(json.loads(json.dumps(reference.to_record()))) == reference


def test_few_requests_or_a_method_that_costs_no_hits_are_no_reference():
    assert Reference.of(used(make_run(), 100.0), EAGLE).cache is None
    assert Reference.of(make_run(), EAGLE).cache is None
    assert Reference.of(used(make_run(), 1000.0), Spec("ngram", {})).cache is None


def test_where_users_were_measured_the_candidates_own_hits_are_the_reference():
    run = used(make_run(), 1000.0)
    candidate = next(b.window for b in run.blocks if b.arm == "candidate")
    ours = replace(
        candidate,
        itl_seconds=30.0,
        itl_count=300.0,
        ttft_count=100.0,
        prefix_queries=1e5,
        prefix_hits=4e4,
    )
    traffic = UsersTraffic((TrafficWindow(60.0, 1, run.blocks[0].window, ours),) * 3, 30)
    users = replace(run, placement=Placement.SPLIT, traffic=traffic)
    assert Reference.of(users, EAGLE).cache == CacheUse(300.0, 3e5, 1.2e5)
