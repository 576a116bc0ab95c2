"""Options that several commands share, each declared once.

Every option can be set by flag, by environment variable, in a project file, in the user's file, in this order of
precedence. The shared ones may stand before or after the command, as with kubectl.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])

FORMATS = ("table", "wide", "json", "yaml", "name")
STRATEGIES = ("side-by-side", "in-place")  # rollout.operation.Strategy, which takes too long to load for --help


class Word(click.Choice[str]):
    """One of a few words, with did-you-mean."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word."""
        if value not in self.choices:
            import difflib

            near = difflib.get_close_matches(str(value), self.choices, n=1)
            meant = f"; did you mean {near[0]}" if near else ""
            self.fail(f"{str(value)!r} is not one of {', '.join(self.choices)}{meant}", param, ctx)
        return str(value)


class File(click.types.StringParamType):
    """A path, which shells complete."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Whatever the shell finds."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]


class Duration(click.ParamType[float]):
    """``90s``, ``10m``, ``1h30m`` or plain seconds, as seconds above 0."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds."""
        import re

        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", str(value).strip())
        if not match or not any(match.groups()):
            self.fail(f"{value!r} is no duration; write 90s, 10m or 1h30m", param, ctx)
        hours, minutes, seconds = (float(part or 0) for part in match.groups())
        total = hours * 3600 + minutes * 60 + seconds
        if not total:
            self.fail(f"{value!r} must be above 0", param, ctx)
        return total


def option(*names: str, **settings: Any) -> Callable[[F], F]:
    """A click option that also reads ``MPCTL_<NAME>`` and shows variable and default in its help."""
    long = next(n for n in names if n.startswith("--")).split("/")[0].lstrip("-")
    settings.setdefault("envvar", "MPCTL_" + long.replace("-", "_").upper())
    settings.setdefault("show_envvar", True)
    settings.setdefault("show_default", True)
    return click.option(*names, **settings)


def _all_of(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


# What stands before the command only carries a flag to it: variable, files and default are read once, by the command.
shared_options = _all_of(
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
    return option("-o", "--output", type=Word(formats), envvar=None, show_envvar=False, help=help)


ask_options = _all_of(
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


# How a draft gets into the pod; mpctl stage explains what follows.
staging_options = (
    option("--staging-mode", metavar="MODE", help="How the draft gets into the pod (default: the best available)."),
    option("--claim", metavar="NAME", help="A volume claim that may hold the draft."),
    option("--shared/--not-shared", default=None, help="Whether pods of several nodes can mount that claim."),
    option("--registry", metavar="PREFIX", help="Where an image with the draft may be pushed."),
    option("--air-gapped", is_flag=True, help="Pods reach no hub and no bucket."),
    option("--kserve", metavar="VERSION", help="KServe's release, such as 0.20."),
    option("--kubernetes", metavar="VERSION", help="Kubernetes' release, such as 1.36."),
    option("--node-disk", type=float, metavar="GIB", help="Free disk on a GPU node."),
    option("--draft-size", type=float, metavar="GIB", help="Size of the draft, where it cannot be read."),
    option("--token-secret", metavar="NAME", help="Secret with HF_TOKEN, for a download Job."),
)


def change_options(*, required: bool = True) -> Callable[[F], F]:
    """The options that describe a change."""
    config = "Settings as vLLM's --speculative-config takes them."
    return _all_of(
        option(
            "--spec",
            required=required,
            metavar="METHOD",
            shell_complete=lambda _c, _p, text: _methods(text),
            help="Method: ngram, eagle3, ...; mpctl methods lists them.",
        ),
        option("--set", multiple=True, metavar="KEY=VALUE", help="One setting of the method; repeatable."),
        option("--spec-config", metavar="JSON|@FILE", help=config),
        option("--draft", metavar="PATH|REPOSITORY|URI", help="Draft model or head; default: mpctl drafts' first."),
        option(
            "--drafts", type=File(), metavar="FILE", help="A catalogue of drafts over the one that comes with mpctl."
        ),
        option(
            "--draft-listing",
            type=File(),
            metavar="FILE",
            help="Files of a draft that is not here; docs/how-to/drafts.md says how.",
        ),
        option("--target-listing", type=File(), metavar="FILE", help="The same of the target."),
        option("--gpu", metavar="NAME", help="The GPU, to estimate the KV pool: L4, H100-SXM, ..."),
        *staging_options,
        option("--ignore", multiple=True, metavar="FINDING", help="A refusal of the preflight to override."),
    )


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


def _methods(text: str) -> list[str]:
    from mpctl.methods.table import METHODS

    return [name for name in METHODS if name.startswith(text)]
