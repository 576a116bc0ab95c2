"""``mpctl rollback``: restore a recorded revision."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from mpctl.cli.context import CliContext
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
from mpctl.cli.options.types import Word, option
from mpctl.cli.settings import in_context

if TYPE_CHECKING:
    from mpctl.app.requests import RollbackRequest


class RollbackOptions(TypedDict):
    """The options as click hands them over."""

    to_revision: int | None
    strategy: str | None
    exact: bool
    accept_downtime: bool
    dry_run: str
    timeout: float | None


@click.command("rollback", cls=SectionedCommand)
@name_argument
@option("--to-revision", type=click.IntRange(1), help="Revision to restore (default: the one before).")
@option(
    "--strategy", section="Execution", type=Word(STRATEGIES), help="Strategy (default: that of the undone rollout)."
)
@option(
    "--exact",
    section="Execution",
    is_flag=True,
    help="Restore every byte, also what others changed since; the live manifest is recorded as a revision first.",
)
@option(
    "--accept-downtime",
    section="Execution",
    is_flag=True,
    help="If no GPU is free, stop the old pod before starting the new one.",
)
@dry_run_option
@timeout_option(None)
@ask_options
@output_option
@shared_options
@in_context
def command(context: CliContext, /, name: str | None, **given: Unpack[RollbackOptions]) -> None:
    """Restore what mpctl changed, and compare after the write.

    \b
    Examples:
      mpctl rollback                          undo the last change of the only service
      mpctl rollback qwen --to-revision 1
      mpctl rollback --dry-run=client         what would be restored
      mpctl rollback qwen --exact             every byte, also what others changed since

    An unfinished rollout is undone; otherwise the service goes back to the revision before, or to the one named. What
    others changed elsewhere since (a label, another argument) is kept and named. A rollback works from every point at
    which a rollout can be stopped. Interrupted, the same command continues.
    """
    from mpctl.app.operate import rollback
    from mpctl.app.operate.outcome import require_server
    from mpctl.cli.operate.outcome import conclude

    request = rollback_request(given)
    require_server(request.dry_run, context.place.platform)
    conclude(context, rollback.run(context.open_session(name), request))


def rollback_request(given: RollbackOptions) -> RollbackRequest:
    """The request of these options."""
    from mpctl.app.requests import DryRun, RollbackRequest

    return RollbackRequest(
        to_revision=given["to_revision"],
        strategy=given["strategy"],
        exact=given["exact"],
        accept_downtime=given["accept_downtime"],
        ready_timeout_s=given["timeout"],
        dry_run=DryRun(given["dry_run"]),
    )
