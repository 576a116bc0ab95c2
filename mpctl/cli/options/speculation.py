"""Options that describe a change: the method, its settings, the draft."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mpctl.cli.options.staging import StagingOptions, staging_options, staging_request
from mpctl.cli.options.types import F, File, Word, all_of, option
from mpctl.errors import InputError

if TYPE_CHECKING:
    from mpctl.app.requests import SpeculationRequest

# Of mpctl.methods.preflight.drain; a service that passes them loses no request of a user.
_PATH_WARNINGS = ("answers-cut", "requests-lost", "no-disruption-budget")
_SECTION: dict[str, Any] = {"section": "Draft and staging"}


class SpeculationOptions(StagingOptions):
    """The options as click hands them over; ``spec`` is None only where it is not required."""

    spec: str | None
    set: tuple[str, ...]
    spec_config: str | None
    draft: str | None
    drafts: str | None
    draft_listing: str | None
    target_listing: str | None
    gpu: str | None
    ignore: tuple[str, ...]
    refuse: tuple[str, ...]


def change_options(*, required: bool = True) -> Callable[[F], F]:
    """The options that describe a change."""
    return all_of(
        option(
            "--spec",
            section="Speculation",
            required=required,
            metavar="METHOD|@FILE",
            shell_complete=lambda _c, _p, text: _methods(text),
            help="Method such as ngram, or its file; none removes it; auto: the plan's best.",
        ),
        option(
            "--set",
            section="Speculation",
            multiple=True,
            metavar="KEY=VALUE",
            help="Setting of the method (repeatable).",
        ),
        option(
            "--spec-config",
            section="Speculation",
            metavar="JSON|@FILE",
            help="Settings as vLLM's --speculative-config takes them.",
        ),
        option(
            "--ignore",
            section="Speculation",
            multiple=True,
            metavar="FINDING",
            help="Preflight finding to override; repeatable.",
        ),
        option(
            "--refuse",
            section="Speculation",
            multiple=True,
            type=Word(_PATH_WARNINGS),
            metavar="FINDING",
            help=f"Warning that stops the change: {', '.join(_PATH_WARNINGS)}.",
        ),
        option(
            "--draft", metavar="PATH|REPO|URI", help="Draft model or head (default: 'mpctl drafts' first).", **_SECTION
        ),
        option("--drafts", type=File(), metavar="FILE", help="Your draft catalogue, over mpctl's own.", **_SECTION),
        option(
            "--draft-listing",
            type=File(),
            metavar="FILE",
            help="Listing of a draft that cannot be read from here (docs/how-to/drafts.md).",
            **_SECTION,
        ),
        option("--target-listing", type=File(), metavar="FILE", help="The same for the target.", **_SECTION),
        option("--gpu", metavar="NAME", help="GPU to estimate the KV pool for: L4, H100-SXM, ...", **_SECTION),
        staging_options,
    )


def speculation_request(given: SpeculationOptions) -> SpeculationRequest:
    """The request of these options; ``--spec`` is given.

    Raises:
        InputError: its file cannot be used.
    """
    from mpctl.app.requests import SpeculationRequest

    spec = given["spec"] or ""
    request = SpeculationRequest(
        method=spec,
        settings=given["set"],
        config=given["spec_config"],
        draft=given["draft"],
        catalogue=given["drafts"],
        draft_listing=given["draft_listing"],
        target_listing=given["target_listing"],
        gpu=given["gpu"],
        staging=staging_request(given),
        ignored=given["ignore"],
        refused=given["refuse"],
    )
    if not spec.startswith("@"):
        return request
    from mpctl.app.change.resolve import spec_of_file

    if given["spec_config"]:
        raise InputError("cannot be combined with a file behind --spec", field="--spec-config")
    return spec_of_file(spec[1:], request)


def _methods(text: str) -> list[str]:
    from mpctl.methods.table import METHODS

    return [name for name in METHODS if name.startswith(text)]
