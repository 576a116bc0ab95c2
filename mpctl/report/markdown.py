"""The report as Markdown for a pull request: the verdict, one table, details folded away.

Texts of users and engines are escaped sign by sign as HTML entities, which every Markdown renderer shows as they are:
no table breaks, nobody is mentioned, nothing is linked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mpctl import formatting
from mpctl.gate.decomposition import Decomposition
from mpctl.report.text_table import argument_lines, condition_rows
from mpctl.report.values import CellReport, Report, outcome_sign, outcome_word, printable, title_of

MARK = "<!-- mpctl report -->"


def markdown_report(report: Report) -> str:
    """The whole text, with a newline at its end."""
    parts = [
        MARK,
        f"### {outcome_sign(report.outcome)} {escape(outcome_word(report.outcome))}: {escape(report.sentence)}",
        *([_list(report.reasons)] if report.reasons else []),
        *([f"To decide:\n\n{fenced(report.deciding.text, 'sh')}"] if report.deciding else []),
        _cells(report.cells),
        *([_list(report.notes)] if report.notes else []),
        _fold("Gate", *(_gate(cell, alone=len(report.cells) == 1) for cell in report.cells)),
        *(
            _fold(title_of(d), escape(f"{cell.label}: {d.sentence}"), _decomposition(d))
            for cell in report.decomposed
            if (d := cell.decomposition)
        ),
        _fold("Conditions", _conditions(report)),
        ", ".join(
            map(
                escape,
                (report.service, report.run, report.created, f"mpctl {report.mpctl_version}"),
            )
        ),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(text: str) -> str:
    """Text that stands for itself in Markdown, also inside a table and inside HTML."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    return re.sub(
        r"[&<>|`*_\[\]#@~\\!$:]",
        lambda m: f"&#{ord(m.group())};" if m.group() != ":" else _colon(m),
        shown,
    )


def _colon(match: re.Match[str]) -> str:
    """Escape only colons that would make a link or an emoji, so that sentences stay readable in the source."""
    after = match.string[match.end() : match.end() + 1]
    return ":" if after in ("", " ") else "&#58;"


def fenced(text: str, language: str = "") -> str:
    """A code block that its content cannot close."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{printable(text)}\n{fence}"


def _cells(cells: Sequence[CellReport]) -> str:
    shares = any(c.share is not None for c in cells)
    header = [
        "Traffic",
        "Load",
        *(["Share"] if shares else []),
        "Verdict",
        "Throughput ratio",
        "Tok/s",
        "TTFT",
        "TPOT",
    ]
    return _table(header, [_cell(c, shares=shares) for c in cells], right=len(header) - 4)


def _cell(cell: CellReport, *, shares: bool) -> list[str]:
    base, cand = cell.comparison.baseline, cell.comparison.candidate
    return [
        escape(cell.traffic),
        escape(cell.load),
        *([formatting.share(cell.share, 0)] if shares else []),
        f"{outcome_sign(cell.outcome)} {outcome_word(cell.outcome)}",
        formatting.estimate(cell.comparison.throughput_ratio),
        _pair(formatting.number(base.throughput, 1), formatting.number(cand.throughput, 1)),
        _pair(formatting.milliseconds(base.ttft_ms), formatting.milliseconds(cand.ttft_ms)),
        _pair(formatting.milliseconds(base.tpot_ms), formatting.milliseconds(cand.tpot_ms)),
    ]


def _gate(cell: CellReport, *, alone: bool) -> str:
    rows = [
        [
            escape(rule.rule),
            f"{outcome_sign(rule.outcome)} {outcome_word(rule.outcome)}",
            formatting.in_unit(rule.value, rule.unit),
            "-" if rule.limit is None else formatting.limit(rule.limit, rule.unit),
            formatting.bounds(rule.interval, rule.unit) or "-",
            formatting.count(rule.n) if rule.n else "-",
            escape(rule.message),
        ]
        for rule in cell.verdict.rules
    ]
    table = _table(["Rule", "Result", "Value", "Limit", "Interval", "n", "Reason"], rows)
    return table if alone else f"**{escape(cell.label)}**\n\n{table}"


def _decomposition(decomposition: Decomposition) -> str:
    rows = [
        [escape(p.name), formatting.number(p.factor), formatting.ratio(p.after), escape(p.text)]
        for p in decomposition.parts
    ]
    return _table(["From", "Factor", "Throughput ratio", "Why"], rows)


def _conditions(report: Report) -> str:
    rows = [
        [escape(r["name"]), escape(r["baseline"]), escape(r["candidate"])]
        for r in condition_rows(report)
    ]
    lines = argument_lines(report.baseline.argv, report.candidate.argv)
    argv = "\n".join(
        [f"- {line['text']}" for line in lines["baseline"] if line["new"]]
        + [f"{'+' if line['new'] else ' '} {line['text']}" for line in lines["candidate"]]
    )
    prompts = [
        [
            escape(p.name),
            formatting.count(p.count),
            formatting.count(p.repeated),
            escape(p.digest[:16]),
        ]
        for p in report.prompts
    ]
    client = report.client
    calibrated = "The load client was not calibrated before this run."
    if client:
        p50, p99 = formatting.milliseconds(client.p50_ms), formatting.milliseconds(client.p99_ms)
        calibrated = f"The load client adds {p50} at p50 and {p99} at p99."
    return "\n\n".join(
        [
            _table(["", "Baseline", "Candidate"], rows),
            f"Engine arguments of the candidate, against the baseline's:\n\n{fenced(argv, 'diff')}",
            _table(["Prompts", "Count", "Repeated", "sha256"], prompts) if prompts else "",
            calibrated,
        ]
    )


def _table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, right: int | None = None
) -> str:
    rule = ["---:" if right is not None and i >= right else "---" for i in range(len(header))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *rows))


def _list(items: Sequence[str]) -> str:
    return "\n".join(f"- {escape(item)}" for item in items)


def _fold(title: str, *parts: str) -> str:
    body = "\n\n".join(parts)
    return f"<details><summary>{escape(title)}</summary>\n\n{body}\n\n</details>"


def _pair(baseline: str, candidate: str) -> str:
    return f"{baseline} → {candidate}"
