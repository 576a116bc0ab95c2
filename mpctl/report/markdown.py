"""The report as Markdown for a pull request: the verdict, one table, details folded away.

Texts of users and engines are escaped sign by sign as HTML entities, which every Markdown renderer shows as they are:
no table breaks, nobody is mentioned, nothing is linked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mpctl.report import words
from mpctl.report.conditions import argument_lines, condition_rows
from mpctl.report.values import CellReport, Cost, Part, Report

MARK = "<!-- mpctl report -->"


def markdown_report(report: Report) -> str:
    """The whole text, with a newline at its end."""
    parts = [
        MARK,
        f"### {words.sign(report.outcome)} {escape(words.word(report.outcome))}: {escape(report.sentence)}",
        *([_list(report.reasons)] if report.reasons else []),
        _cells(report.cells),
        _fold("Gate", *(_gate(cell, alone=len(report.cells) == 1) for cell in report.cells)),
        *(
            _fold(item.title, escape(f"{item.cell}: {item.sentence}"), _why(item.parts))
            for item in report.decomposition
        ),
        _fold("Cost per million output tokens", _cost(report.cost)),
        _fold("Conditions", _conditions(report)),
        _fold("Repeat it", fenced("\n".join(report.commands), "sh")),
        ", ".join(map(escape, (report.service, report.run, report.created, f"mpctl {report.mpctl_version}"))),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(text: str) -> str:
    """Text that stands for itself in Markdown, also inside a table and inside HTML."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    return re.sub(r"[&<>|`*_\[\]#@~\\!$:]", lambda m: f"&#{ord(m.group())};" if m.group() != ":" else _colon(m), shown)


def _colon(match: re.Match[str]) -> str:
    """Only a colon that would make a link or an emoji is escaped, so that sentences stay readable in the source."""
    after = match.string[match.end() : match.end() + 1]
    return ":" if after in ("", " ") else "&#58;"


def fenced(text: str, language: str = "") -> str:
    """A code block that its content cannot close."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{words.printable(text)}\n{fence}"


def _cells(cells: Sequence[CellReport]) -> str:
    shares = any(c.share is not None for c in cells)
    header = ["Traffic", "Load", *(["Share"] if shares else []), "Verdict", "Speedup", "Tok/s", "TTFT", "TPOT"]
    rows = [
        [
            escape(c.traffic),
            escape(c.load),
            *([words.percent(c.share, 0)] if shares else []),
            f"{words.sign(c.outcome)} {words.word(c.outcome)}",
            words.with_interval(c.speedup),
            _pair(words.number(c.baseline.tokens_per_second, 1), words.number(c.candidate.tokens_per_second, 1)),
            _pair(
                words.milliseconds(c.baseline.ttft_ms.get("mean")), words.milliseconds(c.candidate.ttft_ms.get("mean"))
            ),
            _pair(
                words.milliseconds(c.baseline.tpot_ms.get("mean")), words.milliseconds(c.candidate.tpot_ms.get("mean"))
            ),
        ]
        for c in cells
    ]
    return _table(header, rows, right=len(header) - 4)


def _gate(cell: CellReport, *, alone: bool) -> str:
    rows = [
        [
            escape(rule.name),
            f"{words.sign(rule.outcome)} {words.word(rule.outcome)}",
            words.in_unit(rule.figure.value, rule.unit),
            escape(rule.limit) or "-",
            words.interval(rule.figure, rule.unit) or "-",
            "-" if rule.figure.n is None else words.count(rule.figure.n),
            escape(rule.message),
        ]
        for rule in cell.rules
    ]
    table = _table(["Rule", "Result", "Value", "Limit", "Interval", "n", "Reason"], rows)
    return table if alone else f"**{escape(cell.label)}**\n\n{table}"


def _why(parts: Sequence[Part]) -> str:
    rows = [[escape(p.name), words.number(p.factor), words.times(p.speedup), escape(p.why)] for p in parts]
    return _table(["From", "Factor", "Speedup", "Why"], rows)


def _cost(cost: Cost) -> str:
    if cost.missing:
        return f"Not computed: {escape(cost.missing)}."
    rows = [
        [
            escape(o.name),
            words.dollars(o.usd_per_hour).replace("$", "&#36;"),
            words.dollars(o.baseline_usd).replace("$", "&#36;"),
            words.dollars(o.candidate_usd).replace("$", "&#36;"),
            words.percent(o.saving.value, 0),
            escape(o.as_of),
        ]
        for o in cost.offers
    ]
    table = _table(["Machine", "USD / h", "Baseline", "Candidate", "Saved", "Price of"], rows)
    return f"{table}\n\n{escape(cost.basis)}"


def _conditions(report: Report) -> str:
    rows = [[escape(r["name"]), escape(r["baseline"]), escape(r["candidate"])] for r in condition_rows(report)]
    lines = argument_lines(report.baseline.argv, report.candidate.argv)
    argv = "\n".join(
        [f"- {line['text']}" for line in lines["baseline"] if line["new"]]
        + [f"{'+' if line['new'] else ' '} {line['text']}" for line in lines["candidate"]]
    )
    prompts = [
        [escape(p.name), words.count(p.count), words.count(p.repeated), escape(p.digest[:16])] for p in report.prompts
    ]
    client = report.client
    calibrated = "The load client was not calibrated before this run."
    if client:
        p50, p99 = words.milliseconds(client.p50_ms), words.milliseconds(client.p99_ms)
        calibrated = f"The load client adds {p50} at p50 and {p99} at p99."
    return "\n\n".join(
        [
            _table(["", "Baseline", "Candidate"], rows),
            f"Engine arguments of the candidate, against the baseline's:\n\n{fenced(argv, 'diff')}",
            _table(["Prompts", "Count", "Repeated", "sha256"], prompts) if prompts else "",
            calibrated,
        ]
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], *, right: int | None = None) -> str:
    rule = ["---:" if right is not None and i >= right else "---" for i in range(len(header))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *rows))


def _list(items: Sequence[str]) -> str:
    return "\n".join(f"- {escape(item)}" for item in items)


def _fold(title: str, *parts: str) -> str:
    body = "\n\n".join(parts)
    return f"<details><summary>{escape(title)}</summary>\n\n{body}\n\n</details>"


def _pair(baseline: str, candidate: str) -> str:
    return f"{baseline} → {candidate}"
