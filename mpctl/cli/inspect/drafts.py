"""``mpctl drafts``: published drafts per target, with their known properties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mpctl.cli.context import CliContext
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import output_option, shared_options
from mpctl.cli.options.types import File, option
from mpctl.cli.printer import columns
from mpctl.cli.settings import in_context

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mpctl.app.inspect.methods import DraftList
    from mpctl.staging.catalogue import Draft

_HEADER = ["DRAFT", "METHOD", "K", "SIZE", "EXPECTED TOKENS PER STEP", "LICENCE", "NEEDS"]


@click.command("drafts", cls=SectionedCommand)
@click.argument(
    "target",
    required=False,
    metavar="[TARGET]",
    shell_complete=lambda _c, _p, text: _targets(text),
)
@option("--method", metavar="METHOD", help="List only drafts for this method (default: all).")
@option(
    "--drafts",
    "catalogue_file",
    type=File(),
    metavar="FILE",
    help="Catalogue of your own, merged over the shipped one (docs/how-to/drafts.md).",
)
@output_option
@shared_options
@in_context
def command(context: CliContext, /, *, target: str | None, method: str | None, catalogue_file: str | None) -> None:
    """List published drafts per target: method, size, K, expected tokens per step, licence, requirements.

    \b
    Examples:
      mpctl drafts                             every target
      mpctl drafts Qwen/Qwen3-8B -o wide       one target, with sources and warnings
      mpctl drafts --drafts my-drafts.yaml     with a catalogue of your own

    Tokens per step include the token that verification itself yields, so 1.0 is no gain.
    """
    from mpctl.app.inspect.methods import list_drafts
    from mpctl.app.requests import DraftsRequest

    listed = list_drafts(DraftsRequest(target, method, catalogue_file))
    context.emit(
        "DraftList",
        record=lambda: {"items": [_record(draft) for draft in listed.drafts], "sources": dict(listed.sources)},
        names=lambda: [draft.name for draft in listed.drafts],
        table=lambda wide: _table(listed.drafts, wide=wide, one_target=target is not None),
    )
    if context.output == "table":
        _note(context, listed, target, method)


def _note(context: CliContext, listed: DraftList, target: str | None, method: str | None) -> None:
    terminal, number = context.terminal, len(listed.drafts)
    if not number:
        of_method, of_target = f" for {method}" if method else "", f" of {target}" if target else ""
        terminal.note(f"no draft{of_method}{of_target} in the catalogue")
        return
    terminal.note(f"{number} draft{'' if number == 1 else 's'}; -o wide shows sources, notes and warnings")
    for draft in listed.drafts if target is not None else ():
        if draft.warn:
            terminal.warn(f"{draft.name}: {draft.warn}")


def _table(drafts: Sequence[Draft], *, wide: bool, one_target: bool) -> str:
    if not drafts:
        return ""
    header = [*_HEADER, *(("REMARKS", "SOURCES") if wide else ())]
    rows = [_row(draft, wide=wide) for draft in drafts]
    if not one_target:
        header, rows = ["TARGET", *header], [[d.target, *row] for d, row in zip(drafts, rows, strict=True)]
    return columns([header, *rows])


def _row(draft: Draft, *, wide: bool) -> list[str]:
    expected = "; ".join(length.describe() for length in (draft.expected if wide else draft.expected[:1]))
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


def _record(draft: Draft) -> dict[str, Any]:
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
