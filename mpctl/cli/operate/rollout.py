"""``mpctl rollout``: speculation onto a service, behind a measured gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import click

from mpctl.cli.context import CliContext
from mpctl.cli.options.measurement import MeasurementOptions, measurement_options, measurement_request
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import (
    STRATEGIES,
    ask_options,
    dry_run_option,
    name_argument,
    output_option,
    shared_options,
    timeout_option,
)
from mpctl.cli.options.speculation import SpeculationOptions, change_options, speculation_request
from mpctl.cli.options.traffic import TrafficOptions, traffic_options, traffic_request
from mpctl.cli.options.types import File, Word, option
from mpctl.cli.settings import in_context

if TYPE_CHECKING:
    from mpctl.app.requests import RolloutRequest


class RolloutOptions(SpeculationOptions, MeasurementOptions, TrafficOptions):
    """The options as click hands them over."""

    strategy: str
    accept_downtime: bool
    force: bool
    dry_run: str
    timeout: float | None


@click.command("rollout", cls=SectionedCommand)
@name_argument
@change_options()
@measurement_options
@traffic_options
@option(
    "-f",
    "--file",
    section="Execution",
    type=File(),
    metavar="FILE",
    help="Manifest that names the running service; the file itself is not changed.",
)
@option(
    "--strategy",
    section="Execution",
    type=Word(("auto", *STRATEGIES)),
    default="auto",
    help="Second engine next to the first, or one at a time.",
)
@option(
    "--accept-downtime",
    section="Execution",
    is_flag=True,
    help="If no GPU is free, stop the old pod before starting the new one.",
)
@option("--force", section="Execution", is_flag=True, help="Change a service that Argo CD, Flux or Helm manages.")
@dry_run_option
@timeout_option(None)
@ask_options
@output_option
@shared_options
@in_context
def command(context: CliContext, /, name: str | None, file: str | None, **given: Unpack[RolloutOptions]) -> None:
    """Roll speculation onto a service behind a measured gate.

    \b
    Examples:
      mpctl rollout --spec ngram                        the only service
      mpctl rollout qwen --spec ngram --dry-run=client  checks and the change, nothing done
      mpctl rollout qwen --spec ngram --set num_speculative_tokens=3
      mpctl rollout qwen --spec eagle3 --draft /models/eagle3 --prompts traffic.jsonl
      mpctl rollout --spec ngram --prompts edits:0.7 --prompts chat:0.3 --concurrency 1,8
      mpctl rollout qwen --spec ngram --traffic-steps 1,5,10,20

    The service is recorded, a candidate engine starts, both get the same prompts in alternating blocks, and the gate
    promotes the candidate or the service is restored. Killed at any point, the same command continues.
    """
    from mpctl.app.operate import rollout
    from mpctl.app.operate.outcome import require_server
    from mpctl.cli.operate.outcome import conclude

    request = rollout_request(given)
    require_server(request.dry_run, context.place.platform)
    session = context.open_session(name) if file is None else context.open_named_in(file, name)
    conclude(context, rollout.run(session, request))


def rollout_request(given: RolloutOptions) -> RolloutRequest:
    """The request of these options."""
    from mpctl.app.requests import DryRun, RolloutRequest

    return RolloutRequest(
        speculation=speculation_request(given),
        measurement=measurement_request(given),
        traffic=traffic_request(given),
        strategy=given["strategy"],
        accept_downtime=given["accept_downtime"],
        force=given["force"],
        ready_timeout_s=given["timeout"],
        dry_run=DryRun(given["dry_run"]),
    )
