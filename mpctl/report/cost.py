"""Cost per million output tokens, from the price of the machine and the measured throughput.

Baseline: ``usd = usd_per_hour / 3600 / tokens_per_second * 1e6``; the candidate's is that over the throughput ratio.
Over several cells the costs add up by their part of the output tokens: share of the requests times length of the
answers on the baseline. A machine with more devices than the engine uses is counted by the part used. The figure
assumes that the machine serves at this load all the time, and says so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from mpctl.experiment.arm import ArmSummary
from mpctl.experiment.run import ArmConditions
from mpctl.report.prices import MachinePrice, Prices
from mpctl.report.values import ApiPrice, CellReport, Cost, Offer
from mpctl.stats.interval import Interval

_PARALLEL = re.compile(r"--(?:tensor|pipeline|data)-parallel-size$|-(?:tp|pp|dp)$")


def cost_of(cells: Sequence[CellReport], arm: ArmConditions, prices: Prices) -> Cost:
    """Return the cost on both arms at every price of the arm's device."""
    api = tuple(ApiPrice(p.name, p.output_usd, p.as_of) for p in sorted(prices.api, key=lambda p: p.output_usd))
    offers = prices.of(arm.device)
    if not offers:
        device = arm.device or "an unnamed device"
        return Cost(api=api, missing=f"no price is known for {device}: mpctl report --prices FILE takes yours")
    weights = _weights(cells)
    base = _hours_per_million([c.comparison.baseline.throughput for c in cells], weights)
    cand = _hours_per_million([_candidate_rate(c) for c in cells], weights)
    if base is None and cand is None:
        return Cost(api=api, missing="throughput was not measured on either arm")
    used = devices_used(arm.argv)
    saving = 1.0 - cand / base if base and cand is not None else None
    interval = _saving_interval(cells, saving)
    return Cost(
        offers=tuple(_offer(offer, used, base, cand, saving, interval) for offer in offers),
        api=api,
        basis=_basis(cells, used),
    )


def devices_used(argv: Sequence[str]) -> int:
    """Return the number of devices the engine's arguments ask for: the product of its parallel sizes."""
    product = 1
    for index, word in enumerate(argv):
        flag, equals, value = word.partition("=")
        if not _PARALLEL.match(flag.replace("_", "-")):
            continue
        text = value if equals else argv[index + 1] if index + 1 < len(argv) else ""
        product *= int(text) if text.isdecimal() and int(text) else 1
    return product


def _weights(cells: Sequence[CellReport]) -> list[float]:
    """Each cell's part of the output tokens, 0..1."""
    shares = [c.share for c in cells]
    if any(s is None for s in shares) or not sum(s or 0.0 for s in shares):
        shares = [1.0] * len(cells)
    parts = [(share or 0.0) * _answer_length(c) for share, c in zip(shares, cells, strict=True)]
    return [part / sum(parts) for part in parts]


def _answer_length(cell: CellReport) -> float:
    """Return the mean tokens of an answer on the baseline, on the candidate where that has none, else 1."""
    arms = (cell.comparison.baseline, cell.comparison.candidate)
    return next((length for arm in arms if (length := _mean_tokens(arm))), 1.0)


def _mean_tokens(arm: ArmSummary) -> float:
    answered = arm.requests - arm.failed
    return arm.output_tokens / answered if answered > 0 else 0.0


def _candidate_rate(cell: CellReport) -> float | None:
    """Return tokens per second of the candidate: the baseline's times the throughput ratio, where there is one."""
    ratio, base = cell.comparison.throughput_ratio, cell.comparison.baseline.throughput
    return base * ratio.value if ratio and base else cell.comparison.candidate.throughput


def _hours_per_million(rates: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """Return machine hours per million output tokens; None where a cell that counts was not measured."""
    if not weights or any(not rate and weight for rate, weight in zip(rates, weights, strict=True)):
        return None
    return sum(weight * 1e6 / 3600.0 / rate for rate, weight in zip(rates, weights, strict=True) if rate)


def _saving_interval(cells: Sequence[CellReport], saving: float | None) -> Interval | None:
    """Return the interval of the share saved: with one cell 1 - 1 / r over the throughput ratio's interval."""
    ratio = cells[0].comparison.throughput_ratio if len(cells) == 1 else None
    if saving is None or ratio is None:
        return None
    low, high = (1.0 - 1.0 / bound if bound else None for bound in (ratio.low, ratio.high))
    return replace(ratio, value=saving, low=low, high=high)


def _offer(
    offer: MachinePrice,
    used: int,
    base: float | None,
    cand: float | None,
    saving: float | None,
    interval: Interval | None,
) -> Offer:
    hourly = offer.usd_per_hour * used / offer.devices
    return Offer(
        name=offer.name,
        usd_per_hour=hourly,
        as_of=offer.as_of,
        source=offer.source,
        baseline_usd=None if base is None else hourly * base,
        candidate_usd=None if cand is None else hourly * cand,
        saving=saving,
        saving_interval=interval,
    )


def _basis(cells: Sequence[CellReport], used: int) -> str:
    what = f"{used} device{'s' if used > 1 else ''} busy at the measured load all the time; idle hours cost extra"
    if len(cells) == 1:
        return what
    shared = all(c.share is not None for c in cells)
    by = "by the shares of requests" if shared else "all cells alike, no shares were given"
    return f"{what}; {by}, weighted by the length of their answers"
