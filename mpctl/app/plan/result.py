"""The plan of a service: for each method the preflight, its needs, the predicted gain and what it costs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from mpctl import commands
from mpctl.app.change import Change
from mpctl.app.files import read_file
from mpctl.estimate.memory import Estimate
from mpctl.estimate.payoff.advice import Advice
from mpctl.estimate.payoff.grid import Choice, Grid, Sensitivity, grid_record
from mpctl.estimate.payoff.predict import Band
from mpctl.estimate.payoff.scenario import LOOKUPS
from mpctl.methods import METHODS
from mpctl.report.cost import Prices, read_prices, shipped_prices


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
                name: round(getattr(self.candidate_usd, name), 4) for name in ("value", "low", "high")
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


@dataclass(frozen=True)
class Refusal:
    """The reason that a method has no figure, and a hint to get one."""

    reason: str
    hint: str | None = None


@dataclass(frozen=True)
class Needs:
    """Needs of a rollout of a method: GPUs besides those that serve, the staging mode of the draft, and notes on
    time and downtime."""

    gpus: int
    staging: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class MethodPlan:
    """One method. ``change``: with the findings of the preflight; None where no change can be made. ``grid`` or
    ``refusal``. ``learned``: what measured pairs changed. ``schedule``: K by batch size. ``rows`` of evidence."""

    method: str
    change: Change | None
    grid: Grid | None = None
    refusal: Refusal | None = None
    evidence: str = ""
    learned: str = ""
    changes: tuple[Sensitivity, ...] = ()
    cost: PlannedCost | None = None
    needs: Needs | None = None
    advice: tuple[Advice, ...] = ()
    schedule: str = ""
    assumed: tuple[str, ...] = ()

    @property
    def last(self) -> Choice | None:
        """The advice for the highest concurrency."""
        return self.grid.choices[-1] if self.grid else None

    @property
    def refused(self) -> bool:
        """Return whether the preflight forbids the change."""
        return self.change is None or bool(self.change.refusals)

    @property
    def notice(self) -> str:
        """A limit of patents or revenue on the method."""
        return METHODS[self.method].notice

    @property
    def rank(self) -> tuple[bool, bool, bool, float]:
        """Sorts methods, the best first: those that can run, have a figure and no limit of patents or revenue, by the
        mean throughput ratio over all concurrencies."""
        choices = self.grid.choices if self.grid else ()
        mean = sum(math.log(choice.entry.prediction.throughput.value) for choice in choices)
        return self.refused, not choices, bool(self.notice), -mean / max(len(choices), 1)

    def to_record(self) -> dict[str, Any]:
        """A JSON object."""
        record: dict[str, Any] = {"method": self.method, "notice": self.notice}
        if self.change is not None:
            record |= {
                "speculation": self.change.spec.config(),
                "draft": self.change.draft_name or None,
                "findings": [dict(f.__dict__) for f in self.change.findings],
                "unchecked": list(self.change.checked.unchecked),
                "canRun": not self.change.refusals,
                "diff": self.change.diff(),
                "kvPoolTokens": pool_record(self.change.checked.memory),
            }
        if self.refusal is not None:
            record["refused"] = {"reason": self.refusal.reason, "hint": self.refusal.hint}
        if self.grid is not None:
            record |= {"evidence": self.evidence, "learned": self.learned, "assumed": list(self.assumed)}
            record |= grid_record(self.grid, self.changes)
        record["cost"] = self.cost.to_record() if self.cost else None
        record["needs"] = {**self.needs.__dict__, "notes": list(self.needs.notes)} if self.needs else None
        record["advice"] = [dict(advice.__dict__) for advice in self.advice]
        record["schedule"] = self.schedule or None
        return record


def pool_record(memory: Estimate | None) -> dict[str, Any] | None:
    """The KV pool in tokens without and with the draft, from the pessimistic to the optimistic end."""
    if memory is None:
        return None
    before, after = memory.before, memory.after
    return {"before": [before.low, before.high], "after": [after.low, after.high], "basis": memory.basis}


@dataclass(frozen=True)
class ServicePlan:
    """All methods of one service, the best first. ``gpu``: its name as it was known; ``lengths``: of a request."""

    name: str
    namespace: str
    target: str
    gpu: str
    prompt: float
    output: float
    methods: tuple[MethodPlan, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def title(self) -> str:
        """``namespace/name``."""
        return "/".join(filter(None, (self.namespace, self.name)))

    @property
    def best(self) -> MethodPlan | None:
        """The first method that can run and has a figure."""
        return next((method for method in self.methods if not method.refused and method.grid is not None), None)

    @property
    def settles(self) -> str:
        """The one command that would settle what is open for the best method; empty where nothing can be said."""
        best = self.best
        if best is None or best.grid is None:
            return ""
        entry, spec = best.grid.choices[-1].entry, ("--spec", best.method)
        if entry.level == "L0":
            source = "--transcripts log.jsonl" if best.method in LOOKUPS else "--prompts traffic.jsonl"
            words = ("plan", self.name, *spec, "--measure", *source.split())
        elif entry.call == "gain":
            words = ("rollout", self.name, *spec)
        else:
            words = ("bench", self.name, *spec, "--concurrency", f"{entry.cell.concurrency:g}")
        return commands.line(*words, namespace=self.namespace)

    def to_record(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "service": self.title,
            "target": self.target,
            "gpu": self.gpu,
            "promptTokens": self.prompt,
            "outputTokens": self.output,
            "notes": list(self.notes),
            "settles": self.settles,
            "methods": [method.to_record() for method in self.methods],
        }
