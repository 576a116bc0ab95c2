"""A plan as one HTML page with a picture per method: throughput ratio against concurrency with its band, the knee and
where the KV pool binds. No script, nothing is loaded, and the Content-Security-Policy forbids both."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from mpctl.report.plan import Page, Record, chosen

_STYLE = """
:root{--text:#1c2430;--muted:#5b6675;--line:#d5dbe3;--page:#fff;--point:#0b62b8;--band:#0b62b822;--mark:#a3470b}
@media(prefers-color-scheme:dark){:root{--text:#e6eaf0;--muted:#9aa6b5;--line:#343d49;--page:#12161c;--point:#6db3ff;
--band:#6db3ff2b;--mark:#ffa266}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--text);background:var(--page);max-width:60rem;margin:2rem auto;
padding:0 1rem}
table{border-collapse:collapse;margin:.8rem 0}td,th{text-align:left;padding:.15rem .9rem .15rem 0;
border-bottom:1px solid var(--line);font-variant-numeric:tabular-nums}
h2{margin-top:2.2rem;font-size:1.15rem}li{margin:.2rem 0}.gain{color:var(--point)}.loss{color:var(--mark)}
svg{max-width:100%;height:auto}svg text{fill:var(--muted);font:12px system-ui,sans-serif}
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_W, _H, _LEFT, _RIGHT, _TOP, _BOTTOM = 640, 260, 48, 16, 16, 36


def plan_html(page: Page) -> str:
    """The whole page."""
    body = [f"<h1>Plan: {html.escape(page.title)}</h1>"]
    if page.answer:
        body.append(f"<p><b>{html.escape(page.answer)}</b></p>")
    if page.rows is not None:
        body.append(_table(page.rows))
    body.append(_list((*page.head, *page.below)))
    for section in page.sections:
        body += [f"<h2>{html.escape(section.title)}</h2>", _list(section.runs)]
        if section.answered is not None:
            body += [picture(section.answered), *map(_table, section.tables), _list(section.details)]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Plan: {html.escape(page.title)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(part for part in body if part)
        + "\n</body></html>"
    )


def _list(lines: Sequence[str]) -> str:
    items = "".join(f"<li>{html.escape(line.strip())}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def _table(rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in rows[0])
    lines = [
        "<tr>" + "".join(f'<td class="{html.escape(cell)}">{html.escape(cell)}</td>' for cell in row) + "</tr>"
        for row in rows[1:]
    ]
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def picture(method: Record) -> str:
    """The advised K of each concurrency: a line with its band, 1 as the baseline, the knee and the pool as marks."""
    points = chosen(method)
    ratios = [point["throughputRatio"] for point in points]
    top = max(max(ratio["high"] for ratio in ratios) * 1.05, 1.2)
    bottom = min(min(ratio["low"] for ratio in ratios) * 0.95, 0.8)
    xs = _positions([point["concurrency"] for point in points])

    def y(value: float) -> float:
        return float(round(_TOP + (top - value) / (top - bottom) * (_H - _TOP - _BOTTOM), 1))

    band = [f"{x},{y(r['high'])}" for x, r in zip(xs, ratios, strict=True)]
    band += [f"{x},{y(r['low'])}" for x, r in reversed(list(zip(xs, ratios, strict=True)))]
    line = " ".join(f"{x},{y(r['value'])}" for x, r in zip(xs, ratios, strict=True))
    marks = [
        f'<text x="{x}" y="{_H - 20}" text-anchor="middle">{point["concurrency"]:g}</text>'
        f'<circle cx="{x}" cy="{y(ratio["value"])}" r="4" fill="var(--point)"/>'
        f'<text x="{x}" y="{y(ratio["value"]) - 9}" text-anchor="middle">{ratio["value"]:.2f} K={point["k"]}</text>'
        for x, point, ratio in zip(xs, points, ratios, strict=True)
    ]
    for words, where in (("knee", _first(points, xs, "knee")), ("KV pool binds", _first(points, xs, "pool"))):
        if where is not None:
            height = _TOP + (12 if words == "knee" else 26)
            marks.append(
                f'<line x1="{where}" x2="{where}" y1="{_TOP}" y2="{_H - _BOTTOM}" stroke="var(--mark)" '
                f'stroke-dasharray="4 4"/><text x="{where + 4}" y="{height}">{words}</text>'
            )
    alternative = f"throughput ratio of {method['method']} by concurrency: " + ", ".join(
        f"{point['concurrency']:g}: {ratio['value']:.2f}" for point, ratio in zip(points, ratios, strict=True)
    )
    return (
        f'<svg viewBox="0 0 {_W} {_H}" width="{_W}" height="{_H}" role="img" aria-label="{html.escape(alternative)}">'
        f'<line x1="{_LEFT}" x2="{_W - _RIGHT}" y1="{y(1)}" y2="{y(1)}" stroke="var(--muted)"/>'
        f'<text x="4" y="{y(1) + 4}">1.00</text><text x="4" y="{_TOP + 8}">{top:.2f}</text>'
        f'<text x="4" y="{_H - _BOTTOM}">{bottom:.2f}</text>'
        f'<polygon points="{" ".join(band)}" fill="var(--band)"/>'
        f'<polyline points="{line}" fill="none" stroke="var(--point)" stroke-width="2"/>{"".join(marks)}'
        f'<text x="{_W / 2}" y="{_H - 4}" text-anchor="middle">concurrent requests (throughput ratio with its 90 % '
        f"band)</text></svg>"
    )


def _positions(concurrency: Sequence[float]) -> list[float]:
    logs = [math.log(value) for value in concurrency]
    span = (max(logs) - min(logs)) or 1.0
    return [round(_LEFT + 24 + (log - min(logs)) / span * (_W - _LEFT - _RIGHT - 72), 1) for log in logs]


def _first(points: Sequence[Record], xs: Sequence[float], what: str) -> float | None:
    """The position where a regime begins among the points; None where it does not."""
    for x, point in zip(xs, points, strict=True):
        if (what == "pool" and point["poolBound"]) or (what == "knee" and point["loadOverKnee"] >= 1):
            return x
    return None
