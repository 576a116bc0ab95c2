"""The plots of the HTML report. Each answers one question, and says its answer in a text alternative as well.

The two arms differ by colour and by form (baseline: hollow, dashed; candidate: filled, solid), outcomes by colour and
by marker. Labels come from prompt files and manifests: matplotlib reads ``$`` as mathematics, so it is escaped. Text
stays text; ids are derived from a fixed salt and the plot's name, so the same run gives the same bytes, and two plots
on one page share none.
"""

from __future__ import annotations

import html
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from mpctl.formatting import estimate, milliseconds, ratio, share
from mpctl.json_types import JsonView
from mpctl.packaged import packaged
from mpctl.report.values import CellReport, outcome_word, printable
from mpctl.stats.confidence import Interval

_FILE = packaged(__package__, "style.yaml")
INK: Mapping[str, str] = _FILE["ink"]
_DPI = 72  # one SVG unit is one CSS pixel


@contextmanager
def canvas(width: float, height: float) -> Iterator[Figure]:
    """A figure of that many CSS pixels, in the style of the page."""
    with _style():
        yield Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI, layout="constrained")


def write(figure: Figure, name: str, alternative: str) -> str:
    """The figure as an ``<svg>`` element. ``alternative`` is its text for those who do not see it."""
    buffer = io.StringIO()
    writer: Any = FigureCanvasSVG(figure)
    with _style():
        writer.print_svg(
            buffer, metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
        )
    head, _, content = buffer.getvalue().partition("<svg")[2].partition(">")
    content = re.sub(
        r"<metadata>.*?</metadata>|<!--.*?-->|(?<=>)\s+(?=<)", "", content, flags=re.DOTALL
    )
    content = re.sub(r"<[^>]*>", lambda tag: _rounded(tag.group()), content)
    content = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{name}-", content)
    box = re.search(r'viewBox="([^"]*)"', head)
    assert box is not None, "matplotlib writes a viewBox"
    width, height = box.group(1).split()[2:]
    label = html.escape(printable(alternative), quote=True)
    return (
        f'<svg class="plot" role="img" aria-label="{label}" viewBox="{box.group(1)}" width="{width}" height="{height}" '
        f'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">{content.strip()}'
    )


def _rounded(tag: str) -> str:
    """The tag with its coordinates in hundredths of a pixel; labels between tags stay as they are."""
    return re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number.group()):.2f}", tag)


def _style() -> Any:
    style: Any = _FILE["style"]  # its keys are a Literal of three hundred names
    return mpl.rc_context(style)


_OUTCOME = {"promote": ("good", "o"), "reject": ("bad", "X"), "undecided": ("unsure", "D")}
WIDE, NARROW = 1000.0, 330.0  # CSS pixels: the page, and a phone
_PANEL = 340.0
_FROM, _TO = 10, 99  # percentiles that a plot of times shows at least


def throughput_ratios(cells: Sequence[CellReport], *, width: float, name: str) -> str:
    """Draw the throughput ratio of every cell with its confidence interval against 1x."""
    rows = [(c, c.comparison.throughput_ratio) for c in cells if c.comparison.throughput_ratio]
    alternative = "Throughput ratio, candidate over baseline. " + "; ".join(
        f"{c.label}: {estimate(c.comparison.throughput_ratio)}, {outcome_word(c.outcome).lower()}"
        for c in cells
    )
    with canvas(width, 62 + 46 * max(len(rows), 1)) as figure:
        axes = figure.subplots()
        low, high = _ratio_limits([interval for _, interval in rows])
        axes.set_xscale("log")
        axes.set_xlim(low, high)
        ticks = _ratio_ticks(low, high, at_most=5 if width < 500 else 9)
        axes.set_xticks(ticks, [f"{t:g}x" for t in ticks])
        axes.minorticks_off()
        axes.grid(axis="x")
        axes.axvline(1.0, color=INK["text"], linewidth=1.2)
        for y, (cell, interval) in enumerate(rows):
            _interval_row(axes, y, cell.outcome, interval, low, high)
        axes.set_ylim(len(rows) - 0.4, -0.75)
        axes.set_yticks(
            range(len(rows)),
            [f"{_name(c.traffic, width)}\n{_name(c.load, width)}" for c, _ in rows],
        )
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", labelcolor=INK["text"])
        axes.annotate("slower", (1, 0), (-8, 4), **_BESIDE_ONE, ha="right")
        axes.annotate("faster", (1, 0), (8, 4), **_BESIDE_ONE, ha="left")
        return write(figure, name, alternative)


_BESIDE_ONE: JsonView = {
    "xycoords": ("data", "axes fraction"),
    "textcoords": "offset points",
    "fontsize": 10.5,
    "color": INK["muted"],
}


def _interval_row(
    axes: Any, y: int, outcome: str, interval: Interval, low: float, high: float
) -> None:
    colour, marker = _OUTCOME.get(outcome, _OUTCOME["undecided"])
    start = (
        low if interval.low is None else max(interval.low, low)
    )  # an open side reaches to the edge
    end = high if interval.high is None else min(interval.high, high)
    axes.plot(
        [start, end], [y, y], color=INK[colour], linewidth=5, alpha=0.3, solid_capstyle="round"
    )
    axes.plot([interval.value], [y], marker, color=INK[colour], markersize=8.5, markeredgewidth=0)
    axes.annotate(
        ratio(interval.value),
        (interval.value or 1.0, y),
        (0, 10),
        textcoords="offset points",
        ha="center",
        fontsize=12,
        fontweight="bold",
    )


def distribution(cell: CellReport, metric: str, title: str, *, name: str) -> str:
    """Draw the share of requests answered within a time, both arms."""
    curves = {arm: cell.curves.get(arm, {}).get(metric, ()) for arm in ("baseline", "candidate")}
    medians = {arm: milliseconds(values[50] if values else None) for arm, values in curves.items()}
    ends = {arm: milliseconds(values[99] if values else None) for arm, values in curves.items()}
    alternative = (
        f"{title}, {cell.label}. Median: baseline {medians['baseline']}, candidate {medians['candidate']}. "
        f"99th percentile: baseline {ends['baseline']}, candidate {ends['candidate']}"
    )
    with canvas(_PANEL, 210) as figure:
        axes = figure.subplots()
        present = [values for values in curves.values() if values]
        if (
            present
        ):  # an answer that came in one chunk has a TPOT near zero, and would squeeze all others
            _time_axis(axes, min(v[_FROM] for v in present), max(v[_TO] for v in present))
        for arm, values in curves.items():
            if values:
                style = (
                    {"linestyle": (0, (5, 2.5)), "linewidth": 1.8}
                    if arm == "baseline"
                    else {"linewidth": 2.4}
                )
                axes.plot(values, [i / 100 for i in range(len(values))], color=INK[arm], **style)
                face = INK["surface"] if arm == "baseline" else INK[arm]
                axes.plot([values[50]], [0.5], "o", markersize=7, mec=INK[arm], mfc=face, mew=1.8)
        axes.set_ylim(0, 1.02)
        axes.set_yticks([0, 0.5, 0.9], ["0", "50 %", "90 %"])
        axes.grid(axis="y")
        axes.spines["left"].set_visible(False)
        axes.set_title(title, loc="left", fontsize=12, fontweight="bold", pad=10)
        return write(figure, name, alternative)


def acceptance(cells: Sequence[CellReport], *, name: str) -> str:
    """Draw the share of drafts accepted at each position, one line per cell of the candidate."""
    shown = [(c.label, rates) for c in cells if (rates := c.comparison.candidate.position_rates)]
    alternative = "Share of drafts whose token was accepted, by position. " + "; ".join(
        f"{label}: " + ", ".join(share(v, 0) for v in rates) for label, rates in shown
    )
    deepest = max((len(rates) for _, rates in shown), default=1)
    rows = (len(shown) + 1) // 2 if len(shown) > 1 else 0
    with canvas(_PANEL, 210 + 17 * rows) as figure:
        axes = figure.subplots()
        for index, (label, rates) in enumerate(shown):
            ends = max(1.0 - 0.16 * index, 0.35)
            axes.plot(
                range(1, len(rates) + 1),
                rates,
                color=INK["candidate"],
                alpha=ends,
                linewidth=2,
                marker="osD^vP"[index % 6],
                markersize=6,
                markeredgewidth=0,
                label=_name(label, WIDE),
            )
        axes.set_ylim(0, 1.04)
        axes.set_yticks([0, 0.5, 1.0], ["0", "50 %", "100 %"])
        axes.set_xlim(0.6, deepest + 0.4)
        axes.set_xticks(range(1, deepest + 1))
        axes.set_xlabel("position of the drafted token")
        if len(shown) > 1:
            figure.legend(
                loc="outside lower left", ncols=2, frameon=False, fontsize=10, handlelength=1.5
            )
        axes.grid(axis="y")
        axes.spines["left"].set_visible(False)
        return write(figure, name, alternative)


def _ratio_limits(rows: Sequence[Interval]) -> tuple[float, float]:
    points = [v for i in rows for v in (i.value, i.low, i.high) if v and math.isfinite(v)]
    low, high = min([*points, 1.0]), max([*points, 1.0])
    low, high = max(low, high / 100), min(high, low * 100)
    return low / 1.15, high * 1.15


def _ratio_ticks(low: float, high: float, *, at_most: int) -> list[float]:
    """Round ratios inside the limits, 1 always among them, as many as there is room for."""
    for steps in (
        (0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4),
        (0.5, 0.6, 0.8, 1, 1.25, 1.5, 2, 2.5, 3),
        (0.1, 0.2, 0.5, 1, 1.5, 2, 3, 4, 5, 7),
        (0.01, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 50),
        (0.001, 0.01, 0.1, 1, 10, 100, 1000),
    ):
        inside = [float(s) for s in steps if low <= s <= high]
        covered = steps[0] <= low * 1.5 and high / 1.5 <= steps[-1]
        if covered and 2 <= len(inside) <= at_most:
            return inside
    return [1.0]


def _time_axis(axes: Any, low: float, high: float) -> None:
    """Milliseconds from zero, or logarithmic where the arms are far apart."""
    if low > 0 and high / low > 12:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 3.0), numticks=5))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,g}"))
        axes.minorticks_off()
        axes.set_xlim(low / 1.15, high * 1.15)
        axes.set_xlabel("ms, logarithmic")
    else:
        axes.set_xlim(0, high * 1.05 or 1)
        axes.locator_params(axis="x", nbins=5)
        axes.set_xlabel("ms")


def _name(label: str, width: float) -> str:
    """A label that leaves room for the plot, as plain text for matplotlib."""
    room = 18 if width < 500 else 40
    short = label if len(label) <= room else f"{label[: room - 1]}…"
    return "".join(c if c.isprintable() else " " for c in short).replace("$", r"\$")
