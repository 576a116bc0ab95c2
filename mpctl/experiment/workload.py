"""A workload: which prompts are sent to which arm, in which order.

A workload is a matrix: every class of traffic at every concurrency (or arrival rate) and temperature is a cell. It is
measured round by round; in a round every cell has one block per arm, and a coin decides which arm goes first, so that
neither a drift nor a rhythm of the machine favours one of them.

Within a class every prompt is sent once to each arm, over all cells: an engine that replays earlier answers (suffix
decoding, prefix caches) looks faster on a repeated prompt than it is. A workload with too few prompts is refused unless
``reuse`` is set; repeats are counted and reported with the result.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from mpctl.errors import InputError
from mpctl.experiment.cell import Cell, check_traffic
from mpctl.experiment.prompt_files import Prompt, conversations_of, text_of
from mpctl.experiment.variants import Variant
from mpctl.json_types import Json
from mpctl.records import Record, encode, form
from mpctl.stats.sequential import FEWEST, FIRST_LOOK

OPEN_LIMIT = 256  # most requests in flight in an open loop; time held back by it counts as waiting
WARM_UP = 2  # prompts of a class that warm an arm up and are not measured
_MOST_ROUNDS, _FEWEST_ROUNDS, _PROMPTS = 48, 12, 96
_COINS = 8  # tossed together
_GRAM, _ALIKE = 3, 0.7
_COMPARED, _WORDS, _PLACES = 200, 400, 20  # so that long prompts of one template take no second
_COST = 1.5  # times the prompts of one class that its variants take together
_ANSWER_S = 8.0  # of an answer that nobody measured
_FILL = 2  # requests of a block per request in flight, at least, so that the concurrency is reached


@dataclass(frozen=True)
class StoredPrompts:
    """The record of prompts: their number and the sha256 over them, without the texts, which may be users'. ``alike``:
    as :attr:`Traffic.alike`."""

    count: int
    digest: str
    alike: float = 0.0


@dataclass(frozen=True)
class Traffic:
    """A class of requests: ``prompts`` are distinct and in the order they are sent; ``share`` is its weight among the
    service's requests; ``repeated``: duplicates in its file, left out. ``stored``: of a class read from a record, whose
    prompts are not at hand. ``notes``: what of its file is left out or not sent."""

    name: str
    prompts: tuple[Prompt, ...]
    share: float = 1.0
    repeated: int = 0
    stored: StoredPrompts | None = None
    variant: Variant | None = (
        None  # of another class, with whose other variants it shares the rounds
    )
    notes: tuple[str, ...] = field(default=(), compare=False)  # no record keeps them

    def __post_init__(self) -> None:
        check_traffic(self.name)
        if not math.isfinite(self.share) or self.share <= 0:
            raise InputError(
                f"the share of {self.name} must be above 0, not {self.share:g}", field="prompts"
            )
        if len(set(self.prompts)) != len(self.prompts):
            raise InputError(f"prompts of {self.name} repeat", field="prompts")

    @property
    def count(self) -> int:
        """Number of distinct prompts."""
        return len(self.prompts) if self.stored is None else self.stored.count

    def digest(self) -> str:
        """sha256 over the prompts in their order, hex."""
        if self.stored is not None:
            return self.stored.digest
        return hashlib.sha256(json.dumps(list(map(text_of, self.prompts))).encode()).hexdigest()

    @property
    def alike(self) -> float:
        """The share of prompts, 0..1, that share most of their sequences of words with an earlier one."""
        return share_alike(self.prompts) if self.stored is None else self.stored.alike

    def single_turns(self) -> Traffic:
        """The class with one turn of each conversation, of the first its first, of the second its second: no prompt
        continues another."""
        every = enumerate(conversations_of(self.prompts))
        return replace(self, prompts=tuple(turns[n % len(turns)] for n, turns in every))

    def with_prompts(self, prompts: tuple[Prompt, ...]) -> Traffic:
        """The class with its prompts, one turn of each conversation where those were recorded; the same class where
        ``prompts`` are others than the recorded."""
        whole = replace(self, prompts=prompts, stored=None)
        choices = (
            choice for choice in (whole, whole.single_turns()) if choice.digest() == self.digest()
        )
        return next(choices, self)

    def without_prompts(self) -> Traffic:
        """The class as a record keeps it."""
        return replace(
            self, prompts=(), stored=StoredPrompts(self.count, self.digest(), self.alike)
        )


@lru_cache(maxsize=8)  # a rollout asks several times for the same prompts
def share_alike(prompts: tuple[Prompt, ...]) -> float:
    """Return the share of prompts, 0..1, that share most of their sequences of _GRAM words with one earlier prompt: an
    engine that keeps its answers replays them, although no two prompts are equal. The first _COMPARED prompts are
    compared by their first _WORDS words."""
    places: dict[tuple[str, ...], list[int]] = {}
    alike, compared = 0, prompts[:_COMPARED]
    for number, prompt in enumerate(compared):
        words = text_of(prompt).split()[:_WORDS]
        grams = {tuple(words[i : i + _GRAM]) for i in range(max(len(words) - _GRAM + 1, 1))}
        shared = Counter(earlier for gram in grams for earlier in places.get(gram, ()))
        alike += max(shared.values(), default=0) >= _ALIKE * len(grams)
        for gram in grams:
            if len(of_gram := places.setdefault(gram, [])) < _PLACES:
                of_gram.append(number)
    return alike / len(compared) if compared else 0.0


def _without_prompts(traffic: tuple[Traffic, ...]) -> list[Json]:
    records = [encode(kind.without_prompts()) for kind in traffic]
    return [
        {name: value for name, value in record.items() if name != "notes"} for record in records
    ]


@dataclass(frozen=True)
class Workload(Record):
    """A planned measurement; a record has no texts of prompts, which :meth:`with_prompts` adds again.

    ``concurrency``: closed loop, requests in flight; ``rates``: open loop, arrivals per second whether or not the
    engine keeps up; ``temperatures``: 0 is greedy, which makes outputs comparable. ``repeats``: rounds at most;
    ``requests``: prompts per block, or twice the concurrency where that is more; ``max_tokens``: limit per answer. The
    first ``warmup`` prompts of each class warm both arms in every cell and are not measured. ``max_time_s``: no round
    begins after so much time in blocks; 0 is no limit. ``reuse``: prompts are used again when they run out.
    ``accepted``: findings, among them differences between the arms (:mod:`mpctl.gate.arms`). ``single``: each block has
    one prompt, whatever ``requests`` says.
    """

    traffic: tuple[Traffic, ...] = field(metadata=form(write=_without_prompts))
    repeats: int
    requests: int
    concurrency: tuple[int, ...] = (1,)
    rates: tuple[float, ...] = ()
    temperatures: tuple[float, ...] = (0.0,)
    max_tokens: int = 256
    warmup: int = WARM_UP
    max_time_s: float = 0.0
    reuse: bool = False
    accepted: tuple[str, ...] = ()
    single: bool = False

    def __post_init__(self) -> None:
        for name in ("repeats", "requests", "max_tokens"):
            _at_least(name, getattr(self, name), 1)
        _at_least("warmup", self.warmup, 0)
        if not math.isfinite(self.max_time_s) or self.max_time_s < 0:
            raise InputError(f"must be a time, not {self.max_time_s:g}", field="max_time")
        if not self.concurrency and not self.rates:
            raise InputError("neither a concurrency nor a rate is given", field="concurrency")
        if not self.temperatures:
            raise InputError("none is given", field="temperatures")
        lists: dict[str, tuple[Any, ...]] = {
            "concurrency": self.concurrency,
            "rates": self.rates,
            "temperatures": self.temperatures,
            "prompts": tuple(t.name for t in self.traffic),
        }
        for name, values in lists.items():
            if len(set(values)) != len(values):
                raise InputError(f"{', '.join(map(str, values))}: duplicate value", field=name)
        if not self.traffic:
            raise InputError("no class of traffic is given", field="prompts")
        _ = self.cells  # raises for a value that no cell can have
        for kind in self.traffic:
            self._check_prompts(kind)

    def _check_prompts(self, kind: Traffic) -> None:
        counted = sum(
            self.repeats * self.requests_of(c) for c in self.cells if c.traffic == kind.name
        )
        needed = self.warmup + counted
        largest = max(self.requests_of(c) for c in self.cells if c.traffic == kind.name)
        notes = "".join(f"; {note}" for note in kind.notes)
        if kind.count < self.warmup + largest:
            raise InputError(
                f"{kind.count} distinct prompts of {kind.name} are too few: {self.warmup} to warm up and "
                f"{largest} in a block{notes}",
                field="prompts",
                hint="add prompts, or lower --requests or --concurrency",
            )
        if kind.count < needed and not self.reuse:
            cells = len(self.cells) // len(self.traffic)
            raise InputError(
                f"{kind.count} distinct prompts of {kind.name} are too few: {self.warmup} to warm up and "
                f"{self.repeats} rounds of {counted // self.repeats} in {cells} cell{'s' * (cells > 1)} need "
                f"{needed}{notes}",
                field="prompts",
                hint="add prompts, lower --repeats or --requests, or use them again: MPCTL_REUSE_PROMPTS=true",
            )

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Every combination, in the order of a round."""
        loops: list[tuple[int, float | None]] = [(c, None) for c in self.concurrency]
        loops += [(OPEN_LIMIT, rate) for rate in self.rates]
        return tuple(
            Cell(kind.name, concurrency, temperature, rate)
            for kind in self.traffic
            for temperature in self.temperatures
            for concurrency, rate in loops
        )

    def requests_of(self, cell: Cell) -> int:
        """Prompts in one block of the cell."""
        if self.single:
            return 1
        if self.variants:
            return max(
                self._alone(cell) // self.variants,
                cell.concurrency if cell.rate is None else 1,
            )
        return self._alone(cell)

    def _alone(self, cell: Cell) -> int:
        """Prompts in a block of a class that shares its rounds with no variant."""
        return (
            self.requests if cell.rate is not None else max(self.requests, _FILL * cell.concurrency)
        )

    @property
    def variants(self) -> int:
        """Number of variants that share a round; 0 where the classes have none."""
        return max((kind.variant.parts for kind in self.traffic if kind.variant), default=0)

    @property
    def most(self) -> int:
        """Requests in flight at most, of all closed loops; 1 without one."""
        return max(self.concurrency, default=1)

    @property
    def per_round(self) -> int:
        """Prompts sent to each arm in one round."""
        return sum(self.requests_of(cell) for cell in self.cells)

    def arm_s(self, answer_s: float | None = None) -> float:
        """Predicted time in s of all planned prompts to one arm, at most its half of the limit. ``answer_s``: of one
        answer; None where nobody measured it."""
        seconds = self.repeats * math.fsum(
            self.requests_of(cell) / (cell.rate or cell.concurrency / (answer_s or _ANSWER_S))
            for cell in self.cells
        )
        return min(seconds, self.max_time_s / 2 or seconds)

    @property
    def default_rounds(self) -> int:
        """Rounds that send 96 prompts, at most 48 and at least 12; fewer where there are fewer prompts."""
        largest = max(self._alone(cell) for cell in self.cells)
        wanted = max(min(_MOST_ROUNDS, _PROMPTS // largest), _FEWEST_ROUNDS)
        if self.variants:
            per_round = self.variants * max(map(self.requests_of, self.cells))
            wanted = max(int(_COST * wanted * largest) // per_round, FIRST_LOOK)
        allowed = self.rounds_allowed
        return wanted if allowed is None else max(min(wanted, allowed), FEWEST)

    @property
    def rounds_allowed(self) -> int | None:
        """Rounds for which there are distinct prompts; None where prompts are used again."""
        if self.reuse:
            return None
        return min(
            (kind.count - self.warmup)
            // sum(self.requests_of(c) for c in self.cells if c.traffic == kind.name)
            for kind in self.traffic
        )

    @property
    def shares(self) -> dict[str, float]:
        """The shares of the classes, which add up to 1."""
        total = math.fsum(t.share for t in self.traffic)
        return {t.name: t.share / total for t in self.traffic}

    def in_single_prompts(self) -> Workload:
        """The same prompts in blocks of one, where the only cell has blocks of two for one request in flight; the
        workload elsewhere."""
        if len(self.cells) > 1 or self.rates or self.requests_of(self.cells[0]) != _FILL:
            return self
        return replace(self, single=True, repeats=_FILL * self.repeats)

    def traffic_of(self, cell: Cell) -> Traffic:
        """The class whose prompts the cell sends."""
        return next(t for t in self.traffic if t.name == cell.traffic)

    def warmup_prompts(self, cell: Cell) -> tuple[Prompt, ...]:
        """Return the prompts sent to each arm before its first block in the cell; they are not measured."""
        return self._prompts_of(cell)[: self.warmup]

    def _prompts_of(self, cell: Cell) -> tuple[Prompt, ...]:
        kind = self.traffic_of(cell)
        if kind.stored is not None:
            raise InputError(
                f"the {kind.count} prompts of {kind.name} are not at hand, and no record keeps them",
                field="--prompts",
                hint=f"give the same file again: --prompts {kind.name}=FILE",
            )
        return kind.prompts

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """Those of every class, as far as they are at hand."""
        return tuple(prompt for kind in self.traffic for prompt in kind.prompts)

    @property
    def digests(self) -> dict[str, str]:
        """The digest of each class's prompts, by its name."""
        return {kind.name: kind.digest() for kind in self.traffic}

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the classes whose prompts are not at hand; in place of variants, of what they are variants of."""
        absent = (
            t.variant.of if t.variant else t.name for t in self.traffic if t.stored is not None
        )
        return tuple(dict.fromkeys(absent))

    def with_prompts(self, known: Callable[[str], tuple[Prompt, ...] | None]) -> Workload:
        """The workload with the prompts that ``known`` has for a class's name, where they are those recorded. Those of
        a variant follow from its class's."""

        def filled(kind: Traffic) -> Traffic:
            prompts = known(kind.name) if kind.stored is not None else None
            if prompts is None and kind.variant is not None and kind.stored is not None:
                base = known(kind.variant.of)
                prompts = None if base is None else kind.variant.prompts(base)
            return kind if prompts is None else kind.with_prompts(prompts)

        return replace(self, traffic=tuple(filled(kind) for kind in self.traffic))

    def slice(self, cell: Cell, repeat: int) -> tuple[Prompt, ...]:
        """The prompts of block ``repeat`` (0-based) in the cell, the same for both arms."""
        prompts = self._prompts_of(cell)[self.warmup :]
        return tuple(prompts[i] for i in self._indexes(cell, repeat))

    def _indexes(self, cell: Cell, repeat: int) -> tuple[int, ...]:
        """Positions of a block's prompts among those of the class that are not for warming up."""
        count = self.traffic_of(cell).count - self.warmup
        start = repeat * self.requests_of(cell)
        for other in self.cells:
            if other == cell:
                break
            if other.traffic == cell.traffic:
                start += self.repeats * self.requests_of(other)
        return tuple((start + i) % count for i in range(self.requests_of(cell)))

    def spare_prompts(self, count: int) -> tuple[Prompt, ...]:
        """At most ``count`` prompts that are not measured, of every class in turns: those that warm the arms up, then
        those that no block sends."""
        spare = (self.spare_prompts_of(kind) for kind in self.traffic)
        turns = itertools.chain.from_iterable(itertools.zip_longest(*spare))
        return tuple(prompt for prompt in turns if prompt is not None)[:count]

    def spare_prompts_of(self, kind: Traffic) -> tuple[Prompt, ...]:
        """The prompts of a class that are not measured, those that warm the arms up first."""
        cells = [cell for cell in self.cells if cell.traffic == kind.name]
        sent = {
            i
            for cell in cells
            for repeat in range(self.repeats)
            for i in self._indexes(cell, repeat)
        }
        prompts = self._prompts_of(cells[0])
        unsent = [prompt for i, prompt in enumerate(prompts[self.warmup :]) if i not in sent]
        return (*prompts[: self.warmup], *unsent)

    def digest(self) -> str:
        """sha256 over everything that determines the requests."""
        return hashlib.sha256(json.dumps(self.to_record(), sort_keys=True).encode()).hexdigest()


def prompts_for(concurrency: int) -> int:
    """Return the distinct prompts of a class that a measurement with so many requests at once needs for its first
    interim analysis."""
    return WARM_UP + FIRST_LOOK * _FILL * concurrency


def _at_least(name: str, value: int, low: int) -> None:
    if value < low:
        raise InputError(f"must be at least {low}, not {value}", field=name)


def round_order(
    arms: tuple[str, ...], cells: tuple[Cell, ...], repeat: int, *, seed: str
) -> tuple[tuple[Cell, str], ...]:
    """Return (cell, arm) in the order of one round. A coin decides for each cell and round which arm goes first; the
    same ``seed`` gives the same order, also after an interruption.

    A fixed order such as A B B A falls in step with noise of the same period: equal engines were told apart in 24 to
    88 of 100 simulated measurements. Of eight coins the last seven do not agree, or all are tossed again: what the
    first place in a round costs would otherwise be, in one of 64 measurements, a difference without spread.
    """
    order: list[tuple[Cell, str]] = []
    for cell in cells:
        tosses = _tosses(f"{seed}\n{cell.key}\n{repeat // _COINS}")
        order.extend((cell, arm) for arm in (arms if tosses >> repeat % _COINS & 1 else arms[::-1]))
    return tuple(order)


def _tosses(seed: str) -> int:
    """Eight coins, as the bits of a number."""
    for attempt in itertools.count():
        toss = hashlib.sha256(f"{seed}\n{attempt}".encode()).digest()[0]
        if toss >> 1 not in (
            0,
            2 ** (_COINS - 1) - 1,
        ):  # the first of all rounds does not count for speed
            return toss
    raise AssertionError
