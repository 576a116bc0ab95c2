"""``mpctl drafts``: published drafts per target, and what is known of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mpctl.cli.options.shared import output_option, shared_options
from mpctl.cli.options.types import File, option
from mpctl.cli.settings import terminal_of

if TYPE_CHECKING:
    from mpctl.staging.catalogue import Catalogue, Draft

drafts_option = option(
    "--drafts", type=File(), metavar="FILE", help="A catalogue of your own over the one that comes with mpctl."
)


@click.command("drafts")
@click.argument(
    "target",
    required=False,
    metavar="[TARGET]",
    shell_complete=lambda _c, _p, text: _targets(text),
)
@option("--method", metavar="METHOD", help="Only drafts for this method.")
@drafts_option
@output_option
@shared_options
@click.pass_context
def command(
    ctx: click.Context, /, target: str | None, method: str | None, drafts: str | None, output: str, **shared: Any
) -> None:
    """List published drafts per target: method, size, K, expected acceptance length, licence, needs.

    An acceptance length counts the token that verification itself yields, so 1.0 is no gain.

    \b
    Examples:
      mpctl drafts                             every target
      mpctl drafts Qwen/Qwen3-8B -o wide       one target, with sources and warnings
      mpctl drafts --drafts my-drafts.yaml     with a file of your own
    """
    terminal = terminal_of(ctx, shared)
    from mpctl.cli.catalogue import load_catalogue, record_of
    from mpctl.errors import InputError
    from mpctl.methods import METHODS

    if method is not None and method not in METHODS:
        import difflib

        near = difflib.get_close_matches(method, list(METHODS), n=1)
        hint = f"did you mean {near[0]}?" if near else f"methods: {', '.join(METHODS)}"
        raise InputError(f"unknown method '{method}'", field="--method", hint=hint)
    catalogue = load_catalogue(drafts)
    found = _chosen(catalogue, target, method)
    if output in ("json", "yaml"):
        body = {"items": [record_of(draft) for draft in found], "sources": dict(catalogue.sources)}
        terminal.record("DraftList", body, output)
    elif output == "name":
        terminal.result("\n".join(draft.name for draft in found))
    elif found:
        terminal.table(*_table(found, wide=output == "wide", one=target is not None))
        if output != "wide":
            terminal.note(
                f"{len(found)} draft{'' if len(found) == 1 else 's'}; -o wide shows sources, notes and warnings"
            )
        for draft in found if target is not None and output != "wide" else ():
            if draft.warn:
                terminal.warn(f"{draft.name}: {draft.warn}")
    else:
        terminal.note(f"no draft for {method} is known" + (f" of {target}" if target else ""))


def _chosen(catalogue: Catalogue, target: str | None, method: str | None) -> list[Draft]:
    every = [one for group in catalogue.drafts.values() for one in group]
    found = every if target is None else list(catalogue.of(target))
    return [one for one in found if method in (None, one.method)]


def _table(drafts: list[Draft], *, wide: bool, one: bool) -> tuple[list[str], list[list[str]]]:
    header = ["DRAFT", "METHOD", "K", "SIZE", "EXPECTED TOKENS PER STEP", "LICENCE", "NEEDS"]
    rows = []
    for draft in drafts:
        expected = "; ".join(length.describe() for length in (draft.expected if wide else draft.expected[:1]))
        row = [
            draft.name,
            draft.method,
            "unknown" if draft.k is None else str(draft.k),
            "unknown" if draft.size_b is None else f"{draft.size_b:g}B",
            expected or "unknown",
            draft.licence or "unknown",
            ", ".join(draft.needs()) or "-",
        ]
        if wide:
            said = "; ".join(filter(None, (draft.warn, draft.note)))
            row += [said or "-", ", ".join(draft.sources) or "-"]
        rows.append(row if one else [draft.target, *row])
    header += ["REMARKS", "SOURCES"] if wide else []
    return header if one else ["TARGET", *header], rows


def _targets(text: str) -> list[str]:
    from mpctl.staging.catalogue_file import shipped

    return [name for name in shipped().drafts if name.lower().startswith(text.lower())]
