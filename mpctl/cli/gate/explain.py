"""``mpctl gate explain``: every rule with its limit, its reason and its source; on a measurement, with its result."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import click

from mpctl.cli.options.shared import output_option, shared_options
from mpctl.cli.options.types import AboveZero, File, option
from mpctl.cli.settings import Settings
from mpctl.cli.size import width
from mpctl.errors import InputError

_ALL = "All rules together: one that fails rejects, data that is missing is never a pass."
_GOODPUT = "Requests per second that met these targets; shown, not judged."

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mpctl.cli.terminal import Terminal
    from mpctl.gate.analysis import Analysis
    from mpctl.gate.assess import Verdict
    from mpctl.gate.policy import Policy


@click.command("explain")
@click.argument("run", required=False, metavar="[RUN]")
@option("--policy", type=File(), metavar="FILE", help="Limits of the gate, YAML; for a RUN, instead of its own.")
@option("--service", metavar="NAME", help="The service that RUN is a rollout of.")
@option("--weights-gb", type=AboveZero(), metavar="GB", help="Size of the weights a step reads, for the memory floor.")
@option(
    "--bandwidth", type=AboveZero(), metavar="GB/S", help="What the device's memory reads per second, of its sheet."
)
@output_option
@shared_options
@click.pass_context
def command(ctx: click.Context, /, run: str | None, **options: Any) -> None:
    """Print every rule of the gate, its limit, why it is so, and where that comes from.

    With RUN, a file that mpctl bench wrote or the name of a rollout, the gate judges it again: what each rule found,
    what is still needed, and why the speedup is not what the drafts promise. With the size of the weights and the
    memory's bandwidth it also says how near to the fastest possible step the baseline runs.

    \b
    Examples:
      mpctl gate explain                        the defaults
      mpctl gate explain --policy strict.yaml   with limits of your own
      mpctl gate explain run.json.gz            one measurement, rule by rule
      mpctl gate explain run.json.gz --weights-gb 16.4 --bandwidth 300
    """
    settings = Settings.of(ctx, options)
    from mpctl.cli.request import read_policy

    policy = read_policy(options["policy"])
    weights, bandwidth = options["weights_gb"], options["bandwidth"]
    if (weights is None) != (bandwidth is None):
        given, other = ("--bandwidth", "--weights-gb") if weights is None else ("--weights-gb", "--bandwidth")
        raise InputError(f"needs {other} too", field=given)
    if run is None and weights is not None:
        raise InputError("needs a RUN", field="--weights-gb")
    if run is None:
        _explain_policy(settings.terminal, policy, options["output"])
        return
    from mpctl.cli.report import find_source
    from mpctl.gate.decomposition import memory_floor_ms
    from mpctl.rollout.measurement import judge_run

    source = find_source(settings, run, options["service"])
    chosen = policy if options["policy"] else source.run.policy
    analysis, verdict = judge_run(source.run, chosen, look=source.look, looks=source.looks)
    floor = memory_floor_ms(weights * 1e9, bandwidth * 1e9) if weights else None
    _explain_run(settings.terminal, analysis, verdict, options["output"], floor)


def _explain_policy(terminal: Terminal, policy: Policy, output: str) -> None:
    values = policy.to_record()
    terms = policy.terms()
    if output in ("json", "yaml"):
        items = [
            {
                "name": name,
                "value": values[name],
                "default": default,
                "rule": term.rule,
                "unit": term.unit,
                "why": term.why,
                "source": term.source,
            }
            for name, (default, term) in terms.items()
        ]
        terminal.record("GatePolicy", {"items": items}, output)
    elif output == "name":
        terminal.result("\n".join(terms))
    else:
        terminal.result("\n".join(_sections(policy)))


def _sections(policy: Policy) -> Iterator[str]:
    """Each rule, what it asks, and its limits."""
    from mpctl.gate.assess import describe_rules

    values, terms = policy.to_record(), policy.terms()
    rules = {**describe_rules(), "all": _ALL, "goodput": _GOODPUT}
    for rule, asks in rules.items():
        yield rule
        yield _wrapped(asks, "  ")
        for name, (default, term) in terms.items():
            if term.rule != rule:
                continue
            changed = "" if values[name] == default else f" (default {_number(default)})"
            unit = "" if values[name] is None else f" {term.unit}"
            yield f"  {name}: {_number(values[name])}{unit}{changed}"
            yield _wrapped(f"{term.why} [{term.source}]", "      ")
        yield ""


def _explain_run(terminal: Terminal, analysis: Analysis, verdict: Verdict, output: str, floor_ms: float | None) -> None:
    from mpctl.cli.printer import columns
    from mpctl.gate.decomposition import Decomposition
    from mpctl.report import gate_rows

    parts = [Decomposition.of(comparison, floor_ms=floor_ms) for comparison in analysis.cells]
    if output in ("json", "yaml"):
        body = {"gate": verdict.to_record(), "decomposition": [p.to_record() if p else None for p in parts]}
        terminal.record("GateVerdict", {"status": body}, output)
        return
    if output == "name":
        terminal.result(verdict.outcome.value)
        return
    terminal.result(columns(gate_rows(verdict)))
    terminal.result(
        f"\n{verdict.outcome.value}: {verdict.summary}" if verdict.summary else f"\n{verdict.outcome.value}"
    )
    for cell in verdict.cells:
        if cell.needed:
            took = f", about {_duration(cell.needed_s)} at the present rate" if cell.needed_s else ""
            terminal.result(f"{cell.cell.label}: about {cell.needed} more prompts would decide{took}")
    for comparison, part in zip(analysis.cells, parts, strict=True):
        if part is not None:
            terminal.result(f"\n{comparison.cell.label}: {part.sentence}")
            rows = [[p.name, f"x {p.factor:.2f}", f"{p.after:.2f}x", p.text] for p in part.parts]
            terminal.table(["FROM", "FACTOR", "SPEEDUP", "WHY"], rows)


def _wrapped(text: str, indent: str) -> str:
    """Paragraphs at most 100 columns wide; names of repositories are not broken at their hyphens."""
    wide = min(width(), 100)
    return textwrap.fill(
        text, wide, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )


def _number(value: float | None) -> str:
    return "off" if value is None else f"{value:g}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
