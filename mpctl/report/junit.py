"""The report as JUnit XML: a suite per cell, a case per rule of the gate.

A rule that fails is a ``failure``. A rule without data, or with too little of it, is an ``error``, not ``skipped``: CI
counts a skipped case as fine, and missing data is never a pass. ``skipped`` are rules that do not apply. So a build is
green exactly where every cell is promoted.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from mpctl import formatting
from mpctl.gate.rule import RuleResult
from mpctl.report.outcomes import word
from mpctl.report.values import CellReport, Report

# Characters that XML 1.0 cannot carry, even escaped (https://www.w3.org/TR/xml/#charsets).
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
    outcomes = [rule.outcome.value for rule in cell.verdict.rules]
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
        ("verdict", cell.outcome.value),
        ("throughput ratio", formatting.estimate(cell.comparison.throughput_ratio)),
        ("baseline", report.baseline.spec),
        ("candidate", report.candidate.spec),
    ):
        ET.SubElement(properties, "property", {"name": name, "value": _plain(value)})
    for rule in cell.verdict.rules:
        suite.append(_case(report, cell, rule))
    return suite


def _case(report: Report, cell: CellReport, rule: RuleResult) -> ET.Element:
    group = re.sub(r"[^\w-]+", "-", f"{cell.traffic}.{cell.load}").strip("-")
    case = ET.Element("testcase", {"classname": _plain(f"{report.service}.{group}"), "name": _plain(rule.rule)})
    if rule.outcome == "skip":
        ET.SubElement(case, "skipped", {"message": _plain(rule.message)})
    elif kind := _KINDS.get(rule.outcome):
        problem = ET.SubElement(case, kind, {"message": _plain(rule.message), "type": _plain(word(rule.outcome))})
        problem.text = _plain(_figures(rule))
    return case


def _figures(rule: RuleResult) -> str:
    lines = [
        f"value: {formatting.in_unit(rule.value, rule.unit)}",
        f"limit: {'-' if rule.limit is None else formatting.limit(rule.limit, rule.unit)}",
        f"interval: {formatting.bounds(rule.interval, rule.unit) or '-'}",
        f"n: {rule.n or '-'}",
    ]
    return "\n".join(lines)


def _plain(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
