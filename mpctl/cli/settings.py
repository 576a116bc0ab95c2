"""The shared options, resolved: behind the command, before it, or from variable, files and default."""

from __future__ import annotations

from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from mpctl.cli.lazy import Call
from mpctl.cli.terminal import Terminal
from mpctl.errors import Refused


class Settings(NamedTuple):
    """Which services are meant, and whom to tell."""

    namespace: str | None
    terminal: Terminal

    @classmethod
    def of(cls, ctx: click.Context, own: dict[str, Any]) -> Settings:
        """For a command that works on services.

        Raises:
            Refused: the platform asked for is not there.
        """
        terminal = terminal_of(ctx, own)
        if pick(ctx, own, "platform") == "kubernetes":
            raise Refused(
                "this build has no kubernetes platform yet", hint="--platform local runs services on this machine"
            )
        for name in ("context", "kubeconfig"):
            if pick(ctx, own, name) is not None:
                terminal.warn(f"--{name} means nothing on the local platform")
        return cls(pick(ctx, own, "namespace"), terminal)


def terminal_of(ctx: click.Context, own: dict[str, Any]) -> Terminal:
    """The terminal as the shared options want it; from now on errors are told there too."""
    call = ctx.find_root().obj
    program = call.program if isinstance(call, Call) else "mpctl"
    terminal = Terminal.of_environment(
        pick(ctx, own, "color"),
        quiet=pick(ctx, own, "quiet"),
        verbose=pick(ctx, own, "verbose"),
        asks=not own.get("no_input"),
        program=program,
    )
    if isinstance(call, Call):
        call.terminal = terminal
        call.debug = pick(ctx, own, "debug")
    return terminal


def pick(ctx: click.Context, own: dict[str, Any], name: str) -> Any:
    """A flag behind the command wins over one before it, and both over everything else."""
    root = ctx.find_root()
    early = root.get_parameter_source(name) is ParameterSource.COMMANDLINE
    late = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    return root.params[name] if early and not late else own[name]
