"""Cost per million output tokens, from the price of the machine and the measured throughput.

``usd = usd_per_hour / 3600 / tokens_per_second * 1e6``. Over several cells the costs add up by their part of the output
tokens: their share of the requests times the length of their answers on the baseline. A machine with more devices than
the engine uses is counted by the part used. What this assumes is said beside the figure: the machine serves at this
load all the time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mpctl.report.prices import MachinePrice, Prices
from mpctl.report.values import ApiPrice, ArmFacts, CellReport, Cost, Figure, Offer

_PARALLEL = re.compile(r"--(?:tensor|pipeline|data)-parallel-size$|-(?:tp|pp|dp)$")


def cost_of(cells: Sequence[CellReport], arm: ArmFacts, prices: Prices) -> Cost:
    """The cost on both arms at every price of the arm's device."""
    api = tuple(ApiPrice(p.name, p.output_usd, p.as_of) for p in sorted(prices.api, key=lambda p: p.output_usd))
    offers = prices.of(arm.device)
    if not offers:
        device = arm.device or "an unnamed device"
        return Cost(api=api, missing=f"no price is known for {device}: mpctl report --prices FILE takes yours")
    weights = _weights(cells)
    base = _hours_per_million([c.baseline.tokens_per_second for c in cells], weights)
    cand = _hours_per_million([c.candidate.tokens_per_second for c in cells], weights)
    if base is None and cand is None:
        return Cost(api=api, missing="throughput was not measured on either arm")
    used = devices_used(arm.argv)
    saving = _saving(cells, base, cand)
    return Cost(
        offers=tuple(_offer(offer, used, base, cand, saving) for offer in offers),
        api=api,
        basis=_basis(cells, used),
    )


def devices_used(argv: Sequence[str]) -> int:
    """How many devices the engine's arguments ask for: the product of its parallel sizes."""
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
    """Tokens of an answer; of the candidate where the baseline gave none, 1 where nobody did."""
    answered = [(arm.output_tokens, arm.requests - arm.failed) for arm in (cell.baseline, cell.candidate)]
    return next((tokens / count for tokens, count in answered if tokens and count > 0), 1.0)


def _hours_per_million(rates: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """Machine hours per million output tokens; None where a cell that counts was not measured."""
    if not weights or any(not rate and weight for rate, weight in zip(rates, weights, strict=True)):
        return None
    return sum(weight * 1e6 / 3600.0 / rate for rate, weight in zip(rates, weights, strict=True) if rate)


def _saving(cells: Sequence[CellReport], base: float | None, cand: float | None) -> Figure:
    """Share saved; with one cell its interval follows from that of the throughput's ratio r: 1 - 1 / r."""
    if not base or cand is None:
        return Figure()
    value = 1.0 - cand / base
    if len(cells) != 1:
        return Figure(value)
    ratio = cells[0].throughput
    low, high = (1.0 - 1.0 / bound if bound else None for bound in (ratio.low, ratio.high))
    return Figure(value, low, high, ratio.n, ratio.level, ratio.method)


def _offer(offer: MachinePrice, used: int, base: float | None, cand: float | None, saving: Figure) -> Offer:
    hourly = offer.usd_per_hour * used / offer.devices
    return Offer(
        name=offer.name,
        usd_per_hour=hourly,
        as_of=offer.as_of,
        source=offer.source,
        baseline_usd=None if base is None else hourly * base,
        candidate_usd=None if cand is None else hourly * cand,
        saving=saving,
    )


def _basis(cells: Sequence[CellReport], used: int) -> str:
    what = f"{used} device{'s' if used > 1 else ''} busy at the measured load all the time; idle hours cost extra"
    if len(cells) == 1:
        return what
    shared = all(c.share is not None for c in cells)
    by = "by the shares of requests" if shared else "all cells alike, no shares were given"
    return f"{what}; {by}, weighed by the length of their answers"
