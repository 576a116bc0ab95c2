"""The report as JUnit XML: a suite per cell, a case per rule of the gate.

A rule that fails is a ``failure``. A rule without data, or with too little of it, is an ``error``, not ``skipped``: CI
counts a skipped case as fine, and missing data is never a pass. ``skipped`` are rules that do not apply. So a build is
green exactly where every cell is promoted.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from mpctl.report import words
from mpctl.report.values import CellReport, Report, Rule

# What XML 1.0 cannot carry, whatever the escape (https://www.w3.org/TR/xml/#charsets).
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_KINDS = {"fail": "failure", "undecided": "error", "missing": "error"}


def junit_report(report: Report) -> str:
    """The document, with a newline at its end."""
    root = ET.Element("testsuites", {"name": _plain(f"mpctl report {report.run}")})
    for cell in report.cells:
        root.append(_suite(report, cell))
    totals = [suite.attrib for suite in root]
    for name in ("tests", "failures", "errors"):
        root.set(name, str(sum(int(suite[name]) for suite in totals)))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True).replace("utf-8", "UTF-8", 1) + "\n"


def _suite(report: Report, cell: CellReport) -> ET.Element:
    outcomes = [rule.outcome for rule in cell.rules]
    suite = ET.Element(
        "testsuite",
        {
            "name": _plain(cell.label),
            "tests": str(len(outcomes)),
            "failures": str(outcomes.count("fail")),
            "errors": str(sum(_KINDS.get(o) == "error" for o in outcomes)),
            "skipped": str(outcomes.count("skip")),
            "timestamp": _plain(report.created),
        },
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in (
        ("verdict", cell.outcome),
        ("speedup", words.with_interval(cell.speedup)),
        ("baseline", report.baseline.spec),
        ("candidate", report.candidate.spec),
    ):
        ET.SubElement(properties, "property", {"name": name, "value": _plain(value)})
    for rule in cell.rules:
        suite.append(_case(report, cell, rule))
    return suite


def _case(report: Report, cell: CellReport, rule: Rule) -> ET.Element:
    group = re.sub(r"[^\w-]+", "-", f"{cell.traffic}.{cell.load}").strip("-")
    case = ET.Element("testcase", {"classname": _plain(f"{report.service}.{group}"), "name": _plain(rule.name)})
    if rule.outcome == "skip":
        ET.SubElement(case, "skipped", {"message": _plain(rule.message)})
    elif kind := _KINDS.get(rule.outcome):
        found = ET.SubElement(case, kind, {"message": _plain(rule.message), "type": _plain(words.word(rule.outcome))})
        found.text = _plain(_figures(rule))
    return case


def _figures(rule: Rule) -> str:
    figure = rule.figure
    lines = [
        f"value: {words.in_unit(figure.value, rule.unit)}",
        f"limit: {rule.limit or '-'}",
        f"interval: {words.interval(figure, rule.unit) or '-'}",
        f"n: {'-' if figure.n is None else figure.n}",
    ]
    return "\n".join(lines)


def _plain(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
