"""Methods and published drafts: ``mpctl methods`` and ``mpctl drafts``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from mpctl import commands
from mpctl.app.inspect_requests import DraftsRequest, MethodRequest
from mpctl.cli.command import OUTPUT, command
from mpctl.cli.context import CliContext
from mpctl.cli.printer import columns
from mpctl.errors import InputError
from mpctl.formatting import plural
from mpctl.json_types import Json

if TYPE_CHECKING:
    from mpctl.app.inspect.methods import DraftList
    from mpctl.staging.catalogue import Draft

_HEADER = ["DRAFT", "METHOD", "K", "SIZE", "EXPECTED TOKENS PER STEP", "LICENCE", "NEEDS"]
_KNOWN_BAD = "known-bad"  # in place of a method


@command(
    "methods",
    click.Argument(["method"], required=False, metavar="[METHOD|known-bad]"),
    MethodRequest,
    OUTPUT,
)
def methods(context: CliContext, /, request: MethodRequest) -> None:
    """List speculation methods, their requirements and defaults; with METHOD, print its setting.

    \b
    Examples:
      mpctl methods
      mpctl methods eagle3 --draft org/head
      mpctl methods ngram --set num_speculative_tokens=3
      mpctl methods known-bad                  combinations that fail, by release
    """
    from mpctl.app.inspect.methods import write_setting

    named = request.method if request.method != _KNOWN_BAD else ""
    if named:
        setting = write_setting(request)
        context.emit(
            "MethodSetting",
            record=lambda: asdict(setting),
            names=lambda: [named],
            table=lambda _wide: setting.text,
        )
        context.terminal.note(f"{setting.where} ({setting.source})")
        return
    for value, flag in ((request.draft, "--draft"), (request.settings, "--set")):
        if value:
            hint = commands.line("methods", "METHOD", "--draft", "org/head")
            raise InputError("needs a METHOD", field=flag, hint=hint)
    if request.method:
        _emit_known_bad(context)
        return
    _emit_methods(context)


def _emit_methods(context: CliContext) -> None:
    from mpctl.methods.table import METHODS

    rows = [
        [
            m.name,
            m.needs_draft,
            m.licence,
            json.dumps(dict(m.defaults)) if m.defaults else "-",
            m.summary,
        ]
        for m in METHODS.values()
    ]
    context.emit(
        "MethodList",
        record=lambda: {
            "items": [
                {
                    "name": m.name,
                    "draft": m.needs_draft,
                    "licence": m.licence,
                    "notice": m.notice or None,
                    "defaults": dict(m.defaults),
                    "summary": m.summary,
                }
                for m in METHODS.values()
            ]
        },
        names=lambda: METHODS,
        table=lambda _wide: columns([["METHOD", "DRAFT", "LICENCE", "DEFAULTS", "SUMMARY"], *rows]),
    )


def _emit_known_bad(context: CliContext) -> None:
    from mpctl.methods.preflight.known_bad import shipped_known_bad

    shipped = shipped_known_bad()
    rows = [
        [
            r.id,
            ", ".join(r.methods) or "any",
            ", ".join(r.models) or "any",
            ", ".join(r.features) or "-",
            r.releases,
        ]
        for r in shipped.rows
    ]
    context.emit(
        "KnownBadList",
        record=lambda: {
            "date": shipped.date,
            "source": shipped.source,
            "items": [
                {
                    "id": row.id,
                    "engine": row.engine,
                    "methods": list(row.methods),
                    "models": list(row.models),
                    "features": list(row.features),
                    "requests": row.requests or None,
                    "releases": row.releases,
                    "established": row.established,
                    "history": row.history,
                    "effect": row.effect,
                    "confidence": row.confidence,
                    "thread": row.thread,
                    "todo": row.todo,
                }
                for row in shipped.rows
            ],
        },
        names=lambda: [row.id for row in shipped.rows],
        table=lambda _wide: columns([["ID", "METHODS", "MODELS", "FEATURES", "RELEASES"], *rows]),
    )
    context.terminal.note(
        f"{len(shipped.rows)} combinations of {shipped.date} ({shipped.source}); -o json has effects and threads"
    )


_TARGET = click.Argument(
    ["target"],
    required=False,
    metavar="[TARGET]",
    shell_complete=lambda _c, _p, text: _targets(text),
)


@command("drafts", _TARGET, DraftsRequest, OUTPUT)
def drafts(context: CliContext, /, request: DraftsRequest) -> None:
    """List published drafts per target: method, size, K, expected tokens per step, licence, requirements.

    \b
    Examples:
      mpctl drafts                             every target, a page at a time
      mpctl drafts Qwen/Qwen3-8B -o wide       one target, with sources and warnings
      MPCTL_DRAFTS=own.yaml mpctl drafts       with a catalogue of your own

    Tokens per step include the token that verification itself yields, so 1.0 is no gain.
    """
    from mpctl.app.inspect.methods import list_drafts

    listed = list_drafts(request)
    context.terminal.pages = True
    context.emit(
        "DraftList",
        record=lambda: {
            "items": [_record(draft) for draft in listed.drafts],
            "sources": dict(listed.sources),
        },
        names=lambda: [draft.name for draft in listed.drafts],
        table=lambda wide: _table(listed.drafts, wide=wide, one_target=request.target is not None),
    )
    if context.output == "table":
        _note(context, listed, request.target, request.method)


def _note(context: CliContext, listed: DraftList, target: str | None, method: str | None) -> None:
    terminal, number = context.terminal, len(listed.drafts)
    if not number:
        of_method, of_target = f" for {method}" if method else "", f" of {target}" if target else ""
        terminal.note(f"no draft{of_method}{of_target} in the catalogue")
        return
    terminal.note(f"{plural(number, 'draft')}; -o wide shows sources, notes and warnings")
    for draft in listed.drafts if target is not None else ():
        if draft.warn:
            terminal.warn(f"{draft.name}: {draft.warn}")


def _table(listed: Sequence[Draft], *, wide: bool, one_target: bool) -> str:
    if not listed:
        return ""
    header = [*_HEADER, *(("REMARKS", "SOURCES") if wide else ())]
    rows = [_row(draft, wide=wide) for draft in listed]
    if not one_target:
        header, rows = (
            ["TARGET", *header],
            [[d.target, *row] for d, row in zip(listed, rows, strict=True)],
        )
    return columns([header, *rows])


def _row(draft: Draft, *, wide: bool) -> list[str]:
    expected = "; ".join(
        length.describe() for length in (draft.expected if wide else draft.expected[:1])
    )
    remarks = "; ".join(filter(None, (draft.warn, draft.note)))
    return [
        draft.name,
        draft.method,
        "unknown" if draft.k is None else str(draft.k),
        "unknown" if draft.size_b is None else f"{draft.size_b:g}B",
        expected or "unknown",
        draft.licence or "unknown",
        ", ".join(draft.needs()) or "-",
        *((remarks or "-", ", ".join(draft.sources) or "-") if wide else ()),
    ]


def _record(draft: Draft) -> Json:
    """Return a draft for programs; an unknown property is null."""
    return {
        "target": draft.target,
        "draft": draft.name,
        "method": draft.method,
        "numSpeculativeTokens": draft.k,
        "numSpeculativeTokensFp8Target": draft.k_fp8_target,
        "sizeBillions": draft.size_b,
        "loadedGib": draft.loaded_gib,
        "kvPoolFactor": draft.kv_pool_factor,
        "contextTokens": draft.context,
        "expected": [
            {
                "k": expectation.k,
                "dataset": expectation.dataset,
                "temperature": expectation.temperature,
                "tokensPerStep": expectation.tokens,
            }
            for expectation in draft.expected
        ],
        "perPositionAcceptance": list(draft.per_position),
        "engine": draft.engine,
        "plugin": draft.plugin,
        "minVllm": draft.min_vllm,
        "targetVariant": draft.variant,
        "licence": draft.licence,
        "note": draft.note,
        "warning": draft.warn,
        "sources": list(draft.sources),
    }


def _targets(text: str) -> list[str]:
    from mpctl.staging.catalogue_file import shipped

    return [name for name in shipped().drafts if name.lower().startswith(text.lower())]
