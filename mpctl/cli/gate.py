"""``mpctl gate explain``: every rule with its threshold, reason and source; for a measurement, with its result."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from mpctl.app.inspect_requests import ExplainRequest
from mpctl.cli.command import OUTPUT, SERVICE_AND_RUN, command
from mpctl.cli.context import CliContext
from mpctl.cli.group import LazyGroup
from mpctl.cli.printer import columns, page_width, paragraph
from mpctl.json_types import Json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mpctl.app.inspect.measured import Explanation
    from mpctl.gate.policy import Policy
    from mpctl.report.values import Deciding

_ALL = "All rules together: one that fails rejects, missing data is never a pass."
_EQUAL_LOAD = "Measurements by users' requests compare the arms where each pod has the same load; else undecided."


gate = LazyGroup(
    "gate",
    table={
        "explain": ("gate:explain", "Print every rule with its threshold and reason", "Commands")
    },
    help="Explain the gate, which decides what is promoted; changes nothing.",
)


@command("explain", SERVICE_AND_RUN, ExplainRequest, OUTPUT)
def explain(context: CliContext, /, request: ExplainRequest) -> None:
    """Print every rule of the gate with its threshold, reason and source.

    \b
    Examples:
      mpctl gate explain                        the default policy
      mpctl gate explain --policy strict.yaml   a policy of your own
      mpctl gate explain qwen                   its last measurement, rule by rule
      mpctl gate explain run.json.gz --weights-gb 16.4 --bandwidth 300

    With SERVICE, or with RUN, a file that mpctl bench wrote or the name of a rollout, the gate judges the measurement
    again: the result of each rule, the requests still needed, and why the throughput ratio differs from the acceptance
    length. With --weights-gb and --bandwidth it also compares the baseline's step with the memory floor.
    """
    from mpctl.app.inspect.measured import explain_policy, explain_run

    if not (request.run or request.service):
        policy = explain_policy(request)
        context.emit(
            "GatePolicy",
            record=lambda: {"items": _policy_items(policy)},
            names=policy.terms,
            table=lambda _wide: "\n".join(_sections(policy)),
        )
    else:
        _emit_run(context, explain_run(context.place, context.terminal, request))


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


def _sections(policy: Policy) -> Iterator[str]:
    """Yield each rule with its description and its thresholds."""
    from mpctl.gate.assess import describe_rules

    values, terms = policy.to_record(), policy.terms()
    others = {"equal load": (_EQUAL_LOAD, ""), "all": (_ALL, "")}
    for rule, (description, fixed) in (describe_rules() | others).items():
        yield rule
        yield _wrapped(description, "  ")
        if fixed:
            yield f"  fixed: {fixed}"
        for name, (default, term) in terms.items():
            if term.rule != rule:
                continue
            changed = "" if values[name] == default else f" (default {default:g})"
            yield f"  {name}: {values[name]:g} {term.unit}{changed}"
            yield _wrapped(f"{term.why} [{term.source}]", "      ")
        yield ""


def _emit_run(context: CliContext, explanation: Explanation) -> None:
    from mpctl.records import encode
    from mpctl.report import deciding, measurement_record

    verdict = explanation.verdict
    decision_hint = deciding(explanation.run, verdict)
    context.emit(
        "GateVerdict",
        record=lambda: {
            "status": {
                **measurement_record(explanation.analysis.cells, verdict, decision_hint),
                "decomposition": [encode(p) if p else None for p in explanation.decompositions],
            }
        },
        names=lambda: [verdict.outcome.value],
        table=lambda _wide: "\n".join(_explained(explanation, decision_hint)),
    )


def _explained(explanation: Explanation, decision_hint: Deciding | None) -> Iterator[str]:
    from mpctl import formatting
    from mpctl.report import gate_rows

    verdict = explanation.verdict
    yield columns(gate_rows(verdict))
    yield paragraph(
        f"\n{verdict.outcome.value}" + (f": {verdict.summary}" if verdict.summary else "")
    )
    for cell in verdict.cells:
        if cell.needed:
            took = (
                f", about {formatting.duration(cell.needed_s)} at the present rate"
                if cell.needed_s
                else ""
            )
            yield paragraph(
                f"{cell.cell.label}: about {cell.needed} more prompts would decide{took}", "", "  "
            )
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
