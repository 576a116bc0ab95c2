"""The plan of a service: for each method the preflight, its needs, and the predicted gain."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from mpctl import commands
from mpctl.app.change import Change
from mpctl.estimate.memory import pool_record
from mpctl.json_types import Json
from mpctl.lab.payoff.grid import Choice, Grid, grid_record
from mpctl.lab.payoff.scenario import LOOKUPS, Refusal
from mpctl.lab.plan.caches import LostHits
from mpctl.methods import METHODS

# Words of a licence that forbids or prices some use of a draft.
_LIMITED = re.compile(r"\bnc\b|non-?commercial|research|revenue", re.IGNORECASE)


@dataclass(frozen=True)
class Needs:
    """Needs of a rollout of a method: GPUs besides those that serve, the staging mode of the draft, and notes on
    time and downtime."""

    gpus: int
    staging: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class MethodPlan:
    """A method. ``change``: with the findings of the preflight; None where no change can be made. ``grid`` or
    ``refusal``. ``learned``: what measured pairs changed. ``schedule``: K by batch size. ``rows`` of evidence.
    ``caches``: the loss of prefix-cache hits; None without one."""

    method: str
    change: Change | None
    grid: Grid | None = None
    refusal: Refusal | None = None
    evidence: str = ""
    learned: str = ""
    needs: Needs | None = None
    schedule: str = ""
    assumed: tuple[str, ...] = ()
    caches: LostHits | None = None

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
        """A limit of patents or revenue on the method, or one on the use of its draft."""
        limit = f"the draft's licence {self.licence} limits its use" * bool(
            _LIMITED.search(self.licence)
        )
        return METHODS[self.method].notice or limit

    @property
    def licence(self) -> str:
        """The draft's, as the catalogue has it."""
        entry = self.change.selection.entry if self.change else None
        return (entry.licence if entry else None) or "unknown"

    @property
    def rank(self) -> tuple[bool, bool, bool, float]:
        """Sorts methods, the best first: those that can run, have a figure and no limit of patents or revenue, by the
        mean throughput ratio over all concurrencies."""
        choices = self.grid.choices if self.grid else ()
        mean = sum(math.log(choice.entry.prediction.throughput.value) for choice in choices)
        return self.refused, not choices, bool(self.notice), -mean / max(len(choices), 1)

    def to_record(self) -> Json:
        """A JSON object."""
        record: Json = {"method": self.method, "notice": self.notice}
        if self.change is not None:
            record |= {
                "speculation": self.change.spec.config(),
                "draft": self.change.draft_name or None,
                "licence": self.licence if self.change.draft_name else None,
                "findings": [dict(f.__dict__) for f in self.change.findings],
                "unchecked": list(self.change.checked.unchecked),
                "canRun": not self.change.refusals,
                "diff": self.change.diff(),
                "kvPoolTokens": pool_record(self.change.checked.memory),
            }
        if self.refusal is not None:
            record["refused"] = {"reason": self.refusal.reason, "hint": self.refusal.hint}
        if self.grid is not None:
            record |= {
                "evidence": self.evidence,
                "learned": self.learned,
                "assumed": list(self.assumed),
                "prefixCache": self.caches and self.caches.to_record(),
            }
            record |= grid_record(self.grid)
        record["needs"] = (
            {**self.needs.__dict__, "notes": list(self.needs.notes)} if self.needs else None
        )
        record["schedule"] = self.schedule or None
        return record


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
        return next(
            (method for method in self.methods if not method.refused and method.grid is not None),
            None,
        )

    @property
    def settles(self) -> str:
        """The one command that would settle what is open for the best method; empty where nothing can be said."""
        best = self.best
        if best is None or best.grid is None:
            return ""
        entry, spec = best.grid.choices[-1].entry, ("--spec", best.method)
        if entry.level == "L0":
            source = (
                "--transcripts log.jsonl" if best.method in LOOKUPS else "--prompts traffic.jsonl"
            )
            words = ("plan", self.name, *spec, "--measure", *source.split())
        elif entry.call == "gain":
            words = ("rollout", self.name, *spec)
        else:
            words = ("bench", self.name, *spec, "--concurrency", f"{entry.cell.concurrency:g}")
        return commands.line(*words, namespace=self.namespace)

    def to_record(self) -> Json:
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
