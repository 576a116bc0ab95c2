"""``mpctl completion SHELL``: a script that completes commands, flags, methods, files, contexts and services.

Services are those of this machine: a cluster's would have to be asked for at every key."""

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
    call = ctx.find_root().obj
    assert isinstance(call, CliContext)
    # The base class's method: that of bash starts a bash first, to look at its version.
    call.terminal.result(ShellComplete.source(completer))
