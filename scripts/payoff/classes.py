"""Acceptance by class of traffic, from every published row that states or implies it, and how far sources differ."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mpctl.lab.payoff.scenario import (
    LOOKUP_DECAY,
    LOOKUPS,
    class_rates,
    family_of,
    from_length,
    is_known,
)
from scripts.payoff.rows import Record, Row, author_of

# Data sets by class, in lower case; a set's domains are named as the classes are.
_TRAFFIC = {
    "edits": ("instructcoder", "code refactor", "copy-heavy prompts"),
    "code": ("humaneval", "mbpp", "livecodebench", "coding"),
    "math": ("gsm8k", "math500", "aime25", "math", "math_reasoning", "math reasoning"),
    "chat": (
        "mt-bench",
        "sharegpt",
        "alpaca",
        "arena-hard",
        "chat",
        "writing",
        "question",
        "qa",
        "multi-turn",
    ),
    "summary": ("cnn", "cnn/dailymail", "summarization", "rag"),
    "agents": ("tool_call",),
}
# A class that a family of methods was not published for is taken for its neighbour.
_NEIGHBOUR = {
    "edits": "code",
    "code": "edits",
    "agents": "chat",
    "summary": "chat",
    "math": "chat",
    "chat": "math",
}
_OF_LOOKUPS = {
    **_NEIGHBOUR,
    "code": "chat",
    "agents": "summary",
}  # new code repeats little, a tool's output more
_LEAST = 0.3  # of the deviation, as a logarithm
_LEAST_EXTRA = 0.05  # tokens: less is lost in what a gain is rounded to
# Prompt lookup of Spec-Bench proposes up to 10 tokens; its steps take 1.75 / 1.66 of the plain ones (overall row).
_PLD, _PLD_K, _PLD_STEP = "ngram(PLD)", "10", 1.75 / 1.66


@dataclass(frozen=True)
class Observation:
    """A published yield: ``author`` of the figures, ``system``: target with draft; ``extra``: tokens per step beyond
    the target's own, at ``k``."""

    author: str
    system: str
    family: str
    traffic: str
    k: int
    extra: float

    @property
    def rate(self) -> float:
        """The class's figure that would give it: acceptance of a token, of a lookup that of the first."""
        if self.family == "lookup":
            return self.extra / sum(LOOKUP_DECAY**i for i in range(self.k))
        return from_length(1 + self.extra, self.k)[0]


def traffic_of(dataset: str) -> str | None:
    """The class of a data set; None where it has none of them."""
    name = (
        dataset.lower()
        .partition(" (")[0]
        .rpartition(": ")[2]
        .removeprefix("spec-bench ")
        .removeprefix("speed-bench ")
    )
    return next((traffic for traffic, names in _TRAFFIC.items() if name in names), None)


def observations(
    records: Sequence[Record], implied: Mapping[str, tuple[Row, float]]
) -> list[Observation]:
    """Every yield that is stated, and those that a published gain implies."""
    found = [seen for record in records if (seen := _stated(record)) is not None]
    series = {}
    for row, tokens in implied.values():
        traffic = traffic_of(row.dataset)
        if traffic is not None:
            series[row.system, row.dataset, row.cell.k] = Observation(
                author_of(row.source),
                row.system,
                family_of(row.cell.method),
                traffic,
                row.cell.k,
                max(tokens - 1, _LEAST_EXTRA),
            )
    return found + list(series.values())


def _stated(record: Record) -> Observation | None:
    traffic, method, k = traffic_of(record["dataset"]), record["method"], record["k"]
    if method == _PLD and record["speedup"]:
        method, k, length = "ngram", _PLD_K, float(record["speedup"]) * _PLD_STEP
    elif (
        record["acceptance_length"]
        and k.isdecimal()
        and is_known(method)
        and _counts_every_step(record)
    ):
        length = float(record["acceptance_length"])
    else:
        return None
    if traffic is None:
        return None
    system = "/".join((record["target"], record["draft"]))
    extra = min(max(length - 1, _LEAST_EXTRA), 0.98 * int(k))
    return Observation(author_of(record["set"]), system, family_of(method), traffic, int(k), extra)


def _counts_every_step(record: Record) -> bool:
    """Return whether a length is over all steps, of which most sources of lookups count those that propose; a PARD
    draft is trained for its target, and says nothing of other draft models."""
    return record["method"] != "pard" and (
        record["method"] not in LOOKUPS or record["set"] == "specdecode-bench-traces"
    )


def classes_of(seen: Sequence[Observation]) -> dict[str, Any]:
    """The figure of every family and class, every author counting once, and the deviation of one system from what the
    others' authors say, as a logarithm of its extra tokens."""
    made: dict[str, Any] = {}
    for family in sorted({observation.family for observation in seen}):
        mine = [observation for observation in seen if observation.family == family]
        made[family] = {traffic: round(_mean(mine, traffic), 3) for traffic in _TRAFFIC}
        made[family]["deviation"] = round(_deviation(family, mine), 2)
    return made


def _mean(seen: Sequence[Observation], traffic: str) -> float:
    by_author: dict[str, list[float]] = {}
    for observation in seen:
        if observation.traffic == traffic:
            by_author.setdefault(observation.author, []).append(observation.rate)
    if by_author:
        return statistics.mean(statistics.mean(rates) for rates in by_author.values())
    neighbour = (_OF_LOOKUPS if seen[0].family == "lookup" else _NEIGHBOUR)[traffic]
    if any(observation.traffic == neighbour for observation in seen):
        return _mean(seen, neighbour)
    return statistics.mean(observation.rate for observation in seen)


def _deviation(family: str, seen: Sequence[Observation]) -> float:
    errors: dict[str, list[float]] = {}
    for observation in seen:
        others = [other for other in seen if other.author != observation.author]
        if others:
            expected = class_rates(family, _mean(others, observation.traffic), observation.k)
            error = math.log(sum(expected) / observation.extra)
            errors.setdefault(observation.author, []).append(error**2)
    return max(
        math.sqrt(statistics.mean(statistics.mean(squares) for squares in errors.values())), _LEAST
    )
