"""Limits on the watch's actions, from a policy file, each with a default that does nothing but report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from mpctl.errors import InputError
from mpctl.json_types import Json
from mpctl.methods import METHODS
from mpctl.records import decode
from mpctl.watch.refresh import UNKNOWN_LICENCE, RefreshPolicy
from mpctl.yaml_lines import document

PREVIOUS = "previous"
FALL_BACK, NOTIFY = "fall_back", "notify"


@dataclass(frozen=True)
class WatchPolicy:
    """The limits for reports and actions. Durations are seconds, shares 0..1.

    - ``interval_s``: between two readings. ``loss``: the loss of speed that is to be found, 0.2 for 20 %.
      ``cache_loss``: the share of users' prompts that the prefix cache no longer holds, which is to be found.
    - ``false_alarms_per_month``: of one service, all statistical findings together.
    - ``fall_back``: act at all. ``ladder``: what replaces a spec that no longer pays, the best first: methods, or
      ``previous`` for the revision before the promotion; only recorded revisions that served are restored.
    - ``confirm_s``: how long a finding must last before it is acted on. ``cool_down_s``: least time between two changes
      of a service by the watch. ``per_day``: most fallbacks of a service in 24 hours.
    - ``restart``: an engine whose acceptance fell to zero is restarted first, once in 24 hours; what still accepts
      nothing after that falls back.
    - ``fleet_share``: most services that may be changed within ``fleet_window_s``, at least one; 0: none.
    - ``sentinel_s``: between two requests that show whether answers are still right; 0: none are sent.
      ``sentinel_share``: most of them as a share of users' requests. ``wrong_answers``: ``fall_back`` at once where the
      policy falls back at all, or ``notify``.
    - ``re_arm``: try the better spec again after the cool-down, behind the gate, with ``re_arm_prompts``: files of
      prompts by class of traffic.
    - ``refresh``: propose or train a new draft where the one of the service went stale
      (:class:`mpctl.watch.refresh.RefreshPolicy`); None: neither.
    """

    interval_s: float = 15.0
    loss: float = 0.2
    cache_loss: float = 0.1
    false_alarms_per_month: float = 1.0
    fall_back: bool = False
    ladder: tuple[str, ...] = (PREVIOUS,)
    confirm_s: float = 30.0
    cool_down_s: float = 3600.0
    per_day: int = 2
    restart: bool = True
    fleet_share: float = 0.1
    fleet_window_s: float = 3600.0
    sentinel_s: float = 300.0
    sentinel_share: float = 0.005
    wrong_answers: str = FALL_BACK
    re_arm: bool = False
    re_arm_prompts: Mapping[str, str] = ()  # type: ignore[assignment]
    refresh: RefreshPolicy | None = None

    @property
    def run_length(self) -> float:
        """Windows between two false alarms of one of the two statistical findings."""
        return 2.0 * 30.0 * 86400.0 / self.interval_s / self.false_alarms_per_month

    @classmethod
    def parse(cls, text: str, *, file: str) -> WatchPolicy:
        """Read a policy file.

        Raises:
            InputError: no YAML mapping of known limits; file, line and field are named.
        """
        node = document(text, file)
        values: Json = {}
        for name, value in node.body.items():
            fault = _fault(str(name), value)
            if fault:
                raise InputError(fault, file=file, line=node.line_of(str(name)), field=str(name))
            values[str(name)] = tuple(value) if isinstance(value, list) else value
        if "refresh" in values:
            values["refresh"] = decode(RefreshPolicy, values["refresh"])
        return cls(**values)


_RANGES = {
    "interval_s": (1.0, 300.0),
    "loss": (0.05, 0.9),
    "cache_loss": (0.05, 0.9),
    "false_alarms_per_month": (0.01, 1000.0),
    "confirm_s": (0.0, 86400.0),
    "cool_down_s": (0.0, 30 * 86400.0),
    "per_day": (0, 100),
    "fleet_share": (0.0, 1.0),
    "fleet_window_s": (1.0, 30 * 86400.0),
    "sentinel_s": (0.0, 86400.0),
    "sentinel_share": (0.0, 0.05),
}


def _fault(name: str, value: Any) -> str:
    """Describe the error in a limit; empty when it is valid."""
    if name not in {f.name for f in fields(WatchPolicy)}:
        return f"unknown; known are {', '.join(f.name for f in fields(WatchPolicy))}"
    if name in _RANGES:
        least, most = _RANGES[name]
        number = (
            isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        )
        whole = not isinstance(least, int) or isinstance(value, int)
        return (
            ""
            if number and whole and least <= value <= most
            else f"must be a number from {least:g} to {most:g}"
        )
    if name in ("fall_back", "restart", "re_arm"):
        return "" if isinstance(value, bool) else "must be true or false"
    if name == "wrong_answers":
        return "" if value in (FALL_BACK, NOTIFY) else f"must be {FALL_BACK} or {NOTIFY}"
    if name == "ladder":
        rungs = {*METHODS, PREVIOUS}
        sound = (
            isinstance(value, list)
            and value
            and all(isinstance(v, str) and v in rungs for v in value)
        )
        return "" if sound else f"must be a list of {', '.join(sorted(rungs))}"
    if name == "refresh":
        return _fault_of_refresh(value)
    sound = isinstance(value, dict) and all(
        isinstance(k, str) and isinstance(v, str) for k, v in value.items()
    )
    return "" if sound else "must be a mapping of classes of traffic to files"


def _fault_of_refresh(value: Any) -> str:
    try:
        policy = decode(RefreshPolicy, value)
    except ValueError as error:
        return str(error)
    lookups = [name for name, row in METHODS.items() if row.is_lookup]
    if unknown := [name for name in policy.free_methods if name not in lookups]:
        return f"free_methods: {unknown[0]} is none of {', '.join(lookups)}"
    if unknown := sorted({*policy.accepted} - {UNKNOWN_LICENCE}):
        return f"accepted: {unknown[0]} is no finding of a training: {UNKNOWN_LICENCE}"
    if policy.apply and not policy.trainer:
        return "apply needs a trainer"
    numbers = (
        policy.min_prompts,
        policy.attempts,
        policy.gpu_hours_per_week,
        policy.cool_down_s,
        policy.deadline_s,
    )
    positive = min(policy.min_prompts, policy.steps) > 0 and all(
        0 <= number < math.inf for number in numbers
    )
    return (
        ""
        if policy.prompts and positive
        else "needs prompts, and numbers from 0, min_prompts and steps from 1"
    )
