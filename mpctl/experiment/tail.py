"""The slowest requests of an arm: by which clock a 99th percentile is known, and how far it may be off.

The load client times chunks as they arrive. On a machine with too few processors the API server and the client get
less of them than the engine: chunks reach the client merged, in the extreme a whole answer at once, so that the first
token seems to come with the last one (722 ms at p99 where the engine's mean is 15 ms). A tool parser holds chunks back
as well. Then only the engine's own histogram knows; its quantile is the upper bound of a bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mpctl.experiment.arm import ArmSummary
from mpctl.experiment.run import Calibration

MERGED = 0.05  # of a request's time that the client assigns to the wrong token
_PARSER = "--enable-auto-tool-choice"


@dataclass(frozen=True)
class Tail:
    """A 99th percentile in ms. ``source``: ``client``, ``engine`` (the value is an upper bound), or empty without a
    value; ``error_ms``: what the load client itself adds at p99, by its calibration; ``why``: the reason why the
    client's own value is not shown."""

    value_ms: float | None = None
    source: str = ""
    error_ms: float | None = None
    why: str = ""


def tail_of(arm: ArmSummary, name: str, calibration: Calibration | None, argv: Sequence[str] = ()) -> Tail:
    """The 99th percentile of ``ttft``, ``tpot`` or ``e2e``. ``argv``: the engine's arguments."""
    spread = getattr(arm, name)
    why = "" if name == "e2e" else client_unfit(arm, argv)
    if why:
        p99_ms = getattr(arm.window, f"{name}_p99_ms") if arm.window else None
        return Tail(p99_ms, "engine" if p99_ms is not None else "", why=why)
    if spread is None:
        return Tail()
    return Tail(spread.p99, "client", _error_ms(arm, name, calibration))


def client_unfit(arm: ArmSummary, argv: Sequence[str] = ()) -> str:
    """The reason why the load client cannot time this arm's tokens; empty when it can or no engine time exists."""
    if _PARSER in argv:
        return f"the engine's tool parser ({_PARSER}) holds chunks back"
    lag = arm.client_lag
    if lag is not None and lag > MERGED:
        return f"chunks reached the load client merged, {lag:.0%} of a request's time went to the wrong token"
    return ""


def _error_ms(arm: ArmSummary, name: str, calibration: Calibration | None) -> float | None:
    """An error of the whole answer is shared by its tokens."""
    if calibration is None:
        return None
    answered = max(arm.requests - arm.failed, 1)
    return calibration.p99_ms / max(arm.output_tokens / answered, 1.0) if name == "tpot" else calibration.p99_ms
