"""``mpctl gate explain``: every rule with its threshold, reason and source; for a measurement, with its result."""

from __future__ import annotations

from mpctl.app.inspect_requests import ExplainRequest
from mpctl.cli.command import OUTPUT, SERVICE_AND_RUN, command
from mpctl.cli.context import CliContext
from mpctl.cli.group import LazyGroup

gate = LazyGroup(
    "gate",
    table={
        "explain": ("gate:explain", "Print every rule with its threshold and reason", "Commands")
    },
    help="Explain the gate, which decides what is promoted; changes nothing.",
)


@command("explain", SERVICE_AND_RUN, ExplainRequest, OUTPUT)
def explain(context: CliContext, /, request: ExplainRequest) -> None:
    """Print every rule of the gate with its limits; -o wide with what it asks, reason and source.

    \b
    Examples:
      mpctl gate explain                        the default policy
      mpctl gate explain --policy strict.yaml   a policy of your own
      mpctl gate explain qwen                   its last measurement, rule by rule
      mpctl gate explain run.json.gz            a file that mpctl bench wrote

    With SERVICE, or with RUN, a file that mpctl bench wrote or the name of a rollout, the gate judges the measurement
    again: the result of each rule, the requests still needed, and why the throughput ratio differs from the acceptance
    length.
    """
    from mpctl.cli.gate_text import print_explanation

    print_explanation(context, request)
