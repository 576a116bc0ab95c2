"""Speculation methods and published drafts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from mpctl.app.change.resolve import load_catalogue
from mpctl.app.inspect_requests import DraftsRequest, MethodRequest
from mpctl.errors import InputError, nearest
from mpctl.methods import METHODS, build
from mpctl.staging.catalogue import Draft


@dataclass(frozen=True, slots=True)
class MethodSetting:
    """The setting of one method, as vLLM takes it; ``where`` it is written."""

    text: str
    where: str = "argument of --speculative-config"
    source: str = "vLLM docs, Speculative Decoding"


def write_setting(request: MethodRequest) -> MethodSetting:
    """Return the setting of a method.

    Raises:
        InputError: the method or a setting is unknown.
    """
    spec, _ = build(request.method, draft=request.draft, sets=request.settings)
    return MethodSetting(json.dumps(spec.config()))


def require_method(name: str | None, field: str) -> None:
    """Refuse an unknown method, with the nearest known name.

    Raises:
        InputError: the method is unknown.
    """
    if name is None or name in METHODS:
        return
    near = nearest(name, METHODS)
    hint = f"did you mean {near}?" if near else f"methods: {', '.join(METHODS)}"
    raise InputError(f"unknown method {name!r}", field=field, hint=hint)


@dataclass(frozen=True, slots=True)
class DraftList:
    """Drafts of the catalogue, and the sources that they cite by name."""

    drafts: tuple[Draft, ...]
    sources: Mapping[str, str]


def list_drafts(request: DraftsRequest) -> DraftList:
    """Return the drafts of one target or of all, of one method or of all.

    Raises:
        InputError: the method is unknown, or the catalogue file cannot be used.
    """
    require_method(request.method, "--method")
    catalogue = load_catalogue(request.catalogue_file)
    if request.target is None:
        drafts = [draft for group in catalogue.drafts.values() for draft in group]
    else:
        drafts = list(catalogue.of(request.target))
    return DraftList(
        tuple(d for d in drafts if request.method in (None, d.method)), catalogue.sources
    )
