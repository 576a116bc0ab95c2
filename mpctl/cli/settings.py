"""The shared options, resolved: behind the command, before it, or from variable, files and default."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from mpctl import commands
from mpctl.cli.context import CliContext
from mpctl.cli.terminal import Terminal

if TYPE_CHECKING:
    from mpctl.app.session.base import Place

_PLACE = ("platform", "namespace", "context", "kubeconfig", "as_user", "request_timeout")
_CLUSTER = (("context", "--context"), ("kubeconfig", "--kubeconfig"), ("as_user", "--as"))
_OTHERS = ("color", "verbose", "quiet", "debug", "yes", "no_input", "output")


def configure(ctx: click.Context, values: dict[str, Any]) -> CliContext:
    """The context of this call with the shared options, ``-o``, ``-y`` and ``--no-input`` applied, which are taken out
    of ``values``; from now on errors are printed as they ask."""
    chosen = {name: values.pop(name, None) for name in (*_PLACE, *_OTHERS)}
    context = ctx.obj if isinstance(ctx.obj, CliContext) else CliContext("mpctl")
    context.terminal = Terminal.of_environment(
        pick(ctx, chosen, "color"),
        quiet=pick(ctx, chosen, "quiet"),
        verbose=pick(ctx, chosen, "verbose"),
        asks=not chosen["no_input"],
        yes=bool(chosen["yes"]),
    )
    context.debug = pick(ctx, chosen, "debug")
    context.output = chosen["output"] or context.output
    shared = {name: pick(ctx, chosen, name) for name in _PLACE}
    commands.set_reader(_reader(ctx, chosen, context))
    local = ctx.parent is not None and ctx.parent.info_name == "local"
    context.shared = shared
    context.find_place = lambda: _place(shared, context.terminal, local=local)
    context.variables = [
        f"{option.envvar}={commands.joined([os.environ[str(option.envvar)]])}"
        for option in ctx.command.params
        if ctx.get_parameter_source(str(option.name)) is ParameterSource.ENVIRONMENT
    ]
    return context


def _reader(ctx: click.Context, chosen: dict[str, Any], context: CliContext) -> commands.Reader:
    """The reader of this call's messages: what may have been typed for it alone is repeated in every command."""
    typed = {name: pick(ctx, chosen, name) for name in _PLACE if _is_typed(ctx, name)}
    usual = ctx.default_map or {}  # by the settings files

    def options() -> tuple[tuple[str, str], ...]:
        from mpctl.app.session.base import find_platform

        cluster = [
            (flag, str(typed[name])) for name, flag in _CLUSTER if typed.get(name) is not None
        ]
        platform, expected = context.place.platform, usual.get("platform", "auto")
        if platform == "local":
            cluster = []  # without effect there
        if expected == "auto":
            expected = find_platform(
                *(typed.get(name) or usual.get(name) for name in ("context", "kubeconfig"))
            )
        return (*cluster, *([("--platform", platform)] if platform != expected else ()))

    def namespace() -> str:
        if usual.get("namespace"):
            return str(usual["namespace"])
        if context.place.platform == "local":
            return "" if "namespace" in typed else "default"
        from mpctl.platform.kubernetes.api.connection import namespace_of

        return namespace_of(context.place.kubeconfig, context.place.context)

    return commands.Reader(context.program, options, namespace)


def _place(shared: dict[str, Any], terminal: Terminal, *, local: bool) -> Place:
    from mpctl.app.session.base import Place, find_platform

    place = Place(*(shared[name] for name in _PLACE))
    if local:
        place = place._replace(platform="local")
    elif place.platform == "auto":
        place = place._replace(platform=find_platform(place.context, place.kubeconfig))
    if place.platform == "local":
        for name, flag in _CLUSTER:
            if shared[name] is not None:
                terminal.warn(f"{flag} has no effect on the local platform")
    return place


def pick(ctx: click.Context, chosen: dict[str, Any], name: str) -> Any:
    """A flag behind the command wins over one before it, and both over everything else."""
    late = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    return ctx.find_root().params[name] if _is_typed(ctx, name) and not late else chosen[name]


def _is_typed(ctx: click.Context, name: str) -> bool:
    """Return whether a shared option, or its variable, may have been typed for this call alone."""
    sources = {of.get_parameter_source(name) for of in (ctx, ctx.find_root())}
    return bool(sources & {ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT})
