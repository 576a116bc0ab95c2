"""K by batch size, and the rules of published guides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpctl.estimate.payoff.advice import advice, schedule
from mpctl.estimate.payoff.evidence import fitted
from mpctl.estimate.payoff.grid import table
from mpctl.estimate.payoff.scenario import Acceptance, Scenario
from mpctl.estimate.shape import find_gpu, model_shape

CELL = Scenario(
    target=model_shape("Qwen/Qwen3-32B"),
    gpu=find_gpu("H100-SXM-94"),
    method="draft_model",
    k=3,
    concurrency=1,
    prompt=146,
    output=200,
    acceptance=Acceptance((0.72, 0.5, 0.36, 0.27, 0.2)),
    draft=model_shape("Qwen/Qwen3-4B"),
    pool=69232,
    draft_pool=18560,
)


def choices():
    return table(CELL, (1, 16, 256), (1, 3, 5), fitted()).choices


def test_the_schedule_lowers_k_with_the_batch_and_ends_speculation_where_it_loses():
    text = schedule(choices(), (0, 33, 0))
    assert text.startswith("num_speculative_tokens_per_batch_size=[[1,")
    assert text.endswith(",0]]")


@pytest.mark.parametrize(
    ("engine", "parallel", "words"),
    [
        ((0, 32, 0), 1, "vLLM 0.32.0 does not honour a schedule"),
        ((0, 33, 0), 2, "drops a schedule under data parallelism"),
        (None, 1, "from vLLM 0.33.0 on"),
    ],
)
def test_an_engine_that_does_not_honour_it_gets_one_k(engine, parallel, words):
    assert words in schedule(choices(), engine, data_parallel=parallel)


def test_one_k_for_every_load_needs_no_schedule():
    assert schedule(table(CELL, (1, 2), (3,), fitted()).choices, (0, 33, 0)) == ""


def test_rules_of_guides_apply_with_their_origin_and_only_where_they_do():
    small = replace(CELL, gpu=replace(CELL.gpu, usable_gib=30), precision="fp8")
    small = replace(small, acceptance=Acceptance((0.5, 0.2, 0.1)))
    small = replace(small, draft=model_shape("Qwen/Qwen3-8B"))
    actual_advice = advice(small, classes=2, temperature=0.8)
    assert [one.rule for one in actual_advice] == [
        *("draft's size", "draft's share of memory", "acceptance rate", "temperature"),
        *("quantised target", "mixed traffic"),
    ]
    assert "the target is 4 times as large as its draft" in actual_advice[0].text
    assert all("DigitalOcean" in one.source for one in actual_advice)
    assert advice(replace(CELL, k=1)) == ()


def test_adaptive_verification_is_advised_where_the_engine_and_the_gpu_allow_it():
    (hopper,) = advice(replace(CELL, engine=(0, 33, 0), k=1))
    assert hopper.rule == "adaptive verification"
    assert "TRITON_ATTN" not in hopper.text
    (ada,) = advice(replace(CELL, engine=(0, 33, 0), k=1, gpu=find_gpu("L40S"), gpus=8))
    assert "--attention-backend TRITON_ATTN" in ada.text
    assert advice(replace(CELL, engine=(0, 32, 0), k=1)) == ()
