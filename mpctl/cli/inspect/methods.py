"""``mpctl methods``: the values of ``--spec``, and the same settings in the words of other engines."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from mpctl import commands
from mpctl.cli.context import CliContext
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import output_option, shared_options
from mpctl.cli.options.types import Word, option
from mpctl.cli.printer import columns
from mpctl.cli.settings import in_context
from mpctl.errors import InputError

if TYPE_CHECKING:
    from mpctl.app.inspect.methods import MethodSetting, Support

_ENGINES = ("vllm", "sglang", "tensorrt-llm")


@click.command("methods", cls=SectionedCommand)
@click.argument("method", required=False, metavar="[METHOD]")
@option("--engine", type=Word(_ENGINES), default=_ENGINES[0], help="Engine whose setting is printed.")
@option("--draft", metavar="PATH|REPOSITORY", help="Draft to name in the setting of METHOD.")
@option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Setting of METHOD; repeatable.")
@output_option
@shared_options
@in_context
def command(
    context: CliContext, /, *, method: str | None, engine: str, draft: str | None, settings: tuple[str, ...]
) -> None:
    """List speculation methods, their requirements and defaults; with METHOD, print its setting.

    \b
    Examples:
      mpctl methods
      mpctl methods eagle3 --draft org/head
      mpctl methods eagle3 --draft org/head --engine sglang
      mpctl methods --engine tensorrt-llm        the methods that TensorRT-LLM can run

    Rollouts need vLLM, whose counters the gate reads. --engine writes the same setting for SGLang or TensorRT-LLM and
    refuses by name what they cannot express.
    """
    from mpctl.app.inspect.methods import support_of, write_setting
    from mpctl.app.requests import MethodRequest

    if method is not None:
        _emit_setting(context, method, write_setting(MethodRequest(method, engine, draft, settings)))
        return
    for given, flag in ((draft, "--draft"), (settings, "--set")):
        if given:
            raise InputError(
                "needs a METHOD", field=flag, hint=commands.line("methods", "METHOD", "--draft", "org/head")
            )
    if engine == "vllm":
        _emit_methods(context)
    else:
        _emit_support(context, support_of(engine))


def _emit_setting(context: CliContext, method: str, setting: MethodSetting) -> None:
    context.emit(
        "MethodSetting",
        record=lambda: asdict(setting),
        names=lambda: [method],
        table=lambda _wide: setting.text,
    )
    context.terminal.note(f"{setting.where} ({setting.source})")


def _emit_support(context: CliContext, support: Support) -> None:
    rows = [[name, reason or "yes"] for name, reason in support.unsupported.items()]
    context.emit(
        "MethodList",
        record=lambda: {
            "engine": support.engine,
            "source": support.source,
            "items": [{"name": name, "unsupported": reason} for name, reason in support.unsupported.items()],
        },
        names=lambda: [name for name, reason in support.unsupported.items() if reason is None],
        table=lambda _wide: columns([["METHOD", support.title.upper()], *rows]),
    )
    context.terminal.note(f"source: {support.source}; a rollout needs vLLM, whose counters the gate reads")


def _emit_methods(context: CliContext) -> None:
    from mpctl.methods.table import METHODS

    rows = [
        [m.name, m.needs_draft, json.dumps(dict(m.defaults)) if m.defaults else "-", m.summary]
        for m in METHODS.values()
    ]
    context.emit(
        "MethodList",
        record=lambda: {
            "items": [
                {"name": m.name, "draft": m.needs_draft, "defaults": dict(m.defaults), "summary": m.summary}
                for m in METHODS.values()
            ]
        },
        names=lambda: METHODS,
        table=lambda _wide: columns([["METHOD", "DRAFT", "DEFAULTS", "SUMMARY"], *rows]),
    )
