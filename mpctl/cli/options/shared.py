"""Options that most commands share. Those of :data:`shared_options` may stand before or behind the command, as with
kubectl."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from mpctl.cli.options.types import Duration, F, File, Word, all_of, option
from mpctl.cli.printer import FORMATS

STRATEGIES = ("side-by-side", "in-place")  # rollout.operation.Strategy, which takes too long to load for --help

# What stands before the command only carries a flag to it: variable, files and default are read once, by the command.
shared_options = all_of(
    option(
        "--platform",
        type=Word(["auto", "local", "kubernetes"]),
        default="auto",
        help="Where services run; auto: a cluster where one is named, else this machine where a service is up.",
    ),
    option(
        "-n",
        "--namespace",
        metavar="NAME",
        help="Namespace of the service; default: on a cluster that of the context, on this machine wherever it is.",
    ),
    option(
        "--context",
        metavar="NAME",
        shell_complete=lambda ctx, _p, text: _contexts(ctx, text),
        help="Context of the kubeconfig.",
    ),
    option("--kubeconfig", type=File(), metavar="FILE", help="Path of the kubeconfig."),
    option("--as", "as_user", metavar="USER", help="Act on the cluster as another user."),
    option("--request-timeout", type=Duration(), metavar="DURATION", help="Longest wait for one answer; default 30s."),
    option("--color", type=Word(["auto", "always", "never"]), default="auto", help="Colour on a terminal."),
    option("-v", "--verbose", count=True, help="Say more; twice: with the time before each line."),
    option("-q", "--quiet", is_flag=True, help="Say nothing but results, warnings and errors."),
    option("--debug", is_flag=True, help="Show a stack trace with every error."),
)

output_option = option(
    "-o", "--output", type=Word(FORMATS), default="table", help="Format of the result on standard output."
)


def own_output_option(formats: Sequence[str], *, help: str) -> Callable[[F], F]:  # noqa: A002
    """``-o`` of a command whose formats are not those of the others. What is set for all of them, in MPCTL_OUTPUT or a
    settings file, is not meant for it and not read."""
    return option("-o", "--output", "form", type=Word(formats), envvar=None, show_envvar=False, help=help)


ask_options = all_of(
    option("-y", "--yes", is_flag=True, help="Do not ask."),
    option("--no-input", is_flag=True, help="Never ask; what would need an answer fails."),
)
dry_run_option = option(
    "--dry-run",
    type=Word(["none", "client", "server"]),
    default="none",
    help="client: all checks and the change, but nothing is done. server: needs a cluster.",
)


def timeout_option(default: str | None) -> Callable[[F], F]:
    """``--timeout`` with a duration such as 90s, 10m, 1h; without a default it follows from the service."""
    derived = "" if default else "; default: 10m, in a cluster three times a start measured there where that is longer"
    help_ = f"How long an engine may take to get ready{derived}."
    return option("--timeout", type=Duration(), default=default, help=help_)


name_argument = click.argument(
    "name", required=False, shell_complete=lambda _c, _p, text: _service_names(text), metavar="[SERVICE]"
)

file_option = option(
    "-f", "--file", type=File(), metavar="FILE|-", help="A manifest in place of a live service; contacts nothing."
)


def _service_names(text: str) -> list[str]:
    """Names for completion; silent when there is nothing to read."""
    from mpctl.platform.local.files import service_dirs

    return sorted({d.name for d in service_dirs() if d.name.startswith(text)})


def _contexts(ctx: click.Context, text: str) -> list[str]:
    """Contexts for completion; the kubeconfig may be named before the command or behind it."""
    from pathlib import Path

    import yaml

    from mpctl.platform.kubernetes.api.connection import kubeconfig_files

    named = ctx.params.get("kubeconfig") or ctx.find_root().params.get("kubeconfig")
    found = [yaml.safe_load(Path(file).read_text(encoding="utf-8")) or {} for file in kubeconfig_files(named)]
    names = {str(context["name"]) for record in found for context in record.get("contexts") or ()}
    return sorted(name for name in names if name.startswith(text))
