"""``mpctl resume``: continue what was interrupted."""

from __future__ import annotations

import click

from mpctl.cli.context import CliContext
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import ask_options, name_argument, output_option, shared_options
from mpctl.cli.options.types import File, option
from mpctl.cli.settings import in_context


@click.command("resume", cls=SectionedCommand)
@name_argument
@option(
    "--prompts",
    type=File(),
    multiple=True,
    metavar="[NAME=]FILE",
    help="Prompts of the rollout again; default: the files that the rollout read on this machine; repeatable.",
)
@option("--workload", type=File(), multiple=True, metavar="FILE", help="The same for a file of several classes.")
@ask_options
@output_option
@shared_options
@in_context
def command(context: CliContext, /, name: str | None, prompts: tuple[str, ...], workload: tuple[str, ...]) -> None:
    """Continue an interrupted rollout, rollback or retire from its last finished step.

    Prompts are never stored. While a rollout measures prompts of a file, the same file is read again; on another
    machine name it with --prompts or --workload. An operation that another user opened is shown as a diff against
    the live service and confirmed first.
    """
    from mpctl.app.operate import resume
    from mpctl.cli.operate.outcome import conclude

    conclude(context, resume.run(context.open_session(name, gone=True), prompts, workload))
