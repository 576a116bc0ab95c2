"""Options that describe a change: the method, its settings, the draft."""

from __future__ import annotations

from collections.abc import Callable

from mpctl.cli.options.staging import staging_options
from mpctl.cli.options.types import F, File, all_of, option


def change_options(*, required: bool = True) -> Callable[[F], F]:
    """The options that describe a change."""
    config = "Settings as vLLM's --speculative-config takes them."
    return all_of(
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


def _methods(text: str) -> list[str]:
    from mpctl.methods.table import METHODS

    return [name for name in METHODS if name.startswith(text)]
