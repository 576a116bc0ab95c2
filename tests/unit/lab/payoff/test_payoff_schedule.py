"""K by batch size."""

from __future__ import annotations

import pytest

from mpctl.estimate.shape import find_gpu, model_shape
from mpctl.lab.payoff.grid import table
from mpctl.lab.payoff.published_evidence import fitted
from mpctl.lab.payoff.scenario import Acceptance, Scenario
from mpctl.lab.payoff.schedule import schedule

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
    ("engine", "words"),
    [
        ((0, 32, 0), "vLLM 0.32.0 does not honour a schedule"),
        (None, "from vLLM 0.33.0 on"),
    ],
)
def test_an_engine_that_does_not_honour_it_gets_one_k(engine, words):
    assert words in schedule(choices(), engine)


def test_one_k_for_every_load_needs_no_schedule():
    assert schedule(table(CELL, (1, 2), (3,), fitted()).choices, (0, 33, 0)) == ""
