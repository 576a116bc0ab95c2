"""Limits on the watch's actions, from a policy file, each with a default that does nothing but report."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Annotated, Any, TypeVar

from msgspec import Meta

from mpctl.methods import METHODS
from mpctl.watch.refresh import LOOKUPS, UNKNOWN_LICENCE, RefreshPolicy
from mpctl.yaml_lines import Node, document

PREVIOUS = "previous"
FALL_BACK, NOTIFY = "fall_back", "notify"
_Policy = TypeVar("_Policy")
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
        policy = _read(node, cls)
        node.choice("wrong_answers", (FALL_BACK, NOTIFY), FALL_BACK)
        _require_known(node, "ladder", policy.ladder, (*METHODS, PREVIOUS))
        if policy.refresh is not None:
            refresh = node.node("refresh")
            _read(refresh, RefreshPolicy)
            _require_known(refresh, "free_methods", policy.refresh.free_methods, LOOKUPS)
            _require_known(refresh, "accepted", policy.refresh.accepted, (UNKNOWN_LICENCE,))
            if policy.refresh.apply and not policy.refresh.trainer:
                raise refresh.error("apply", "needs a trainer")
        return policy


def _read(node: Node, kind: type[_Policy]) -> _Policy:
    """Return a mapping as a dataclass, whose fields alone it may have."""
    shape: Any = kind
    node.asked.update(limit.name for limit in fields(shape))
    node.done()
    return node.read(kind)


def _require_known(node: Node, field: str, names: tuple[str, ...], known: tuple[str, ...]) -> None:
    for name in names:
        if name not in known:
            raise node.error(field, f"{name} is none of {', '.join(known)}")
