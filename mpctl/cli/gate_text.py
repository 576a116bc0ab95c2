"""The rules of a policy, or a measurement judged again, as ``mpctl gate explain`` prints them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from mpctl import commands, formatting
from mpctl.app.inspect.measured import Explanation, explain_policy, explain_run
from mpctl.app.inspect_requests import ExplainRequest
from mpctl.cli.context import CliContext
from mpctl.cli.printer import columns, page_width, paragraph
from mpctl.gate.advice import MoreData, more_to_decide
from mpctl.gate.assess import describe_rules
from mpctl.gate.policy import Policy
from mpctl.json_types import Json
from mpctl.records import encode
from mpctl.report import deciding, gate_rows, measurement_record
from mpctl.report.values import Deciding

_ALL = "All rules together: one that fails rejects, missing data is never a pass."
_EQUAL_LOAD = "Measurements by users' requests compare the arms where each pod has the same load; else undecided."


def print_explanation(context: CliContext, request: ExplainRequest) -> None:
    """Print every rule with its thresholds, or what they say about a measurement."""
    if request.run or request.service:
        _emit_run(context, explain_run(context.place, context.terminal, request))
        return
    policy = explain_policy(request)
    context.emit(
        "GatePolicy",
        record=lambda: {"items": _policy_items(policy)},
        names=policy.terms,
        table=lambda wide: "\n".join(_sections(policy)) if wide else _table(policy),
    )


def _policy_items(policy: Policy) -> list[Json]:
    values = policy.to_record()
    return [
        {
            "name": name,
            "value": values[name],
            "default": default,
            "rule": term.rule,
            "unit": term.unit,
            "why": term.why,
            "source": term.source,
        }
        for name, (default, term) in policy.terms().items()
    ]


def _limits(policy: Policy) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Yield each rule with what it asks, and its limits with their reasons."""
    values, terms = policy.to_record(), policy.terms()
    others = {"equal load": (_EQUAL_LOAD, ""), "all": (_ALL, "")}
    for rule, (asks, fixed) in (describe_rules() | others).items():
        limits = [(f"fixed: {fixed}", "")] if fixed else []
        for name, (default, term) in terms.items():
            if term.rule == rule:
                changed = "" if values[name] == default else f" (default {default:g})"
                limit = f"{name}: {values[name]:g} {term.unit}{changed}"
                limits.append((limit, f"{term.why} [{term.source}]"))
        yield rule, asks, limits


def _table(policy: Policy) -> str:
    """Rules and limits on one screen."""
    rows = [("RULE", "LIMITS")]
    for rule, _, limits in _limits(policy):
        rows += [("" if n else rule, limit) for n, (limit, _) in enumerate(limits)]
    reasons = commands.line("gate", "explain", "-o", "wide")
    return f"{columns(rows)}\n\n{paragraph(f'{_ALL} For reasons and sources: {reasons}')}"


def _sections(policy: Policy) -> Iterator[str]:
    """Yield each rule with what it asks, and its limits with their reasons."""
    for rule, asks, limits in _limits(policy):
        yield rule
        yield _wrapped(asks, "  ")
        for limit, why in limits:
            yield f"  {limit}"
            if why:
                yield _wrapped(why, "      ")
        yield ""


def _emit_run(context: CliContext, explanation: Explanation) -> None:
    verdict = explanation.verdict
    needed = more_to_decide(explanation.analysis, verdict)
    decision_hint = deciding(explanation.run, needed)
    context.emit(
        "GateVerdict",
        record=lambda: {
            "status": {
                **measurement_record(explanation.analysis.cells, verdict, decision_hint),
                "decomposition": [encode(p) if p else None for p in explanation.decompositions],
            }
        },
        names=lambda: [verdict.outcome.value],
        table=lambda _wide: "\n".join(_explained(explanation, needed, decision_hint)),
    )


def _explained(
    explanation: Explanation, needed: MoreData | None, decision_hint: Deciding | None
) -> Iterator[str]:
    verdict = explanation.verdict
    yield columns(gate_rows(verdict))
    yield paragraph(
        f"\n{verdict.outcome.value}" + (f": {verdict.summary}" if verdict.summary else "")
    )
    if needed is not None:
        took = formatting.duration(needed.seconds)
        yield f"about {needed.requests} more prompts would decide, about {took} at the present rate"
    if decision_hint is not None:
        yield paragraph(f"to decide: {decision_hint.text}", "", "  ")
    for comparison, part in zip(
        explanation.analysis.cells, explanation.decompositions, strict=True
    ):
        if part is not None:
            yield paragraph(f"\n{comparison.cell.label}: {part.sentence}")
            rows = [
                [p.name, f"x {formatting.number(p.factor)}", formatting.ratio(p.after), p.text]
                for p in part.parts
            ]
            yield columns([["FROM", "FACTOR", "THROUGHPUT RATIO", "WHY"], *rows])


def _wrapped(text: str, indent: str) -> str:
    """Return a paragraph at most 100 columns wide; names of repositories are not broken at their hyphens."""
    return textwrap.fill(
        text,
        page_width(100),
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
