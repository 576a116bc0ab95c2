"""``mpctl history``: recorded revisions and operations, or one revision as it was."""

from __future__ import annotations

from mpctl.app.option import Option, Whole
from mpctl.cli.command import OUTPUT, SHOW_SECRETS, command, service_argument
from mpctl.cli.context import CliContext

_OPTIONS = (
    Option("--revision", type=Whole(1), help="Print this revision instead of the list."),
    SHOW_SECRETS,
)


@command("history", service_argument(), *_OPTIONS, OUTPUT)
def history(
    context: CliContext,
    /,
    name: str | None,
    revision: int | None,
    *,
    show_secrets: bool,
) -> None:
    """List recorded revisions and operations, or print the manifest of one revision.

    \b
    Examples:
      mpctl history
      mpctl history --revision 1 -o yaml
      mpctl history --revision 1 -o yaml --show-secrets > service.yaml     byte for byte
    """
    from mpctl.cli.inspect.history_text import print_history, print_revision

    session = context.open_session(name, gone=True)
    if revision is not None:
        print_revision(context, session, revision, show_secrets=show_secrets)
    else:
        print_history(context, session)
