"""``mpctl restart``: replace engines by fresh ones."""

from __future__ import annotations

import click

from mpctl.cli.context import CliContext
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import ask_options, name_argument, output_option, shared_options
from mpctl.cli.settings import in_context


@click.command("restart", cls=SectionedCommand)
@name_argument
@ask_options
@output_option
@shared_options
@in_context
def command(context: CliContext, /, name: str | None) -> None:
    """Replace the engines of a service by fresh ones of the same spec.

    For an engine fault that ends with its process, such as acceptance at zero. A fresh engine is ready before an old
    one stops, which needs capacity for one more. Interrupted, the same command continues; one that fails leaves the
    service as it was.
    """
    from mpctl.app.operate import maintain
    from mpctl.cli.operate.outcome import conclude

    conclude(context, maintain.restart(context.open_session(name)))
