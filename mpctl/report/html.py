"""The report as one HTML file: no script, no request, one style sheet, plots inline.

Everything a user or an engine wrote goes through jinja2's autoescape; the only texts put in unescaped are this
package's own style sheet and the SVG of :mod:`mpctl.report.plots`, which escapes what it shows. The page's own
Content-Security-Policy forbids every load all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from mpctl import formatting
from mpctl.json_types import Json
from mpctl.report import plots
from mpctl.report.text_table import argument_lines, condition_rows, tail_text
from mpctl.report.values import CellReport, Report, outcome_sign, outcome_word, printable, title_of

_TITLES = {"ttft": "Time to first token", "tpot": "Time per output token", "e2e": "Whole answer"}
_CELLS_WITH_PLOTS = 12  # three panels of 7 kB each


def html_report(report: Report) -> str:
    """The whole page."""
    main = report.main
    files = resources.files("mpctl.report").joinpath("templates")
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        finalize=_shown,
    )
    environment.filters["capitalize_first"] = lambda text: text[:1].upper() + text[1:]
    environment.filters["lower_first"] = lambda text: text[:1].lower() + text[1:]
    template = environment.from_string(files.joinpath("report.html.j2").read_text(encoding="utf-8"))
    base, cand = report.baseline.kv_pool_tokens, report.candidate.kv_pool_tokens
    lost = 1.0 - cand / base if base and cand is not None else 0.0
    return template.render(
        report=report,
        fmt=formatting,
        outcome_word=outcome_word,
        outcome_sign=outcome_sign,
        title_of=title_of,
        tail_text=tail_text,
        plain=lambda setting: f"{setting:g}" if isinstance(setting, float) else setting,
        figure=lambda window, name: getattr(window, name, None),
        policy={
            name: value for name, value in report.policy.to_record().items() if value is not None
        },
        level=formatting.level(main.comparison.throughput_ratio) if main else "",
        style=Markup(files.joinpath("style.css").read_text(encoding="utf-8")),
        plots=_plots(report),
        pair=_pair,
        tiles=_tiles(main),
        tile_cell=main.label if main else "",
        shares=any(c.share is not None for c in report.cells),
        conditions=condition_rows(report),
        # The share of the KV cache that the candidate does without, where it is one percent or more.
        pool_lost=formatting.share(lost, 0) if lost >= 0.01 else "",
        lines=argument_lines(report.baseline.argv, report.candidate.argv),
    )


def _shown(value: Any) -> Any:
    """A text without the control characters that HTML forbids; our own markup as it is."""
    plain = isinstance(value, str) and not hasattr(value, "__html__")
    return printable(value) if plain else value


def _plots(report: Report) -> Json:
    def safe(svg: str) -> Markup:
        return Markup(svg)

    latency = [
        {
            "label": cell.label,
            "note": "" if any(cell.curves.values()) else "No request was timed.",
            "panels": [
                safe(plots.distribution(cell, metric, title, name=f"c{index}{metric}"))
                for metric, title in _TITLES.items()
                if any(arm.get(metric) for arm in cell.curves.values())
            ],
        }
        for index, cell in enumerate(report.cells[:_CELLS_WITH_PLOTS])
    ]
    drafting = any(c.comparison.candidate.position_rates for c in report.cells)
    return {
        "ratios": [
            safe(plots.throughput_ratios(report.cells, width=width, name=f"ratios{width:.0f}"))
            for width in (plots.WIDE, plots.NARROW)
        ],
        "latency": latency,
        "acceptance": safe(plots.acceptance(report.cells, name="acceptance")) if drafting else "",
    }


def _pair(baseline: str, candidate: str) -> Markup:
    """A table cell with the baseline's figure above the candidate's."""
    return Markup(
        '<td class="n pair"><span class="from">{}</span><span class="to">{}</span></td>'
    ).format(baseline, candidate)


def _tiles(cell: CellReport | None) -> Sequence[dict[str, str]]:
    """The few figures to see first; with several cells, those of the one with the largest share."""
    tiles = []
    if cell is not None:
        ratio = cell.comparison.throughput_ratio
        base, cand = cell.comparison.baseline, cell.comparison.candidate
        windows = base.window, cand.window
        steps = [formatting.number(w.tokens_per_step if w else None) for w in windows]
        value = formatting.ratio(ratio.value if ratio else None)
        sub = formatting.confidence(ratio) if formatting.bounds(ratio) else ""
        tiles += [
            {"name": "Throughput ratio", "value": value, "sub": sub},
            _tile(
                "Throughput",
                formatting.number(cand.throughput, 0),
                formatting.number(base.throughput, 0),
                "tok/s",
            ),
            _tile(
                "TPOT", formatting.milliseconds(cand.tpot_ms), formatting.milliseconds(base.tpot_ms)
            ),
            _tile(
                "TTFT", formatting.milliseconds(cand.ttft_ms), formatting.milliseconds(base.ttft_ms)
            ),
            _tile("Tokens per step", steps[1], steps[0]),
        ]
    return tiles


def _tile(name: str, candidate: str, baseline: str, unit: str = "") -> dict[str, str]:
    return {
        "name": name,
        "value": candidate,
        "sub": f"{unit + ', ' if unit else ''}baseline {baseline}",
    }
