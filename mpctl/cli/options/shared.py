"""Options that most commands share. Those of :data:`shared_options` may stand before or behind the command, as with
kubectl."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from mpctl.cli.options.types import Duration, F, File, Word, all_of, option
from mpctl.cli.printer import FORMATS

STRATEGIES = ("side-by-side", "in-place")  # rollout.plan.Strategy, which takes too long to load for --help

# Before the command an option only carries a flag to it: variable, files and default are read once, by the command.
shared_options = all_of(
    option(
        "--platform",
        section="Global",
        type=Word(["auto", "local", "kubernetes"]),
        default="auto",
        help="Where services run; auto: a named cluster, else a local service.",
    ),
    option(
        "-n",
        "--namespace",
        section="Global",
        metavar="NAME",
        help="Kubernetes namespace (default: the context's; local platform: any).",
    ),
    option(
        "--context",
        section="Global",
        metavar="NAME",
        shell_complete=lambda ctx, _p, text: _contexts(ctx, text),
        help="Context of the kubeconfig (default: the current one).",
    ),
    option(
        "--kubeconfig",
        section="Global",
        type=File(),
        metavar="FILE",
        help="Kubeconfig file (default: KUBECONFIG, ~/.kube/config).",
    ),
    option("--as", "as_user", section="Global", metavar="USER", help="User to impersonate on the cluster."),
    option(
        "--request-timeout",
        section="Global",
        type=Duration(),
        metavar="DURATION",
        help="Longest wait for one answer of the API server (default: 30s).",
    ),
    option(
        "--color",
        section="Output",
        type=Word(["auto", "always", "never"]),
        default="auto",
        help="Use colour.",
    ),
    option(
        "-v",
        "--verbose",
        section="Output",
        count=True,
        show_default=False,
        help="Print more; twice: with a time stamp on each line.",
    ),
    option("-q", "--quiet", section="Output", is_flag=True, help="Print only results, warnings and errors."),
    option("--debug", section="Global", is_flag=True, help="Print a stack trace with every error."),
)

output_option = option(
    "-o", "--output", section="Output", type=Word(FORMATS), default="table", help="Format of the result."
)


def own_output_option(formats: Sequence[str], *, help: str) -> Callable[[F], F]:  # noqa: A002
    """``-o`` of a command with formats of its own. MPCTL_OUTPUT and the settings files are for the others and not
    read."""
    return option("-o", "--output", "form", section="Output", type=Word(formats), envvar=None, help=help)


ask_options = all_of(
    option("-y", "--yes", section="Execution", is_flag=True, help="Do not ask for confirmation."),
    option("--no-input", section="Execution", is_flag=True, help="Never prompt; fail instead."),
)
dry_run_option = option(
    "--dry-run",
    section="Execution",
    type=Word(["none", "client", "server"]),
    default="none",
    help="Check and print the change, do nothing; server needs a cluster.",
)


def timeout_option(default: str | None) -> Callable[[F], F]:
    """``--timeout`` with a duration such as 90s, 10m, 1h; without a default it follows from the service."""
    derived = "" if default else " (default: 10m, or three measured starts)"
    help_ = f"Time for an engine to become ready{derived}."
    return option("--timeout", section="Execution", type=Duration(), metavar="DURATION", default=default, help=help_)


name_argument = click.argument(
    "name", required=False, shell_complete=lambda _c, _p, text: _service_names(text), metavar="[SERVICE]"
)

file_option = option(
    "-f", "--file", type=File(), metavar="FILE|-", help="Read a manifest instead of a running service; offline."
)


def _service_names(text: str) -> list[str]:
    """Names for completion; empty when nothing can be read."""
    from mpctl.platform.local.files import service_dirs

    return sorted({d.name for d in service_dirs() if d.name.startswith(text)})


def _contexts(ctx: click.Context, text: str) -> list[str]:
    """Contexts for completion; the kubeconfig may be named before the command or behind it."""
    from pathlib import Path

    import yaml

    from mpctl.platform.kubernetes.api.connection import kubeconfig_files

    named = ctx.params.get("kubeconfig") or ctx.find_root().params.get("kubeconfig")
    kubeconfigs = [yaml.safe_load(Path(file).read_text(encoding="utf-8")) or {} for file in kubeconfig_files(named)]
    names = {str(context["name"]) for record in kubeconfigs for context in record.get("contexts") or ()}
    return sorted(name for name in names if name.startswith(text))
