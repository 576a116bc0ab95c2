"""Options that several commands share, each declared once.

Every option can be set by flag, by environment variable, in a project file, in the user's file, in this order of
precedence. Connection options may stand before or after the command, as with kubectl.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def option(*names: str, **settings: Any) -> Callable[[F], F]:
    """A click option that also reads ``MPCTL_<NAME>`` and shows variable and default in its help."""
    long = next(n for n in names if n.startswith("--")).split("/")[0].lstrip("-")
    settings.setdefault("envvar", "MPCTL_" + long.replace("-", "_").upper())
    settings.setdefault("show_envvar", True)
    settings.setdefault("show_default", True)
    return click.option(*names, **settings)


_SHARED: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (
        ("--platform",),
        {"type": click.Choice(["local", "kubernetes"]), "default": "local", "help": "Where services run."},
    ),
    (("-n", "--namespace"), {"default": None, "help": "Namespace of the service.", "metavar": "NAME"}),
    (("--context",), {"default": None, "help": "Context of the kubeconfig.", "metavar": "NAME"}),
    (("--kubeconfig",), {"default": None, "help": "Path of the kubeconfig.", "metavar": "FILE"}),
    (
        ("--color",),
        {"type": click.Choice(["auto", "always", "never"]), "default": "auto", "help": "Colour on a terminal."},
    ),
    (("-v", "--verbose"), {"count": True, "help": "Say more; twice for everything.", "envvar": None}),
    (("-q", "--quiet"), {"is_flag": True, "help": "Say nothing but results and errors."}),
    (("--debug",), {"is_flag": True, "help": "Show a stack trace for a fault of mpctl itself."}),
)


def root_options(function: F) -> F:
    """The shared options with their variables and defaults."""
    for names, settings in reversed(_SHARED):
        function = option(*names, **settings)(function)
    return function


def shared_options(function: F) -> F:
    """The shared options behind a command; what is not given there is taken from before the command."""
    for names, settings in reversed(_SHARED):
        again = {**settings, "default": None, "envvar": None, "show_envvar": False, "show_default": False}
        if settings.get("count"):
            again["default"] = 0
        function = click.option(*names, **again)(function)
    return function


def output_option(*formats: str) -> Callable[[F], F]:
    """``-o`` with the formats a command has; the first is the default."""
    help_text = "Format of the result on standard output."
    return option("-o", "--output", type=click.Choice(formats), default=formats[0], help=help_text)


yes_option = option("-y", "--yes", is_flag=True, help="Do not ask.")
name_argument = click.argument(
    "name", required=False, shell_complete=lambda _c, _p, text: _service_names(text), metavar="[SERVICE]"
)


def timeout_option(default: str) -> Callable[[F], F]:
    """``--timeout`` with a duration such as 90s, 10m, 1h."""
    return option("--timeout", type=Duration(), default=default, help="How long an engine may take to get ready.")


class Duration(click.ParamType[float]):
    """``90s``, ``10m``, ``1h30m`` or plain seconds, as seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds."""
        import re

        if isinstance(value, int | float):
            return float(value)
        match = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", value.strip())
        if not match or not any(match.groups()):
            self.fail(f"{value!r} is no duration; write 90s, 10m or 1h", param, ctx)
        hours, minutes, seconds = (float(part or 0) for part in match.groups())
        return hours * 3600 + minutes * 60 + seconds


def _service_names(text: str) -> list[str]:
    """Names for completion; silent when there is nothing to read."""
    from mpctl.platform.local.files import service_dirs

    return [d.name for d in service_dirs() if d.name.startswith(text)]
