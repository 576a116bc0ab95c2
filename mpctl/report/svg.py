"""A matplotlib figure as a small inline SVG that follows the page: its colours are CSS variables, its text is text.

Matplotlib knows no CSS, so it draws in placeholder colours that occur nowhere else, and these are replaced in the
written SVG. Text is set in matplotlib's own font while it lays out, and in the page's font when it is shown. Ids are
derived from a fixed salt and the plot's name: the same run gives the same bytes, and two plots on one page share none.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mpctl.report.outcomes import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

# Placeholder -> CSS variable of the page.
INK = {
    "text": "#010101",
    "muted": "#020202",
    "grid": "#030303",
    "baseline": "#040404",
    "candidate": "#050505",
    "good": "#060606",
    "bad": "#070707",
    "unsure": "#080808",
    "surface": "#090909",
}
_DPI = 72  # one SVG unit is one CSS pixel
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "mpctl",
    "font.family": "DejaVu Sans",  # comes with matplotlib; wider than what pages use, so nothing overlaps
    "font.size": 12,
    "text.color": INK["text"],
    "axes.edgecolor": INK["grid"],
    "axes.labelcolor": INK["muted"],
    "axes.labelsize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "axes.axisbelow": True,
    "grid.color": INK["grid"],
    "grid.linewidth": 0.8,
    "xtick.color": INK["grid"],
    "ytick.color": INK["grid"],
    "xtick.labelcolor": INK["muted"],
    "ytick.labelcolor": INK["muted"],
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "path.simplify": True,
    "axes.unicode_minus": True,
}
_SMALL = 3  # decimals kept of a coordinate: a thousandth of a pixel


@contextmanager
def canvas(width: float, height: float) -> Iterator[Canvas]:
    """A figure of that many CSS pixels, in the style of the page."""
    from matplotlib.figure import Figure

    with _style():
        yield Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI, layout="constrained")


def write(figure: Canvas, name: str, alternative: str) -> str:
    """The figure as an ``<svg>`` element. ``alternative`` is its text for those who do not see it."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    buffer = io.StringIO()
    writer: Any = FigureCanvasSVG(figure)
    with _style():
        writer.print_svg(buffer, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return _adapt(buffer.getvalue(), name, alternative)


def _style() -> Any:
    import matplotlib as mpl

    style: Any = _STYLE  # its keys are a Literal of three hundred names
    return mpl.rc_context(style)


def _adapt(text: str, name: str, alternative: str) -> str:
    body = text[text.index("<svg") :]
    head, _, content = body.partition(">")
    box = re.search(r'viewBox="([^"]*)"', head)
    assert box is not None, "matplotlib writes a viewBox"
    content = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", content, flags=re.DOTALL)
    for role, colour in INK.items():
        content = content.replace(colour, f"var(--{role})")
    # Positions and sizes stay matplotlib's, the family becomes the page's.
    content = re.sub(r"font: (\d+(?:\.\d+)?px) '[^']*'(?:, sans-serif)?", r"font-size: \1", content)
    content = re.sub(r"font-family: [^;\"]*;? ?", "", content)
    content = re.sub(rf"-?\d+\.\d{{{_SMALL + 1},}}", lambda m: _short(m.group()), content)
    content = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{name}-", content)
    content = re.sub(r">\s+<", "><", content).strip()
    width, height = box.group(1).split()[2:]
    label = html.escape(printable(alternative), quote=True)
    return (
        f'<svg class="plot" role="img" aria-label="{label}" viewBox="{box.group(1)}" width="{width}" height="{height}" '
        f'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">{content}'
    )


def _short(number: str) -> str:
    return f"{float(number):.{_SMALL}f}".rstrip("0").rstrip(".") or "0"
