"""``mpctl completion SHELL``: completes commands, options, methods, files, contexts and services of this machine.

Services of a cluster are not completed: each key press would query its API server."""

from __future__ import annotations

import click

from mpctl.cli.context import CliContext
from mpctl.cli.options.types import Word


@click.command("completion")
@click.argument("shell", type=Word(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, /, shell: str) -> None:
    """Print a completion script for a shell.

    \b
    bash:  source <(mpctl completion bash)
    zsh:   source <(mpctl completion zsh)
    fish:  mpctl completion fish | source
    """
    from click.shell_completion import ShellComplete, get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    completer = kind(ctx.find_root().command, {}, "mpctl", "_MPCTL_COMPLETE")
    context = ctx.find_root().obj
    assert isinstance(context, CliContext)
    # The base class's method: bash's own starts a bash to check its version.
    context.terminal.result(ShellComplete.source(completer))
