"""The shared options, resolved: behind the command, before it, or from variable, files and default."""

from __future__ import annotations

from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from mpctl.cli.lazy import Call
from mpctl.cli.terminal import Terminal


class Settings(NamedTuple):
    """Which services are meant, and whom to tell. ``timeout_s``: of one request to an API server."""

    namespace: str | None
    terminal: Terminal
    platform: str = "local"
    context: str | None = None
    kubeconfig: str | None = None
    as_user: str | None = None
    timeout_s: float | None = None

    @classmethod
    def of(cls, ctx: click.Context, own: dict[str, Any]) -> Settings:
        """For a command that works on services."""
        terminal = terminal_of(ctx, own)
        names = ("namespace", "platform", "context", "kubeconfig", "as_user", "request_timeout")
        namespace, platform, context, kubeconfig, as_user, timeout_s = (pick(ctx, own, name) for name in names)
        if ctx.parent is not None and ctx.parent.info_name == "local":
            platform = "local"
        if platform == "auto":
            platform = _platform(context, kubeconfig)
        if platform == "local":
            for name, value in (("context", context), ("kubeconfig", kubeconfig), ("as", as_user)):
                if value is not None:
                    terminal.warn(f"--{name} means nothing on the local platform")
        return cls(namespace, terminal, platform, context, kubeconfig, as_user, timeout_s)


def _platform(context: str | None, kubeconfig: str | None) -> str:
    """A cluster that is named; else this machine while a service is up on it; else the kubeconfig's current cluster."""
    if context or kubeconfig:
        return "kubernetes"
    from mpctl.platform.local.files import service_dirs

    if next(iter(service_dirs()), None) is not None:
        return "local"
    from mpctl.platform.kubernetes.api.connection import reachable

    return "kubernetes" if reachable(None, None) else "local"


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
