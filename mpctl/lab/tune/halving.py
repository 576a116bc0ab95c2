"""Successive halving: the best of several configurations with few measurements (Jamieson and Talwalkar, AISTATS 2016).

Every configuration gets a few rounds. The better half gets twice as many, and so on to the last rung. With a time limit
fewer configurations are tried, so that the best of them still reaches the last rung.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

_FIRST = 3  # rounds of the first rung; a spread needs three


@dataclass(frozen=True)
class Standing:
    """A configuration after ``rounds``. ``value``: higher is better; ``out``: it takes no further part. This trial took
    ``seconds``, of them ``start_s`` before the first round."""

    rounds: int
    value: float
    seconds: float
    start_s: float = 0.0
    out: bool = False


# (configuration, rounds in all) -> its standing
Trial = Callable[[int, int], Standing]


@dataclass(frozen=True)
class Search:
    """``standings`` by configuration; ``best``: None where every one is out; ``untried`` for lack of time;
    ``finished``: the best one had all rounds."""

    standings: dict[int, Standing]
    best: int | None
    untried: tuple[int, ...]
    finished: bool
    seconds: float


def rungs_of(rounds: int) -> tuple[int, ...]:
    """Rounds in all after each rung: 3, 6, 12, ... and ``rounds``."""
    rungs, count = [], _FIRST
    while count < rounds:
        rungs.append(count)
        count *= 2
    return (*rungs, rounds)


def search(count: int, rounds: int, trial: Trial, *, limit_s: float = 0.0) -> Search:
    """Search ``count`` configurations, the most promising first. ``limit_s``: no trial begins that would end later, by
    the slowest start and pace so far; 0 is no limit."""
    rungs, standings, spent = rungs_of(rounds), dict[int, Standing](), 0.0
    field, pace = list(range(count)), _Pace()

    def fits(seconds: float) -> bool:
        return not limit_s or not standings or spent + seconds <= limit_s

    for step, goal in enumerate(rungs):
        following = rungs[step + 1 :]
        if step:
            while len(field) > 1 and not fits(
                pace.of_rungs(len(field), (rungs[step - 1], goal, *following))
            ):
                field.pop()
        for index in tuple(field):
            before = standings[index].rounds if index in standings else 0
            this = pace.of_trial(goal - before)
            later = 0.0 if step else pace.of_rungs(_half(len(standings) + 1), rungs)
            if not fits(this + later):
                if step:
                    return _end(standings, field, rounds, count, spent)
                break
            standing = standings[index] = trial(index, goal)
            spent += standing.seconds
            pace.learn(standing, standing.rounds - before)
        alive = [index for index in field if index in standings and not standings[index].out]
        field = sorted(alive, key=lambda index: -standings[index].value)
        if following:
            field = field[: _half(len(field))]
    return _end(standings, field, rounds, count, spent)


def _end(
    standings: dict[int, Standing], field: Sequence[int], rounds: int, count: int, spent: float
) -> Search:
    alive = [index for index in field if not standings[index].out]
    best = max(
        alive, key=lambda index: (standings[index].rounds, standings[index].value), default=None
    )
    untried = tuple(index for index in range(count) if index not in standings)
    return Search(
        standings, best, untried, best is not None and standings[best].rounds >= rounds, spent
    )


def _half(count: int) -> int:
    return (count + 1) // 2


@dataclass
class _Pace:
    """The slowest start and round so far."""

    start_s: float = 0.0
    round_s: float = 0.0

    def learn(self, standing: Standing, rounds: int) -> None:
        self.start_s = max(self.start_s, standing.start_s)
        if rounds > 0:
            self.round_s = max(self.round_s, (standing.seconds - standing.start_s) / rounds)

    def of_trial(self, rounds: int) -> float:
        return self.start_s + rounds * self.round_s

    def of_rungs(self, count: int, rungs: Sequence[int]) -> float:
        """Seconds of every rung after the first one listed, with ``count`` configurations in the next."""
        total = 0.0
        for before, goal in pairwise(rungs):
            total += count * self.of_trial(goal - before)
            count = _half(count)
        return total
