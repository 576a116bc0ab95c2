"""The draft catalogue of a command: the shipped one with the user's file merged over it."""

from __future__ import annotations

from mpctl.app.files import read_file
from mpctl.staging.catalogue import Catalogue
from mpctl.staging.catalogue_file import read_catalogue, shipped


def load_catalogue(path: str | None) -> Catalogue:
    """Return the shipped catalogue with the user's file merged over it.

    Raises:
        InputError: the file cannot be read or used; with file, line and field.
    """
    base = shipped()
    if path is None:
        return base
    return base.merged(read_catalogue(read_file(path, "--drafts"), path, base.sources))
