"""Figures and outcomes as people read them. A figure that was not measured is ``?``, never zero."""

from __future__ import annotations

import math

from mpctl.report.values import Figure

UNKNOWN = "?"
# A word and a sign beside every colour, so that none carries meaning alone.
SIGNS = {"promote": "✓", "pass": "✓", "reject": "✗", "fail": "✗", "undecided": "?", "missing": "?", "skip": "·"}
WORDS = {
    "promote": "Promote",
    "reject": "Reject",
    "undecided": "Undecided",
    "pass": "pass",
    "fail": "fail",
    "missing": "no data",
    "skip": "not asked",
}


def number(value: float | None, digits: int = 2) -> str:
    """With thousands separated and ``digits`` after the point."""
    return UNKNOWN if value is None or not math.isfinite(value) else f"{value:,.{digits}f}"


def times(value: float | None) -> str:
    """A ratio as ``2.44x``."""
    return UNKNOWN if number(value) == UNKNOWN else f"{number(value)}x"


def percent(value: float | None, digits: int = 1) -> str:
    """A share of 0..1 as ``95.9 %``."""
    return UNKNOWN if value is None or not math.isfinite(value) else f"{100 * value:.{digits}f} %"


def milliseconds(value: float | None) -> str:
    """Three significant digits; from ten seconds on in seconds."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if abs(value) >= 10_000:
        return f"{value / 1000:,.1f} s"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f} ms"


def dollars(value: float | None) -> str:
    """US dollars, two digits from one dollar on, more below."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"${value:,.2f}" if abs(value) >= 1 else f"${value:.3g}" if value else "$0"


def duration(seconds: float | None) -> str:
    """Seconds, minutes or hours, whichever is one or more."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    for size, name in ((3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.2g} {name}" if seconds < 10 * size else f"{seconds / size:,.0f} {name}"
    return f"{seconds:.0f} s"


def in_unit(value: float | None, unit: str) -> str:
    """A value in the unit of a rule."""
    match unit:
        case "x":
            return times(value)
        case "ms":
            return milliseconds(value)
        case "share":
            return percent(value)
        case "tokens":
            return number(value)
        case _:
            whole = value is not None and math.isfinite(value) and value == int(value)
            return number(value, 0 if whole else 2)


def limit(value: float, unit: str) -> str:
    """A limit of a rule: people write round ones, which need no digits after the point."""
    return f"{100 * value:.4g} %" if unit == "share" and math.isfinite(value) else in_unit(value, unit)


def interval(figure: Figure, unit: str = "x") -> str:
    """``2.1x to 2.8x``; an open side is named; empty where there is none."""
    if figure.low is None and figure.high is None:
        return ""
    if figure.low is None:
        return f"at most {in_unit(figure.high, unit)}"
    if figure.high is None:
        return f"at least {in_unit(figure.low, unit)}"
    return f"{in_unit(figure.low, unit)} to {in_unit(figure.high, unit)}"


def level(figure: Figure) -> str:
    """``95 %``, or empty."""
    return "" if figure.level is None else f"{100 * figure.level:.4g} %"


def with_interval(figure: Figure, unit: str = "x") -> str:
    """``2.44x (95 %: 2.10x to 2.81x)``."""
    text = in_unit(figure.value, unit)
    spread = interval(figure, unit)
    head = level(figure)
    return f"{text} ({head + ': ' if head else ''}{spread})" if spread else text


def count(value: int | float | None) -> str:
    """A whole number with thousands separated."""
    return number(value, 0)


def plain(value: object) -> str:
    """A setting as it would be written in a file."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def printable(text: str) -> str:
    """The text without control characters but line ends and tabs: no format can carry or show them."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def of(part: int, whole: int) -> str:
    """``3 of 320``."""
    return f"{count(part)} of {count(whole)}"


def sign(outcome: str) -> str:
    """A sign for an outcome."""
    return SIGNS.get(outcome, UNKNOWN)


def word(outcome: str) -> str:
    """A word for an outcome."""
    return WORDS.get(outcome, outcome)
