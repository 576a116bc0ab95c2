"""The card of a trained head: its target and origin, what it was trained on, and its acceptance on a hold-out.

A card holds no text of a prompt or an answer. The training prompts stand in it as salted digests, so that a measurement
can refuse a head that was trained on the measurement's own prompts. The hold-out may refuse a head, never promote it: a
gate on the live engine does that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from mpctl.experiment.prompt_files import Chat, Prompt
from mpctl.json_types import JsonView
from mpctl.records import Record
from mpctl.stats.confidence import Interval, Stage, mean_interval
from mpctl.stats.sequential import FEWEST

CARD_FILE = "card.json"
_DIGEST = 16  # hex digits: two of a million prompts share a digest once in 37 million cards
_TAIL = 0.025  # of each bound of a hold-out's interval: 95 % together


@dataclass(frozen=True)
class Target(Record):
    """The model that the head drafts for. ``digest``: sha256 over its weights, hex; empty if unknown."""

    model: str
    revision: str = ""
    digest: str = ""

    def difference(self, other: Target) -> str:
        """Return how another target, which serves, differs; empty where it does not. Digests count where both are
        known."""
        if self.model != other.model:
            return f"model {self.model}, and {other.model or 'an unknown one'} serves"
        if self.revision != other.revision:
            return f"revision {self.revision or 'unknown'}, and {other.revision or 'an unknown one'} serves"
        if self.digest and other.digest and self.digest != other.digest:
            return f"weights {self.digest[:12]}, and {other.digest[:12]} serve"
        return ""


@dataclass(frozen=True)
class StartHead(Record):
    """The head that training began with. ``digest``: sha256 over its weights, hex."""

    head: str
    digest: str


@dataclass(frozen=True)
class AcceptedCounts(Record):
    """A hold-out prompt in the engine: its decoding ``steps`` with a draft, and per position of the draft the steps
    that accepted this token and all before it."""

    steps: int
    accepted: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """Tokens that the steps emitted: one of the target's in each, and the accepted ones."""
        return self.steps + sum(self.accepted)


@dataclass(frozen=True)
class HeadFigures(Record):
    """A head on the hold-out. ``acceptance``: per position the share of steps that accepted it and all before it,
    0..1; ``tokens_per_step``: with its 95 % confidence interval over prompts."""

    acceptance: tuple[float, ...]
    tokens_per_step: Interval

    @classmethod
    def of(cls, counts: Sequence[AcceptedCounts]) -> HeadFigures:
        """Pool the counts of all prompts.

        Raises:
            ValueError: no prompt has a step.
        """
        steps = sum(count.steps for count in counts)
        if not steps:
            raise ValueError("the hold-out has no decoding step with a draft")
        positions = max(len(count.accepted) for count in counts)
        accepted = [
            sum(c.accepted[k] for c in counts if k < len(c.accepted)) for k in range(positions)
        ]
        rates = tuple(hits / steps for hits in accepted)
        return cls(rates, mean_interval(_linearised(counts), Stage(1, 1, _TAIL, _TAIL)))


def _linearised(counts: Sequence[AcceptedCounts]) -> list[float]:
    """Return a number per prompt, whose mean is the pooled tokens per step and whose spread is its error (the ratio
    estimator: Cochran, Sampling Techniques, 3rd edition, 6.3)."""
    ratio = sum(c.tokens for c in counts) / sum(c.steps for c in counts)
    mean_steps = sum(c.steps for c in counts) / len(counts)
    return [ratio + (c.tokens - ratio * c.steps) / mean_steps for c in counts]


@dataclass(frozen=True)
class Holdout(Record):
    """Old and new head on the same prompts, which neither training saw. ``k``: drafted tokens per step; ``difference``:
    new minus old tokens per step, paired by prompt; ``old`` is None for a head that was trained from nothing."""

    prompts: int
    k: int
    new: HeadFigures
    old: HeadFigures | None = None
    difference: Interval | None = None

    @classmethod
    def of(
        cls, k: int, new: Sequence[AcceptedCounts], old: Sequence[AcceptedCounts] | None = None
    ) -> Holdout:
        """Compare the counts of both heads, which stand in the order of the prompts.

        Raises:
            ValueError: the heads were not measured on the same number of prompts, or no prompt has a step.
        """
        if old is None:
            return cls(len(new), k, HeadFigures.of(new))
        pairs = zip(_linearised_of(new), _linearised_of(old), strict=True)
        difference = mean_interval([a - b for a, b in pairs], Stage(1, 1, _TAIL, _TAIL))
        return cls(len(new), k, HeadFigures.of(new), HeadFigures.of(old), difference)


def _linearised_of(counts: Sequence[AcceptedCounts]) -> list[float]:
    if not any(count.steps for count in counts):
        raise ValueError("the hold-out has no decoding step with a draft")
    return _linearised(counts)


@dataclass(frozen=True)
class TrainingRun(Record):
    """The cost of a training. ``tokens``: of the answers; ``cut_off``: share of answers that reached the limit of
    tokens, 0..1; ``gpu_hours``: 0 on a machine without a GPU."""

    tokens: int = 0
    steps: int = 0
    seconds: float = 0.0
    gpu_hours: float = 0.0
    cut_off: float = 0.0


@dataclass(frozen=True)
class Licences(Record):
    """Licences that the head derives from, as SPDX names; ``unknown`` where nothing says one."""

    target: str = "unknown"
    start: str = "unknown"


@dataclass(frozen=True)
class Card(Record):
    """Describes a head. ``training_digests``: :func:`prompt_digest` of each training prompt under ``salt``, empty for a
    head whose training prompts are unknown; ``prompts``: the order's digest over all that it was trained and measured
    on; ``made_with``: the trainer and its version; ``disk_reached``: collecting
    stopped at the limit of disk, and training had the transcripts before it."""

    name: str
    method: str
    target: Target
    head_digest: str
    start: StartHead | None = None
    salt: str = ""
    training_digests: tuple[str, ...] = ()
    prompts: str = ""
    holdout: Holdout | None = None
    versions: dict[str, str] = field(default_factory=dict)
    licences: Licences = Licences()
    made_with: str = ""
    trained: TrainingRun = TrainingRun()
    disk_reached: bool = False

    def better(self) -> bool:
        """Return whether the new head beats the one it started from on the hold-out: the interval of the difference
        lies above 0, over at least five prompts. A head without an old one to compare with is not refused here."""
        if self.holdout is None:
            return False
        difference = self.holdout.difference
        return difference is None or (
            difference.n >= FEWEST and difference.above(0.0, strictly=True)
        )

    def trained_on(self, prompts: Iterable[Prompt]) -> int:
        """Return how many of the prompts begin a conversation that the head was trained on."""
        digests = frozenset(self.training_digests)
        return (
            sum(prompt_digest(prompt, self.salt) in digests for prompt in prompts) if digests else 0
        )


def card_of(record: JsonView) -> Card:
    """Return the card that the ``card`` stage wrote: its ``counts`` per hold-out prompt become the hold-out's figures.

    Raises:
        ValueError: a field is missing, unknown or of another type, or the hold-out has no step with a draft.
    """
    fields = dict(record)
    counts = fields.pop("counts", None)
    if not counts:
        return Card.from_record(fields)
    new, old = (
        [AcceptedCounts.from_record(count) for count in counts[head]] if head in counts else None
        for head in ("new", "old")
    )
    holdout = Holdout.of(int(counts["k"]), new or (), old)
    return replace(Card.from_record(fields), holdout=holdout)


def prompt_digest(prompt: Prompt, salt: str) -> str:
    """Return the digest of the conversation that a prompt belongs to: sha256 over the salt and all messages up to the
    user's first, without regard to white space, cut to 16 hex digits. Later turns of a conversation have its digest."""
    opening = " ".join(_opening(prompt).split())
    return hashlib.sha256(f"{salt}\n{opening}".encode("utf-8", "surrogatepass")).hexdigest()[
        :_DIGEST
    ]


def _opening(prompt: Prompt) -> str:
    if not isinstance(prompt, Chat):
        return prompt
    opening = []
    for message in prompt.body["messages"]:
        content = message.get("content")
        opening.append(content if isinstance(content, str) else json.dumps(content, sort_keys=True))
        if message.get("role") == "user":
            break
    return "\n".join(opening)
