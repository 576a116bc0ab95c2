"""The formatter of every measured figure: terminal tables, rule messages, JSON reports' sentences and pages ask it.

A figure that was not measured is ``?``, never zero; a figure that rounds to zero has no sign.
"""

from __future__ import annotations

import math
from typing import TypeGuard

from mpctl.stats.confidence import Interval

UNKNOWN = "?"
_IN_SECONDS = 120.0  # and more are shown in minutes


def is_known(value: float | None) -> TypeGuard[float]:
    """Return whether a figure was measured."""
    return value is not None and math.isfinite(value)


def number(value: float | None, digits: int = 2) -> str:
    """Return the number with separated thousands and ``digits`` after the point."""
    if not is_known(value):
        return UNKNOWN
    return f"{_unsigned_zero(value, digits):,.{digits}f}"


def count(value: float | None) -> str:
    """Return a whole number with separated thousands."""
    return number(value, 0)


def plural(number: int, noun: str) -> str:
    """Return ``1 pod`` or ``3 pods``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def part_of(part: float, whole: float) -> str:
    """Return ``3 of 320``."""
    return f"{count(part)} of {count(whole)}"


def ratio(value: float | None) -> str:
    """Return a ratio as ``2.44x``."""
    text = number(value)
    return text if text == UNKNOWN else f"{text}x"


def share(value: float | None, digits: int = 1) -> str:
    """Return a share of 0..1 as ``95.9%``."""
    if not is_known(value):
        return UNKNOWN
    return f"{_unsigned_zero(value, digits + 2):,.{digits}%}"


def milliseconds(value: float | None) -> str:
    """Return a time with three significant digits: ``1.23 ms``, ``123 ms``; in seconds from ten seconds on."""
    if not is_known(value):
        return UNKNOWN
    if abs(value) >= 10_000:
        return f"{value / 1000:,.1f} s"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{number(value, digits)} ms"


def difference_ms(value: float | None) -> str:
    """Return a difference of times with its sign: ``+1.23 ms``, ``-45.0 ms``."""
    text = milliseconds(value)
    return f"+{text}" if text[0].isdigit() and text.strip("0. ms") else text


def duration(seconds: float | None) -> str:
    """Return seconds, minutes or hours, the largest unit of which there is at least one."""
    if not is_known(seconds):
        return UNKNOWN
    for size, name in ((3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return (
                f"{seconds / size:.2g} {name}"
                if seconds < 10 * size
                else f"{seconds / size:,.0f} {name}"
            )
    return f"{seconds:.0f} s"


def time_taken(seconds: float) -> str:
    """Return a time that was measured: ``94 s``, and from two minutes on as :func:`duration`."""
    return f"{seconds:.0f} s" if seconds < _IN_SECONDS else duration(seconds)


def in_unit(value: float | None, unit: str) -> str:
    """Return a figure of a gate rule: unit "x" (ratio), "ms" (difference), "share", "tokens" or a plain number."""
    match unit:
        case "x":
            return ratio(value)
        case "ms":
            return difference_ms(value)
        case "share":
            return share(value)
        case "tokens":
            return number(value)
        case _:
            whole = is_known(value) and value == int(value)
            return number(value, 0 if whole else 2)


def limit(value: float | None, unit: str) -> str:
    """Return a limit of the policy; a share has no digits after the point that are not needed."""
    if unit == "share" and is_known(value):
        return f"{100 * value:.4g}%"
    return in_unit(value, unit)


def bounds(interval: Interval | None, unit: str = "x") -> str:
    """Return ``2.10x to 2.81x``, ``at least 2.10x`` where a side is open, "" where both are."""
    if interval is None or (interval.low is None and interval.high is None):
        return ""
    if interval.low is None:
        return f"at most {in_unit(interval.high, unit)}"
    if interval.high is None:
        return f"at least {in_unit(interval.low, unit)}"
    return f"{in_unit(interval.low, unit)} to {in_unit(interval.high, unit)}"


def level(interval: Interval | None) -> str:
    """Return the confidence level of an interval: ``97.5%``."""
    return "" if interval is None else f"{100 * interval.level:.3g}%"


def confidence(interval: Interval | None, unit: str = "x") -> str:
    """Return ``97.5% CI 2.10x to 2.81x``, or "no confidence interval yet"."""
    text = bounds(interval, unit)
    return f"{level(interval)} CI {text}" if text else "no confidence interval yet"


def estimate(interval: Interval | None, unit: str = "x") -> str:
    """Return ``2.44x (97.5% CI 2.10x to 2.81x)``, without the interval where there is none yet."""
    text = in_unit(interval.value if interval else None, unit)
    return f"{text} ({confidence(interval, unit)})" if bounds(interval, unit) else text


def _unsigned_zero(value: float, digits: int) -> float:
    return 0.0 if round(value, digits) == 0 else value
