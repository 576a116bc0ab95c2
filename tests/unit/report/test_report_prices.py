"""The price table: shipped, overridden, refused; and what is computed from it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import FACTS, arm, cell, interval

from mpctl.errors import InputError
from mpctl.report.cost import MachinePrice, Prices, cost_of, devices_used, read_prices, shipped_prices

NODE = 'offers: [{name: our node, device: "*", usd_per_hour: 3.6, as_of: 2026-11-01}]'


def test_the_shipped_table_dates_and_sources_every_price():
    prices = shipped_prices()
    assert prices.offers
    assert prices.api
    for offer in prices.offers:
        assert offer.as_of.startswith("20")
        assert offer.source
    assert all(price.as_of.startswith("20") for price in prices.api)


@pytest.mark.parametrize(
    ("device", "kind", "fits"),
    [
        ("NVIDIA L4", "L4", True),
        ("NVIDIA L40S", "L4", False),
        ("nvidia-l4", "L4", True),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB", True),
        ("NVIDIA A100-SXM4-40GB", "A100 80GB", False),
        ("NVIDIA H100 80GB HBM3", "H100", True),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "H100", False),  # a slice is not a whole GPU
        ("cpu: Intel Xeon", "L4", False),
        ("", "L4", False),
        ("cpu", "*", True),
    ],
)
def test_a_device_is_matched_by_whole_words(device, kind, fits):
    assert MachinePrice("n", kind, 1.0, "2026").fits(device) is fits


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("offers: [", "p.yaml:1: not YAML"),
        ("[]", "p.yaml:1: expected a mapping, got a list"),
        ("prices: []", "p.yaml: offers: needs a list of offers"),
        ("{offers: [], price: 1}", "p.yaml:1: price: unknown field"),
        ("offers: 3", "p.yaml:1: offers: expected a list, got 3"),
        ("offers: [3]", "p.yaml:1: offers[0]: expected a mapping, got 3"),
        ("api: [{name: x, output_usd: 1}]", "p.yaml:1: api[0].as_of: required field is missing"),
        ("api: [{name: x, output_usd: 1, as_of: '2026', usd: 3}]", "p.yaml:1: api[0].usd: unknown field"),
        ("api: [{name: x, output_usd: 1, as_of: ''}]", "p.yaml:1: api[0].as_of: must be a text"),
        (NODE.replace("3.6", "0"), "p.yaml:1: offers[0].usd_per_hour: must be a number above zero, not 0"),
        (NODE.replace("3.6", ".nan"), "p.yaml:1: offers[0].usd_per_hour: must be a number above zero, not nan"),
        (NODE.replace("3.6", "true"), "p.yaml:1: offers[0].usd_per_hour: must be a number above zero, not True"),
        (
            NODE.replace("3.6", "1, devices: 1.5"),
            "p.yaml:1: offers[0].devices: must be a whole number above zero, not 1.5",
        ),
        (NODE.replace("3.6", "9" * 400), "p.yaml:1: offers[0].usd_per_hour: must be a number above zero, not 9999"),
        ("offers: []\noffers: []", 'p.yaml:2: duplicate key "offers"'),
        (
            "offers: [{name: n, device: '!!', usd_per_hour: 1, as_of: '2026'}]",
            "p.yaml:1: offers[0].device: must be words",
        ),
        ("offers: [{name: n, device: L4, usd_per_hour: 1, as_of: soon}]", "p.yaml:1: offers[0].as_of: must be a date"),
    ],
)
def test_a_bad_price_file_is_refused_with_its_field(text, message):
    with pytest.raises(InputError) as error:
        read_prices(text, file="p.yaml")
    assert error.value.message.startswith(message)


@given(st.text(max_size=60))
def test_any_text_is_a_table_or_refused(text):
    try:
        assert isinstance(read_prices(text, file="p.yaml"), Prices)
    except InputError as error:
        assert error.message.startswith("p.yaml")


def test_the_cost_of_a_million_tokens():
    cost = cost_of([cell(speed=2.0)], FACTS, FACTS, read_prices(NODE, file="p.yaml"))
    offer = cost.offers[0]
    assert (offer.baseline_usd, offer.candidate_usd) == pytest.approx((10.0, 5.0))  # 3.6 USD/h is 0.001 USD/s
    assert offer.saving == pytest.approx(0.5)
    assert offer.as_of == "2026-11-01"
    assert cost.missing == ""


def test_the_saving_takes_the_interval_of_throughput():
    ratio = interval(2.0, 1.6, 2.5)
    offer = cost_of([cell(speed=2.0, ratio=ratio)], FACTS, FACTS, shipped_prices()).offers[0]
    saving = offer.saving_interval
    assert saving.value == offer.saving == pytest.approx(0.5)
    assert (saving.low, saving.high) == pytest.approx((1 - 1 / 1.6, 1 - 1 / 2.5))
    assert saving.level == 0.95
    without = cost_of([cell(speed=2.0, ratio=None)], FACTS, FACTS, shipped_prices()).offers[0]
    assert (without.saving, without.saving_interval) == (pytest.approx(0.5), None)
    open_ = cost_of([cell(speed=2.0, ratio=interval(2.0))], FACTS, FACTS, shipped_prices()).offers[0].saving_interval
    assert (open_.low, open_.high) == (None, None)


def test_costs_of_several_cells_add_up_by_share():
    cells = [cell(speed=2.0, share=0.25), cell("chat", speed=0.5, share=0.75)]
    offer = cost_of(cells, FACTS, FACTS, read_prices(NODE, file="p.yaml")).offers[0]
    assert offer.candidate_usd == pytest.approx(0.25 * 5 + 0.75 * 20)
    assert offer.saving == pytest.approx(1 - 16.25 / 10)
    assert offer.saving_interval is None


def test_a_share_is_of_requests_and_long_answers_cost_more():
    short, long = arm(tokens=10_000, requests=100), arm(tokens=30_000, requests=100)
    cells = [
        cell(speed=2.0, share=0.5, baseline=short, candidate=arm("candidate", 2.0, tokens=10_000, requests=100)),
        cell("chat", speed=1.0, share=0.5, baseline=long, candidate=long),
    ]
    offer = cost_of(cells, FACTS, FACTS, read_prices(NODE, file="p.yaml")).offers[0]
    assert offer.candidate_usd == pytest.approx(0.25 * 5 + 0.75 * 10)


def test_without_shares_all_cells_count_alike_and_it_is_said():
    cost = cost_of([cell(speed=2.0), cell("chat", speed=0.5)], FACTS, FACTS, read_prices(NODE, file="p.yaml"))
    assert cost.offers[0].candidate_usd == pytest.approx((5 + 20) / 2)
    assert "all cells alike" in cost.basis


def test_an_unknown_device_has_no_cost_and_says_how_to_give_one():
    cost = cost_of([cell()], *[replace(FACTS, device="cpu: Xeon")] * 2, shipped_prices())
    assert not cost.offers
    assert cost.missing == "no price is known for cpu: Xeon: mpctl report --prices FILE takes yours"


def test_a_cell_that_was_not_measured_leaves_the_cost_unknown_not_zero():
    dead = arm(seconds=0.0)
    assert cost_of([cell(baseline=dead, candidate=dead, ratio=None)], FACTS, FACTS, shipped_prices()).missing
    offer = cost_of([cell(candidate=dead, ratio=None)], FACTS, FACTS, shipped_prices()).offers[0]
    assert (offer.candidate_usd, offer.saving) == (None, None)


@pytest.mark.parametrize(
    ("argv", "devices"),
    [
        (("--tensor-parallel-size=2",), 2),
        (("--tensor-parallel-size", "2", "--pipeline_parallel_size=3"), 6),
        (("-tp", "4"), 4),
        (("--tensor-parallel-size",), 1),
        (("--tensor-parallel-size=x",), 1),
        ((), 1),
    ],
)
def test_devices_come_from_the_engines_arguments(argv, devices):
    assert devices_used(argv) == devices


def test_an_engine_pays_for_the_devices_it_uses():
    two = replace(FACTS, argv=("-tp", "2"))
    table = "offers: [{name: n, device: L4, devices: 4, usd_per_hour: 4, as_of: '2026'}]"
    assert cost_of([cell()], two, two, read_prices(table, file="p")).offers[0].baseline_usd_per_hour == 2.0


def test_each_arm_pays_for_its_own_devices():
    """D6: one GPU at 94 tok/s against two at 175 was shown as 46 % saved, where 8 % more is paid."""
    table = read_prices("offers: [{name: n, device: L4, usd_per_hour: 1, as_of: '2026'}]", file="p")
    two = replace(FACTS, argv=("-tp", "2"))
    cost = cost_of([cell(speed=1.86, ratio=interval(1.86, 1.8, 1.9))], FACTS, two, table)
    offer = cost.offers[0]
    assert (offer.baseline_usd_per_hour, offer.candidate_usd_per_hour) == (1.0, 2.0)
    assert offer.saving == pytest.approx(1 - 2 / 1.86)
    assert (offer.saving_interval.low, offer.saving_interval.high) == pytest.approx((1 - 2 / 1.8, 1 - 2 / 1.9))
    assert cost.basis.startswith("1 and 2 devices busy")


def test_arms_on_different_devices_have_no_common_price():
    other = replace(FACTS, device="NVIDIA H100 80GB HBM3")
    for offer in cost_of([cell()], FACTS, other, shipped_prices()).offers:
        assert (offer.baseline_usd is None) != (offer.candidate_usd is None)
        assert offer.saving is None
