"""Limits on the watch's actions, from a policy file, each with a default that does nothing but report."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Annotated

from msgspec import Meta

from mpctl.methods import METHODS
from mpctl.yaml_lines import document

PREVIOUS = "previous"
FALL_BACK, NOTIFY = "fall_back", "notify"
_MONTH_S = 30 * 86400.0
_UpToADay = Annotated[float, Meta(ge=0, le=86400)]
_Loss = Annotated[float, Meta(ge=0.05, le=0.9)]


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
    - ``restart``: an engine whose acceptance fell to zero, or whose cache is poisoned, is restarted first, once in 24
      hours; what is still found after that falls back.
    - ``fleet_share``: most services that may be changed within ``fleet_window_s``, at least one; 0: none.
    - ``sentinel_s``: between two requests that show whether answers are still right; 0: none are sent.
      ``sentinel_share``: most of them as a share of users' requests. ``wrong_answers``: ``fall_back`` at once where the
      policy falls back at all, or ``notify``.
    - ``re_arm``: try the better spec again after the cool-down, behind the gate, with ``re_arm_prompts``: files of
      prompts by class of traffic.
    """

    interval_s: Annotated[float, Meta(ge=1, le=300)] = 15.0
    loss: _Loss = 0.2
    cache_loss: _Loss = 0.1
    false_alarms_per_month: Annotated[float, Meta(ge=0.01, le=1000)] = 1.0
    fall_back: bool = False
    ladder: Annotated[tuple[str, ...], Meta(min_length=1)] = (PREVIOUS,)
    confirm_s: _UpToADay = 30.0
    cool_down_s: Annotated[float, Meta(ge=0, le=_MONTH_S)] = 3600.0
    per_day: Annotated[int, Meta(ge=0, le=100)] = 2
    restart: bool = True
    fleet_share: Annotated[float, Meta(ge=0, le=1)] = 0.1
    fleet_window_s: Annotated[float, Meta(ge=1, le=_MONTH_S)] = 3600.0
    sentinel_s: _UpToADay = 300.0
    sentinel_share: Annotated[float, Meta(ge=0, le=0.05)] = 0.005
    wrong_answers: str = FALL_BACK
    re_arm: bool = False
    re_arm_prompts: dict[str, str] = field(default_factory=dict)

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
        node.asked.update(limit.name for limit in fields(cls))
        node.done()
        policy = node.read(cls)
        node.choice("wrong_answers", (FALL_BACK, NOTIFY), FALL_BACK)
        known = (*METHODS, PREVIOUS)
        for name in policy.ladder:
            if name not in known:
                raise node.error("ladder", f"{name} is none of {', '.join(known)}")
        return policy
