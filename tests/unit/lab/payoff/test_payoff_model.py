"""What a prediction must say whatever the constants are, and the shape of published results it must show."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpctl.estimate.shape import find_gpu, model_shape
from mpctl.lab.payoff.grid import answer, table
from mpctl.lab.payoff.predict import predict
from mpctl.lab.payoff.published_evidence import MeasuredPair, fitted, published_classes
from mpctl.lab.payoff.roofline import ratios
from mpctl.lab.payoff.scenario import (
    Acceptance,
    Scenario,
    check_rates,
    class_acceptance,
    drafting_of,
    from_length,
    misfit,
    precision_of,
    serving_of,
)

RATES = Acceptance((0.65, 0.40, 0.23))


def cell(**changed):
    fields = {
        "target": model_shape("Qwen/Qwen3-32B"),
        "gpu": find_gpu("H100-SXM-94"),
        "method": "eagle3",
        "k": 3,
        "concurrency": 1,
        "prompt": 146,
        "output": 200,
        "acceptance": RATES,
        "pool": 69232,
        "draft_pool": 47264,
    }
    return Scenario(**{**fields, **changed})


def test_the_published_point_of_a_head_lies_in_its_band():
    found = predict(cell(), fitted())
    assert (
        found.time_per_token.low < 1 / 1.98 < found.time_per_token.high
    )  # tomasruizt/vllm-scripts, InstructCoder, c = 1


def test_gain_falls_with_concurrency_and_is_lost_where_the_draft_takes_the_pool():
    model = cell(method="draft_model", draft=model_shape("Qwen/Qwen3-4B"), draft_pool=18560)
    ratios = [
        predict(replace(model, concurrency=c), fitted()).throughput.value
        for c in (1, 8, 32, 128, 256)
    ]
    assert ratios == sorted(ratios, reverse=True)
    last = predict(replace(model, concurrency=256), fitted())
    assert last.pool_bound
    assert last.throughput.high < 1  # published: 0.6 to 0.7 of the baseline's throughput
    assert last.time_per_token.value < 1  # the two ratios part there


def test_more_acceptance_is_never_less_gain_and_none_is_a_loss():
    few, many = (
        predict(cell(acceptance=Acceptance((a, a / 2, a / 4))), fitted()) for a in (0.3, 0.8)
    )
    assert many.throughput.value > few.throughput.value
    assert predict(cell(acceptance=Acceptance((0.0,))), fitted()).throughput.high < 1


def test_bands_widen_with_what_is_not_known():
    def width(**changed):
        band = predict(cell(**changed), fitted()).throughput
        return band.high / band.low

    actual_width = width()
    assert (
        actual_width
        < width(acceptance=replace(RATES, origin="published"))
        < width(acceptance=class_acceptance("eagle3", "chat", 3, published_classes()))
    )
    assert actual_width < width(concurrency=256)
    assert actual_width < width(acceptance=replace(RATES, drafts=40))


def test_an_engine_before_async_scheduling_pays_less_for_lookup():
    lookup = cell(
        method="ngram", acceptance=Acceptance((0.5, 0.4, 0.3), coverage=0.5), draft_pool=None
    )
    new, old = (
        predict(replace(lookup, engine=version), fitted()) for version in ((0, 32, 0), (0, 11, 0))
    )
    assert old.time_per_token.value < new.time_per_token.value


def test_acceptance_of_other_k_follows_from_the_last_conditional_rate():
    assert Acceptance((0.8, 0.4)).at(4) == pytest.approx((0.8, 0.4, 0.2, 0.1))
    assert Acceptance((0.8, 0.4, 0.2)).at(1) == (0.8,)
    assert Acceptance((0.5,), coverage=0.5).tokens_per_step(1) == 1.25
    assert sum(from_length(2.5, 5)) + 1 == pytest.approx(2.5)


def test_a_shorter_draft_covers_more_steps_of_the_same_answers():
    lookup = Acceptance((1.0, 1.0, 1.0, 1.0), coverage=0.5)  # half the steps yield five tokens
    assert lookup.coverage_at(4) == 0.5
    # 5 of 6 tokens are drafted; with one per draft that takes 2.5 steps beside the one without.
    assert lookup.coverage_at(1) == pytest.approx(2.5 / 3.5)
    assert Acceptance((0.6, 0.3)).coverage_at(1) == 1.0


@pytest.mark.parametrize(
    ("rates", "length", "words"),
    [
        ((0.5, 0.4, 0.33), 2.54, "which give 2.23"),
        ((0.5, 0.6), None, "must not rise"),
        ((50.0, 40.0), None, "from 0 to 1"),
        ((), None, "no rate"),
    ],
)
def test_rates_that_cannot_be_are_refused(rates, length, words):
    assert words in (check_rates(rates, length) or "")


def test_rates_that_agree_with_their_length_are_taken():
    assert check_rates((0.73, 0.52, 0.35), 2.60) is None


def test_a_pair_far_outside_the_band_is_believed_and_widens_it_elsewhere():
    pair = MeasuredPair("eagle3", 3, 8, throughput=0.6, time_per_token=1.6)
    here = predict(cell(concurrency=8), fitted(), (pair,)).throughput
    assert here.low < 0.6 < here.high
    throughput = predict(cell(concurrency=64), fitted(), (pair,)).throughput
    alone = predict(cell(concurrency=64), fitted()).throughput
    assert throughput.value < alone.value
    assert throughput.high / throughput.low > alone.high / alone.low


def test_the_crossover_is_a_range_and_lies_where_the_gain_ends():
    model = cell(method="draft_model", draft=model_shape("Qwen/Qwen3-1.7B"), draft_pool=32528)
    crossover = table(model, (1, 32, 256), (1, 3, 5), fitted()).crossover
    assert crossover.low < 256
    assert crossover.high == pytest.approx(crossover.low * 2.25)
    assert "concurrent requests" in crossover.text()
    never = table(cell(acceptance=Acceptance((0.0,))), (1, 8), (1, 3), fitted()).crossover
    assert never.text() == "speculation does not pay at any concurrency"


def test_the_smallest_k_within_two_percent_of_the_best_is_advised():
    actual_table = table(cell(), (1,), (1, 2, 3, 4, 5, 6, 7), fitted())
    (choice,) = actual_table.choices
    ratios = {entry.cell.k: entry.prediction.throughput.value for entry in actual_table.entries}
    best = max(ratios.values())
    assert choice.k == min(k for k, value in ratios.items() if value >= 0.98 * best)
    assert choice.equal == tuple(k for k, value in ratios.items() if value >= 0.98 * best)


def test_an_estimated_pool_that_binds_is_measured_first_and_its_band_spans_the_range():
    asked = cell(gpu=find_gpu("A100-80GB-SXM"), concurrency=256, pool=None, draft_pool=None)
    low, _, high = asked.pool_cases()
    unknown = answer(asked, fitted())
    ends = [predict(case, fitted()).throughput for case in (low, high)]
    assert low.pool < high.pool
    assert unknown.call == "measure first"
    assert any("is estimated" in gap.reason for gap in unknown.outside)
    assert unknown.prediction.throughput.low <= min(end.low for end in ends)
    assert unknown.prediction.throughput.high >= max(end.high for end in ends)


def test_the_engine_settings_move_an_estimated_pool():
    bare = cell(gpu=find_gpu("A100-80GB-SXM"), pool=None, draft_pool=None)
    middle = bare.pools()
    assert replace(bare, utilisation=0.97).pools() > middle
    assert replace(bare, kv_element_bytes=1.0).pools() > middle
    assert replace(bare, max_num_seqs=16).pools() > middle
    assert replace(bare, max_num_seqs=16, concurrency=64).batch == 16


@pytest.mark.parametrize(
    ("target", "gpu", "gpus", "fits"),
    [
        ("meta-llama/Llama-3.1-70B-Instruct", "L4", 1, False),
        ("meta-llama/Llama-3.1-405B-Instruct", "H100-SXM", 8, False),
        ("openai/gpt-oss-120b", "H100-SXM", 1, True),
        ("meta-llama/Llama-3.1-8B-Instruct", "L4", 1, True),
    ],
)
def test_a_target_fits_by_its_weights_as_they_are_published(target, gpu, gpus, fits):
    shape = model_shape(target)
    precision = precision_of(target, shape)
    asked = cell(
        target=shape, gpu=find_gpu(gpu), gpus=gpus, precision=precision, pool=None, draft_pool=None
    )
    assert (misfit(asked) is None) == fits


def test_the_passes_of_a_draft_pay_their_all_reduces():
    model = cell(method="draft_model", draft=model_shape("Qwen/Qwen3-1.7B"), gpus=2)
    drafting = drafting_of(model)
    free = ratios(serving_of(model), replace(drafting, layers=0.0), fitted().values)
    paid = ratios(serving_of(model), drafting, fitted().values)
    assert paid.throughput < 0.99 * free.throughput


def test_a_model_that_thinks_copies_half_as_often():
    classes = published_classes()
    plain, thinking = (
        class_acceptance("ngram", "edits", 3, classes, thinking=thinks) for thinks in (False, True)
    )
    assert thinking.coverage == plain.coverage / 2
    assert class_acceptance("eagle3", "edits", 3, classes, thinking=True).coverage == 1


@pytest.mark.parametrize(
    "name",
    [
        "RedHatAI/gemma-3-27b-it-FP8-dynamic",
        "unsloth/gemma-3-27b-it-bnb-4bit",
        "google/gemma-3-27b-it",
    ],
)
def test_a_republished_checkpoint_has_the_dimensions_of_its_model(name):
    assert model_shape(name) == model_shape("google/gemma-3-27b-it")
    assert model_shape(name).full_layers == 10


def test_bands_widen_outside_the_evidence():
    mixture = model_shape("Qwen/Qwen3-30B-A3B")
    hybrid = model_shape("Qwen/Qwen3.5-27B")

    def width(target, concurrency):
        band = predict(
            cell(target=target, concurrency=concurrency, pool=1e9, draft_pool=1e9), fitted()
        ).throughput
        return band.high / band.low

    assert width(mixture, 16) > 1.4 * width(mixture, 1)
    assert width(hybrid, 1) > 1.3 * width(model_shape("Qwen/Qwen3-32B"), 1)
