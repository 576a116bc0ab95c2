"""The choice of the engines that are measured beside users. Pure: the service's load and its room in, a placement out.

Figures are those of a simulation (docs/how-to/users.md): equal engines looked up to 1.23 times faster where users
were on the baseline alone, so nothing is measured there while they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from mpctl.errors import InputError, Refused
from mpctl.experiment.users import Placement, UserLoad
from mpctl.experiment.workload import Workload
from mpctl.gate.users_traffic import equal_share

TURNS_LEAST = 5  # pairs; fewer show no spread
_TURN_ROUNDS = 8  # planned rounds side by side that become one pair of turns
_BESIDE_ROUNDS = 8  # at least; for the sake of fewer no more prompts are sent at once
_NEEDED = 500.0  # requests to the candidate that show 1.25x in 9 of 10 measurements
_LEAST_MIN = 10.0  # of a measurement by users' requests: a few of their bursts
_LEAST_PER_POD = 0.1  # requests/s; fewer take hours
_SLOWED, _SLOWED_BUSY, _BUSY_PER_POD = (
    25,
    160,
    1.5,
)  # users' requests until a candidate of half the speed is stopped
_OUT = "take the service out of traffic and run the same command again"


@dataclass(frozen=True)
class Room:
    """The arms that can run beside the service.

    ``engines``: engines that fit beside it now, 2 at most; ``shortage``: why no more do. ``fault``: why no second
    engine can run beside it at all. ``mirror_fault`` and ``split_fault``: why no route copies or splits its requests;
    empty where one does. ``start_s``: of an engine, ``block_s``: of all prompts to one arm; both predicted. ``pairs``:
    of turns that are planned.
    """

    engines: int
    shortage: str = ""
    fault: str = ""
    mirror_fault: str = ""
    split_fault: str = ""
    start_s: float = 0.0
    block_s: float = 0.0
    pairs: int = TURNS_LEAST


@dataclass(frozen=True)
class PlacementWishes:
    """``placement``: the one that was asked for, None for auto. ``users_share``: consent to the percentage of users'
    requests that may meet the candidate. ``mirror``: percentage of the copies that were asked for, 0 for none.
    ``limit_s``: the longest predicted measurement. ``max_pod_gap``: the largest difference between equal pods that the
    gate allows for. ``max_age_s``: of engines that are measured themselves."""

    placement: Placement | None = None
    users_share: int | None = None
    mirror: int = 0
    limit_s: float = 3 * 3600.0
    max_pod_gap: float = 0.1
    max_age_s: float = math.inf

    def age_note(self, users: UserLoad) -> str:
        """Return a sentence, after a space, on engines that ran for so long that a fresh candidate may be faster for
        its youth alone; empty without them."""
        if users.age_s <= self.max_age_s:
            return ""
        return (
            f" The service has been running for {users.age_s / 3600:.0f} h, above max_baseline_age of "
            f"{self.max_age_s / 3600:g} h: a fresh candidate may be faster for that alone."
        )


@dataclass(frozen=True)
class PlacementOption:
    """A placement for a service. ``fault``: why it is not possible, with what it needs; ``effect``: on users."""

    placement: Placement
    minutes: float = 0.0
    fault: str = ""
    effect: str = ""

    @property
    def in_words(self) -> str:
        """The option in one sentence."""
        if self.fault:
            return f"{_NAMES[self.placement]}: {self.fault}."
        return f"{_NAMES[self.placement]}: about {math.ceil(self.minutes)} min, {self.effect}."


@dataclass(frozen=True)
class PlacementChoice:
    """The chosen placement with its reason, and the other options. ``share``: percentage of users' requests that the
    candidate gets copies of, or answers."""

    placement: Placement
    why: str
    others: tuple[PlacementOption, ...] = ()
    share: int = 0

    @property
    def in_words(self) -> str:
        """The choice for whoever is asked to confirm it."""
        return "\n".join((self.why, *(option.in_words for option in self.others)))


_NAMES = {
    Placement.SERVICE: "On the service",
    Placement.PAIR: "A quiet pair (--measure-on pair)",
    Placement.MIRROR: "Mirroring (--measure-on mirror)",
    Placement.TURNS: "Turns on one GPU (--measure-on turns)",
    Placement.SPLIT: "Splitting (--measure-on split)",
}


def choose_placement(users: UserLoad, room: Room, wishes: PlacementWishes) -> PlacementChoice:
    """Choose the engines to measure.

    Raises:
        Refused: none that was asked for is possible; with what would make one possible.
    """
    options, age = _options(users, room, wishes), wishes.age_note(users)
    if wishes.placement is not None:
        return _as_asked(wishes.placement, users, options, age)
    order = [Placement.PAIR, Placement.MIRROR, Placement.SPLIT, Placement.TURNS]
    if not users.seen:
        alone = [Placement.PAIR, Placement.TURNS] if age else [Placement.PAIR]
        order = alone if age or users.earlier else []
    chosen = next((options[name] for name in order if not options[name].fault), None)
    if chosen is None and not users.seen:
        return _on_the_service(users, age)
    if chosen is None:
        raise Refused(
            f"{users.in_words}, and the baseline cannot be measured while they do. "
            + " ".join(options[name].in_words for name in order).rstrip("."),
            hint=f"{_OUT}, or add a GPU node",
        )
    return _chosen(chosen, users, options, age)


def _on_the_service(users: UserLoad, age: str) -> PlacementChoice:
    later = " Should users come, the verdict stays undecided." if users.earlier else ""
    if age:
        age += (
            " No fresh copy of it is measured: restart the service first, and both arms are as old."
        )
    return PlacementChoice(Placement.SERVICE, f"{_sentence(users.in_words)}{later}{age}")


def _as_asked(
    placement: Placement, users: UserLoad, options: dict[Placement, PlacementOption], age: str
) -> PlacementChoice:
    if placement is Placement.SERVICE:
        if users.seen:
            raise Refused(
                f"--measure-on service: {users.in_words}, and the baseline cannot be measured while they do: equal "
                "engines would look up to 1.23x faster",
                hint=f"{_OUT}, or leave --measure-on out",
            )
        return _on_the_service(users, age)
    option = options[placement]
    if option.fault:
        possible = [name.value for name, other in options.items() if not other.fault]
        instead = f"use --measure-on {possible[0]}, or " if possible else ""
        raise Refused(f"--measure-on {placement}: {option.fault}", hint=f"{instead}{_OUT}")
    return _chosen(option, users, options, age)


def _chosen(
    option: PlacementOption, users: UserLoad, options: dict[Placement, PlacementOption], age: str
) -> PlacementChoice:
    others = [other for name, other in options.items() if name is not option.placement]
    load = _sentence(users.in_words) + age
    if users.seen:
        load += " The baseline cannot be measured while they do."
    how = {
        Placement.PAIR: "A copy of the baseline is measured beside the candidate: 2 more engines",
        Placement.TURNS: "A copy of the baseline and the candidate take turns on one GPU",
        Placement.MIRROR: "The candidate gets copies of users' requests",
        Placement.SPLIT: "The candidate answers a share of users' requests",
    }[option.placement]
    judged = ""
    if option.placement.users_set_load:
        per_pod = users.requests_per_s / (users.pods + (option.placement is Placement.SPLIT))
        judged = f" Judged at {per_pod:.2g} requests/s per pod; saturation is not judged."
    why = f"{load} {how}, about {math.ceil(option.minutes)} min, {option.effect}.{judged}"
    share = share_of(option.placement, users.pods)
    return PlacementChoice(option.placement, why, tuple(others), share)


def share_of(placement: Placement, pods: int) -> int:
    """Percentage of users' requests at which the candidate has the load of each of ``pods`` serving pods."""
    if placement is Placement.MIRROR:
        return 100 // max(pods, 1)
    return equal_share(max(pods, 1)) if placement is Placement.SPLIT else 0


def in_turns(workload: Workload) -> Workload:
    """The same prompts in as few blocks as the gate can judge: between two blocks an engine starts."""
    rounds = min(max(workload.repeats // _TURN_ROUNDS, TURNS_LEAST), workload.repeats)
    requests = min(workload.requests_of(cell) for cell in workload.cells)
    return replace(workload, repeats=rounds, requests=requests * workload.repeats // rounds)


def at_users_load(workload: Workload, users: UserLoad, *, rounds: int | None) -> Workload:
    """The same prompts with as many at once as users keep on each pod, or as many as there are distinct prompts for.

    ``rounds``: as the user chose them; None for as many as the prompts allow.
    """
    for concurrency in range(round(users.in_flight_per_pod or 0.0), 1, -1):
        try:
            loaded = replace(workload, concurrency=(concurrency,), repeats=rounds or _BESIDE_ROUNDS)
        except InputError:
            continue
        return loaded if rounds else replace(loaded, repeats=loaded.default_rounds)
    return workload


def _options(
    users: UserLoad, room: Room, wishes: PlacementWishes
) -> dict[Placement, PlacementOption]:
    """Every placement beside users."""
    pair = (2 * room.start_s + 2 * room.block_s) / 60
    share = share_of(Placement.SPLIT, users.pods)
    # A small share of busy pods flatters it.
    slowed = _SLOWED if users.per_pod <= _BUSY_PER_POD else _SLOWED_BUSY
    split = (
        f"{share} % of users' requests meet the candidate; if it is half as fast, about {slowed} are slowed first "
        f"(--users-share {share} consents)"
    )
    options = (
        PlacementOption(Placement.PAIR, pair, _pair_fault(room), "users unaffected"),
        _by_users(Placement.MIRROR, users, room, wishes, "users unaffected"),
        _turns(room, wishes),
        _by_users(Placement.SPLIT, users, room, wishes, split),
    )
    return {option.placement: option for option in options}


def _pair_fault(room: Room) -> str:
    if room.fault:
        return room.fault
    if room.engines >= 2:
        return ""
    free = "none is" if room.engines == 0 else "1 is"
    return f"needs room for 2 engines, {free} free" + (
        f" ({room.shortage})" if room.shortage else ""
    )


def _turns(room: Room, wishes: PlacementWishes) -> PlacementOption:
    effect = "users unaffected"
    minutes = 2 * (room.pairs * room.start_s + room.block_s) / 60
    fault = room.fault
    if not fault and room.pairs < TURNS_LEAST:
        fault = f"{room.pairs} pairs of turns decide nothing: --repeats {TURNS_LEAST} or more"
    if not fault and room.engines < 1:
        fault = "needs room for 1 engine, none is free" + (
            f" ({room.shortage})" if room.shortage else ""
        )
    if not fault and minutes * 60 > wishes.limit_s:
        fault = (
            f"about {math.ceil(minutes)} min, as {2 * room.pairs} engine starts take {room.start_s:.0f} s each, above "
            f"measure_limit of {wishes.limit_s / 60:.0f} min"
        )
    return PlacementOption(Placement.TURNS, minutes, fault, effect)


def _by_users(
    placement: Placement, users: UserLoad, room: Room, wishes: PlacementWishes, effect: str
) -> PlacementOption:
    """Mirror or split: users' requests are what is measured."""
    mirrors = placement is Placement.MIRROR
    share = share_of(placement, users.pods)
    to_candidate = users.requests_per_s * share / 100
    minutes = max(_NEEDED / to_candidate / 60, _LEAST_MIN) if to_candidate else math.inf
    return PlacementOption(
        placement, minutes, _users_fault(mirrors, share, minutes, users, room, wishes), effect
    )


def _users_fault(  # noqa: PLR0911
    mirrors: bool, share: int, minutes: float, users: UserLoad, room: Room, wishes: PlacementWishes
) -> str:
    if fault := room.fault or (room.mirror_fault if mirrors else room.split_fault):
        return fault
    if room.engines < 1:
        return "needs room for 1 engine, none is free"
    if not users.seen:
        return "no user was seen, so there is nothing to judge by"
    if not share:
        return f"{users.pods} pods serve, so not even 1 % of the requests loads a candidate pod like each of them"
    if users.per_pod < _LEAST_PER_POD:
        return f"users send {users.per_pod:.2g} requests/s to each pod, at least {_LEAST_PER_POD:g} are needed"
    if users.pod_gap > wishes.max_pod_gap:
        return (
            f"times per output token of the serving pods differ by {100 * users.pod_gap:.0f} %, so no candidate pod "
            f"can be judged beside them: max_pod_gap of the policy allows for {100 * wishes.max_pod_gap:g} %"
        )
    if mirrors and 0 < wishes.mirror < share:
        return f"copies of {wishes.mirror} % load the candidate less than a serving pod; a promotion needs {share} %"
    if not mirrors and wishes.users_share is None:
        return f"needs your consent that {share} % of users' requests meet the candidate: --users-share {share}"
    if not mirrors and wishes.users_share is not None and wishes.users_share != share:
        load = "more" if wishes.users_share > share else "less"
        return f"{wishes.users_share} % load the candidate {load} than each serving pod: --users-share {share}"
    if minutes * 60 > wishes.limit_s:
        return f"about {math.ceil(minutes)} min at this load, above measure_limit of {wishes.limit_s / 60:.0f} min"
    return ""


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
