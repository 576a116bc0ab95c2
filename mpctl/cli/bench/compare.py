"""``mpctl bench compare``: the gate's verdict on finished measurements."""

from __future__ import annotations

import click

from mpctl.cli.bench.result import emit_measurement
from mpctl.cli.context import CliContext
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import output_option, shared_options
from mpctl.cli.options.types import File, option
from mpctl.cli.settings import in_context
from mpctl.errors import GateRejected, Undecided


@click.command("compare", cls=SectionedCommand)
@click.argument("first", metavar="RUN[:ARM]")
@click.argument("second", metavar="[RUN[:ARM]]", required=False)
@option(
    "--policy",
    "policy_file",
    type=File(),
    metavar="FILE",
    help="Gate policy, YAML (default: the policy of the second measurement).",
)
@option("--force", is_flag=True, help="Compare even if prompts, model, device or engine differ.")
@output_option
@shared_options
@in_context
def command(context: CliContext, /, *, first: str, second: str | None, policy_file: str | None, force: bool) -> None:
    """Compare two measurements, or the two arms of one, computed again from their raw samples.

    \b
    Examples:
      mpctl bench compare friday.json.gz                         its two arms
      mpctl bench compare monday.json.gz friday.json.gz          one candidate against the other
      mpctl bench compare monday.json.gz:baseline friday.json.gz:baseline

    ARM is baseline or candidate (default: the only arm, else the candidate). The first one is the baseline of the
    comparison. Exit code 0: the gate would promote, 5: reject, 6: undecided, 2: they cannot be compared.
    """
    from mpctl.app.bench.recorded import compare
    from mpctl.app.requests import CompareRequest
    from mpctl.gate.rule import Outcome

    compared = compare(CompareRequest(first, second, policy_file, force))
    for difference in compared.differences:
        context.terminal.warn(f"measured differently: {difference}")
    emit_measurement(context, compared.run, compared.analysis, compared.verdict)
    reasons = "; ".join(compared.verdict.reasons)
    if compared.verdict.outcome is Outcome.REJECT:
        raise GateRejected(f"gate would reject the candidate: {reasons}")
    if compared.verdict.outcome is Outcome.UNDECIDED:
        raise Undecided(f"gate is undecided: {reasons}", hint="measure more rounds or prompts: --repeats, --requests")
