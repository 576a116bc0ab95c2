"""``mpctl methods``: the values of ``--spec`` and their settings."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from mpctl import commands
from mpctl.cli.context import CliContext
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import output_option, shared_options
from mpctl.cli.options.types import option
from mpctl.cli.printer import columns
from mpctl.cli.settings import in_context
from mpctl.errors import InputError

if TYPE_CHECKING:
    from mpctl.app.inspect.methods import MethodSetting


@click.command("methods", cls=SectionedCommand)
@click.argument("method", required=False, metavar="[METHOD]")
@option("--draft", metavar="PATH|REPOSITORY", help="Draft to name in the setting of METHOD.")
@option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Setting of METHOD; repeatable.")
@output_option
@shared_options
@in_context
def command(context: CliContext, /, *, method: str | None, draft: str | None, settings: tuple[str, ...]) -> None:
    """List speculation methods, their requirements and defaults; with METHOD, print its setting.

    \b
    Examples:
      mpctl methods
      mpctl methods eagle3 --draft org/head
      mpctl methods ngram --set num_speculative_tokens=3
    """
    from mpctl.app.inspect.methods import write_setting
    from mpctl.app.requests import MethodRequest

    if method is not None:
        _emit_setting(context, method, write_setting(MethodRequest(method, draft, settings)))
        return
    for given, flag in ((draft, "--draft"), (settings, "--set")):
        if given:
            raise InputError(
                "needs a METHOD", field=flag, hint=commands.line("methods", "METHOD", "--draft", "org/head")
            )
    _emit_methods(context)


def _emit_setting(context: CliContext, method: str, setting: MethodSetting) -> None:
    context.emit(
        "MethodSetting",
        record=lambda: asdict(setting),
        names=lambda: [method],
        table=lambda _wide: setting.text,
    )
    context.terminal.note(f"{setting.where} ({setting.source})")


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
