"""Cost per million output tokens without and with speculation, at the shipped or the user's prices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mpctl.app.files import read_file
from mpctl.estimate.payoff.grid import Choice
from mpctl.estimate.payoff.predict import Band
from mpctl.report.prices import Prices, read_prices, shipped_prices


@dataclass(frozen=True)
class PlannedCost:
    """USD per million output tokens at one offer, at the concurrency of one choice; ``measured``: the baseline's
    throughput is measured, else it is the model's. ``api``: hosted models, for orientation."""

    offer: str
    as_of: str
    concurrency: float
    baseline_usd: float
    candidate_usd: Band
    measured: bool
    api: tuple[tuple[str, float, str], ...]

    def to_record(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "offer": self.offer,
            "asOf": self.as_of,
            "concurrency": self.concurrency,
            "baselineUsdPerMillionTokens": round(self.baseline_usd, 4),
            "candidateUsdPerMillionTokens": {
                "value": round(self.candidate_usd.value, 4),
                "low": round(self.candidate_usd.low, 4),
                "high": round(self.candidate_usd.high, 4),
            },
            "baselineMeasured": self.measured,
            "api": [{"name": name, "usdPerMillionOutputTokens": usd, "asOf": date} for name, usd, date in self.api],
        }


def read_price_list(file: str | None) -> Prices:
    """The shipped prices, or those of a file.

    Raises:
        InputError: the file cannot be used.
    """
    return shipped_prices() if file is None else read_prices(read_file(file, "the price list"), file=file)


def cost_of(choice: Choice, gpu: str, gpus: int, prices: Prices, *, tokens_per_s: float | None) -> PlannedCost | None:
    """The cost at the first offer of the GPU; None where no price is known. ``tokens_per_s``: measured baseline."""
    offer = next((offer for offer in prices.offers if offer.fits(gpu.replace("-", " "))), None)
    rate = tokens_per_s or choice.entry.prediction.tokens_per_s
    if offer is None or rate <= 0:
        return None
    hourly = offer.usd_per_hour * gpus / offer.devices
    base = hourly / 3600 / rate * 1e6
    ratio = choice.entry.prediction.throughput
    return PlannedCost(
        offer=offer.name,
        as_of=offer.as_of,
        concurrency=choice.concurrency,
        baseline_usd=base,
        candidate_usd=Band(base / ratio.value, base / ratio.high, base / ratio.low),
        measured=tokens_per_s is not None,
        api=tuple(
            (price.name, price.output_usd, price.as_of) for price in sorted(prices.api, key=lambda p: p.output_usd)
        ),
    )
