"""Published drafts per target: the shipped catalogue with the user's file merged over it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mpctl.app.change.catalogue import load_catalogue
from mpctl.app.inspect.methods import require_method
from mpctl.app.requests import DraftsRequest
from mpctl.staging.catalogue import Draft


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
    return DraftList(tuple(d for d in drafts if request.method in (None, d.method)), catalogue.sources)
